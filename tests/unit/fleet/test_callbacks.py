"""`on_event` in threads: who is in whose callback."""

from __future__ import annotations

import threading
from queue import SimpleQueue

from actors.fleet.callbacks import ActorCalls
from actors.fleet.stream import EventBuffer
from actors.messages import BackendStopped
from actors.runtime import ActorSystem
from tests.unit.runtime.stage import SAFETY


def test_a_callback_is_in_the_calls_of_its_own_fleet_and_of_no_other() -> None:
    system = ActorSystem()
    seen: SimpleQueue[tuple[bool, bool]] = SimpleQueue()
    other = ActorCalls(lambda _: None, system)
    calls = ActorCalls(lambda _: seen.put((calls.is_current(), other.is_current())), system)
    buffer, done = EventBuffer(10), threading.Event()
    buffer.put(BackendStopped())
    buffer.end()
    calls.start(buffer, done.set)
    assert done.wait(SAFETY)
    assert seen.get(timeout=SAFETY) == (True, False)
    assert not calls.is_current()
    system.close()
