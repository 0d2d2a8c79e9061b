"""`ObserverPodApi`: a `PodApi` whose lists and watches run in a child process, the observer.

The observer is started when it is first needed, and again after it has ended: its calls end as `Unavailable`, and the
sources try again as they do for any failure. When it ends too often, or cannot be started, this process lists and
watches itself for a while.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from actors.errors import ApiError, Unavailable
from actors.kube import api
from actors.kube.calls import OpenCall, OpenCalls, OpenStream
from actors.kube.http.workers import deliver
from actors.kube.observer.frames import (
    Ask,
    Begin,
    CancelCall,
    Ended,
    Events,
    Failed,
    Forget,
    LogLine,
    NeedCredential,
    Page,
    Ping,
    Pong,
    Renewed,
    WatchPods,
    WireCredential,
    error_of,
    from_observer,
    pack,
    read_frame,
)
from actors.kube.observer.pod_table import KnownPods
from actors.runtime import SystemClock, TimerThread, elapsed
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import Call, Reply, Request, Watch, WatchSink
    from actors.kube.auth.credentials import Access
    from actors.kube.http.pod_api import HttpPodApi
    from actors.kube.observer.frames import FromObserver, ToObserver
    from actors.runtime import Clock, Moment, TimerService

__all__ = ["ObserverPodApi"]

logger = get_logger(__name__)

A = TypeVar("A")

PING_EVERY: Final = timedelta(seconds=5)
LONGEST_SILENCE: Final = timedelta(seconds=15)
"""An observer that answers no ping for so long is killed: it hangs, or is stopped."""

MOST_ENDS: Final = 3
"""After so many ends within `ENDS_WITHIN`, this process observes itself for as long."""
ENDS_WITHIN: Final = timedelta(seconds=60)

END_LIMIT: Final = 1.0
"""Seconds that an observer may take to end by itself when the connection is closed. It takes milliseconds."""

CONNECTIONS: Final = 4
"""Calls of the observer that run at once: the sources have one each."""

_START: Final = """
import sys
sys.path[:] = {path}
from actors.kube.observer.child import main
main({descriptor}, {parent})
"""


@final
class ObserverPodApi:
    """Thread-safe.

    Args:
        own: sends everything but lists and watches, and these too while there is no observer. The observer is made like
            it and gets its credentials from it. `close` closes it.
    """

    def __init__(self, own: HttpPodApi) -> None:
        self.namespace = own.namespace
        self._own = own
        self._clock = SystemClock()
        self._timers = TimerThread(self._clock)
        self._lock = threading.Lock()
        self._observer: _Observer | None = None
        self._ends: list[Moment] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"ObserverPodApi({self._own!r})"

    @property
    def pid(self) -> int | None:
        """The observer's process id; None while there is none."""
        observer = self._observer
        return None if observer is None or observer.ended else observer.pid

    def send(self, request: Request[A], reply: Reply[A]) -> Call:
        """See `PodApi`."""
        if isinstance(request, api.List) and (observer := self._living()) is not None:
            return observer.list(request, reply)
        return self._own.send(request, reply)

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        observer = self._living()
        return self._own.watch(request, sink) if observer is None else observer.watch(request, sink)

    def close(self) -> None:
        """See `PodApi`."""
        with self._lock:
            self._closed = True
            observer = self._observer
        if observer is not None:
            observer.close()
        self._timers.close()
        self._own.close()

    def _living(self) -> _Observer | None:
        """Return the observer, a new one if the last has ended; None if this process is to observe itself."""
        with self._lock:
            if self._observer is not None and not self._observer.ended:
                return self._observer
            now = self._clock.monotonic()
            self._ends = [end for end in self._ends if elapsed(end, now) < ENDS_WITHIN]
            if self._closed or len(self._ends) >= MOST_ENDS:
                return None
            try:
                self._observer = _Observer(
                    self._begin(), self._own.access, clock=self._clock, timers=self._timers, on_end=self._note_end
                )
            except (OSError, RuntimeError) as error:
                logger.warning("observer cannot be started, this process observes itself: error=%s", error)
                self._ends = [now] * MOST_ENDS
                return None
            return self._observer

    def _begin(self) -> Begin:
        access, bounds = self._own.access, self._own.bounds
        return Begin(
            self.namespace,
            access.namespace,
            WireCredential.of(access.credentials.current()),
            self._own.request_timeout.total_seconds(),
            CONNECTIONS,
            (bounds.answer, bounds.one_object, bounds.headers),
            get_logger("actors").getEffectiveLevel(),
        )

    def _note_end(self) -> None:
        with self._lock:
            self._ends.append(self._clock.monotonic())


@final
class _Observer:
    """One child process, from its start to its end.

    Raises:
        OSError: it cannot be started.
        RuntimeError: no thread can be started.
    """

    def __init__(
        self, begin: Begin, access: Access, *, clock: Clock, timers: TimerService, on_end: Callable[[], None]
    ) -> None:
        self._access = access
        self._clock = clock
        self._timers = timers
        self._on_end = on_end
        self._lock = threading.Lock()
        self._calls = OpenCalls()
        self._lists: dict[int, OpenCall[Any]] = {}
        self._streams: dict[int, OpenStream] = {}
        self._serial = 0
        self._pods = KnownPods()
        self._heard_at = clock.monotonic()
        self._closing = False
        self.ended = False
        self._connection, theirs = socket.socketpair()
        try:
            self._process = _spawn(theirs)
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()
        self.pid = self._process.pid
        self._tell(begin)
        self._reader = threading.Thread(target=self._read, name="executor-pods/observer", daemon=True)
        self._reader.start()
        timers.schedule(PING_EVERY, self._watch_over)
        logger.info("observer started: pid=%d", self.pid)

    def list(self, request: api.List, reply: Reply[Any]) -> Call:
        """See `PodApi`."""
        call: OpenCall[Any] = OpenCall("the list", partial(deliver, reply), self._calls)
        serial = self._note(self._lists, call)
        return self._ask(
            serial,
            call,
            Ask(serial, request.selector, request.limit, request.continue_token, request.resource_version),
        )

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        stream = OpenStream(partial(deliver, sink), self._calls)
        serial = self._note(self._streams, stream)
        timeout = request.timeout.total_seconds()
        return self._ask(
            serial,
            stream,
            WatchPods(serial, request.selector, request.resource_version, timeout, request.send_initial_events),
        )

    def close(self) -> None:
        """End the process and all calls."""
        self._closing = True
        self._hang_up()
        self._reader.join(2 * END_LIMIT)

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, calls: dict[int, Any], call: Call) -> int:
        with self._lock:
            self._serial += 1
            calls[self._serial] = call
            return self._serial

    def _ask(self, serial: int, call: OpenCall[Any], frame: Ask | WatchPods) -> Call:
        call.depends_on(_Cancel(self, serial))
        self._tell(frame)
        if self.ended:
            self._end_calls()
        return call

    def drop(self, serial: int) -> None:
        """A call has completed: what still comes is dropped."""
        with self._lock:
            under_way = self._lists.pop(serial, None) or self._streams.pop(serial, None)
        if under_way is not None:
            self._tell(CancelCall(serial))

    def _tell(self, frame: ToObserver) -> None:
        """Send a frame without waiting. An observer that does not read its few frames hangs, and is killed."""
        data = pack(frame)
        try:
            with self._lock:
                sent = self._connection.send(data, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # it has ended; the reader knows
        if sent < len(data):
            self._kill("it reads nothing")

    # ── the reader's thread ──────────────────────────────────────────────────────────────────────────────────

    def _read(self) -> None:
        why = "the connection ended"
        try:
            while (body := read_frame(self._connection)) is not None:
                self._heard_at = self._clock.monotonic()
                self._receive(from_observer(body))
        except (OSError, ValueError, KeyError) as error:
            why = f"{type(error).__name__}: {error}"
        finally:
            self._end(why)

    def _receive(self, frame: FromObserver) -> None:  # noqa: C901 - one case a frame
        match frame:
            case Events(serial):
                read = self._pods.events(frame)
                if (stream := self._streams.get(serial)) is not None:
                    stream.deliver(read)
            case Page(serial):
                page = self._pods.page(frame)
                if (call := self._forget(self._lists, serial)) is not None:
                    call.complete(page)
            case Forget():
                self._pods.forget(frame)
            case Failed(serial, failure):
                if (call := self._forget(self._lists, serial)) is not None:
                    call.complete(error_of(failure))
            case Ended(serial, failure, in_stream):
                if (stream := self._forget(self._streams, serial)) is not None:
                    stream.end(failure and error_of(failure), in_stream=in_stream)
            case NeedCredential(refused):
                renewal = threading.Thread(target=self._renew, args=(refused,), name="executor-pods/renewal")
                renewal.daemon = True
                renewal.start()
            case LogLine(name, level, text):
                get_logger(name).log(level, "%s", text)
            case Pong():
                pass

    def _forget(self, calls: dict[int, Any], serial: int) -> Any:
        with self._lock:
            return calls.pop(serial, None)

    def _renew(self, refused: WireCredential) -> None:
        """Answer with a newer credential, or with the same if there is none. A login program may run for it."""
        credentials = self._access.credentials
        newest = credentials.current()
        if WireCredential.of(newest) == refused:
            newest = credentials.renewed(newest)
        self._tell(Renewed(WireCredential.of(newest)))

    def _end(self, why: str) -> None:
        """Reap the process, and end its calls."""
        self._hang_up()
        try:
            code = self._process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._connection.close()
        if code < 0:
            with suppress(ValueError):
                why = f"it was killed by {signal.Signals(-code).name}"
        self.ended = True
        if not self._closing:
            logger.warning("observer ended, another is started when it is needed: pid=%d reason=%s", self.pid, why)
            self._on_end()
        self._end_calls()

    def _end_calls(self) -> None:
        error: ApiError = Unavailable("the process that observes the pods has ended")
        with self._lock:
            lists, self._lists = self._lists, {}
            streams, self._streams = self._streams, {}
        for call in lists.values():
            call.complete(error)
        for stream in streams.values():
            stream.end(error)

    # ── the watchdog ─────────────────────────────────────────────────────────────────────────────────────────

    def _watch_over(self) -> None:
        if self.ended or self._closing:
            return
        if elapsed(self._heard_at, self._clock.monotonic()) > LONGEST_SILENCE:
            self._kill("it does not answer")
            return
        self._tell(Ping())
        self._timers.schedule(PING_EVERY, self._watch_over)

    def _kill(self, why: str) -> None:
        if not self.ended:
            logger.warning("observer killed: pid=%d reason=%s", self.pid, why)
            self._process.kill()

    def _hang_up(self) -> None:
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


@final
class _Cancel:
    """Ends a call of the observer when the call here has completed."""

    def __init__(self, observer: _Observer, serial: int) -> None:
        self._observer = observer
        self._serial = serial

    def cancel(self) -> None:
        """Tell the observer, unless it was the one that completed the call."""
        self._observer.drop(self._serial)


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Start the observer with its end of the connection. It imports what this process imports, and has no terminal.

    Raises:
        OSError: it cannot be started.
    """
    if not sys.executable:
        raise OSError("this program does not know its Python interpreter")
    descriptor = theirs.fileno()
    program = _START.format(path=json.dumps(sys.path), descriptor=descriptor, parent=os.getpid())
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", program],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env=os.environ,
    )
