"""Services: defaults and validation. Pure.

A Service is a plain object here: it gets no address, and nothing listens for it. Clients such as Spark create headless
ones, and delete them by label.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from actors.kube.names import dns_label_problem
from actors.local.schema.statuses import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.local.store.history import Object

__all__ = ["defaulted_spec", "problems"]

_EXTERNAL: Final = "ExternalName"
_TYPES: Final = ("ClusterIP", _EXTERNAL, "LoadBalancer", "NodePort")
_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_HEADLESS: Final = "None"


def defaulted_spec(spec: Object) -> Object:
    """Return the spec with its defaults: a port's target is the same port."""
    result = {"type": "ClusterIP", "sessionAffinity": "None", **spec}
    if result["type"] != _EXTERNAL:
        result = {"internalTrafficPolicy": "Cluster", **result}
    if "ports" in spec:
        result["ports"] = [{"protocol": "TCP", "targetPort": port.get("port", 0), **port} for port in spec["ports"]]
    return result


def problems(spec: Mapping[str, Any]) -> Iterator[Cause]:
    """Return the problems of a service's spec."""
    kind, ports = spec["type"], spec.get("ports", ())
    if kind not in _TYPES:
        yield Cause.unsupported("spec.type", kind, _TYPES)
    if kind == _EXTERNAL and not spec.get("externalName"):
        yield Cause.required("spec.externalName")
    if not ports and kind != _EXTERNAL and spec.get("clusterIP") != _HEADLESS:
        yield Cause.required("spec.ports")
    for index, port in enumerate(ports):
        yield from _port(f"spec.ports[{index}]", port, named=len(ports) > 1)


def _port(where: str, port: Mapping[str, Any], *, named: bool) -> Iterator[Cause]:
    name = port.get("name", "")
    if named and not name:
        yield Cause.required(f"{where}.name")
    if name and (problem := dns_label_problem(name)):
        yield Cause.invalid(f"{where}.name", name, problem)
    for field in ("port", "targetPort"):
        number = port.get(field, 0)
        if isinstance(number, int) and not 0 < number < 65536:
            yield Cause.invalid(f"{where}.{field}", number, "must be between 1 and 65535, inclusive")
    if port["protocol"] not in _PROTOCOLS:
        yield Cause.unsupported(f"{where}.protocol", port["protocol"], _PROTOCOLS)
