"""A driver on real threads, its Backend, and the ways to end any of its actors at any moment; all of it is listened to.

What happens in any thread becomes one line of news, in the order in which it happened, for one reader who judges it.
"""

from __future__ import annotations

import heapq
import logging
import math
import re
import threading
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal, Self, cast, get_args

import pykka

from actors.backend.backend import Backend
from actors.backend.connection import connect
from actors.backend.process.remote_actor import RemoteActor
from actors.backend.process.watchdog import Stage
from actors.messages import (
    BackendFailed,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    RequestTotalExecutors,
    StopBackend,
)
from actors.runtime import Actor, ActorSystem, Entropy, SystemClock
from actors.settings.model import Settings
from tests.scenarios.crashes import BACKEND, PARTS, SOURCES
from tests.scenarios.invariants import Invariants
from tests.scenarios.memory import sizes
from tests.scenarios.world import Onlooker
from tests.stress.real import Driver
from tests.stress.watched import ASKED_TO_GO, UP_TO_NOW, WATCHED, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from random import Random

    from actors.messages import ToDriver
    from tests.stress.deeds import Deeds

__all__ = ["ENDS", "Ear", "Life", "Moments", "News", "number_of"]

Way = Literal["crash", "hang", "lose"]
End = Literal["ended in order", "ended by its ref", "its driver died", "it crashed"]
ENDS: Final = get_args(End)

HANG_SECONDS: Final = 6.0
"""Twice `backend.hang_timeout`: a thread that was given up wakes up beside its replacement."""

MOST_FAILURES: Final = 3
"""Of one part in a driver's life: at five in a row it is given up, and rightly so."""


LAST_LINES: Final = 80
"""Of the log, shown with what is broken."""

REQUESTED: Final = re.compile(r"executors requested: profile=(\S+) ids=([-,\d]+) ")

NOW: Final = SystemClock.monotonic
"""Of the whole machine. `Moments` may end who asks it."""


class Doom(Exception):  # noqa: N818 - reads as what happened
    """What a part is made to die of."""


class News:
    """What happened, as something to be done by the one who reads it, in the order in which it happened."""

    def __init__(self) -> None:
        self._queue: SimpleQueue[tuple[float, int, Callable[[], None]]] = SimpleQueue()
        self._unread: list[tuple[float, int, Callable[[], None]]] = []
        """A heap."""
        self._serial = count()

    def tell(self, what: Callable[[], None], at: float | None = None) -> None:
        """From any thread, of what happens now, or has happened in another process."""
        self._queue.put((NOW() if at is None else at, next(self._serial), what))

    def read(self, until: float) -> None:
        """All that there is until a moment up to which all was heard."""
        with suppress(Empty):
            while True:
                heapq.heappush(self._unread, self._queue.get_nowait())
        while self._unread and self._unread[0][0] <= until:
            heapq.heappop(self._unread)[-1]()


class Moments(SystemClock):
    """The machine's clock. An actor who looks at it in the middle of a message may never come to the message's end."""

    def __init__(self) -> None:
        self._doomed: dict[threading.Thread, tuple[Actor, Way]] = {}
        self._gate = threading.Event()
        self.struck: Counter[str] = Counter()
        """How often each way was taken."""

    def doom(self, actor: Actor, way: Way) -> None:
        """The next time that it looks."""
        if actor.handle.thread is not None:
            self._doomed[actor.handle.thread] = (actor, way)

    def let_go(self) -> None:
        """Nothing hangs any more."""
        self._doomed.clear()
        self._gate.set()

    def monotonic(self) -> float:
        """See `SystemClock`."""
        if self._doomed and (found := self._doomed.get(threading.current_thread())) is not None:
            self._strike(*found)
        return super().monotonic()

    def _strike(self, actor: Actor, way: Way) -> None:
        mailbox = actor.handle.mailbox
        if mailbox.busy_since is None:  # it has just taken a message, and done nothing with it
            return
        del self._doomed[threading.current_thread()]
        if mailbox.closed:  # it has ended, and its thread goes on with others
            return
        self.struck[f"{way} {actor.name}"] += 1
        if way == "hang":
            self._gate.wait(HANG_SECONDS)
        else:
            raise Doom(actor.name)


class Ear(logging.Handler):
    """Hears what the allocators decide, errors that nobody planned, and secrets. To be used in a `with`.

    Args:
        secrets: must not be logged.
        requested: is called with the profile, the executor ids and the moment of each decision.
        elsewhere: is called with the process id, the words and the moment of each record of another process.
    """

    def __init__(
        self,
        secrets: tuple[str, ...],
        requested: Callable[[str, Sequence[int], float], None],
        elsewhere: Callable[[int, str, float], None],
    ) -> None:
        super().__init__(logging.DEBUG)
        self._secrets = secrets
        self._requested = requested
        self._elsewhere = elsewhere
        self.wrong: list[str] = []
        self.records = self.requests = 0
        self.last: deque[str] = deque(maxlen=LAST_LINES)
        """What was decided lately."""

    def __enter__(self) -> Self:
        self._loggers = [logging.getLogger(name) for name in (WATCHED, "actors", "urllib3", "kubernetes", "asyncio")]
        self._levels = [logger.level for logger in self._loggers]
        for logger in self._loggers:
            logger.addHandler(self)
            logger.setLevel(logging.DEBUG)
        self._loggers[0].propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        for logger, level in zip(self._loggers, self._levels, strict=True):
            logger.removeHandler(self)
            logger.setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        """In the thread that logs."""
        self.records += 1
        message, at = record.getMessage(), getattr(record, "moment", NOW())
        if (found := REQUESTED.match(message)) is not None:
            self.requests += 1
            self._requested(found[1], list(_ids(found[2])), at)
        if hasattr(record, "moment"):
            assert record.process is not None
            self._elsewhere(record.process, message, at)
        if message == UP_TO_NOW:
            return
        words = self.format(record)
        if record.levelno >= logging.INFO:
            self.last.append(f"{record.created % 1000:.3f} {record.process} {record.threadName} {message}")
        self.wrong += [f"9: a secret is logged by {record.name}" for secret in self._secrets if secret in words]
        if record.levelno >= logging.ERROR and not _is_planned(record, words):
            self.wrong.append(f"an error was logged: {words}")
        # Whoever keeps the record, as pytest does, would keep the frames of an error, and all that was open in them.
        record.msg, record.args, record.exc_info = message, (), None


def _ids(text: str) -> Iterator[int]:
    """Yield the ids that a line of the log names, such as 1-3,7."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _is_planned(record: logging.LogRecord, words: str) -> bool:
    cause = record.exc_info[1] if record.exc_info else None
    hangs = record.msg.startswith("actor hangs") and "_strike" in words
    return isinstance(cause, Doom) or "message=object" in record.getMessage() or hangs


class Life:
    """One driver, from its start until nothing of it is left."""

    def __init__(
        self,
        kubeconfig: Path,
        settings: Mapping[str, Any],
        clock: Moments,
        news: News,
        asked_to_go: Callable[[str], None],
        deeds: Deeds,
        random: Random,
    ) -> None:
        self.story = Invariants(clock)
        """What this driver was told, and its snapshots."""
        self.heard: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        """Planned ones, by part."""
        self.backend_may_fail = False
        self.ended = False
        """The driver was told that the Backend ended, or can be told no more."""
        self.left_behind: tuple[str, ...] = ()
        self.violations: list[str] = []
        self._clock = clock
        self._news = news
        self._asked_to_go = asked_to_go
        self._deeds = deeds
        self._heard_until: dict[int, float] = {}
        """Up to which moment all is known of each process of the fleet, by process id."""
        self._eyes: list[Invariants] = []
        self._store_life = 0
        subject = Settings(**settings)
        self.system = ActorSystem(clock, entropy=Entropy())
        self.api = connect(subject, kubeconfig=kubeconfig)
        watch(self.api, self._asks, random)
        self._ref = Driver.start(cast("SimpleQueue[ToDriver]", _Heard(news, self._hear)))
        self.backend = Backend.start(subject, self._ref, self.api, system=self.system)
        self._process = self._backend()._process

    def _backend(self) -> Backend:
        return cast("Backend", next(actor for actor in self.actors() if actor.name == BACKEND))

    # ── its process ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def pid(self) -> int | None:
        """The id of the fleet's process, None while there is none."""
        return None if self._process is None else self._process.pid

    def heard_until(self) -> float:
        """Up to which moment all is known of what happened in the fleet's process."""
        process = None if self._process is None else self._process._process
        if process is None or process.stage is not Stage.READY:  # it has sent no request, or sends no more
            return math.inf
        return self._heard_until.get(process.pid or 0, 0.0)

    def hear_from(self, words: str, at: float) -> None:
        """In the thread that reads what the fleet's process sends."""
        if words.startswith(ASKED_TO_GO):
            self._asks(words.removeprefix(ASKED_TO_GO), at)
        self._heard_until[self.pid or 0] = at

    def _asks(self, name: str, at: float | None = None) -> None:
        """Its Backend asks for a pod's deletion."""
        self._news.tell(partial(self._note_asked, name), at)

    def _note_asked(self, name: str) -> None:
        self._asked_to_go(name)
        self._deeds.asked(self, number_of(name))

    # ── what the driver hears, and sees ──────────────────────────────────────────────────────────────────────────

    def _hear(self, message: ToDriver) -> None:
        self.heard[type(message).__name__] += 1
        self.story.told(message)
        match message:
            case BackendStopped(left_behind):
                self.ended, self.left_behind = True, left_behind
            case ExecutorRunning(executor_id):
                self._deeds.ran(self, executor_id)
            case ExecutorRemoved():
                if (lie := self._deeds.lie(self, message)) is not None:
                    self.violations.append(lie)
            case BackendFailed(cause):
                self.ended = True
                if not self.backend_may_fail:
                    self.violations.append(f"the backend failed: {cause!r}")
            case _:
                pass

    def wrong(self) -> list[str]:
        """What was broken so far, as far as it can be seen from here."""
        return [*self.violations, *self.story.violations, *(words for eye in self._eyes for words in eye.violations)]

    def look_on(self) -> None:
        """See the snapshots of the store that lives now, if that is another one, and in this process."""
        store = next((actor for actor in self.actors() if actor.name == "snapshot-store"), None)
        if store is None or isinstance(store, RemoteActor) or store.context.incarnation == self._store_life:
            return
        self._store_life = store.context.incarnation
        eye = Invariants(self._clock)
        self._eyes.append(eye)
        self.system.spawn(
            lambda context: Onlooker(context, store.myself, eye), name=f"onlooker-{self._store_life}", owner=None
        )

    def actors(self) -> list[Actor]:
        """Of its system, that live now."""
        found = [ref._actor_weakref() for ref in pykka.ActorRegistry.get_all()]
        return [each for each in found if isinstance(each, Actor) and each.context.system is self.system]

    def swollen(self, limit: int) -> list[str]:
        """5: collections with more entries than are allowed. To be asked while nothing happens."""
        parts = [actor for actor in self.actors() if actor.name in (*PARTS, BACKEND)]
        found = sizes(parts).items()
        return [f"5: {path} has {size} entries, {limit} are allowed" for path, size in found if size > limit]

    # ── what is done to it ───────────────────────────────────────────────────────────────────────────────────────

    def want(self, totals: Mapping[str, int]) -> None:
        """The driver's wish."""
        self.backend.tell(RequestTotalExecutors(dict(totals)))

    def break_part(self, name: str, way: Way) -> None:
        """A part crashes between two messages or in the midst of one, or hangs there.

        One in the fleet's process can be sent what it cannot handle, and no more.
        """
        part = next((actor for actor in self.actors() if actor.name == name), None)
        if part is None or (name not in SOURCES and self.failures[name] >= MOST_FAILURES):
            return
        if isinstance(part, RemoteActor) and way != "lose":
            return
        self.failures[name] += 1
        if way == "lose":
            part.myself.tell(object())
        else:
            self._clock.doom(part, way)

    def die(self, how: End) -> None:
        """The Backend ends; its fleet is left as it is."""
        self.backend_may_fail = True
        self.story.fleet_is_left()
        match how:
            case "ended in order":
                self.backend.tell(StopBackend(delete_pods=False))
            case "ended by its ref":
                assert self.backend.ref is not None
                self.backend.ref.stop(block=False)
            case "its driver died":
                self._ref.stop(block=False)
            case "it crashed":
                backend = self._backend()
                backend._receive = _dies  # type: ignore[method-assign]  # its clock is also asked while it starts others

    def stop(self) -> None:
        """In order, and delete the fleet."""
        self._deeds.stops(self)
        self.backend.tell(StopBackend(delete_pods=True))

    def back_again(self, uid: str) -> None:
        """Somebody moves a pod that had left our selector back into it."""
        for eye in self._eyes:
            eye.back_again(uid)

    def is_over(self) -> bool:
        """No actor of the Backend lives."""
        return not any(actor.name in (*PARTS, BACKEND) for actor in self.actors())

    def close(self) -> None:
        """After that nothing of it is left; its threads end soon."""
        if self.is_over():
            assert self.pid is None, f"the fleet's process {self.pid} has outlived its Backend"
        self._ref.stop()
        for actor in self.actors():
            actor.stop()
        self.system.close()


def number_of(name: str) -> int:
    """The executor id of a pod."""
    return int(name.rpartition("-")[2])


def _dies(message: object) -> object:
    raise Doom(f"of {type(message).__name__}")


class _Heard:
    """The driver's inbox: all of it is news."""

    def __init__(self, news: News, hear: Callable[[ToDriver], None]) -> None:
        self._news = news
        self._hear = hear

    def put(self, message: ToDriver) -> None:
        self._news.tell(partial(self._hear, message))
