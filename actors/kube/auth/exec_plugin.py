"""Runs exec plugins: programs in a kubeconfig's user entry that print a credential.

A plugin that hangs or prints without end is killed. No message repeats what a plugin prints to stdout.
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

from actors.runtime import SystemClock, in_words, later

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta
    from pathlib import Path

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


class _Variable(msgspec.Struct):
    name: str
    value: str


class _Plugin(msgspec.Struct, rename="camel"):
    """`exec` of a kubeconfig's user."""

    command: str
    api_version: str
    args: tuple[str, ...] | None = None
    env: tuple[_Variable, ...] | None = None
    install_hint: str | None = None
    interactive_mode: Literal["Never", "IfAvailable", "Always"] | None = None
    provide_cluster_info: bool | None = None


def run(entry: Mapping[str, Any], folder: Path, cluster: Mapping[str, Any], limit: timedelta) -> PluginCredential:
    """Run the plugin of a user's `exec` entry in `folder`, and wait at most `limit` for its credential.

    Raises:
        PluginFailed: the plugin cannot be run, fails, does not end in time, or prints something else.
    """
    try:
        plugin = msgspec.convert(entry, _Plugin)
    except msgspec.ValidationError as error:  # which names fields and types, never a value
        raise PluginFailed(f"its entry is not valid: {error}") from None
    interactive = _may_ask(plugin)
    environ = {
        **os.environ,
        **{each.name: each.value for each in plugin.env or ()},
        "KUBERNETES_EXEC_INFO": _request(plugin, cluster, interactive=interactive),
    }
    try:
        process = subprocess.Popen(  # noqa: S603 - the user's own kubeconfig says so
            [plugin.command, *(plugin.args or ())],
            stdin=None if interactive else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=None if interactive else subprocess.PIPE,
            cwd=folder,
            env=environ,
            start_new_session=not interactive,  # so that its child processes end with it
        )
    except OSError as error:
        raise PluginFailed(f"it cannot be run: {in_words(error)}{_hint(plugin)}") from None
    except ValueError:  # a null byte, or a variable's name with "="
        raise PluginFailed("its command, arguments or environment have characters that are not allowed") from None
    with process:
        try:
            stdout, stderr = _read(process, limit)
        except BaseException:
            _kill(process, group=not interactive)
            raise
    if process.returncode != 0:
        problem = _shortened(stderr.decode("utf-8", "replace")) or "nothing on stderr"
        raise PluginFailed(f"it ended with exit code {process.returncode}: {problem}; {_BY_HAND}")
    return _credential(stdout, plugin.api_version)


def _may_ask(plugin: _Plugin) -> bool:
    """Whether the plugin gets the terminal."""
    has_terminal = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty() and sys.stdout.isatty()
    if plugin.interactive_mode == "Always" and not has_terminal:
        raise PluginFailed("it needs a terminal (interactiveMode: Always), and there is none")
    return plugin.interactive_mode != "Never" and has_terminal


def _request(plugin: _Plugin, cluster: Mapping[str, Any], *, interactive: bool) -> str:
    """Return the content of `KUBERNETES_EXEC_INFO`."""
    spec: dict[str, Any] = {"interactive": interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = {key: value for key, value in cluster.items() if key != "extensions"}
        for extension in cluster.get("extensions") or ():
            match extension:
                case {"name": "client.authentication.k8s.io/exec", "extension": config}:
                    spec["cluster"]["config"] = config
                case _:
                    pass
    request = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    try:
        return msgspec.json.encode(request).decode()
    except (TypeError, ValueError, RecursionError):
        raise PluginFailed("its cluster's entry cannot be written as JSON") from None


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


def _hint(plugin: _Plugin) -> str:
    return f" ({_shortened(plugin.install_hint)})" if plugin.install_hint else ""


def _shortened(text: str) -> str:
    return " ".join(text.split())[:_LONGEST_QUOTE]
