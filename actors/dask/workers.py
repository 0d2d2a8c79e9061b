"""What an executor runs to be a Dask worker: the command, its arguments, and the settings of its pod. Pure."""

from __future__ import annotations

import math
import sys
from datetime import timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from dask.system import CPU_COUNT
from dask.utils import parse_bytes, parse_timedelta
from distributed.system import MEMORY_LIMIT

from actors.errors import SettingsError
from actors.kube.quantities import parse_quantity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

__all__ = ["WORKER_MODULE", "fleet_values", "group_values", "tls_options", "worker_args"]

WORKER_MODULE: Final = "distributed.cli.dask_worker"

DEATH_TIMEOUT: Final = "60"
"""Seconds until a worker that cannot reach the scheduler ends, so that none is left without a driver."""

DRAIN_TIMEOUT: Final = "60s"
"""How long a worker may drain: less than the two minutes that clouds give a spot node, or not much less."""

_OWN: Final = frozenset({"n_workers", "nthreads", "memory_limit", "worker_options", "worker_command"})
"""The keys of a worker group that are no settings of a profile."""

_ON_LOOPBACK: Final = {"host": "127.0.0.1", "dashboard-address": "127.0.0.1:0"}
"""Options of workers that are processes of this machine: who reaches a worker makes it run anything."""

_TLS_FILES: Final = {"ca_file": "tls-ca-file", "cert": "tls-cert", "key": "tls-key"}


def worker_args(
    *,
    protocol: str,
    nthreads: int | None,
    memory_limit: str | int | None,
    resources: Mapping[str, Any] | None,
    nanny: bool,
    options: Mapping[str, Any],
    share: int | None = None,
) -> tuple[str, ...]:
    """Return the arguments of `dask worker`. The kubelet fills in the executor's id and the scheduler's address.

    Args:
        protocol: of the scheduler's address.
        nthreads: None: the CPUs that `resources` has, rounded up; 1 if it has none.
        memory_limit: None: the memory that `resources` has; what Dask finds if it has none.
        resources: of the container, as in the settings.
        nanny: a second process watches the worker.
        options: more of Dask's options by name: `{"lifetime": "1h", "dashboard": True}`.
        share: bytes that each thread has where neither `memory_limit` nor `resources` says anything; None: what Dask
            finds.

    Raises:
        SettingsError: a number of threads, or an amount of memory, is none.
    """
    threads = _threads(nthreads, resources)
    flags: dict[str, Any] = {
        "name": "$(EXECUTOR_ID)",
        "nthreads": threads,
        "memory-limit": _memory(memory_limit, resources, None if share is None else share * threads),
        "nanny": nanny,
        "dashboard": False,
        "death-timeout": DEATH_TIMEOUT,
    }
    flags |= {name.replace("_", "-"): value for name, value in options.items()}
    args = [f"{protocol}://$(DRIVER_ADDRESS)"]
    for name, value in flags.items():
        if isinstance(value, bool):
            args.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            args += (f"--{name}", str(value))
    if not nanny:  # a nanny handles signals itself
        args += ("--preload", _on_sigterm())
    return tuple(args)


def group_values(
    given: Mapping[str, Any],
    *,
    base: Mapping[str, Any],
    protocol: str,
    nanny: bool,
    local: bool,
    tls: Mapping[str, str],
    share: int | None = None,
) -> dict[str, Any]:
    """Return a worker group as the settings of a profile. What it does not set is that of `base`.

    Raises:
        SettingsError: as `worker_args`.
    """
    own = {name: given.get(name, base.get(name)) for name in (*_OWN - {"n_workers"}, "resources")}
    args = worker_args(
        protocol=protocol,
        nthreads=own["nthreads"],
        memory_limit=own["memory_limit"],
        resources=own["resources"],
        nanny=nanny,
        options={**(_ON_LOOPBACK if local else {}), **tls, **(own["worker_options"] or {})},
        share=share,
    )
    values = {name: value for name, value in given.items() if name not in _OWN and value is not None}
    command = _command(own["worker_command"], local=local)
    return {**values, "instances": given.get("n_workers") or 0, "command": command, "args": args}


def fleet_values(
    given: Mapping[str, Any],
    *,
    base: Mapping[str, Any],
    groups: Mapping[str, Mapping[str, Any]],
    scheduler_address: str,
    drain_timeout: Any,
    local: bool,
    **more: Any,
) -> dict[str, Any]:
    """Return the values of the fleet's settings.

    Args:
        given: what the user has set, which goes before ours.
        base: the worker group "default".
        groups: the others.
        scheduler_address: with its protocol.
        drain_timeout: of all groups, as Dask reads durations; 0: workers do not drain. None: `DRAIN_TIMEOUT`.
        local: the workers are processes of this machine.
        more: what `group_values` needs beside.

    Raises:
        SettingsError: `drain_timeout` is no duration; or as `worker_args`.
    """
    more |= {"local": local, "share": _share(given, base, groups) if local else None}
    protocol, _, address = scheduler_address.partition("://")
    executor = {"drain_timeout": _drain(DRAIN_TIMEOUT if drain_timeout is None else drain_timeout)}
    executor |= group_values(base, base=base, protocol=protocol, **more)
    profiles = {name: group_values(group, base=base, protocol=protocol, **more) for name, group in groups.items()}
    return {
        "driver_address": address,
        **given,
        "executor": {**executor, **given.get("executor", {})},
        "profiles": {**given.get("profiles", {}), **profiles},
    }


def tls_options(config: Mapping[str, Any], folder: Path | None) -> dict[str, str]:
    """Return Dask's options for the TLS files of a worker. The workers must have the files, at the same paths.

    Args:
        config: of a worker, as `Security` has it.
        folder: certificates that are in no files are put here, if the workers are processes of this machine.

    Raises:
        SettingsError: a certificate is in no file, as with `Security.temporary()`, and there is no folder.
    """
    options = {}
    for name, option in _TLS_FILES.items():
        value = config.get(name)
        if value is None:
            continue
        if "\n" not in value:
            options[option] = str(value)
        elif folder is None:
            raise SettingsError(
                f"security: tls {name} must be the path of a file that the workers' pods have, too, such as a mounted "
                "Secret: in memory, as Security.temporary() has it, only local=True can pass it on"
            )
        else:
            path = folder / f"{option}.pem"
            path.touch(mode=0o600)
            path.write_text(value)
            options[option] = str(path)
    return options


def _drain(given: Any) -> timedelta | None:
    try:
        return timedelta(seconds=parse_timedelta(given)) or None
    except (AttributeError, KeyError, OverflowError, ValueError):  # Dask's own name neither the argument nor its value
        how = 'a number of seconds, or of units, such as "90s" or "5 minutes"'
        raise SettingsError(f"drain_timeout = {given!r}: must be {how}") from None


def _command(given: Sequence[str] | None, *, local: bool) -> tuple[str, ...]:
    if given:
        return tuple(given)
    return (sys.executable if local else "python", "-m", WORKER_MODULE)


@cache
def _on_sigterm() -> str:
    """Return the text of the preload. Dask takes a module's name, or a text with spaces."""
    return files("actors.dask").joinpath("on_sigterm.py").read_text("utf-8")


def _amount(resources: Mapping[str, Any] | None, name: str) -> Any:
    for part in ("limits", "requests"):
        amount = parse_quantity(((resources or {}).get(part) or {}).get(name))
        if amount is not None:
            return amount
    return None


def _threads(given: Any, resources: Mapping[str, Any] | None) -> int:
    if given is None:
        cpus = _amount(resources, "cpu")
        return 1 if cpus is None else max(1, math.ceil(cpus))
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise SettingsError(f"nthreads = {given!r}: must be a whole number of threads, at least 1")
    return given


def _memory(given: Any, resources: Mapping[str, Any] | None, share: int | None) -> str:
    if given is None:
        memory = _amount(resources, "memory")
        memory = share if memory is None else int(memory)
        return "auto" if memory is None else str(memory)
    try:
        is_amount = given != "" and not isinstance(given, bool) and (given == "auto" or parse_bytes(given) >= 0)
    except (AttributeError, OverflowError, TypeError, ValueError):  # Dask's own name neither the argument nor its value
        is_amount = False
    if not is_amount:
        how = 'must be an amount such as "4 GiB", a part of the machine such as 0.25, "auto", or 0 for no limit'
        raise SettingsError(f"memory_limit = {given!r}: {how}")
    return str(given)


def _share(given: Mapping[str, Any], base: Mapping[str, Any], groups: Mapping[str, Mapping[str, Any]]) -> int:
    """Return the bytes of each thread if the workers of the start share this machine: or its CPUs, if these are more.

    Dask's own rule knows the CPUs only: each worker is promised memory as if there were no more threads than CPUs.
    """
    profiles = given.get("profiles", {})
    threads = _at_start(given.get("executor", {}), base)
    for name in {*profiles, *groups}:
        threads += _at_start(profiles.get(name, {}), {**base, "n_workers": 0, **groups.get(name, {})})
    share: int = MEMORY_LIMIT // max(threads, CPU_COUNT)
    return share


def _at_start(given: Mapping[str, Any], group: Mapping[str, Any]) -> int:
    """Return how many threads the workers of a group have at the start; a number that is none is refused elsewhere."""
    number = given.get("instances", group.get("n_workers"))
    return number * _threads(group.get("nthreads"), group.get("resources")) if isinstance(number, int) else 0
