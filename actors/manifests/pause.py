"""The pause of an executor before SIGTERM, in which it drains: its preStop hook, and what ends the hook early. Pure.

A kubelet runs the hook to its end. A second DELETE with a shorter grace period does not end it: `SyncTerminatingPod` of
`pkg/kubelet` ignores the context that this DELETE cancels (1.34 to 1.37). So the default hook is a command in the
executor's container: it ends with the container, or when a file appears.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["drained_file", "pause_of", "pause_variables", "pre_stop"]

_DRAINED_FILE: Final = "EXECUTOR_DRAINED_FILE"
"""The variable by which an executor learns which file ends its pause."""

_FOLDER: Final = "/dev/shm"  # noqa: S108 - the name has the pod's UID
"""A runtime mounts it into every container of Linux, writable for every user, also beside a read-only root file system:
https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#default-filesystems
"""

_UNTIL_DRAINED: Final = (
    "exec >/dev/null 2>&1; "
    'sleep "$1" & '
    'until [ -e "$' + _DRAINED_FILE + '" ] || ! kill -0 $!; do sleep 0.2 || sleep 1; done; '
    "kill $!; wait; exit 0"
)
"""Waits for the file, at most `$1` seconds. A second `sleep` is the clock: counted steps would take longer in a
container that has no CPU time to spare. `sleep 1` is for a `sleep` that takes whole seconds only. A kubelet waits for
each process that the hook starts, so the clock is ended, too.
"""

_DEFAULT: Final = ("sh", "-c", _UNTIL_DRAINED, "pause")
"""The default command, without its seconds."""


def pre_stop(command: Sequence[str] | None, seconds: int) -> dict[str, Any]:
    """Return the v1 LifecycleHandler that pauses for so many seconds; `command` is `executor.drain_command`."""
    if command is None:
        return {"exec": {"command": [*_DEFAULT, str(seconds)]}}
    return {"exec": {"command": list(command)}} if command else {"sleep": {"seconds": seconds}}


def pause_variables() -> list[dict[str, Any]]:
    """Return the variables of an executor whose pause a file ends."""
    return [
        {"name": "EXECUTOR_POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": _DRAINED_FILE, "value": drained_file("$(EXECUTOR_POD_UID)")},
    ]


def drained_file(uid: str) -> str:
    """Return the file that ends the pause of the pod with this UID.

    Its name has the UID because the executors of an embedded cluster share the folder.
    """
    return f"{_FOLDER}/{uid}.drained"


def pause_of(command: Sequence[str]) -> timedelta:
    """Return how long a hook's command takes if it is the default and nothing ends it early; 0 if it is another."""
    *words, seconds = command
    return timedelta(seconds=int(seconds)) if tuple(words) == _DEFAULT else timedelta(0)
