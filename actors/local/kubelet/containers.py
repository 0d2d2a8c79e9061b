"""What a container becomes as a process of this machine, and how its life reads in a pod's status. Pure functions.

Everything that a process cannot be given is refused by `environment` and `unsupported` with words that name it; what is
only ignored, because a pod runs without it, is listed by `ignored`.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from actors.local.schema.nesting import look

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "CannotCreate",
    "argv",
    "environment",
    "expand",
    "ignored",
    "inherited_environment",
    "log_tail",
    "signal_name",
    "unsupported",
]

_BUILT_IN_EXECUTOR: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("executor.py")))

_INHERITED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    }
)
"""What an image would bring along: where programs and libraries are, and the locale. Not the rest: a container never
sees its host's environment, in which credentials may stand."""

_PLAIN_FIELDS: Final = frozenset(
    {
        *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
        *("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"),
    }
)
"""A pod has one address here, so that a list of them is that one."""
_KEYED_FIELD: Final = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")

_TAIL_LINES: Final = 80
_TAIL_BYTES: Final = 2048
"""Of `terminationMessagePolicy: FallbackToLogsOnError`, https://kubernetes.io/docs/tasks/debug/debug-application/
determine-pod-failure-reason/: "limited to 2048 bytes or 80 lines, whichever is smaller"."""


class CannotCreate(Exception):  # noqa: N818 - reads as the waiting reason that it becomes
    """The container asks for something that a process cannot be given; the message names it."""


def inherited_environment() -> dict[str, str]:
    """The part of this process's environment that stands for what an image would define."""
    return {name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith("LC_")}


def argv(container: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    """`command` and `args`, expanded. Instead of an image's entrypoint, the built-in executor runs."""
    command = [expand(word, env) for word in container.get("command") or ()]
    return [*(command or _BUILT_IN_EXECUTOR), *(expand(word, env) for word in container.get("args") or ())]


def environment(container: Mapping[str, Any], pod: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    """The container's environment: `base`, `HOSTNAME`, then its `env` in order, each able to refer to those before it.

    Raises `CannotCreate` for a source that this kubelet does not have.
    """
    if container.get("envFrom"):
        raise CannotCreate("envFrom is not supported by the local kubelet")
    defined = {"HOSTNAME": pod["metadata"]["name"]}
    for entry in container.get("env") or ():
        if source := entry.get("valueFrom"):
            defined[entry["name"]] = _value_from(entry["name"], source, pod)
        else:
            defined[entry["name"]] = expand(entry.get("value") or "", defined)
    return {**base, **defined}


def expand(text: str, env: Mapping[str, str]) -> str:
    """`$(VAR)` becomes its value, `$$` becomes `$`; a reference to what is not defined stays as it is.

    The rules of Kubernetes' `third_party/forked/golang/expansion`.
    """
    result: list[str] = []
    position = 0
    while (found := text.find("$", position)) >= 0 and found + 1 < len(text):
        result.append(text[position:found])
        end = text.find(")", found) if text[found + 1] == "(" else -1
        if end >= 0:
            result.append(env.get(text[found + 2 : end], text[found : end + 1]))
            position = end + 1
        else:
            result.append("$" if text[found + 1] == "$" else text[found : found + 2])
            position = found + 2
    return "".join((*result, text[position:]))


def _value_from(name: str, source: Mapping[str, Any], pod: Mapping[str, Any]) -> str:
    field = source.get("fieldRef")
    if field is None:
        kinds = ", ".join(sorted(source))
        raise CannotCreate(f"env {name}: valueFrom.{kinds} is not supported by the local kubelet, only fieldRef is")
    path = str(field.get("fieldPath"))
    if path in _PLAIN_FIELDS:
        return str(look(pod, *path.removesuffix("s").split(".")) or "")
    if keyed := _KEYED_FIELD.fullmatch(path):
        return str(look(pod, "metadata", *keyed.groups()) or "")
    raise CannotCreate(f"env {name}: unsupported fieldPath: {path}")


def unsupported(pod: Mapping[str, Any]) -> str | None:
    """Why this kubelet cannot run the pod at all, or None."""
    for container in pod["spec"].get("initContainers") or ():
        if container.get("restartPolicy"):
            return (
                f"init container {container['name']} has a restartPolicy: the local kubelet has no sidecar containers"
            )
    return None


def ignored(pod: Mapping[str, Any]) -> list[str]:
    """Fields that the pod is run without, because a process of this machine has no such thing."""
    return sorted(set(_ignored(pod["spec"])))


def _ignored(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (field for field in ("activeDeadlineSeconds", "nodeSelector", "affinity") if spec.get(field))
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        for field in ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle"):
            if container.get(field):
                yield field
        mounts = (mount["mountPath"] for mount in container.get("volumeMounts") or () if mount.get("mountPath"))
        if any(not path.startswith("/var/run/secrets/kubernetes.io/") for path in mounts):
            yield "volumeMounts"
        if (container.get("resources") or {}).get("limits"):
            yield "resources.limits"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; the number for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def log_tail(log: Path) -> str:
    """The end of a container's log as its termination message."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:])
