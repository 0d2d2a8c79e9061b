"""One watch stream: a daemon thread, a connection of its own, and a sink that hears of its end exactly once, last.

Cancelling must end it at once, from any thread, while its own thread may be in the middle of telling the sink
something. So the sink is only ever called under the stream's lock; a sink may cancel its own stream.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final, final

from actors.errors import ApiError, Cancelled, Unavailable
from actors.kube.api import WatchEnded, WatchEvents, WatchSink
from actors.kube.http import failures
from actors.kube.http.calls import tell
from actors.kube.http.chunks import has_more
from actors.kube.http.watch_lines import LineSplitter, LineTooLong, WatchDecoder
from actors.kube.http.wire import Wire, WireCut

if TYPE_CHECKING:
    from collections.abc import Callable

    import urllib3

    from actors.kube.http.client import Client, HttpRequest
    from actors.runtime import Scheduled

__all__ = ["Stream"]

READ_SIZE: Final = 128 * 1024
"""Bytes that one read takes at most: some fifty events. Less costs more for each, and more does, too: the C library
asks the system for such buffers each time."""

READS_HELD: Final = 16
"""As many reads, if they come at once, are told together with the one after them. To tell each would cost a third of
all, as it wakes two actors; so many take some ten milliseconds."""


@final
class Stream:
    """A watch, from `start` to its end."""

    def __init__(
        self,
        request: HttpRequest,
        *,
        client: Client,
        server: str,
        decoder: WatchDecoder,
        sink: WatchSink,
        on_ended: Callable[[Stream], None],
    ) -> None:
        self.wire = Wire()
        self._request = request
        self._client = client
        self._server = server
        self._decoder = decoder
        self._sink = sink
        self._on_ended = on_ended
        self._lock = threading.RLock()
        self._ended = False
        self._limit: Scheduled | None = None
        self.thread = threading.Thread(target=self._run, name="executor-pods/kube-watch", daemon=True)

    def start(self, limit: Scheduled) -> None:
        """Connect and read, in a thread of its own. `limit` is stopped once the server answers.

        Raises:
            RuntimeError: no thread can be started.
        """
        with self._lock:
            self._limit = limit
            self.thread.start()

    def cancel(self) -> None:
        """See `actors.kube.api.Call`."""
        self.give_up(Cancelled("the watch was cancelled"))

    def give_up(self, error: ApiError) -> None:
        """End it with this error, whatever its thread does."""
        if self._end(WatchEnded(error)):
            self.wire.cut()

    def _run(self) -> None:
        response: urllib3.BaseHTTPResponse | None = None
        try:
            answer = self._client.open(self._request, self.wire)
            if isinstance(answer, ApiError):
                self._end(WatchEnded(answer))
                return
            response = answer
            self._answered()
            self._end(self._read(response))
        except WireCut:
            self._end(WatchEnded(Cancelled("the watch was cut")))  # whoever cut it has said why
        except Exception as error:  # noqa: BLE001 - whatever it is, the sink is to hear of the end, as one of our errors
            self._end(WatchEnded(failures.lost(error, self._server, sent=self.wire.sent, write=False)))
        finally:
            self.wire.release()
            if response is not None:
                response.close()
            self._client.close()

    def _read(self, response: urllib3.BaseHTTPResponse) -> WatchEnded:
        """Tell the sink what comes, until the end; how the server ended it."""
        splitter = LineSplitter()
        compressed = "Content-Encoding" in response.headers  # else urllib3 would copy what it hands out
        held = 0
        try:
            while not self._ended:
                data = response.read1(READ_SIZE, decode_content=compressed)
                more = not compressed and has_more(response) and held < READS_HELD
                held = held + 1 if more else 0
                told, error = self._decoder.decode(splitter.feed(data) if data else splitter.rest(), more=more)
                for events in told:
                    self._tell(events)
                if isinstance(error, ApiError):
                    return WatchEnded(error, in_stream=True)
                if error is not None:
                    return WatchEnded(failures.unreadable(error, self._server, write=False))
                if not data:
                    break
        except LineTooLong:
            return WatchEnded(Unavailable(f"{self._server} sent a watch event without an end"))
        return WatchEnded(None)

    def _answered(self) -> None:
        with self._lock:
            if self._limit is not None:
                self._limit.cancel()

    def _tell(self, events: WatchEvents) -> None:
        with self._lock:
            if not self._ended:
                tell(self._sink, events)

    def _end(self, ended: WatchEnded) -> bool:
        with self._lock:
            if self._ended:
                return False
            self._ended = True
            if self._limit is not None:
                self._limit.cancel()
            self._on_ended(self)
            tell(self._sink, ended)
            return True
