"""What is left of a server in an outage: a port where every call is cut off, and counted."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Self

__all__ = ["Nobody"]


class Nobody(threading.Thread):
    """Listens where a server was. A client that is hung up on has tried one request. To be used in a `with`."""

    def __init__(self, port: int) -> None:
        super().__init__(name="nobody", daemon=True)
        self._listener = socket.create_server(("127.0.0.1", port))
        self._began = time.monotonic()
        self._closing = threading.Event()
        self._calls: list[float] = []

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread up
        self._listener.close()
        self.join()

    def run(self) -> None:
        while not self._closing.is_set():
            with suppress(OSError), self._listener.accept()[0]:
                self._calls.append(time.monotonic() - self._began)

    def stay(self, minutes: int) -> list[int]:
        """How often somebody called in each minute, once these are over."""
        self._closing.wait(60 * minutes - (time.monotonic() - self._began))
        return [sum(1 for call in self._calls if call // 60 == minute) for minute in range(minutes)]
