"""One watch stream: a daemon thread with a connection of its own, which hands every event to the sink.

`cancel` ends the stream at once from any thread, even while its own thread is in the sink: the sink is only called
under the stream's lock. A sink may cancel its own stream.
"""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, final

from actors.errors import ApiError
from actors.kube.api import WatchEvents
from actors.kube.calls import OpenStream
from actors.kube.http import failures
from actors.kube.http.body import inflater_of
from actors.kube.http.watch_lines import LineSplitter
from actors.kube.http.wire import Wire, WireCut
from actors.kube.http.workers import deliver
from actors.runtime import start_thread

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Sequence

    from actors.kube.api import WatchSink
    from actors.kube.calls import OpenCalls
    from actors.kube.http.chunks import Answer
    from actors.kube.http.client import Client, HttpRequest
    from actors.kube.http.watch_lines import Lines, WatchDecoder
    from actors.runtime import Scheduled, TimerService

__all__ = ["Stream"]

READ_SIZE: Final = 128 * 1024
"""Bytes that one read returns at most: about fifty events. A smaller read costs more per event, and so does a larger
one: the C library allocates such a buffer from the system every time."""

READS_HELD: Final = 16
"""Reads that are held back while the next one is already there, and delivered together. Delivering each read wakes two
actors, which costs a third of all the work; this many reads take about ten milliseconds."""


QUIET: Final = timedelta(milliseconds=500)
"""How long reads without news are held back: they only say how far the stream has come. A busy fleet has a thousand
such events a second, and each read that is delivered takes the interpreter from the driver twice."""

CALM: Final = timedelta(milliseconds=20)
"""How long reads are held back with which no pod ends. Of a fleet that starts there come a thousand a second."""

MOST_HELD: Final = 100
"""Events that are held back. As many more would leave the CPU's cache before the store reads them: with 500, an event
that changes something costs a tenth more."""


@final
class Stream(OpenStream):
    """A watch, from `start` to its end."""

    def __init__(
        self,
        request: HttpRequest,
        *,
        client: Client,
        server: str,
        limit: timedelta,
        longest: int,
        redacted: Callable[[str], str],
        decoder: WatchDecoder,
        sink: WatchSink,
        calls: OpenCalls,
    ) -> None:
        super().__init__(partial(deliver, sink), calls)
        self._request = request
        self._client = client
        self._server = server
        self._limit = limit
        self._longest = longest
        self._redacted = redacted
        self._decoder = decoder
        self._wire = Wire()
        self._held: WatchEvents | None = None
        """What is held back."""
        self._due: set[timedelta] = set()
        """The delays of the timers that will deliver what is held back then."""
        self.depends_on(self._wire)

    def start(self, timers: TimerService) -> threading.Thread:
        """Start the thread that connects and reads. The limit is how long the server may take to send headers.

        Raises:
            NoThread: no thread can be started.
        """
        self._timers = timers
        limit = timers.schedule(self._limit, self._late)
        self.depends_on(limit)
        return start_thread(partial(self._run, limit), "executor-pods/kube-watch")

    def _late(self) -> None:
        wire = self._wire
        self.end(failures.late(self._server, self._limit, started=wire.started, sent=wire.sent, write=False))

    def _run(self, limit: Scheduled) -> None:
        response: Answer | None = None
        try:
            answer = self._client.open(self._request, self._wire)
            if isinstance(answer, ApiError):
                self.end(answer)
                return
            response = answer
            limit.cancel()
            self._read(response)
        except WireCut:
            pass  # the stream has ended: nothing else cuts the wire
        except BaseException as error:  # noqa: BLE001 - whatever happened, the sink gets the end, as one of our errors
            self._flush()
            self.end(failures.lost(error, self._server, sent=self._wire.sent, write=False))
        finally:
            self._wire.release()
            if response is not None:
                response.close()
            self._client.close()

    def _read(self, response: Answer) -> None:
        """Read and deliver events until the stream ends."""
        splitter = LineSplitter(self._longest)
        inflater = inflater_of(response)
        held = 0
        while not self.done:
            data = response.read1(READ_SIZE)
            more = inflater is None and bool(response.ahead) and held < READS_HELD
            held = held + 1 if more else 0
            if inflater is None or not data:
                self._take(splitter.feed(data) if data else splitter.rest(), more=more)
            else:
                for piece in inflater.feed(data):
                    self._take(splitter.feed(piece), more=False)
            if not data:
                self._flush()
                self.end(None)

    def _take(self, found: Sequence[Lines], *, more: bool) -> None:
        """Deliver the events of whole lines. One that cannot be decoded, or an ERROR event, ends the stream."""
        parts = found or [b""]  # without lines, what the decoder holds may be due
        for lines in parts:
            batches, error = self._decoder.decode(lines, more=more or lines is not parts[-1])
            for events in batches:
                self._hand_over(events)
            if error is not None:
                self._fail(error)
                return

    def _fail(self, error: Exception) -> None:
        """End the stream because of what it delivered."""
        self._flush()
        if isinstance(error, ApiError):
            self.end(error, in_stream=True)
        else:
            self.end(failures.unreadable(error, self._server, write=False, redacted=self._redacted))

    def _hand_over(self, read: WatchEvents) -> None:
        """Deliver an urgent read at once, another one soon, together with those that follow."""
        with self._delivering:
            held, self._held = self._held, None
            if held is not None:
                read = _joined(held, read)
            if read.urgent or len(read.events) > MOST_HELD:
                self.deliver(read)
                return
            self._held = read
            delay = CALM if read.events else QUIET
            if delay not in self._due:
                self._due.add(delay)
                self._timers.schedule(delay, partial(self._flush_due, delay))

    def _flush_due(self, delay: timedelta) -> None:
        with self._delivering:
            self._due.discard(delay)
            self._flush()

    def _flush(self) -> None:
        """Deliver what is held back."""
        with self._delivering:
            held, self._held = self._held, None
            if held is not None:
                self.deliver(held)


def _joined(held: WatchEvents, read: WatchEvents) -> WatchEvents:
    """Return two reads as one."""
    return WatchEvents(
        held.events + read.events,
        read.resource_version,
        held.malformed + read.malformed,
        read.initial_events_end,
        held.unchanged + read.unchanged,
        read.urgent,
    )
