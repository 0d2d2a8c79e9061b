"""Runs exec plugins: programs in a kubeconfig's user entry that print a credential.

The `kubernetes` package prepares the command and this module runs it: the package would wait for ever for a plugin that
hangs, and keep unlimited output. No message repeats what a plugin prints to stdout.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from kubernetes.config import ConfigException
from kubernetes.config.exec_provider import ExecProvider

from actors.runtime import SystemClock, later

if TYPE_CHECKING:
    from datetime import timedelta

    from kubernetes.config.kube_config import ConfigNode

__all__ = ["PluginCredential", "PluginFailed", "run"]

_LONGEST_ANSWER: Final = 1024 * 1024
"""Bytes that a plugin may print. A token, or a certificate with its key, has a few thousand."""

_LONGEST_QUOTE: Final = 300
"""Characters that an error quotes of a failing plugin's stderr or install hint."""

_BY_HAND: Final = "run it by hand to see why"


class PluginFailed(Exception):  # noqa: N818 - private to this package, says what happened
    """The plugin gave no credential. The message continues a sentence that begins with the plugin's name."""


class PluginCredential(msgspec.Struct, rename="camel"):
    """`status` of an `ExecCredential` (client.authentication.k8s.io)."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def __repr__(self) -> str:
        """Show no secret."""
        return "PluginCredential()"

    @property
    def has_certificate(self) -> bool:
        """Whether there are both a certificate and its key."""
        return bool(self.client_certificate_data and self.client_key_data)


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: Literal["ExecCredential"]
    status: PluginCredential


def run(plugin: ConfigNode, folder: str, cluster: ConfigNode, limit: timedelta) -> PluginCredential:
    """Run the plugin, and wait at most `limit` for its credential.

    Raises:
        PluginFailed: the plugin cannot be run, fails, does not end in time, or prints something else.
    """
    interactive = _may_ask(plugin)
    try:
        provider = ExecProvider(plugin, folder, cluster)
        environ = {**provider.env, "KUBERNETES_EXEC_INFO": _request(provider, interactive=interactive)}
        process = subprocess.Popen(  # noqa: S603 - the user's own kubeconfig says so
            provider.args,
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
            cwd=provider.cwd,
            env=environ,
            start_new_session=not interactive,  # so that its child processes end with it
        )
    except ConfigException as error:
        raise PluginFailed(_shortened(str(error))) from None
    except OSError as error:
        raise PluginFailed(f"it cannot be run: {error.strerror}{_hint(plugin)}") from None
    with process:
        try:
            stdout, stderr = _read(process, limit)
        except BaseException:
            _kill(process, group=not interactive)
            raise
    if process.returncode != 0:
        problem = _shortened(stderr.decode("utf-8", "replace")) or "nothing on stderr"
        raise PluginFailed(f"it ended with exit code {process.returncode}: {problem}; {_BY_HAND}")
    return _credential(stdout, provider.api_version)


def _may_ask(plugin: ConfigNode) -> bool:
    """Whether the plugin gets the terminal: its `interactiveMode` is Never, IfAvailable or Always."""
    mode = plugin.safe_get("interactiveMode")
    has_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty() and sys.stdout.isatty()
    if mode == "Always" and not has_terminal:
        raise PluginFailed("it needs a terminal (interactiveMode: Always), and there is none")
    return mode != "Never" and has_terminal


def _request(provider: ExecProvider, *, interactive: bool) -> str:
    """Return the content of `KUBERNETES_EXEC_INFO`."""
    spec: dict[str, Any] = {"interactive": interactive}
    if provider.cluster:
        about = {key: value for key, value in provider.cluster.value.items() if key != "extensions"}
        for extension in provider.cluster.value.get("extensions") or ():
            if extension["name"] == "client.authentication.k8s.io/exec":
                about["config"] = extension["extension"]
        spec["cluster"] = about
    request = {"apiVersion": provider.api_version, "kind": "ExecCredential", "spec": spec}
    return msgspec.json.encode(request).decode()


def _read(process: subprocess.Popen[bytes], limit: timedelta) -> tuple[bytes, bytes]:
    """Wait until the process has ended. Return its stdout and stderr."""
    clock = SystemClock()  # real time, since the program is real
    deadline = later(clock.monotonic(), limit)
    written = {stream.fileno(): bytearray() for stream in (process.stdout, process.stderr) if stream is not None}
    first, *rest = written.values()
    late = PluginFailed(f"it did not end in {limit.total_seconds():g} s and was killed; {_BY_HAND}")
    with selectors.DefaultSelector() as waiting:
        for descriptor in written:
            waiting.register(descriptor, selectors.EVENT_READ)
        while waiting.get_map():
            left = deadline - clock.monotonic()
            ready = waiting.select(left) if left > 0 else ()
            if not ready:
                raise late
            for key, _ in ready:
                data = os.read(key.fd, 64 * 1024)
                if not data:
                    waiting.unregister(key.fd)
                written[key.fd] += data
                if len(written[key.fd]) > _LONGEST_ANSWER:
                    raise PluginFailed(f"it printed more than {_LONGEST_ANSWER} bytes and was killed; {_BY_HAND}")
    try:
        process.wait(max(0.0, deadline - clock.monotonic()))
    except subprocess.TimeoutExpired:
        raise late from None
    return bytes(first), bytes(rest[0]) if rest else b""


def _kill(process: subprocess.Popen[bytes], *, group: bool) -> None:
    """Kill the process (and its group). It has not been waited for, so no other process can have its id."""
    if group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _credential(stdout: bytes, api_version: str) -> PluginCredential:
    try:
        answer = msgspec.json.decode(stdout, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # msgspec names fields and types, never a value
        problem = str(error) if isinstance(error, msgspec.MsgspecError) else "it is not text"
        raise PluginFailed(f"it printed no ExecCredential: {problem}; {_BY_HAND}") from None
    if answer.api_version != api_version:
        raise PluginFailed(f"its apiVersion {_shortened(answer.api_version)!r} is not the kubeconfig's {api_version!r}")
    if not (answer.status.token or answer.status.has_certificate):
        raise PluginFailed("its answer has neither a token nor a client certificate and key")
    return answer.status


def _hint(plugin: ConfigNode) -> str:
    hint = plugin.safe_get("installHint")
    return f" ({_shortened(hint)})" if isinstance(hint, str) else ""


def _shortened(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_QUOTE]
