"""A container's log, as its bytes come: for a program that has nothing else to do meanwhile, not for an actor."""

from __future__ import annotations

from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Final

from actors.errors import ApiError
from actors.kube.http import failures

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import timedelta

    from actors.kube.http.client import Client, HttpRequest
    from actors.kube.http.wire import Wire
    from actors.runtime import TimerService

__all__ = ["read_log"]

READ_SIZE: Final = 64 * 1024
"""Bytes that one read returns at most."""


def read_log(
    request: HttpRequest, client: Client, wire: Wire, *, timers: TimerService, limit: timedelta, server: str
) -> Generator[bytes, None, None]:
    """Yield the bytes as they come, until the log ends. `limit` is how long the server may take to begin.

    Another thread that cuts the wire ends it with an error.

    Raises:
        ApiError: there is no log, or the connection was lost.
    """
    is_late = Event()

    def give_up() -> None:
        is_late.set()
        wire.cancel()

    scheduled = timers.schedule(limit, give_up)
    try:
        answer = client.open(request, wire)
        scheduled.cancel()
        if not isinstance(answer, ApiError):
            with closing(answer):
                while data := answer.read1(READ_SIZE):
                    yield data
            return
        error = answer
    except Exception as lost:  # noqa: BLE001 - whatever happened, the caller gets one of our errors
        if is_late.is_set():
            error = failures.late(server, limit, started=wire.started, sent=wire.sent, write=False)
        else:
            error = failures.lost(lost, server, sent=wire.sent, write=False)
    finally:
        scheduled.cancel()
        wire.release()
        client.close()
    raise error
