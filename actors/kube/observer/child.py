"""The observer's side: lists and watches for the driver's process until that closes the connection, or has ended.

It runs an `HttpPodApi` of its own. Its credential comes from the driver's process, so that a login program runs once.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NoReturn, final

from actors.errors import SettingsError
from actors.kube import api
from actors.kube.api import PodPage, WatchEnded, WatchEvents
from actors.kube.auth.credentials import Access, Credentials
from actors.kube.http.bounds import AnswerBounds
from actors.kube.http.client import HttpRequest
from actors.kube.http.pod_api import HttpPodApi
from actors.kube.observer.frames import (
    Ask,
    Begin,
    Body,
    CancelCall,
    Ended,
    Failed,
    Fetch,
    FrameReader,
    LogLine,
    NeedCredential,
    Ping,
    Pong,
    Renewed,
    WatchPods,
    failure_of,
    pack,
    to_observer,
)
from actors.kube.observer.joined_list import JoinedList
from actors.kube.observer.pod_table import PodNumbers
from actors.runtime import Deadline, SystemClock
from actors.text import LONGEST_LINE, get_logger, one_line

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.kube.api import Call
    from actors.kube.auth.credentials import Credential
    from actors.kube.observer.frames import FromObserver, ToObserver

__all__ = ["main"]

PARENT_CHECK: Final = 0.5
"""Seconds between two looks at whether the driver's process lives."""


_PR_SET_PDEATHSIG: Final = 1
"""From <linux/prctl.h>."""


GATHER: Final = 0.002
"""Seconds for which frames are gathered: events, and the answers to the requests that caused them, come together. Each
read takes the interpreter from the driver."""

MOST_WAITING: Final = 4 * 1024 * 1024
"""Bytes that wait for the driver's process: some pages of a list."""


LAST_WORD: Final = 1.0
"""Seconds for which a failed observer waits until it may say why."""

_writing: Final = threading.Lock()
"""Held while frames are written: no frame begins within another."""


def main(descriptor: int, parent: int) -> NoReturn:
    """Observe until the connection ends or `parent` is gone, then end this process. Nothing needs an orderly end."""
    _end_with(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
    connection = socket.socket(fileno=descriptor)
    try:
        _serve(connection)
    except BaseException as error:  # noqa: BLE001 - the last word, whatever it was
        with suppress(Exception):
            text = one_line(f"the observer has failed: {type(error).__name__}: {error}", LONGEST_LINE)
            if _writing.acquire(timeout=LAST_WORD):
                connection.sendall(pack(LogLine(__name__, logging.ERROR, text)))
    finally:
        os._exit(0)


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

    threading.Thread(target=look, name="executor-pods/parent", daemon=True).start()


def _serve(connection: socket.socket) -> None:
    reader, observer = FrameReader(connection), None
    while read := reader.read():
        frames = [*map(to_observer, read)]
        cancelled = {frame.serial for frame in frames if isinstance(frame, CancelCall)}
        for frame in frames:
            if observer is None:
                observer = _begun(connection, frame)
            elif not (isinstance(frame, Ask | Fetch | WatchPods) and frame.serial in cancelled):
                observer.receive(frame)


def _begun(connection: socket.socket, frame: ToObserver) -> _Observer:
    if not isinstance(frame, Begin):
        raise TypeError(f"the first frame is {type(frame).__name__}")
    return _Observer(connection, frame)


class _LogHandler(logging.Handler):
    """Sends each record to the driver's process."""

    def __init__(self, observer: _Observer) -> None:
        super().__init__()
        self._observer = observer

    def emit(self, record: logging.LogRecord) -> None:
        """Send the record."""
        self._observer.send(LogLine(record.name, record.levelno, record.getMessage()))


@final
class _Observer:
    """One `HttpPodApi`, and what crosses. Calls complete on many threads."""

    def __init__(self, connection: socket.socket, begin: Begin) -> None:
        self._connection = connection
        self._sending = threading.Condition()
        """Held while something is numbered and put into the outbox: numbers mean what was sent before."""
        self._outbox: list[bytes] = []
        self._waiting = 0
        """Bytes in the outbox."""
        threading.Thread(target=self._write, name="executor-pods/to-driver", daemon=True).start()
        log = get_logger("actors")
        log.setLevel(begin.level)
        log.propagate = False
        log.addHandler(_LogHandler(self))
        clock = self._clock = SystemClock()
        self._credential = begin.credential
        self._renewed = threading.Condition()
        self._limit = begin.request_timeout
        first = begin.credential.credential()
        answer, one_object, headers = begin.bounds
        self._api = HttpPodApi(
            Access(first.connection.url, begin.access_namespace, Credentials(first, self._renew, clock)),
            namespace=begin.namespace,
            request_timeout=timedelta(seconds=begin.request_timeout),
            max_connections=begin.max_connections,
            bounds=AnswerBounds(answer, one_object, headers),
            clock=clock,
        )
        self._numbers = PodNumbers()
        self._calls = _Calls()
        self._lists: dict[str, int] = {}
        """By continue token: the place of the LIST that it continues."""

    def receive(self, frame: ToObserver) -> None:
        """Handle one frame. Never waits."""
        match frame:
            case Ask():
                self._list(frame)
            case Fetch(serial):
                self._fetch(serial, frame)
            case WatchPods(serial, selector, version, timeout, initial):
                request = api.Watch(selector, version, timedelta(seconds=timeout), send_initial_events=initial)
                self._calls.add(serial, self._api.watch(request, partial(self._watched, serial)))
            case CancelCall(serial):
                call = self._calls.find(serial)
                if call is not None:
                    call.cancel()
            case Ping():
                self.send(Pong())
            case Renewed(credential):
                with self._renewed:
                    self._credential = credential
                    self._renewed.notify_all()
            case Begin():
                raise TypeError("began twice")

    def send(self, frame: FromObserver) -> None:
        """Send a frame soon, together with others. Waits while the driver's process does not read."""
        with self._sending:
            self._await_room()
            self._put(frame)

    def _await_room(self) -> None:
        while self._waiting > MOST_WAITING:
            self._sending.wait()

    def _put(self, frame: FromObserver) -> None:
        data = pack(frame)
        self._outbox.append(data)
        self._waiting += len(data)
        if len(self._outbox) == 1:
            self._sending.notify_all()

    def _write(self) -> None:
        """Send what waits, again and again; end this process if the driver's is gone."""
        pause = threading.Event()
        while True:
            with self._sending:
                while not self._outbox:
                    self._sending.wait()
            pause.wait(GATHER)
            with self._sending:
                frames, self._outbox, self._waiting = self._outbox, [], 0
                self._sending.notify_all()
            try:
                with _writing:
                    self._connection.sendall(b"".join(frames))
            except OSError:
                os._exit(0)

    def _watched(self, serial: int, message: WatchEvents | WatchEnded) -> None:
        if isinstance(message, WatchEvents):
            with self._sending:
                self._await_room()
                self._put(self._numbers.events(serial, message))
            return
        self._calls.end(serial)
        failure = None if message.error is None else failure_of(message.error)
        self.send(Ended(serial, failure, message.in_stream))

    def _fetch(self, serial: int, frame: Fetch) -> None:
        request = HttpRequest(
            frame.method,
            frame.path,
            frame.body,
            content_type=frame.content_type,
            accept_encoding=frame.accept_encoding,
            changes=frame.changes,
            answer=frame.answer,
        )
        deadline = None if frame.deadline is None else Deadline(frame.deadline, self._clock)
        self._calls.add(serial, self._api.fetch(request, bytes, deadline, partial(self._fetched, serial)))

    def _fetched(self, serial: int, answer: bytes | ApiError) -> None:
        self._calls.end(serial)
        self.send(Body(serial, answer) if isinstance(answer, bytes) else Failed(serial, failure_of(answer)))

    def _list(self, ask: Ask) -> None:
        with self._sending:
            place = self._lists.pop(ask.continue_token, None) if ask.continue_token else self._numbers.begin_list()
        request = api.List(ask.selector, ask.limit, ask.continue_token, ask.resource_version)
        reply = partial(self._listed, ask.serial, place)
        joined = JoinedList(self._api, request, reply, lacked=self._lacked, clock=self._clock)
        self._calls.add(ask.serial, joined)
        joined.start()

    def _lacked(self, page: PodPage) -> int:
        with self._sending:
            return self._numbers.lacked(page.pods)

    def _listed(self, serial: int, place: int | None, answer: PodPage | ApiError) -> None:
        self._calls.end(serial)
        if not isinstance(answer, PodPage):
            self.send(Failed(serial, failure_of(answer)))
            return
        with self._sending:
            self._await_room()
            self._put(self._numbers.page(serial, answer))
            if place is None:
                return
            if answer.continue_token:
                self._lists[answer.continue_token] = place
            elif (forget := self._numbers.end_list(place)) is not None:
                self._put(forget)

    def _renew(self) -> Credential:
        """Ask the driver's process for a newer credential, and wait for it.

        Raises:
            SettingsError: it does not answer in time.
        """
        with self._renewed:
            before = self._credential
            self.send(NeedCredential(before))
            if not self._renewed.wait(self._limit):
                raise SettingsError("the credential was not renewed in time")
            return self._credential.credential()


@final
class _Calls:
    """The calls under way, by serial. A call may end before it is added."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[int, Call] = {}
        self._ended: set[int] = set()
        """Those that ended first."""

    def add(self, serial: int, call: Call) -> None:
        with self._lock:
            if serial in self._ended:
                self._ended.remove(serial)
            else:
                self._calls[serial] = call

    def find(self, serial: int) -> Call | None:
        with self._lock:
            return self._calls.get(serial)

    def end(self, serial: int) -> None:
        with self._lock:
            if self._calls.pop(serial, None) is None:
                self._ended.add(serial)
