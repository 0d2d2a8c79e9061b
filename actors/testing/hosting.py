"""What the host's own code does while a kit is open: its plain Pykka actors run in the kit, as ours do.

In the thread that opened the kit, Pykka gives new actors a mailbox of the kit, and no thread. An actor that sleeps,
starts a thread or waits for one would stop the only thread that there is: that raises `NotInVirtualTime`, which says
who did what. A `threading.Timer` that an actor starts runs in virtual time, and so does a program outside of actors
that sleeps.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from pykka import Actor, ThreadingActor

from actors.testing.dispatcher import Crash, GrantedMailbox, NotInVirtualTime

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from pykka._actor import ActorInbox

    from actors.runtime import ActorSystem
    from actors.testing.dispatcher import SerialDispatcher
    from actors.testing.manual import ManualTimers

__all__ = ["A", "hosted", "start"]

A = TypeVar("A", bound=ThreadingActor)


class Host(Protocol):
    """The part of `Kit` that the host's actors run in."""

    dispatcher: SerialDispatcher
    system: ActorSystem
    timers: ManualTimers

    def advance(self, by: timedelta, /) -> None:
        """Let virtual time pass."""


_open: Final[list[tuple[threading.Thread, Host]]] = []
"""The open kits and the threads that opened them, the newest last."""

_INSTEAD: Final = "Let a `threading.Timer` send the actor a message instead, or replace this part of it in the test"

_create_inbox: Final = ThreadingActor._create_actor_inbox  # noqa: SLF001 - Pykka's extension point
_start_loop: Final = ThreadingActor._start_actor_loop  # noqa: SLF001 - Pykka's extension point
_sleep: Final = time.sleep
_start_thread: Final = threading.Thread.start
_wait: Final = threading.Condition.wait


_handle_failure: Final = Actor._handle_failure  # noqa: SLF001 - Pykka has no hook that every crash reaches


@contextmanager
def hosted(kit: Host) -> Iterator[None]:
    """Run the actors that the calling thread starts in this kit."""
    entry = (threading.current_thread(), kit)
    _open.append(entry)
    for owner, name, here in _HERE:
        setattr(owner, name, here)
    try:
        yield
    finally:
        _open.remove(entry)
        if not _open:
            for owner, name, original in _ORIGINALS:
                setattr(owner, name, original)


def start(actor: type[A], *args: Any, **kwargs: Any) -> A:
    """Start an actor in the open kit, and return it.

    Raises:
        Exception: its `on_start` raised it.
    """
    kit = _kit()
    if kit is None:
        raise RuntimeError("only an open kit runs actors of the host: use `with Kit() as kit:`, without threads")
    ref = actor.start(*args, **kwargs)
    if not ref.is_alive():
        raise kit.dispatcher.crashes.pop().cause
    started = ref._actor_weakref()  # noqa: SLF001 - Pykka hides it behind its ref
    assert started is not None, "the kit holds it"
    return started


def _kit() -> Host | None:
    """Return the newest kit that the calling thread has opened."""
    thread = threading.current_thread()
    return next((kit for opener, kit in reversed(_open) if opener is thread), None)


def _running() -> str | None:
    """Return the name of the actor that the calling thread runs, if a kit runs one."""
    kit = _kit()
    return kit.dispatcher.running if kit is not None else None


# ── Pykka ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _create_inbox_here() -> ActorInbox:
    kit = _kit()
    if kit is None:
        return _create_inbox()
    return kit.dispatcher.create_mailbox("actor", kit.system.clock, kit.system.letters)


def _start_loop_here(actor: ThreadingActor) -> None:
    mailbox = actor.actor_inbox
    if isinstance(mailbox, GrantedMailbox):
        mailbox.name = type(actor).__name__
        mailbox.dispatcher.start(actor)
    else:
        _start_loop(actor)


def _handle_failure_here(
    actor: Actor,
    kind: type[BaseException] | None,
    error: BaseException | None,
    traceback: TracebackType | None,
) -> None:
    mailbox = actor.actor_inbox
    if isinstance(mailbox, GrantedMailbox) and error is not None:
        mailbox.dispatcher.crashes.append(Crash(mailbox.name, error))
    _handle_failure(actor, kind, error, traceback)


# ── what takes real time ─────────────────────────────────────────────────────────────────────────────────────────────


def _sleep_here(seconds: float, /) -> None:
    if (actor := _running()) is not None:
        raise NotInVirtualTime(f"{actor} sleeps: in a Kit, its sleep would stop every actor. {_INSTEAD}")
    kit = _kit()
    if kit is None:
        _sleep(seconds)
    else:
        kit.advance(timedelta(seconds=seconds))


def _start_thread_here(thread: threading.Thread) -> None:
    kit, actor = _kit(), _running()
    if kit is None or actor is None:
        _start_thread(thread)
    elif isinstance(thread, threading.Timer):
        _schedule(thread, kit.timers)
    else:
        raise NotInVirtualTime(f"{actor} starts a thread: what it does takes real time. {_INSTEAD}")


def _schedule(timer: threading.Timer, timers: ManualTimers) -> None:
    """Run a timer in virtual time, unless it is cancelled before."""

    def due() -> None:
        if not timer.finished.is_set():
            timer.function(*timer.args, **timer.kwargs)
            timer.finished.set()

    timers.schedule(timedelta(seconds=timer.interval), due)


def _wait_here(condition: threading.Condition, timeout: float | None = None) -> bool:
    if (actor := _running()) is not None:
        raise NotInVirtualTime(
            f"{actor} waits for another thread (a queue, an event or a future): in a Kit there is none. {_INSTEAD}"
        )
    return _wait(condition, timeout)


_HERE: Final[tuple[tuple[Any, str, object], ...]] = (
    (ThreadingActor, "_create_actor_inbox", staticmethod(_create_inbox_here)),
    (ThreadingActor, "_start_actor_loop", _start_loop_here),
    (Actor, "_handle_failure", _handle_failure_here),
    (time, "sleep", _sleep_here),
    (threading.Thread, "start", _start_thread_here),
    (threading.Condition, "wait", _wait_here),
)
"""What is replaced while a kit is open: each of them does as before outside of kits."""

_ORIGINALS: Final = tuple((owner, name, vars(owner)[name]) for owner, name, _ in _HERE)
