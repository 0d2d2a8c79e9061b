"""The programs and pods of executors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.node.world import IMAGE

if TYPE_CHECKING:
    from collections.abc import Mapping


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


def ends(code: int) -> dict[str, Any]:
    return {"command": shell(f"exit {code}")}


HANDLES: Final = shell("trap 'exit 143' TERM; echo ready; sleep 600 & wait")
"""Ends at SIGTERM, with a shell's code."""
ENDS_IN_ORDER: Final = shell("trap 'exit 0' TERM; echo ready; sleep 600 & wait")
IGNORES: Final = shell("trap '' TERM; echo ready; sleep 600 & wait")
LOSES: Final = shell("echo ready; exec sleep 600")
"""Process 1 of its container, without a handler: the kernel drops the signal."""
EATS: Final = """
import signal, time

def eat(*_):
    held = []
    while True:
        held.append(bytearray(1 << 20))

signal.signal(signal.SIGUSR1, eat)
print("ready", flush=True)
while True:
    time.sleep(600)
"""
GREEDY: Final = ("python3", "-c", EATS)
"""Uses memory without end, from SIGUSR1 on."""
CHILD_EATS: Final = """
import signal, subprocess, sys, time

def start(*_):
    eats = "held = []\\nwhile True:\\n    held.append(bytearray(1 << 20))"
    sys.exit(5 if subprocess.run([sys.executable, "-c", eats]).returncode == -signal.SIGKILL else 6)

signal.signal(signal.SIGUSR1, start)
print("ready", flush=True)
while True:
    time.sleep(600)
"""
GREEDY_CHILD: Final = ("python3", "-c", CHILD_EATS)
"""Starts a process that uses memory without end, at SIGUSR1, and ends with 5 if that one is killed."""
WAITS: Final = """
import os, pathlib, signal, sys, time

def drained(*_):
    {deed}

signal.signal(signal.SIGUSR1, drained)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
print("ready", flush=True)
while True:
    time.sleep(600)
"""
DRAINS: Final = ("python3", "-c", WAITS.format(deed="pathlib.Path(os.environ['EXECUTOR_DRAINED_FILE']).touch()"))
"""Says that it is drained, at SIGUSR1."""
ENDS_WHEN_DRAINED: Final = ("python3", "-c", WAITS.format(deed="sys.exit(0)"))


def fills(path: str) -> tuple[str, ...]:
    """Writes 30 MB to a file, at SIGUSR1."""
    return shell(f"trap 'dd if=/dev/zero of={path} bs=1M count=30' USR1; echo ready; while :; do sleep 1; done")


CRASHES: Final = (
    "python3",
    "-c",
    "import os, signal; signal.signal(signal.SIGSEGV, signal.SIG_DFL); __import__('ctypes').string_at(0)",
)


def template(
    command: tuple[str, ...] = HANDLES,
    *,
    sidecar: Mapping[str, Any] | None = None,
    init: Mapping[str, Any] | None = None,
    spec: Mapping[str, Any] | None = None,
    **container: Any,
) -> dict[str, Any]:
    """A pod template whose executor has more than settings give it."""
    executor = {"name": "executor", "image": IMAGE, "command": list(command), **container}
    others = [{"name": "helper", "image": IMAGE, **sidecar}] if sidecar else []
    whole: dict[str, Any] = {"containers": [executor, *others], **(spec or {})}
    if init:
        whole["initContainers"] = [{"name": "setup", "image": IMAGE, **init}]
    return {"pod_template": {"apiVersion": "v1", "kind": "Pod", "spec": whole}}


def native(command: tuple[str, ...]) -> dict[str, Any]:
    """A native sidecar."""
    return {"restartPolicy": "Always", "command": list(command)}


ALWAYS_FAILS: Final = {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}
"""A probe."""
TOLERATES: Final = [
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 2}
    for key in ("unreachable", "not-ready")
]
"""A node's loss, for two seconds."""
