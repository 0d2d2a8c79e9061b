"""`FleetProcess`: where the children run that observe the fleet and write to it, with `source.process`.

The process is started with its first child, and again after it has ended: its children are lost then, and restarted by
the Backend's supervisor, in order. One that does not answer, or in which a child hangs, is killed. When too many in a
row never begin their work, the Backend's process runs these children itself from then on.
"""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

from actors.backend.process.frames import (
    Begin,
    Ended,
    FrameReader,
    LogRecord,
    NeedCredential,
    Observed,
    Ping,
    Pong,
    Ready,
    Renewed,
    Spawn,
    Stop,
    Tell,
    Told,
    pack,
    unpack,
)
from actors.backend.process.log_records import log_records
from actors.backend.process.observed import KnownStates
from actors.backend.process.remote_actor import ChildEnded, RemoteActor
from actors.kube.http.pod_api import HttpPodApi
from actors.metrics.counts import ProcessCounts
from actors.runtime import Hung, Lost, at_rest, in_words, start_thread
from actors.text import get_logger, log_with
from actors.text.version import package_version

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.backend.children import Maker
    from actors.backend.process.frames import FromFleet, Hang, ToFleet
    from actors.kube.api import Manifest, PodApi
    from actors.kube.auth.credentials import Credential
    from actors.metrics.counts import FleetCounts
    from actors.runtime import Actor, Address, Context, TimerService
    from actors.settings import Settings

__all__ = ["FleetProcess", "process_for"]

logger = get_logger(__name__)

PING_EVERY: Final = timedelta(seconds=5)
"""At the most; oftener if a child may be busy for less than four times as long."""

PINGS_PER_PATIENCE: Final = 4

MOST_UNANSWERED: Final = 3
"""A process that answers so many pings with nothing is killed: it hangs, or is stopped. They are counted, as this
process may have been stopped itself."""

START_LIMIT: Final = timedelta(minutes=1)
"""A process that has not begun its work so long after it was sent the first frame is killed. That takes a second, and
many beside others that compute. What is counted are the intervals between pings, for the same reason."""

MOST_FAILED_STARTS: Final = 5
"""After so many processes in a row that never began their work, which takes ten seconds or more, no more is started:
another version of this package may have been installed since. If the first one cannot be started at all, none can."""

MOST_HANGS: Final = 2
"""A process is killed when so many pongs in a row say that a child hangs. After both processes were stopped, the first
one may say so of a child that could not tell the Backend something meanwhile."""

END_LIMIT: Final = 1.0
"""Seconds that `close` waits for the end of a process that was killed. It takes milliseconds."""

NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)
"""A driver may have SIGPIPE end it, as many commands do: not because its fleet's process has ended."""

STANDARD_STREAMS: Final = (0, 1, 2)

_START: Final = """
import sys
sys.path[:] = {path}
from actors.backend.process.fleet import main
main({descriptor}, {parent}, {version!r})
"""


def process_for(
    settings: Settings, api: PodApi, *, backend: Address, counts: FleetCounts, timers: TimerService
) -> FleetProcess | None:
    """Return the process of a fleet; None if only this process can reach its cluster, which is one for tests."""
    if not isinstance(api, HttpPodApi):
        return None
    return FleetProcess(settings, api, backend=backend, counts=counts, timers=timers)


@final
class FleetProcess:
    """The process of one Backend, through all its incarnations. Used by the Backend's thread.

    Args:
        settings: of the fleet.
        api: a client of the Backend's process. That of the fleet's process is made like it, and gets its credentials
            from it, so that a login program runs once.
        backend: receives what the children tell the Backend.
        counts: receive the counters of the process.
        timers: call its watchdog.
    """

    def __init__(
        self, settings: Settings, api: HttpPodApi, *, backend: Address, counts: FleetCounts, timers: TimerService
    ) -> None:
        self._settings = settings
        self._api = api
        self._backend = backend
        self._counts = counts
        self._timers = timers
        self._owners: tuple[Manifest, ...] = ()
        self._patience = settings.backend.hang_timeout
        self._process: _Process | None = None
        self._version = package_version()
        self._was_ready = False
        """One has begun its work."""
        self._failed_starts = 0
        """Since that one."""
        self._runs_here = False

    @property
    def pid(self) -> int | None:
        """The process id; None while there is none."""
        process = self._process
        return None if process is None or process.ended else process.pid

    def place(self, makers: Mapping[str, Maker], owners: tuple[Manifest, ...]) -> Mapping[str, Maker]:
        """Return what makes these children where they are to run. `owners` are those of the executors."""
        self._owners = owners
        return {name: partial(self._make, make) for name, make in makers.items()}

    def hurry(self, patience: timedelta) -> None:
        """Kill the process if a child is busy with one message for longer than `patience`, from now on."""
        self._patience = min(self._patience, patience)
        if self._process is not None:
            self._process.check_soon()

    def close(self) -> None:
        """Kill the process, so that nothing more is sent."""
        if self._process is not None:
            self._process.close()

    def _make(self, make: Maker, context: Context) -> Actor:
        process = self._living()
        return make(context) if process is None else RemoteActor(context, process)

    def _living(self) -> _Process | None:
        """Return the process, a new one if the last has ended; None if none can be had."""
        if self._process is not None and self._process.ended:
            self._judge(self._process)
            self._process = None
        if self._process is None and not self._runs_here:
            self._process = self._started()
        return self._process

    def _started(self) -> _Process | None:
        """Return a new process; None if none can be had.

        Raises:
            Lost: this one cannot be had.
        """
        try:
            return _Process(
                self._begin,
                self._api,
                version=self._version,
                app_id=self._settings.app_id,
                backend=self._backend,
                counts=self._counts,
                timers=self._timers,
                patience=lambda: self._patience,
            )
        except (OSError, RuntimeError) as error:  # no descriptor, no thread
            self._note_failed_start(is_hopeless=not self._was_ready)
            if self._runs_here:
                return None
            raise Lost(f"no process of the fleet can be started: {error}") from error

    def _judge(self, ended: _Process) -> None:
        """Decide whether another process can be expected to work."""
        logger.warning("process of the fleet ended: pid=%s reason=%s", ended.pid, ended.why)
        if ended.is_ready:
            self._was_ready, self._failed_starts = True, 0
        else:
            self._note_failed_start(is_hopeless=ended.pid is None and not self._was_ready)

    def _note_failed_start(self, *, is_hopeless: bool) -> None:
        self._failed_starts += 1
        if is_hopeless or self._failed_starts >= MOST_FAILED_STARTS:
            logger.warning("no process for the fleet can be had, this process observes and writes itself")
            self._runs_here = True

    def _begin(self) -> Begin:
        """Return the first frame. A login program may run for it."""
        api = self._api
        return Begin(
            self._settings,
            self._owners,
            api.namespace,
            api.access.namespace,
            api.access.credentials.current(),
            api.request_timeout,
            api.max_connections,
            api.bounds,
            self._counts.process or ProcessCounts(),
            get_logger("actors").getEffectiveLevel(),
        )


@final
class _Process:
    """One process, from its start to its end. It starts and ends without the caller, who learns of both by messages."""

    def __init__(
        self,
        begin: Callable[[], Begin],
        api: HttpPodApi,
        *,
        version: str,
        app_id: str,
        backend: Address,
        counts: FleetCounts,
        timers: TimerService,
        patience: Callable[[], timedelta],
    ) -> None:
        self._begin = begin
        self._version = version
        self._app_id = app_id
        self._credentials = api.access.credentials
        self._backend = backend
        self._counts = counts
        self._timers = timers
        self._patience = patience
        self._lock = threading.RLock()
        self._actors: dict[tuple[str, int], Address] = {}
        """Those who stand for its children, by name and incarnation."""
        self._told: list[ToFleet] = []
        """To be sent when the actors rest."""
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        """What is left to the writer's thread; None is the end."""
        self._writing = True
        """That thread has frames to send, the first of all at least."""
        self._states = KnownStates()
        self._records = log_records(app_id)
        self._unanswered = 0
        """Pings since the process was heard."""
        self._may_begin = False
        """It is sent its first frame. A login program may run before that."""
        self._beginning = timedelta()
        """For how long it has not begun since."""
        self._hangs = 0
        """Pongs in a row that say that a child hangs."""
        self._hung: dict[str, Hung] = {}
        """The child for which the process was killed."""
        self._closing = False
        self.why = ""
        """Why it was killed, or has ended."""
        self._popen: subprocess.Popen[bytes] | None = None
        self.is_ready = False
        self.ended = False
        self._connection, theirs = _connected()
        self._writer: threading.Thread | None = None
        try:
            self._reader = start_thread(partial(self._run, theirs), "executor-pods/fleet")
        except BaseException:
            self.ended = True
            self._connection.close()
            theirs.close()
            raise
        self._check = timers.schedule(self._ping_interval(), self._watch_over)

    @property
    def pid(self) -> int | None:
        """The process id, None before it was started."""
        return None if self._popen is None else self._popen.pid

    # ── for actors ───────────────────────────────────────────────────────────────────────────────────────────

    def spawn(self, name: str, incarnation: int, reply_to: Address) -> None:
        """Start a child; `reply_to` gets `ChildEnded` once."""
        with self._lock:
            ended = self.ended
            if not ended:
                self._actors[name, incarnation] = reply_to
        if ended:
            reply_to.tell(ChildEnded(self._loss_of(name)))
        else:
            self._tell(Spawn(name, incarnation))

    def tell(self, name: str, incarnation: int, message: object) -> None:
        """Send a message to a child."""
        self._tell(Tell(name, incarnation, message))

    def stop(self, name: str, incarnation: int) -> None:
        """Stop a child after all messages that came before."""
        self._tell(Stop(name, incarnation))

    def close(self) -> None:
        """Kill the process, and wait for its end."""
        self._closing = True
        self._kill()
        for thread in (self._reader, self._writer):
            if thread is not None and thread is not threading.current_thread():
                thread.join(END_LIMIT)

    def _tell(self, frame: ToFleet) -> None:
        """Have a frame sent, without waiting. A process that does not read hangs, and is killed for that."""
        with self._lock:
            self._told.append(frame)
            if len(self._told) > 1:
                return
        at_rest(self._send)

    def _send(self) -> None:
        """Send what waits; what the process does not take at once is left to the writer's thread."""
        with self._lock:
            told, self._told = self._told, []
            data = self._packed(told)
            if not self._writing:
                try:
                    data = data[self._connection.send(data, socket.MSG_DONTWAIT | NO_SIGNAL) :]
                except BlockingIOError:
                    pass
                except OSError:  # the reader knows that the process ends
                    return
            if data:
                self._writing = True
                self._outbox.put(data)

    def _packed(self, frames: list[ToFleet]) -> bytes:
        """Return frames as bytes. If they cannot cross, the process has missed something: it is killed."""
        try:
            return pack(frames) if frames else b""
        except Exception as error:
            logger.exception("frames cannot cross")
            self._kill(f"frames cannot cross: {type(error).__name__}")
            return b""

    # ── the writer's thread ──────────────────────────────────────────────────────────────────────────────────

    def _write(self) -> None:
        """Send the first frame, and what is left to this thread, until the end."""
        log_with(app_id=self._app_id)
        data: bytes | None = self._first()
        self._may_begin = True
        while data is not None:
            with suppress(OSError):  # as above
                self._connection.sendall(data, NO_SIGNAL)
            with self._lock:
                self._writing = not self._outbox.empty()
            data = self._outbox.get()
        with self._lock:
            self._connection.close()

    def _first(self) -> bytes:
        """Return the first frame. If there is none, the process is killed."""
        try:
            frame = self._begin()
        except Exception as error:
            logger.exception("no credential for the process of the fleet")
            self._kill(f"it has no credential: {type(error).__name__}")
            return b""
        return self._packed([frame])

    # ── the reader's thread ──────────────────────────────────────────────────────────────────────────────────

    def _run(self, theirs: socket.socket) -> None:
        """Start the process, and hear it to its end: on Linux it ends with the thread that started it."""
        log_with(app_id=self._app_id)
        try:
            with theirs:
                self._popen = _spawn(theirs, self._version)
            logger.info("process of the fleet started: pid=%d", self._popen.pid)
            if self._closing:
                self._kill()
            self._writer = start_thread(self._write, "executor-pods/to-fleet")
            why = self._hear()
        except OSError as error:
            why = f"{type(error).__name__}: {in_words(error)}"
        except BaseException as error:  # noqa: BLE001 - whatever keeps it from starting, or what it has sent
            why = f"{type(error).__name__}: {error}"
        self._end(why)

    def _hear(self) -> str:
        """Receive frames until there are no more, and return why."""
        reader = FrameReader(self._connection)
        while read := reader.read():
            self._unanswered = 0
            for data in read:
                for frame in unpack(data):
                    if not self._closing:
                        self._receive(frame)
        return "the connection ended"

    def _receive(self, frame: FromFleet) -> None:
        match frame:
            case Told(message):
                self._backend.tell(message)
            case Observed(is_last=is_last):
                self._states.take(frame)
                if is_last:
                    self._backend.tell(self._states.observed())
            case Ended(name, incarnation, cause):
                self._end_actor((name, incarnation), cause)
            case Ready():
                self.is_ready = True
            case Pong():
                self._counts.process = frame.counts
                self._judge(frame.hang)
            case LogRecord(attributes):
                self._records.put(attributes)
            case NeedCredential(refused):
                start_thread(partial(self._renew, refused), "executor-pods/renewal")

    def _renew(self, refused: Credential) -> None:
        """Answer with a newer credential, or with the same if there is none. A login program may run for it."""
        newest = self._credentials.current()
        if newest == refused:
            newest = self._credentials.renewed(newest)
        self._tell(Renewed(newest))

    def _end_actor(self, key: tuple[str, int], cause: BaseException | None) -> None:
        with self._lock:
            actor = self._actors.pop(key, None)
        if actor is not None:
            actor.tell(ChildEnded(cause))

    def _end(self, why: str) -> None:
        """Reap the process; its children are lost."""
        self._hang_up()
        ended = "" if self._popen is None else _reaped(self._popen)
        self.why = self.why or ended or why
        self._outbox.put(None)
        if self._writer is None:
            self._connection.close()
        if self._counts.process is not None:
            self._counts.process.lose()
        self._records.end()
        self._records.join(END_LIMIT)
        with self._lock:
            self.ended = True
        self._end_actors()

    def _end_actors(self) -> None:
        with self._lock:
            actors, self._actors = self._actors, {}
        for (name, _), actor in actors.items():
            actor.tell(ChildEnded(self._loss_of(name)))

    def _loss_of(self, name: str) -> Exception | None:
        """Return why a child has ended with the process. The one that hung has failed."""
        if self._closing:
            return None
        return self._hung.get(name) or Lost(f"the process of the fleet has ended: {self.why}")

    # ── the watchdog ─────────────────────────────────────────────────────────────────────────────────────────

    def _ping_interval(self) -> timedelta:
        return min(PING_EVERY, self._patience() / PINGS_PER_PATIENCE)

    def check_soon(self) -> None:
        """Check at the intervals that the patience needs now. Called by the thread that also checks."""
        self._check.cancel()
        if not self.ended:
            self._check = self._timers.schedule(self._ping_interval(), self._watch_over)

    def _watch_over(self) -> None:
        if self.ended or self._closing:
            return
        if self._unanswered >= MOST_UNANSWERED:
            self._kill("it does not answer")
            return
        if self._beginning >= START_LIMIT:
            self._kill("it does not begin")
            return
        if self.is_ready:
            self._unanswered += 1
            self._tell(Ping(self._patience()))
        elif self._may_begin:
            self._beginning += self._ping_interval()
        self._check = self._timers.schedule(self._ping_interval(), self._watch_over)

    def _judge(self, hang: Hang | None) -> None:
        self._hangs = self._hangs + 1 if hang is not None else 0
        if hang is None or self._hangs < MOST_HANGS:
            return
        hung = Hung(f"{hang.name} was busy with {hang.message} for {hang.seconds:.1f}s")
        hung.add_note(hang.stack)
        self._hung[hang.name] = hung
        text = "actor hangs, its process is killed: actor=%s message=%s busy=%.1fs"
        logger.error(text, hang.name, hang.message, hang.seconds, exc_info=hung)
        self._kill(str(hung))

    def _kill(self, why: str = "") -> None:
        """Kill the process. One that was forked when it started may have its end of the connection, too."""
        self.why = self.why or why
        if self._popen is not None:
            self._popen.kill()
        self._hang_up()

    def _hang_up(self) -> None:
        with self._lock, suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)


def _reaped(process: subprocess.Popen[bytes]) -> str:
    """Wait for the end of a process that has closed its connection, and return how it ended, empty if in order."""
    try:
        code = process.wait(END_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return ""
    if code < 0:
        with suppress(ValueError):
            return f"it was killed by {signal.Signals(-code).name}"
    return f"it exited with {code}" if code else ""


def _connected() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a connection. Neither takes the number of a standard stream that this process has closed."""
    ours, theirs = map(_beyond_streams, socket.socketpair())
    for end in (ours, theirs):
        end.settimeout(None)  # whatever the program has set by `socket.setdefaulttimeout`
    return ours, theirs


def _beyond_streams(end: socket.socket) -> socket.socket:
    if end.fileno() > STANDARD_STREAMS[-1]:
        return end
    with end:
        return socket.socket(fileno=fcntl.fcntl(end.fileno(), fcntl.F_DUPFD_CLOEXEC, STANDARD_STREAMS[-1] + 1))


def _spawn(theirs: socket.socket, version: str) -> subprocess.Popen[bytes]:
    """Start the process with its end of the connection. It imports what this process imports, and has no terminal.

    Raises:
        OSError: it cannot be started.
    """
    if getattr(sys, "frozen", False):
        raise OSError("a frozen program has no Python interpreter, but would start itself once more")
    if not sys.executable:
        raise OSError("this program does not know its Python interpreter")
    descriptor = theirs.fileno()
    path = [each for each in sys.path if isinstance(each, str)]
    program = _START.format(path=ascii(path), descriptor=descriptor, parent=os.getpid(), version=version)
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
    """Return what keeps this interpreter from its environment: it keeps that of the process from it, too."""
    flags = sys.flags
    options = {"-I": flags.isolated, "-E": flags.ignore_environment, "-s": flags.no_user_site, "-S": flags.no_site}
    return [option for option, is_set in options.items() if is_set]


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True
