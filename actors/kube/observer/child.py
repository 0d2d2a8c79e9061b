"""The observer's side: lists and watches for the driver's process until that closes the connection, or has ended.

It runs an `HttpPodApi` of its own. Its credential comes from the driver's process, so that a login program runs once.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import socket
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
from actors.kube.http.pod_api import HttpPodApi
from actors.kube.observer.frames import (
    Ask,
    Begin,
    CancelCall,
    Ended,
    Failed,
    LogLine,
    NeedCredential,
    Ping,
    Pong,
    Renewed,
    WatchPods,
    failure_of,
    pack,
    read_frame,
    to_observer,
)
from actors.kube.observer.pod_table import PodNumbers
from actors.runtime import SystemClock
from actors.text import LONGEST_LINE, get_logger, one_line

if TYPE_CHECKING:
    from actors.errors import ApiError
    from actors.kube.api import Call
    from actors.kube.auth.credentials import Credential
    from actors.kube.observer.frames import FromObserver, ToObserver

__all__ = ["main"]

PARENT_CHECK: Final = 0.5
"""Seconds between two looks at whether the driver's process lives: a process that it has forked may hold its end of the
connection open."""


def main(descriptor: int, parent: int) -> NoReturn:
    """Observe until the connection ends or `parent` is gone, then end this process. Nothing needs an orderly end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
    connection = socket.socket(fileno=descriptor)
    try:
        _serve(connection, parent)
    except BaseException as error:  # noqa: BLE001 - the last word, whatever it was
        with suppress(Exception):
            text = one_line(f"the observer has failed: {type(error).__name__}: {error}", LONGEST_LINE)
            connection.sendall(pack(LogLine(__name__, logging.ERROR, text)))
    finally:
        os._exit(0)


def _serve(connection: socket.socket, parent: int) -> None:
    first = _next(connection, parent)
    if first is None:
        return
    begin = to_observer(first)
    if not isinstance(begin, Begin):
        raise TypeError(f"the first frame is {type(begin).__name__}")
    observer = _Observer(connection, begin)
    while (frame := _next(connection, parent)) is not None:
        observer.receive(to_observer(frame))


def _next(connection: socket.socket, parent: int) -> bytes | None:
    while not select.select([connection], [], [], PARENT_CHECK)[0]:
        if os.getppid() != parent:
            return None
    return read_frame(connection)


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
        self._sending = threading.RLock()
        """Held while something is numbered and sent: numbers mean what was sent before."""
        log = get_logger("actors")
        log.setLevel(begin.level)
        log.propagate = False
        log.addHandler(_LogHandler(self))
        clock = SystemClock()
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
        """Send a frame. Waits while the driver's process does not read; ends this process if it is gone."""
        data = pack(frame)
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError:
            os._exit(0)

    def _watched(self, serial: int, message: WatchEvents | WatchEnded) -> None:
        if isinstance(message, WatchEvents):
            with self._sending:
                self.send(self._numbers.events(serial, message))
            return
        self._calls.end(serial)
        failure = None if message.error is None else failure_of(message.error)
        self.send(Ended(serial, failure, message.in_stream))

    def _list(self, ask: Ask) -> None:
        with self._sending:
            place = self._lists.pop(ask.continue_token, None) if ask.continue_token else self._numbers.begin_list()
        request = api.List(ask.selector, ask.limit, ask.continue_token, ask.resource_version)
        self._calls.add(ask.serial, self._api.send(request, partial(self._listed, ask.serial, place)))

    def _listed(self, serial: int, place: int | None, answer: PodPage | ApiError) -> None:
        self._calls.end(serial)
        if not isinstance(answer, PodPage):
            self.send(Failed(serial, failure_of(answer)))
            return
        with self._sending:
            self.send(self._numbers.page(serial, answer))
            if place is None:
                return
            if answer.continue_token:
                self._lists[answer.continue_token] = place
            elif (forget := self._numbers.end_list(place)) is not None:
                self.send(forget)

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
