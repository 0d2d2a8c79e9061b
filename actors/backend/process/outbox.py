"""`Outbox`: what the fleet's process sends the Backend's: frames in their order, those of a moment together."""

from __future__ import annotations

import os
import socket
import struct
import threading
import traceback
from typing import TYPE_CHECKING, Final, final

from actors.backend.process.frames import MessageToBackend, pack
from actors.backend.process.observed import AT_ONCE, CrossedStates
from actors.messages.internal import ExecutorsObserved
from actors.runtime import start_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.backend.process.frames import FromFleet

__all__ = ["Outbox"]

GATHER: Final = 0.002
"""Seconds for which frames are gathered: what the Backend is told comes together. Each read takes the interpreter from
the driver."""

UNREAD_LIMIT: Final = 60
"""Seconds for which the Backend's process may read nothing, as it is stopped. Then this one ends: what waits would fill
its memory, and its successor starts from a list."""


@final
class Outbox:
    """The outbox of one process. Any thread may put something into it."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", UNREAD_LIMIT, 0))
        self._states = CrossedStates()
        self._sending = threading.Lock()
        """Held while frames are sent, so that they keep their order."""
        self._filled = threading.Condition()
        self._waiting: list[FromFleet | None] = []
        """None in place of states that newer ones have replaced."""
        self._states_at: int | None = None
        """The place of the newest states that wait."""
        start_thread(self._write, "executor-pods/to-driver")

    def put(self, frame: FromFleet) -> None:
        """Send a frame soon, together with others."""
        with self._filled:
            if _is_states(frame):
                if self._states_at is not None:
                    self._waiting[self._states_at] = None
                self._states_at = len(self._waiting)
            self._waiting.append(frame)
            if len(self._waiting) == 1:
                self._filled.notify()

    def tell(self, message: object) -> None:
        """Send the Backend a message soon."""
        self.put(MessageToBackend(message))

    def flush(self, limit: float = -1) -> None:
        """Send all that waits, now, and return when the Backend's process need not live on to receive it.

        Waits at most `limit` seconds, if given, until another thread has sent what it has taken. Ends this process if
        the Backend's is gone, or must not miss what cannot be sent.
        """
        if not self._sending.acquire(timeout=limit):
            return
        try:
            with self._filled:
                frames, self._waiting, self._states_at = self._waiting, [], None
            self._send([frame for frame in frames if frame is not None])
        except OSError:
            os._exit(0)
        except BaseException:  # noqa: BLE001 - whatever cannot cross
            traceback.print_exc()
            os._exit(1)
        finally:
            self._sending.release()

    def _send(self, frames: Sequence[FromFleet]) -> None:
        """Send frames. States cross as what is different."""
        together: list[FromFleet] = []
        for frame in frames:
            if not _is_states(frame):
                together.append(frame)
            else:
                for part in self._states.frames(frame.message.states):  # type: ignore[union-attr]  # see `_is_states`
                    self.connection.sendall(pack([*together, part]))
                    together = []
            if len(together) >= AT_ONCE:
                self.connection.sendall(pack(together))
                together = []
        if together:
            self.connection.sendall(pack(together))

    def _write(self) -> None:
        pause = threading.Event()
        while True:
            with self._filled:
                while not self._waiting:
                    self._filled.wait()
            pause.wait(GATHER)
            self.flush()


def _is_states(frame: FromFleet) -> bool:
    return isinstance(frame, MessageToBackend) and isinstance(frame.message, ExecutorsObserved)
