"""`Incarnation`: one process of a fleet, from its start to its end.

| stage | next stage | when |
| --- | --- | --- |
| launched | setting up | the writer's thread has the first frame, for which a login program may run |
| setting up | ready | `Ready` has come: children are started, told and stopped |
| any | ended | the connection has ended: the process was killed, has crashed, or cannot be launched |

Three threads of the Backend's process share one: the actors' thread sends frames, the writer's thread sends what the
process does not take at once, and the reader's thread launches it, hears it, and reaps it.
"""

from __future__ import annotations

import queue
import socket
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, final

from actors.backend.process import launch
from actors.backend.process.frames import (
    Ended,
    FrameReader,
    LogRecord,
    MessageToBackend,
    MessageToChild,
    NeedCredential,
    Observed,
    Ping,
    Pong,
    Ready,
    Renewed,
    Spawn,
    Stop,
    pack,
    unpack,
)
from actors.backend.process.launch import END_LIMIT
from actors.backend.process.log_records import log_records
from actors.backend.process.observed import KnownStates
from actors.backend.process.remote_actor import ChildEnded
from actors.backend.process.watchdog import Stage, Watchdog, ping_interval
from actors.runtime import Hung, Lost, at_rest, in_words, start_thread
from actors.text import get_logger, log_with

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from datetime import timedelta

    from actors.backend.process.frames import FromFleet, Hang, Setup, ToFleet
    from actors.kube.auth.credentials import Credential
    from actors.kube.http.pod_api import HttpPodApi
    from actors.metrics.counts import FleetCounts
    from actors.runtime import Address, TimerService

__all__ = ["Incarnation"]

logger = get_logger(__name__)

NO_SIGNAL: Final = getattr(socket, "MSG_NOSIGNAL", 0)
"""A driver may have SIGPIPE end it, as many commands do: not because its fleet's process has ended."""


@final
class Incarnation:
    """One process. It starts and ends without the caller, who learns of both by messages.

    Args:
        make_setup: returns the first frame. A login program may run for it.
        api: its credentials are those of the process.
        version: of this package.
        app_id: of the fleet.
        backend: receives what the children tell the Backend.
        counts: receive the counters of the process.
        timers: call the watchdog.
        patience: returns for how long a child may be busy with one message now.
    """

    def __init__(
        self,
        make_setup: Callable[[], Setup],
        api: HttpPodApi,
        *,
        version: str,
        app_id: str,
        backend: Address,
        counts: FleetCounts,
        timers: TimerService,
        patience: Callable[[], timedelta],
    ) -> None:
        self._make_setup = make_setup
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
        self._queued: list[ToFleet] = []
        """To be sent when the actors rest."""
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        """What is left to the writer's thread; None is the end."""
        self._writing = True
        """That thread has frames to send, the first of all at least."""
        self._states = KnownStates()
        self._records = log_records(app_id)
        self._watchdog = Watchdog()
        self._hung: dict[str, Hung] = {}
        """The child for which the process was killed."""
        self._closing = False
        self.why = ""
        """Why it was killed, or has ended."""
        self._popen: subprocess.Popen[bytes] | None = None
        self.stage = Stage.LAUNCHED
        self.was_ready = False
        """It has reached that stage."""
        self._connection, theirs = launch.connection_pair()
        self._writer: threading.Thread | None = None
        try:
            self._reader = start_thread(partial(self._run_reader, theirs), "executor-pods/fleet")
        except BaseException:
            self.stage = Stage.ENDED
            self._connection.close()
            theirs.close()
            raise
        self._next_check = timers.schedule(ping_interval(patience()), self._check)

    @property
    def pid(self) -> int | None:
        """The process id, None before it was started."""
        return None if self._popen is None else self._popen.pid

    # ── for actors ───────────────────────────────────────────────────────────────────────────────────────────

    def spawn(self, name: str, incarnation: int, reply_to: Address) -> None:
        """Start a child; `reply_to` gets `ChildEnded` once."""
        with self._lock:
            has_ended = self.stage is Stage.ENDED
            if not has_ended:
                self._actors[name, incarnation] = reply_to
        if has_ended:
            reply_to.tell(ChildEnded(self._loss_of(name)))
        else:
            self._send(Spawn(name, incarnation))

    def tell(self, name: str, incarnation: int, message: object) -> None:
        """Send a message to a child."""
        self._send(MessageToChild(name, incarnation, message))

    def stop(self, name: str, incarnation: int) -> None:
        """Stop a child after all messages that came before."""
        self._send(Stop(name, incarnation))

    def close(self) -> None:
        """Kill the process, and wait for its end."""
        self._closing = True
        self._kill()
        for thread in (self._reader, self._writer):
            if thread is not None and thread is not threading.current_thread():
                thread.join(END_LIMIT)

    def _send(self, frame: ToFleet) -> None:
        """Have a frame sent, without waiting. A process that does not read hangs, and is killed for that."""
        with self._lock:
            self._queued.append(frame)
            if len(self._queued) > 1:
                return
        at_rest(self._send_queued)

    def _send_queued(self) -> None:
        """Send what waits; what the process does not take at once is left to the writer's thread."""
        with self._lock:
            queued, self._queued = self._queued, []
            data = self._packed(queued)
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

    def _run_writer(self) -> None:
        """Send the first frame, and what is left to this thread, until the end."""
        log_with(app_id=self._app_id)
        data: bytes | None = self._packed_setup()
        self._reach(Stage.SETTING_UP)
        while data is not None:
            with suppress(OSError):  # as above
                self._connection.sendall(data, NO_SIGNAL)
            with self._lock:
                self._writing = not self._outbox.empty()
            data = self._outbox.get()
        with self._lock:
            self._connection.close()

    def _packed_setup(self) -> bytes:
        """Return the first frame as bytes. If there is none, the process is killed."""
        try:
            frame = self._make_setup()
        except Exception as error:
            logger.exception("no credential for the process of the fleet")
            self._kill(f"it has no credential: {type(error).__name__}")
            return b""
        return self._packed([frame])

    # ── the reader's thread ──────────────────────────────────────────────────────────────────────────────────

    def _run_reader(self, theirs: socket.socket) -> None:
        """Start the process, and hear it to its end: on Linux it ends with the thread that started it."""
        log_with(app_id=self._app_id)
        try:
            with theirs:
                self._popen = launch.start(theirs, self._version)
            logger.info("process of the fleet started: pid=%d", self._popen.pid)
            if self._closing:
                self._kill()
            self._writer = start_thread(self._run_writer, "executor-pods/to-fleet")
            why = self._receive_all()
        except OSError as error:
            why = f"{type(error).__name__}: {in_words(error)}"
        except BaseException as error:  # noqa: BLE001 - whatever keeps it from starting, or what it has sent
            why = f"{type(error).__name__}: {error}"
        self._note_end(why)

    def _receive_all(self) -> str:
        """Receive frames until there are no more, and return why."""
        reader = FrameReader(self._connection)
        while read := reader.read():
            self._watchdog.heard()
            for data in read:
                for frame in unpack(data):
                    if not self._closing:
                        self._receive(frame)
        return "the connection ended"

    def _receive(self, frame: FromFleet) -> None:
        match frame:
            case MessageToBackend(message):
                self._backend.tell(message)
            case Observed(is_last=is_last):
                self._states.take(frame)
                if is_last:
                    self._backend.tell(self._states.observed())
            case Ended(name, incarnation, cause):
                self._end_actor((name, incarnation), cause)
            case Ready():
                self.was_ready = True
                self._reach(Stage.READY)
            case Pong():
                self._counts.process = frame.counts
                self._note_hang(frame.hang)
            case LogRecord(attributes):
                self._records.put(attributes)
            case NeedCredential(refused):
                start_thread(partial(self._renew, refused), "executor-pods/renewal")

    def _renew(self, refused: Credential) -> None:
        """Answer with a newer credential, or with the same if there is none. A login program may run for it."""
        newest = self._credentials.current()
        if newest == refused:
            newest = self._credentials.renewed(newest)
        self._send(Renewed(newest))

    def _end_actor(self, key: tuple[str, int], cause: BaseException | None) -> None:
        with self._lock:
            actor = self._actors.pop(key, None)
        if actor is not None:
            actor.tell(ChildEnded(cause))

    def _note_end(self, why: str) -> None:
        """Reap the process; its children are lost."""
        self._disconnect()
        ended = "" if self._popen is None else launch.reap(self._popen)
        self.why = self.why or ended or why
        self._outbox.put(None)
        if self._writer is None:
            self._connection.close()
        if self._counts.process is not None:
            self._counts.process.lose()
        self._records.end()
        self._records.join(END_LIMIT)
        self._reach(Stage.ENDED)
        self._end_actors()

    def _reach(self, stage: Stage) -> None:
        """Reach a later stage; several threads say so."""
        with self._lock:
            if stage.value > self.stage.value:
                self.stage = stage

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

    def check_sooner(self) -> None:
        """Check at the intervals that the patience needs now. Called by the thread that also checks."""
        self._next_check.cancel()
        if self.stage is not Stage.ENDED:
            self._next_check = self._timers.schedule(ping_interval(self._patience()), self._check)

    def _check(self) -> None:
        """Kill the process if it does not work; else ping it once it is ready."""
        stage = self.stage
        if stage is Stage.ENDED or self._closing:
            return
        if why := self._watchdog.check(stage):
            self._kill(why)
            return
        interval = ping_interval(self._patience())
        if stage is Stage.READY:
            self._watchdog.pinged()
            self._send(Ping(self._patience()))
        elif stage is Stage.SETTING_UP:
            self._watchdog.sets_up(interval)
        self._next_check = self._timers.schedule(interval, self._check)

    def _note_hang(self, hang: Hang | None) -> None:
        """Kill the process if a child in it hangs."""
        hung = self._watchdog.hung(hang)
        if hung is None or hang is None:
            return
        self._hung[hang.name] = hung
        text = "actor hangs, its process is killed: actor=%s message=%s busy=%.1fs"
        logger.error(text, hang.name, hang.message, hang.seconds, exc_info=hung)
        self._kill(str(hung))

    def _kill(self, why: str = "") -> None:
        """Kill the process. One that was forked when it started may have its end of the connection, too."""
        self.why = self.why or why
        if self._popen is not None:
            self._popen.kill()
        self._disconnect()

    def _disconnect(self) -> None:
        with self._lock, suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
