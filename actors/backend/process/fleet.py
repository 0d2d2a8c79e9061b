"""The side of the fleet's process: runs the children until the connection ends, or the driver's process has.

The children are the same actors as elsewhere, with a client of their own. What they tell the Backend is on its way
before any request that follows from it: if this process is killed, the Backend knows of every executor that was
requested, and of every end whose pod was deleted.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, final

from actors.backend.children import MOVABLE, makers
from actors.backend.process.frames import (
    Ended,
    FrameReader,
    Hang,
    LogRecord,
    MessageToChild,
    NeedCredential,
    Ping,
    Pong,
    Ready,
    Renewed,
    Setup,
    Spawn,
    Stop,
    resolve,
    unpack,
)
from actors.backend.process.outbox import Outbox
from actors.errors import ActorCrashed, SettingsError
from actors.kube.auth.credentials import Access, Credentials
from actors.kube.http.pod_api import HttpPodApi
from actors.kube.metered import MeteredPodApi
from actors.metrics.counts import Backlog, FleetCounts
from actors.runtime import ActorSystem, Address, SystemClock, Terminated, elapsed, start_thread
from actors.runtime.supervisor import kind_of, stack_of
from actors.text import LONGEST_LINE, fields_of, get_logger, log_with, one_line
from actors.text.version import package_version

if TYPE_CHECKING:
    from datetime import timedelta

    from actors.backend.process.frames import ToFleet
    from actors.kube.api import Call, PodApi, Reply, Request, Watch, WatchSink
    from actors.kube.auth.credentials import Credential

__all__ = ["main"]

A = TypeVar("A")

PARENT_CHECK: Final = 0.5
"""Seconds between two looks at whether the driver's process lives."""

_PR_SET_PDEATHSIG: Final = 1
"""From <linux/prctl.h>."""

LAST_WORD: Final = 1.0
"""Seconds for which a failed process waits until it may say why."""

_RECORD: Final = ("name", "levelno", "levelname", "pathname", "filename", "module", "lineno", "funcName", "created")
_RECORD_TOO: Final = ("msecs", "process", "processName", "thread", "threadName", "exc_text", "stack_info")
"""The attributes of a record of the log that cross besides its message and its fields."""


def main(descriptor: int, parent: int, version: str) -> NoReturn:
    """Run until the connection ends or `parent` is gone, then end this process. Nothing needs an orderly end.

    `version` is that of the driver's package. Another one may have been installed since: what it would send means
    something else here.
    """
    _end_with(parent)
    for number in (signal.SIGINT, signal.SIGTERM):  # for the driver, which ends this process when it has stopped
        signal.signal(number, signal.SIG_IGN)
    outbox = Outbox(socket.socket(fileno=descriptor))
    try:
        _check_version(version)
        _serve(outbox)
    except BaseException as error:  # noqa: BLE001 - the last word, whatever it was
        with suppress(Exception):
            text = one_line(f"the process of the fleet has failed: {type(error).__name__}: {error}", LONGEST_LINE)
            record = logging.LogRecord(__name__, logging.ERROR, __file__, 0, text, (), None)
            outbox.put(LogRecord(_attributes(record)))
            outbox.flush(LAST_WORD)
    finally:
        os._exit(0)


def _check_version(version: str) -> None:
    """Raise an error if the driver runs another version of this package than this process."""
    if version != (installed := package_version()):
        raise RuntimeError(f"the driver runs version {version}, and version {installed} is installed now")


def _end_with(parent: int) -> None:
    """End this process with its parent, whatever it waits for then.

    A process that the driver has forked may hold its end of the connection open. A process that is stopped is ended by
    Linux, when the thread ends that started it.
    """
    if sys.platform == "linux":
        with suppress(ImportError, OSError, AttributeError):  # an interpreter without ctypes
            import ctypes  # noqa: PLC0415

            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)

    def look() -> None:
        pause = threading.Event()
        while os.getppid() == parent:
            pause.wait(PARENT_CHECK)
        os._exit(0)

    start_thread(look, "executor-pods/parent")


def _serve(outbox: Outbox) -> None:
    reader = FrameReader(outbox.connection)
    fleet: _Fleet | None = None
    while read := reader.read():
        for data in read:
            for frame in unpack(data):
                if fleet is None:
                    fleet = _set_up(outbox, frame)
                else:
                    fleet.receive(frame)


def _set_up(outbox: Outbox, frame: ToFleet) -> _Fleet:
    if not isinstance(frame, Setup):
        raise TypeError(f"the first frame is {type(frame).__name__}")
    fleet = _Fleet(outbox, frame)
    outbox.put(Ready())
    return fleet


class _LogHandler(logging.Handler):
    """Sends each record to the Backend's process."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__()
        self._outbox = outbox

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record."""
        self._outbox.put(LogRecord(_attributes(record)))


def _attributes(record: logging.LogRecord) -> dict[str, Any]:
    """Return what crosses of a record. Its fields are text or plain values."""
    own = {name: getattr(record, name) for name in (*_RECORD, *_RECORD_TOO)}
    return {**fields_of(record), **own, "msg": record.getMessage(), "args": ()}


@final
class _AnnouncedPodApi:
    """Sends what the Backend was told before it passes a request to `api`."""

    def __init__(self, api: PodApi, outbox: Outbox) -> None:
        self.namespace = api.namespace
        self._api = api
        self._outbox = outbox

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """See `PodApi`."""
        self._outbox.flush()
        return self._api.send(request, reply)

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        return self._api.watch(request, sink)

    def close(self) -> None:
        """See `PodApi`."""
        self._api.close()


@final
class _Fleet:
    """The children, and what they share. Frames arrive on one thread."""

    def __init__(self, outbox: Outbox, setup: Setup) -> None:
        self._outbox = outbox
        settings = setup.settings
        log = get_logger("actors").logger
        log.setLevel(setup.level)
        log.propagate = False
        log.addHandler(_LogHandler(outbox))
        log_with(app_id=settings.app_id)
        self._clock = clock = SystemClock()
        self._system = ActorSystem(clock, letters=setup.counts.letters)
        self._counts = setup.counts
        counts = FleetCounts(settings.app_id, settings.profile_names)
        counts.process = self._counts
        self._credential = setup.credential
        self._renewed = threading.Condition()
        self._limit = setup.request_timeout
        api = HttpPodApi(
            Access(
                setup.credential.connection.url,
                setup.access_namespace,
                Credentials(setup.credential, self._renew, clock),
            ),
            namespace=setup.namespace,
            request_timeout=setup.request_timeout,
            max_connections=setup.max_connections,
            bounds=setup.bounds,
            clock=clock,
        )
        backend = Address.calling(outbox.tell, self._system.letters)
        resolve(backend)
        self._addresses = {name: self._system.address(name) for name in MOVABLE}
        self._makers = makers(
            settings,
            _AnnouncedPodApi(MeteredPodApi(api, setup.counts.api, clock), outbox),
            owners=setup.owners,
            backend=backend,
            children=self._addresses,
            counts=counts,
        )
        self._incarnations: dict[str, int] = {}
        """Of each child's newest actor, as the Backend's process counts them."""

    def receive(self, frame: ToFleet) -> None:
        """Handle one frame. Never waits."""
        match frame:
            case Spawn(name, incarnation):
                self._spawn(name, incarnation)
            case MessageToChild(name, incarnation, message):
                if incarnation == self._incarnations.get(name):
                    self._addresses[name].tell(message)
            case Stop(name, incarnation):
                if incarnation == self._incarnations.get(name):
                    self._addresses[name].stop()
            case Ping(patience):
                self._counts.mailboxes.update((name, Backlog.of(each)) for name, each in self._addresses.items())
                self._outbox.put(Pong(self._hang(patience), self._counts))
            case Renewed(credential):
                with self._renewed:
                    self._credential = credential
                    self._renewed.notify_all()
            case Setup():
                raise TypeError("set up twice")

    def _spawn(self, name: str, incarnation: int) -> None:
        self._incarnations[name] = incarnation
        report = Address.calling(partial(self._ended, incarnation), self._system.letters)
        try:
            self._system.spawn(self._makers[name], name=name, owner=report, address=self._addresses[name])
        except Exception as error:  # noqa: BLE001 - a failure of the child
            self._outbox.put(Ended(name, incarnation, _portable(error)))

    def _ended(self, incarnation: int, message: Terminated) -> None:
        cause = None if message.cause is None else _portable(message.cause)
        self._outbox.put(Ended(message.name, incarnation, cause))

    def _hang(self, patience: timedelta) -> Hang | None:
        """Return the child that has been busy with one message for the longest, if for longer than `patience`."""
        now = self._clock.monotonic()
        for name, address in self._addresses.items():
            handle = address.handle
            since = None if handle is None else handle.mailbox.busy_since
            if handle is not None and since is not None and elapsed(since, now) > patience:
                seconds = elapsed(since, now).total_seconds()
                return Hang(name, kind_of(handle.mailbox.current), seconds, stack_of(handle))
        return None

    def _renew(self) -> Credential:
        """Ask the Backend's process for a newer credential, and wait for it.

        Raises:
            SettingsError: it does not answer in time.
        """
        with self._renewed:
            self._outbox.put(NeedCredential(self._credential))
            if not self._renewed.wait(self._limit.total_seconds()):
                raise SettingsError("the credential was not renewed in time")
            return self._credential


def _portable(error: BaseException) -> BaseException:
    """Return an error that can cross: the same, or its words."""
    try:
        same: BaseException = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - whatever its class does
        return ActorCrashed(traceback.format_exception_only(error)[-1].strip())
    return same if type(same) is type(error) else ActorCrashed(str(error))
