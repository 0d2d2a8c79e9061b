"""`ObserverPodApi`: a `PodApi` that talks to the server from a child process, the observer.

The observer lists, watches and decodes pods, so that only news cross. Other requests cross as HTTP and come back as
bodies, so that this process waits for no socket of the server: each wait costs a thread, and each wake of a thread
takes the interpreter from the driver.

The observer is started when it is first needed, and again after it has ended: its calls end as `Unavailable`, and the
sources try again as they do for any failure, and a write as `Ambiguous`. When it ends too often, or cannot be started,
this process talks to the server itself for a while.
"""

from __future__ import annotations

import fcntl
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from actors.errors import BadRequest
from actors.kube import api
from actors.kube.calls import OpenCall, OpenCalls, OpenStream
from actors.kube.http import failures
from actors.kube.http.client import decoded
from actors.kube.http.workers import deliver
from actors.kube.observer.frames import (
    Ask,
    Begin,
    Body,
    CancelCall,
    Ended,
    Events,
    Failed,
    Fetch,
    Forget,
    FrameReader,
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
)
from actors.kube.observer.pod_table import KnownPods
from actors.runtime import SystemClock, TimerThread, at_rest, elapsed
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from actors.kube.api import Call, Reply, Request, Watch, WatchSink
    from actors.kube.auth.credentials import Access
    from actors.kube.http.client import HttpRequest
    from actors.kube.http.pod_api import HttpPodApi
    from actors.kube.observer.frames import FromObserver, ToObserver
    from actors.runtime import Moment, TimerService

__all__ = ["ObserverPodApi"]

logger = get_logger(__name__)

A = TypeVar("A")

PING_EVERY: Final = timedelta(seconds=5)
MOST_UNANSWERED: Final = 3
"""An observer that answers so many pings with nothing is killed: it hangs, or is stopped. They are counted, as this
process may have been stopped itself."""

MOST_ENDS: Final = 3
"""After so many ends within `ENDS_WITHIN`, this process talks to the server itself for as long."""
ENDS_WITHIN: Final = timedelta(seconds=60)

END_LIMIT: Final = 1.0
"""Seconds that `close` waits for the end of an observer that was killed. It takes milliseconds."""

GRACE: Final = timedelta(seconds=1)
"""So long after a call's limit it ends here. The observer knows why it is late, but may be stopped."""

CONNECTIONS: Final = 4
"""Calls of the observer that run at once: the sources have one each."""

STANDARD_STREAMS: Final = (0, 1, 2)

ENDED: Final = "the process that talks to the server for this one has ended"

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
        own: talks to the server while there is no observer. The observer is made like it and gets its credentials from
            it. `close` closes it.
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
        observer = self._living()
        if observer is None:
            return self._own.send(request, reply)
        if isinstance(request, api.List):
            return observer.list(request, reply)
        try:
            translated, read = self._own.translate(request)
        except BadRequest:
            return self._own.send(request, reply)  # which says so
        return observer.fetch(translated, read, request, reply)

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
                    self._begin,
                    self._own.access,
                    limit=self._own.request_timeout,
                    timers=self._timers,
                    on_end=self._note_end,
                )
            except (OSError, RuntimeError) as error:
                logger.warning("observer cannot be started, this process asks the server itself: error=%s", error)
                self._ends = [now] * MOST_ENDS
                return None
            return self._observer

    def _begin(self) -> Begin:
        """Return the first frame. A login program may run for it."""
        access, bounds = self._own.access, self._own.bounds
        return Begin(
            self.namespace,
            access.namespace,
            WireCredential.of(access.credentials.current()),
            self._own.request_timeout.total_seconds(),
            self._own.max_connections + CONNECTIONS,
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
        self,
        begin: Callable[[], Begin],
        access: Access,
        *,
        limit: timedelta,
        timers: TimerService,
        on_end: Callable[[], None],
    ) -> None:
        self._begin = begin
        self._access = access
        self._limit = limit
        self._timers = timers
        self._on_end = on_end
        self._lock = threading.Lock()
        self._calls = OpenCalls()
        self._requests: dict[int, _Request] = {}
        self._streams: dict[int, OpenStream] = {}
        self._told: list[tuple[int, bytes]] = []
        """Frames to be sent, each with the serial of the call that it begins, else 0."""
        self._is_due = False
        """They will be sent when the actors rest."""
        self._outbox: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        """Those that are left to the writer's thread; None is the end."""
        self._writing = True
        """That thread has frames to send, the first of all at least."""
        self._serial = 0
        self._pods = KnownPods()
        self._begun = False
        self._unanswered = 0
        """Pings since the observer was heard."""
        self._closing = False
        self.ended = False
        timers.schedule(PING_EVERY, self._watch_over)
        try:
            self._process = self._start()
        except BaseException:
            self.ended = True
            raise
        self.pid = self._process.pid
        logger.info("observer started: pid=%d", self.pid)

    def _start(self) -> subprocess.Popen[bytes]:
        self._connection, theirs = _connected()
        self._writer = threading.Thread(target=self._write, name="executor-pods/to-observer", daemon=True)
        started: queue.SimpleQueue[subprocess.Popen[bytes] | BaseException] = queue.SimpleQueue()
        self._reader = threading.Thread(
            target=self._run, args=(theirs, started), name="executor-pods/observer", daemon=True
        )
        try:
            self._reader.start()
        except RuntimeError:
            self._connection.close()
            theirs.close()
            raise
        process = started.get()
        if isinstance(process, BaseException):
            raise process
        return process

    def list(self, request: api.List, reply: Reply[Any]) -> Call:
        """See `PodApi`."""
        call: OpenCall[Any] = OpenCall("the list", partial(deliver, reply), self._calls)
        serial = self._note(self._requests, _Request(call))
        self._limit_call(call, write=False)
        return self._ask(
            serial,
            call,
            Ask(serial, request.selector, request.limit, request.continue_token, request.resource_version),
        )

    def fetch(self, request: HttpRequest, read: Callable[[bytes], A], asked: Request[A], reply: Reply[A]) -> Call:
        """Have a request sent; its answer is decoded here."""
        call: OpenCall[A] = OpenCall(f"the {asked.operation}", partial(deliver, reply), self._calls)
        serial = self._note(self._requests, _Request(call, read, write=request.write))
        self._limit_call(call, write=request.write)
        return self._ask(
            serial,
            call,
            Fetch(
                serial,
                request.method,
                request.path,
                request.body,
                request.content_type,
                request.accept_encoding,
                request.changes,
                request.answer,
                None if asked.deadline is None else asked.deadline.moment,
            ),
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
        """Kill the process, so that nothing more is sent, and cancel all calls."""
        self._closing = True
        self._process.kill()
        self._hang_up()
        self._calls.close()
        for thread in {self._reader, self._writer} - {threading.current_thread()}:
            thread.join(END_LIMIT)

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────

    def _note(self, calls: dict[int, Any], call: object) -> int:
        with self._lock:
            self._serial += 1
            calls[self._serial] = call
            return self._serial

    def _limit_call(self, call: OpenCall[Any], *, write: bool) -> None:
        """Complete the call when it is late. The observer says why, unless it is stopped."""

        def late() -> None:
            call.complete(failures.late(self._access.server, self._limit, started=True, sent=True, write=write))

        call.depends_on(self._timers.schedule(self._limit + GRACE, late))

    def _ask(self, serial: int, call: OpenCall[Any], frame: Ask | Fetch | WatchPods) -> Call:
        call.depends_on(_Cancel(self, serial))
        self._tell(frame, serial)
        if self._calls.closed:
            call.cancel()
        elif self.ended:
            self._end_calls()
        return call

    def drop(self, serial: int) -> None:
        """A call has completed: what still comes is dropped."""
        with self._lock:
            under_way = self._requests.pop(serial, None) or self._streams.pop(serial, None)
        if under_way is not None:
            self._tell(CancelCall(serial))

    def _tell(self, frame: ToObserver, serial: int = 0) -> None:
        """Have a frame sent, without waiting. An observer that does not read hangs, and is killed for that."""
        with self._lock:
            self._told.append((serial, pack(frame)))
            if self._is_due:
                return
            self._is_due = True
        at_rest(self._send)

    def _send(self) -> None:
        """Send what waits; what the observer does not take at once is left to the writer's thread."""
        with self._lock:
            self._is_due = False
            told, self._told = self._told, []
            if not self._writing:
                frames = self._joined(told)
                try:
                    sent = self._connection.send(frames, socket.MSG_DONTWAIT)
                except BlockingIOError:
                    sent = 0
                except OSError:  # the reader knows that the observer ends
                    return
                told = [(0, frames[sent:])] if sent < len(frames) else []
            self._writing = self._writing or bool(told)
            for each in told:
                self._outbox.put(each)

    # ── the writer's thread ──────────────────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        """Send the first frame, and what is left to this thread, until the end."""
        frames: bytes | None = pack(self._begin())
        while frames is not None:
            with suppress(OSError):  # as above
                self._connection.sendall(frames)
            self._begun = True
            with self._lock:
                self._writing = not self._outbox.empty()
            frames = self._left_frames()
        with self._lock:
            self._connection.close()

    def _left_frames(self) -> bytes | None:
        """Wait for frames, and return all that wait. None is the end."""
        waiting = [self._outbox.get()]
        while not self._outbox.empty():
            waiting.append(self._outbox.get())
        return None if None in waiting else self._joined([each for each in waiting if each is not None])

    def _joined(self, frames: Sequence[tuple[int, bytes]]) -> bytes:
        return b"".join([frame for serial, frame in frames if self._is_wanted(serial)])

    def _is_wanted(self, serial: int) -> bool:
        """Whether a frame begins no call, or one that nobody has cancelled since."""
        return not serial or serial in self._requests or serial in self._streams

    # ── the reader's thread ──────────────────────────────────────────────────────────────────────────────────

    def _run(self, theirs: socket.socket, started: queue.SimpleQueue[subprocess.Popen[bytes] | BaseException]) -> None:
        """Start the observer, and hear it to its end: on Linux it ends with the thread that started it."""
        process = None
        try:
            with theirs:
                process = _spawn(theirs)
            self._writer.start()
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits for it
            if process is not None:
                process.kill()
                process.wait()
            self._connection.close()
            started.put(error)
            return
        started.put(process)
        self._end(process, self._hear())

    def _hear(self) -> str:
        """Receive frames until there are no more, and return why."""
        try:
            reader = FrameReader(self._connection)
            while frames := reader.read():
                self._unanswered = 0
                for frame in frames:
                    self._receive(from_observer(frame))
        except Exception as error:  # noqa: BLE001 - whatever it has sent
            return f"{type(error).__name__}: {error}"
        return "the connection ended"

    def _receive(self, frame: FromObserver) -> None:  # noqa: C901, PLR0912 - one case a frame
        match frame:
            case Events(serial):
                read = self._pods.events(frame)
                if (stream := self._streams.get(serial)) is not None:
                    stream.deliver(read)
            case Page(serial):
                page = self._pods.page(frame)
                if (request := self._forget(self._requests, serial)) is not None:
                    request.call.complete(page)
            case Forget():
                self._pods.forget(frame)
            case Body(serial, body):
                if (request := self._forget(self._requests, serial)) is not None:
                    request.call.complete(decoded(body, request.read, self._access, write=request.write))
            case Failed(serial, failure):
                if (request := self._forget(self._requests, serial)) is not None:
                    request.call.complete(error_of(failure))
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

    def _end(self, process: subprocess.Popen[bytes], why: str) -> None:
        """Reap the process, and end its calls."""
        self._hang_up()
        try:
            code = process.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        else:
            why = _end_of(code) or why
        self._outbox.put(None)
        if not self._closing:
            logger.warning("observer ended, another is started when it is needed: pid=%d reason=%s", process.pid, why)
            self._on_end()
        self.ended = True  # last: from now on calls are answered, and another observer may be started
        self._end_calls()

    def _end_calls(self) -> None:
        with self._lock:
            requests, streams = [*self._requests.values()], [*self._streams.values()]
            self._requests.clear()  # not new ones: a call that begins now is noted in these
            self._streams.clear()
        if self._closing:
            for call in (*(request.call for request in requests), *streams):
                call.cancel()
            return
        for request in requests:
            request.call.complete(failures.unanswered(ENDED, carried_out=request.write))
        for stream in streams:
            stream.end(failures.unanswered(ENDED, carried_out=False))

    # ── the watchdog ─────────────────────────────────────────────────────────────────────────────────────────

    def _watch_over(self) -> None:
        if self.ended or self._closing:
            return
        if self._unanswered >= MOST_UNANSWERED:
            logger.warning("observer killed: pid=%d reason=%s", self.pid, "it does not answer")
            self._process.kill()
            self._hang_up()  # a process that was forked when this one started may have its end, too
            return
        if self._begun:
            self._unanswered += 1
            self._tell(Ping())
        self._timers.schedule(PING_EVERY, self._watch_over)

    def _hang_up(self) -> None:
        with self._lock, suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class _Request:
    """A request under way."""

    call: OpenCall[Any]
    read: Callable[[bytes], Any] = bytes
    """Decodes the answer. The observer has decoded that of a list."""
    write: bool = False


@final
class _Cancel:
    """Ends a call of the observer when the call here has completed."""

    def __init__(self, observer: _Observer, serial: int) -> None:
        self._observer = observer
        self._serial = serial

    def cancel(self) -> None:
        """Tell the observer, unless it was the one that completed the call."""
        self._observer.drop(self._serial)


def _end_of(code: int) -> str:
    """Return how a process has ended, empty if in order."""
    if code < 0:
        with suppress(ValueError):
            return f"it was killed by {signal.Signals(-code).name}"
    return f"it exited with {code}" if code else ""


def _connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection. Neither takes the number of a standard stream that this process has closed."""
    ours, theirs = socket.socketpair()
    return _beyond_streams(ours), _beyond_streams(theirs)


def _beyond_streams(end: socket.socket) -> socket.socket:
    if end.fileno() > STANDARD_STREAMS[-1]:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, STANDARD_STREAMS[-1] + 1))


def _spawn(theirs: socket.socket) -> subprocess.Popen[bytes]:
    """Start the observer with its end of the connection. It imports what this process imports, and has no terminal.

    Raises:
        OSError: it cannot be started.
    """
    if getattr(sys, "frozen", False):
        raise OSError("a frozen program has no Python interpreter, but would start itself once more")
    if not sys.executable:
        raise OSError("this program does not know its Python interpreter")
    descriptor = theirs.fileno()
    path = [each for each in sys.path if isinstance(each, str)]
    program = _START.format(path=json.dumps(path), descriptor=descriptor, parent=os.getpid())
    return subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, *_options(), "-c", program],
        pass_fds=[descriptor],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=None if _is_open(STANDARD_STREAMS[-1]) else subprocess.DEVNULL,
        process_group=0,  # Ctrl-C is the driver's
        env=os.environ,
    )


def _options() -> list[str]:
    """Return what keeps this interpreter from its environment: it keeps the observer's from it, too."""
    flags = sys.flags
    options = {"-I": flags.isolated, "-E": flags.ignore_environment, "-s": flags.no_user_site, "-S": flags.no_site}
    return [option for option, is_set in options.items() if is_set]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
