"""Translate a container's spec into a process: arguments, environment, termination message. Pure functions.

`environment` and `unsupported` refuse what a process cannot have, with a message that names it. `ignored` lists the
fields that a pod runs without.
"""

from __future__ import annotations

import errno
import os
import re
import signal
import sys
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from actors.local.schema.nesting import value_at

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "CANNOT_START",
    "END_NOT_SEEN",
    "NO_IMAGE",
    "SHUTDOWN_WINDOW",
    "CannotCreate",
    "Hook",
    "argv",
    "environment",
    "expand",
    "hook_of",
    "ignored",
    "inherited_environment",
    "log_tail",
    "signal_name",
    "start_error",
    "unsupported",
]

NO_IMAGE: Final = "executor-pods/local"
"""The image of a container that wants none; any other is named in an event, because it is not run."""
_BUILT_IN_EXECUTOR: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("executor.py")))

_INHERITED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE"),
        *("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    }
)
"""The variables that an image would define: paths of programs and libraries, and the locale. No others: a container
must not see its host's environment, which may hold credentials."""

_PLAIN_FIELDS: Final = frozenset(
    {
        *("metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName"),
        *("status.podIP", "status.podIPs", "status.hostIP", "status.hostIPs"),
    }
)
"""A pod has one address here, so its list of addresses reads like the address."""
_KEYED_FIELD: Final = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]")

_TAIL_LINES: Final = 80
_TAIL_BYTES: Final = 2048
"""`terminationMessagePolicy: FallbackToLogsOnError` is "limited to 2048 bytes or 80 lines, whichever is smaller":
https://kubernetes.io/docs/tasks/debug/debug-application/determine-pod-failure-reason/"""


SHUTDOWN_WINDOW: Final = timedelta(seconds=2)
"""What a container has at least between SIGTERM and SIGKILL, even if its preStop hook has used up the grace period:
`minimumGracePeriodInSeconds` of `pkg/kubelet/kuberuntime`, the "small, one-off grace period extension of 2 seconds" of
https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination"""


CANNOT_START: Final = 128
"""containerd's exit code for a container that it cannot start; its reason is `StartError`
(`errorStartExitCode` in `pkg/cri/server/container_start.go`)."""

END_NOT_SEEN: Final = 255
"""containerd's exit code for a container whose end it did not see, as after a reboot of its node; its reason is
`Unknown` (`unknownExitCode` in `pkg/cri/server`)."""


@dataclass(frozen=True, slots=True)
class Hook:
    """A lifecycle hook: it sleeps, or runs a command in the container."""

    sleep: timedelta
    """How long it sleeps; of a command: 0."""
    command: tuple[str, ...] = ()


def hook_of(container: Mapping[str, Any], name: str) -> Hook | None:
    """Return a container's `preStop` or `postStart`, None if it has none or one of a kind that is not supported."""
    match (container.get("lifecycle") or {}).get(name):
        case {"sleep": sleep}:
            return Hook(timedelta(seconds=(sleep or {}).get("seconds") or 0))
        case {"exec": {"command": command}}:
            return Hook(timedelta(), tuple(command))
        case _:
            return None


class CannotCreate(Exception):  # noqa: N818 - reads as the waiting reason that it becomes
    """A process cannot have something that the container asks for; the message names it."""


def inherited_environment() -> dict[str, str]:
    """Return the part of this process's environment that replaces an image's."""
    return {name: value for name, value in os.environ.items() if name in _INHERITED or name.startswith("LC_")}


def argv(container: Mapping[str, Any], env: Mapping[str, str]) -> list[str]:
    """Return `command` and `args`, expanded. Without a command the built-in executor runs."""
    command = [expand(text, env) for text in container.get("command") or ()]
    return [*(command or _BUILT_IN_EXECUTOR), *(expand(text, env) for text in container.get("args") or ())]


def environment(container: Mapping[str, Any], pod: Mapping[str, Any], base: Mapping[str, str]) -> dict[str, str]:
    """Return the environment: `base`, `HOSTNAME`, then the container's `env`; each may refer to earlier ones.

    Raises `CannotCreate` for a source that this kubelet does not support.
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
    """Expand `$(VAR)` to its value and `$$` to `$`; leave a reference to an undefined variable unchanged.

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
        return str(value_at(pod, *path.removesuffix("s").split(".")) or "")
    if keyed := _KEYED_FIELD.fullmatch(path):
        return str(value_at(pod, "metadata", *keyed.groups()) or "")
    raise CannotCreate(f"env {name}: unsupported fieldPath: {path}")


def start_error(container: Mapping[str, Any], at: str, number: int, message: str) -> str:
    """Return the message of a container that cannot be started, in the words of containerd and runc.

    `at` is the step that failed, `number` and `message` are the system's error.
    """
    program, reason = argv(container, {})[0], message[:1].lower() + message[1:]
    if at == "exec" and number in {errno.ENOENT, errno.ENOTDIR}:
        reason = f"stat {program}: {reason}" if "/" in program else "executable file not found in $PATH"
    what = {
        "exec": f'exec: "{program}"',
        "chdir": f'chdir to cwd ("{container.get("workingDir")}") set in config.json failed',
    }.get(at, at)
    return (
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
        f"unable to start container process: {what}: {reason}: unknown"
    )


def unsupported(pod: Mapping[str, Any]) -> str | None:
    """Return why this kubelet cannot run the pod, None if it can."""
    for container in pod["spec"].get("initContainers") or ():
        policy = container.get("restartPolicy")
        if policy not in {None, "Always"}:
            name = container["name"]
            return f"init container {name} has the restartPolicy {policy}: the local kubelet only supports Always"
    return None


def ignored(pod: Mapping[str, Any]) -> list[str]:
    """Return the fields that this kubelet does not apply, because a process has no such thing."""
    return sorted(set(_ignored(pod["spec"])))


def _ignored(spec: Mapping[str, Any]) -> Iterator[str]:
    yield from (field for field in ("activeDeadlineSeconds", "nodeSelector", "affinity") if spec.get(field))
    if any(volume.get("persistentVolumeClaim") or volume.get("ephemeral") for volume in spec.get("volumes") or ()):
        yield "claims"
    for container in (*(spec.get("initContainers") or ()), *spec["containers"]):
        if container["image"] != NO_IMAGE:
            yield "image"
        for field in ("livenessProbe", "readinessProbe", "startupProbe"):
            if container.get(field):
                yield field
        for name in container.get("lifecycle") or {}:
            if hook_of(container, name) is None:
                yield f"lifecycle.{name}"
        mounts = (mount["mountPath"] for mount in container.get("volumeMounts") or () if mount.get("mountPath"))
        if any(not path.startswith("/var/run/secrets/kubernetes.io/") for path in mounts):
            yield "volumeMounts"
        if (container.get("resources") or {}).get("limits"):
            yield "resources.limits"


def signal_name(number: int) -> str:
    """`SIGKILL` for 9; the number for a signal without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def log_tail(log: Path) -> str:
    """Return the end of a container's log, for its termination message."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            text = file.read(_TAIL_BYTES).decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(text.splitlines()[-_TAIL_LINES:])
