"""The logs of executors, read from the API in threads: one log as a text, or many as one stream of lines.

The client waits in the thread that reads a log, so no actor reads one. A stream has a thread that follows the fleet's
events, and one for each log, `MOST_FOLLOWED` at once. It ends when its executors are gone, when the fleet ends, or when
its reader leaves: its client is closed then, which ends every thread that waits for the server.
"""

from __future__ import annotations

import threading
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast, final

from actors.errors import ApiError, BadRequest, Forbidden, NotFound, Unauthorized
from actors.fleet.output.lines import LogLine, lines
from actors.fleet.stream import EventsMissed
from actors.fleet.waiting import Waitable
from actors.messages import ExecutorRemoved, ExecutorRunning
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from actors.fleet.output.lines import LineBuffer
    from actors.fleet.stream import EventBuffer

__all__ = ["Log", "LogApi", "LogRead", "LogStream", "SharedLogApi"]

logger = get_logger(__name__)

MOST_FOLLOWED: Final = 100
"""Logs that one stream reads at once: a thread and a connection each. The next executor waits until one has ended."""

LONGEST_LOG: Final = 16 * 2**20
"""Bytes of a log that is read as one text. The kubelet begins a new file at 10 MiB (`containerLogMaxSize`)."""

RETRY_AFTER: Final = 1.0
"""Seconds until a log is asked for again whose connection was lost, or whose container has not started."""

LAST_WORDS: Final = 2.0
"""Seconds that the logs of a fleet have to end once the fleet has ended. Those of executors that are kept do not."""

NOT_STARTED: Final = "is waiting to start"
"""In the kubelet's answer for a container that has no log yet."""


class LogApi(Protocol):
    """The part of `HttpPodApi` that reads logs."""

    def read_log(
        self, name: str, *, container: str | None, follow: bool, previous: bool, tail: int | None
    ) -> Iterator[bytes]:
        """Yield the output of a pod's container as it comes, in the caller's thread."""

    def close(self) -> None:
        """End all reads, from any thread."""


@final
class SharedLogApi:
    """A client that somebody else made and closes: reads of it end with their logs."""

    def __init__(self, api: object) -> None:
        if not hasattr(api, "read_log"):
            raise TypeError(f"pod_api = {api!r}: reads no logs")
        self._api = cast("LogApi", api)

    def read_log(
        self, name: str, *, container: str | None, follow: bool, previous: bool, tail: int | None
    ) -> Iterator[bytes]:
        """See `LogApi`."""
        return self._api.read_log(name, container=container, follow=follow, previous=previous, tail=tail)

    def close(self) -> None:
        """Leave the client open."""


class Log(NamedTuple):
    """Whose log, and where it is."""

    executor_id: int
    pod: str
    container: str | None
    """None: the pod has one only."""
    profile: str


@final
class LogRead(Waitable):
    """Reads one log to its end, in a thread. Whoever waits for it looks at `is_done`."""

    def __init__(
        self, connect: Callable[[], LogApi], log: Log, *, previous: bool = False, tail: int | None = None
    ) -> None:
        super().__init__()
        self._connect = connect
        self._log = log
        self._previous = previous
        self._tail = tail
        self._error: BaseException | None = None
        self._text = ""
        self._api: LogApi | None = None
        self.is_done = False

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name=f"log-{self._log.executor_id}", daemon=True).start()

    def close(self) -> None:
        """Nobody waits any more."""
        if self._api is not None and not self.is_done:
            self._api.close()

    def result(self) -> str:
        """Return the text, its end if it is longer than `LONGEST_LOG`.

        Raises:
            ApiError: there is no log.
        """
        if self._error is not None:
            raise self._error
        return self._text

    def _run(self) -> None:
        try:
            api = self._api = self._connect()
            try:
                self._text = self._read(api)
            finally:
                api.close()
        except BaseException as error:  # noqa: BLE001 - whoever waits raises it
            self._error = error
        self.is_done = True
        self.changed()

    def _read(self, api: LogApi) -> str:
        blocks: deque[bytes] = deque()
        size = 0
        log = self._log
        for block in api.read_log(
            log.pod, container=log.container, follow=False, previous=self._previous, tail=self._tail
        ):
            blocks.append(block)
            size += len(block)
            while size > LONGEST_LOG and len(blocks) > 1:
                size -= len(blocks.popleft())
        return b"".join(blocks).decode("utf-8", "replace")


@final
class LogStream:
    """Follows the logs of some executors, until none is left.

    Args:
        connect: makes a client, which is closed at the end.
        events: of the fleet, from before `running` is called.
        running: returns the logs of all executors that run now, by id.
        log_of: returns the log of an executor that begins to run; None: it is not followed.
        buffer: gets the lines.
        ids: the executors to follow; None: all, and those to come.
        tail: how many lines of those that run now from before now; None: all.
    """

    def __init__(
        self,
        connect: Callable[[], LogApi],
        *,
        events: EventBuffer,
        running: Callable[[], Mapping[int, Log]],
        log_of: Callable[[ExecutorRunning], Log | None],
        buffer: LineBuffer,
        ids: frozenset[int] | None,
        tail: int | None,
    ) -> None:
        self._connect = connect
        self._events = events
        self._running = running
        self._log_of = log_of
        self._buffer = buffer
        self._awaited = None if ids is None else set(ids)
        """Of `ids`: those that are not gone."""
        self._tail = tail
        self._wakes: SimpleQueue[int | None] = SimpleQueue()
        """An executor whose log has ended; None: look at the events."""
        self._stopped: SimpleQueue[None] = SimpleQueue()
        """Has something once the stream ends: those who wait before they try again take it and give it back."""
        self._waiting: deque[tuple[Log, int | None]] = deque()
        """With the number of lines from before now."""
        self._reading: set[int] = set()
        self._seen: set[int] = set()
        """Executors that live and whose logs were begun, or wait."""
        self._alive: set[int] = set()
        self._begun: set[int] = set()
        """Executors of which a line was read; each is added by the thread that reads its log."""

    def start(self) -> None:
        """Begin."""
        threading.Thread(target=self._run, name="logs", daemon=True).start()

    def wake(self) -> None:
        """There may be events. For any thread, also in the middle of a garbage collection."""
        if self._wakes.empty():
            self._wakes.put(None)

    def close(self) -> None:
        """The reader leaves."""
        self._buffer.close()
        self._wakes.put(None)

    # ── the stream's thread ─────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        api: LogApi | None = None
        try:
            with self._events.waited_by(self):
                api = self._connect()
                self._see(self._running(), self._tail)
                self._follow(api)
        except BaseException as error:  # noqa: BLE001 - the reader raises it
            self._buffer.end(error)
        finally:
            self._stopped.put(None)
            self._buffer.end()
            if api is not None:
                api.close()

    def _follow(self, api: LogApi) -> None:
        while not self._buffer.has_ended:
            is_over = self._events.has_ended  # before the events are taken
            self._take_events()
            if is_over:
                self._hear_last_words()
                return
            while self._waiting and len(self._reading) < MOST_FOLLOWED:
                self._begin(api, *self._waiting.popleft())
            if self._waiting:
                logger.debug("logs wait, too many are followed: waiting=%d", len(self._waiting))
            if self._awaited is not None and not self._awaited and not self._reading and not self._waiting:
                return
            self._ended(self._wakes.get())

    def _take_events(self) -> None:
        while (event := self._events.take()) is not None:
            match event:
                case ExecutorRunning():
                    log = self._log_of(event)
                    if log is not None:
                        self._see({event.executor_id: log})
                case ExecutorRemoved(executor_id):
                    self._seen.discard(executor_id)
                    self._alive.discard(executor_id)
                    if self._awaited is not None:
                        self._awaited.discard(executor_id)
                case EventsMissed():
                    self._look_again()
                case _:
                    pass

    def _look_again(self) -> None:
        """Events were dropped: who is gone, and who has come, is known only from all that run now."""
        running = self._running()
        self._alive &= set(running)
        self._seen &= set(running)
        if self._awaited is not None:
            self._awaited &= set(running)
        self._see(running)

    def _see(self, logs: Mapping[int, Log], tail: int | None = None) -> None:
        for executor_id, log in logs.items():
            if executor_id not in self._seen and (self._awaited is None or executor_id in self._awaited):
                self._seen.add(executor_id)
                self._alive.add(executor_id)
                self._waiting.append((log, tail))

    def _begin(self, api: LogApi, log: Log, tail: int | None) -> None:
        self._reading.add(log.executor_id)
        threading.Thread(target=self._read, args=(api, log, tail), name=f"log-{log.executor_id}", daemon=True).start()

    def _ended(self, executor_id: int | None) -> None:
        if executor_id is None:
            return
        self._reading.discard(executor_id)
        self._begun.discard(executor_id)
        if self._awaited is not None:  # its container has ended, though its pod may still be there
            self._awaited.discard(executor_id)

    def _hear_last_words(self) -> None:
        """Wait until the logs have ended, for a while."""
        try:
            while self._reading and not self._buffer.has_ended:
                self._ended(self._wakes.get(timeout=LAST_WORDS))
        except Empty:
            logger.debug("logs left: executors=%s", sorted(self._reading))

    # ── a thread for each log ───────────────────────────────────────────────────────────────────────────────────

    def _read(self, api: LogApi, log: Log, tail: int | None) -> None:
        try:
            while not self._read_once(api, log, tail):
                tail = 0 if log.executor_id in self._begun else tail
                if log.executor_id not in self._alive or self._is_stopped_within(RETRY_AFTER):
                    return
        except BaseException as error:  # noqa: BLE001 - the reader raises it
            self._buffer.end(error)
        finally:
            self._wakes.put(log.executor_id)

    def _read_once(self, api: LogApi, log: Log, tail: int | None) -> bool:
        """Read a log until it ends. False: try again."""
        executor_id = log.executor_id
        try:
            for text in lines(api.read_log(log.pod, container=log.container, follow=True, previous=False, tail=tail)):
                self._begun.add(executor_id)
                if not self._buffer.put(LogLine(executor_id, text)):
                    return True
        except NotFound:
            return True
        except (Forbidden, Unauthorized):
            raise
        except BadRequest as error:
            if NOT_STARTED not in str(error):
                raise
            return False
        except ApiError as error:
            if self._buffer.has_ended or self._events.has_ended or executor_id not in self._alive:
                return True
            if executor_id in self._begun:
                note = f"lines may be missing here, the log was cut off: {error}"
                return not self._buffer.put(LogLine(executor_id, note, is_note=True))
            return False
        return True

    def _is_stopped_within(self, seconds: float) -> bool:
        try:
            self._stopped.get(timeout=seconds)
        except Empty:
            return self._buffer.has_ended
        self._stopped.put(None)  # wakes the next one that waits
        return True
