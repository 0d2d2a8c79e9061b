"""Exec plugins: programs that a kubeconfig's user names, which print a credential.

The `kubernetes` package says what to run; this runs it. The package's own way waits for ever for one that hangs, and
holds all that one prints. Nothing of what a plugin prints to stdout is ever repeated.
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
"""Bytes that a plugin may print: a token or a certificate with its key is a few thousand."""

_LONGEST_WORDS: Final = 300
"""Characters of what a failing plugin, or its hint, says for people that are passed on."""

_BY_HAND: Final = "run it by hand to see why"


class PluginFailed(Exception):  # noqa: N818 - private to this package, says what happened
    """It gave no credential; why, in words for a person, that begin where its name ends."""


class PluginCredential(msgspec.Struct, rename="camel"):
    """`status` of an `ExecCredential` (client.authentication.k8s.io)."""

    token: str = ""
    client_certificate_data: str = ""
    client_key_data: str = ""
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    def __repr__(self) -> str:
        """Never tell what is in it."""
        return "PluginCredential()"

    @property
    def has_certificate(self) -> bool:
        """A certificate is of no use without its key."""
        return bool(self.client_certificate_data and self.client_key_data)


class _Answer(msgspec.Struct, rename="camel"):
    api_version: str
    kind: Literal["ExecCredential"]
    status: PluginCredential


def run(plugin: ConfigNode, folder: str, cluster: ConfigNode, limit: timedelta) -> PluginCredential:
    """Run it, and wait at most `limit` for what it prints.

    Raises:
        PluginFailed: it cannot be run, fails, does not end in time, or prints something else.
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
            start_new_session=not interactive,  # so that what it started ends with it
        )
    except ConfigException as error:
        raise PluginFailed(_shortened(str(error))) from None
    except OSError as error:
        raise PluginFailed(f"it cannot be run: {error.strerror}{_hint(plugin)}") from None
    with process:
        try:
            printed, said = _read(process, limit)
        except BaseException:
            _kill(process, group=not interactive)
            raise
    if process.returncode != 0:
        how = "no words" if not said else _shortened(said.decode("utf-8", "replace"))
        raise PluginFailed(f"it ended with exit code {process.returncode} and said: {how}; {_BY_HAND}")
    return _credential(printed, provider.api_version)


def _may_ask(plugin: ConfigNode) -> bool:
    """Whether it gets the terminal, if there is one: `interactiveMode` is Never, IfAvailable or Always."""
    mode = plugin.safe_get("interactiveMode")
    there_is_one = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty() and sys.stdout.isatty()
    if mode == "Always" and not there_is_one:
        raise PluginFailed("it wants a terminal (interactiveMode: Always), and there is none")
    return mode != "Never" and there_is_one


def _request(provider: ExecProvider, *, interactive: bool) -> str:
    """What a plugin finds in `KUBERNETES_EXEC_INFO`."""
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
    """What it wrote to stdout and stderr, once it has ended."""
    clock = SystemClock()  # of the machine, as the program is: no other would ever end it
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
    """It has not been waited for, even if it has ended: until then nobody else has its number."""
    if group:
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _credential(printed: bytes, api_version: str) -> PluginCredential:
    try:
        answer = msgspec.json.decode(printed, type=_Answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        # msgspec names places and types, never what is there
        words = str(error) if isinstance(error, msgspec.MsgspecError) else "it is no text"
        raise PluginFailed(f"it printed no ExecCredential: {words}; {_BY_HAND}") from None
    if answer.api_version != api_version:
        raise PluginFailed(f"its apiVersion {_shortened(answer.api_version)!r} is not the kubeconfig's {api_version!r}")
    if not (answer.status.token or answer.status.has_certificate):
        raise PluginFailed("its answer has neither a token nor a client certificate and key")
    return answer.status


def _hint(plugin: ConfigNode) -> str:
    hint = plugin.safe_get("installHint")
    return f" ({_shortened(hint)})" if isinstance(hint, str) else ""


def _shortened(words: str) -> str:
    return " ".join(words.split())[:_LONGEST_WORDS]
