"""Both sources and the store under a supervisor, with nothing else of a backend, and with everything they do noted."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from actors import kube
from actors.errors import ApiError, Cancelled, Gone
from actors.kube.api import WatchEnded
from actors.kube.retries import REFLECTOR
from actors.messages.internal import (
    AddSubscriber,
    BatchDone,
    Freshness,
    Polled,
    RetryNow,
    SnapshotBatch,
    StartPolling,
    StartWatching,
)
from actors.runtime import Actor, ChildSpec, Supervisor, SupervisorMessage
from actors.sources.poll_source import PollSource
from actors.sources.watch_source import HEALTHY_LIFETIME, STABLE_LIFETIME, WatchSource
from actors.store.snapshot_store import SnapshotStore
from tests.scenarios.oracle import SELECTOR, Passage, Story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from actors.kube.api import Call, PodApi, WatchEvents, WatchSink
    from actors.runtime import Address, Clock, Context
    from actors.settings.model import Settings

WATCH = "watch-source"
POLL = "poll-source"
STORE = "snapshot-store"

LOOK = timedelta(seconds=1)
"""Between two batches for the onlooker, if nothing ends."""

NEVER_IS_IT_EARLY = 0.001
"""Seconds by which two readings of a real clock may be off."""

PROMPTLY = 0.5
"""Seconds from the last page of a poll to the try that it prompts, at most: on threads, that takes its time."""

Outcome: TypeAlias = Literal["open", "answered", "over", "failed", "cancelled"]


@dataclass(slots=True)
class Try:
    """One request of a source."""

    verb: Literal["list", "watch"]
    at: float
    goes_on: bool = False
    """It asks for a later page of a list."""
    ended: float = float("inf")
    outcome: Outcome = "open"
    error: ApiError | None = None

    def end(self, outcome: Outcome, now: float, error: ApiError | None = None) -> None:
        """What came of it; only the first counts."""
        if self.outcome == "open":
            self.outcome, self.ended, self.error = outcome, now, error


class Noted:
    """A `PodApi` that notes each request of the source that has it, and what comes of it."""

    def __init__(self, inner: PodApi, clock: Clock) -> None:
        self.tries: list[Try] = []
        self._inner = inner
        self._clock = clock

    @property
    def api(self) -> PodApi:
        """For a source: of all that an API can do it lists and watches only."""
        return cast("PodApi", self)

    def send(self, request: kube.Request[Any], reply: kube.Reply[Any]) -> Call:
        """See `PodApi`."""
        assert isinstance(request, kube.List)
        one = self._begin("list", goes_on=bool(request.continue_token))

        def answered(page: Any) -> None:
            error = page if isinstance(page, ApiError) else None
            one.end("failed" if error else "answered", self._clock.monotonic(), error)
            reply(page)

        return _NotedCall(self._inner.send(request, answered), one, self._clock)

    def watch(self, request: kube.Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""
        one = self._begin("watch")

        def told(what: WatchEvents | WatchEnded) -> None:
            if isinstance(what, WatchEnded):
                one.end("failed" if what.error else "over", self._clock.monotonic(), what.error)
            sink(what)

        return _NotedCall(self._inner.watch(request, told), one, self._clock)

    def _begin(self, verb: Literal["list", "watch"], *, goes_on: bool = False) -> Try:
        one = Try(verb, self._clock.monotonic(), goes_on)
        self.tries.append(one)
        return one


@dataclass(frozen=True, slots=True)
class _NotedCall:
    inner: Call
    one: Try
    clock: Clock

    def cancel(self) -> None:
        self.one.end("cancelled", self.clock.monotonic(), Cancelled("the source gave it up"))
        self.inner.cancel()


def hasty(
    tries: Sequence[Try],
    *,
    abandoned: Iterable[float] = (),
    crashed: Iterable[float] = (),
    polls: Iterable[Try] = (),
) -> list[str]:
    """Tries of a watch source that came sooner after the last than its backoff allows.

    A watch and a later page may follow on a page of a list at once, a first page on a later one that had expired, and
    anything on a watch that ended cleanly after it had done some work. A stream that is given up is replaced at once,
    and a source that crashed knows of no earlier failures. A poll that got through allows one try; the next one has to
    wait all the longer.
    """
    excused, found, failures, waited = set(abandoned), [], 0, 0.0
    polled = [poll.ended for poll in polls if poll.outcome == "answered"]
    for last, this in pairwise(tries):
        worked = last.ended - last.at
        if last.verb == "watch" and worked >= max(STABLE_LIFETIME.total_seconds(), waited) - NEVER_IS_IT_EARLY:
            failures = 0
        follows = last.outcome == "answered" and (this.verb == "watch" or this.goes_on)
        starts_over = last.goes_on and isinstance(last.error, Gone) and this.verb == "list"
        is_over = last.outcome == "over" and worked >= HEALTHY_LIFETIME.total_seconds()
        if follows or starts_over or is_over or this.at in excused:
            continue
        restarted = any(last.at <= crash <= this.at for crash in crashed)
        failures = 0 if restarted else failures
        wait = min(REFLECTOR.initial * 2**failures, REFLECTOR.maximum).total_seconds()
        failures += not restarted
        waited = this.at - last.ended
        prompted = next((poll for poll in polled if last.ended <= poll <= this.at <= poll + PROMPTLY), None)
        if this.at - last.ended < wait - NEVER_IS_IT_EARLY and prompted is not None:
            polled.remove(prompted)
        elif this.at - last.ended < wait - NEVER_IS_IT_EARLY:
            found.append(
                f"{this.verb} at {this.at:.3f}, {this.at - last.ended:.3f} s after {last.verb} {last.outcome} "
                f"({last.error!r}); the backoff is {wait:.1f} s"
            )
    return found


def rates(tries: Iterable[Try], begin: float, end: float) -> list[int]:
    """Requests in each whole minute from `begin` to `end`."""
    minutes = [0] * int((end - begin) // 60)
    for one in tries:
        minute = int((one.at - begin) // 60)
        if one.at >= begin and minute < len(minutes):
            minutes[minute] += 1
    return minutes


class Tap(Actor):
    """Stands before the store, notes what passes and hands it on."""

    def __init__(self, context: Context, store: Address, passage: Passage) -> None:
        super().__init__(context)
        self._store = store
        self._passage = passage

    def receive(self, message: Any) -> object:
        """Nothing is held back."""
        self._passage.passed(message, self.clock.monotonic())
        self._store.tell(message)
        return None


class Listener(Actor):
    """A subscriber that does nothing but hear."""

    def __init__(self, context: Context, store: Address, story: Story, heard: Callable[[], None]) -> None:
        super().__init__(context)
        self._store = store
        self._story = story
        self._heard = heard

    def started(self) -> None:
        """Subscribe."""
        self._store.tell(AddSubscriber(self.address, LOOK))

    def receive(self, message: Any) -> object:
        """Hear each batch."""
        assert isinstance(message, SnapshotBatch)
        self._story.heard(message, self.clock.monotonic())
        self._store.tell(BatchDone(self.address, message.seq))
        self._heard()
        return None


@dataclass(slots=True)
class Notes:
    """What is known of a household from outside."""

    watching: Noted
    polling: Noted
    passage: Passage = field(default_factory=Passage)
    story: Story = field(default_factory=Story)
    stores: list[SnapshotStore] = field(default_factory=list)
    escalated: list[str] = field(default_factory=list)


class Household(Actor):
    """Owns the sources and the store as a backend does."""

    def __init__(
        self, context: Context, settings: Settings, notes: Notes, heard: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__(context)
        self._settings = settings
        self._notes = notes
        self._heard = heard
        self._supervisor = Supervisor(self, lambda name, cause: notes.escalated.append(f"{name}: {cause!r}"), HANG)

    def started(self) -> None:
        """What depends on others comes after them."""
        for spec in self._specs():
            self._supervisor.start(spec)

    def receive(self, message: Any) -> object:
        """What the sources say of their touch is not looked at; a crash is asked for by name."""
        match message:
            case SupervisorMessage():
                self._supervisor.handle(message)
            case Freshness():
                pass
            case Polled():
                self._supervisor.address(WATCH).tell(RetryNow())
            case str(name):
                self._supervisor.address(name).tell(object())
            case _:
                raise TypeError(f"a household does not know {type(message).__name__}")
        return None

    def _specs(self) -> Iterable[ChildSpec]:
        notes, address = self._notes, self._supervisor.address
        listener = partial(Listener, store=address(STORE), story=notes.story, heard=self._heard)
        tap = partial(Tap, store=address(STORE), passage=notes.passage)
        yield ChildSpec(STORE, self._store, limit=1)
        yield ChildSpec("listener", listener, limit=1)
        yield ChildSpec("tap", tap, limit=1)
        source = partial(ChildSpec, backoff=REFLECTOR, isolated=True)
        poll, watch = self._source(PollSource, notes.polling), self._source(WatchSource, notes.watching)
        yield source(POLL, poll, lambda poll: poll.tell(StartPolling()))
        yield source(WATCH, watch, lambda watch: watch.tell(StartWatching()))

    def _source(self, kind: type[PollSource | WatchSource], noted: Noted) -> Callable[[Context], Actor]:
        store = self._supervisor.address("tap")
        return partial(
            kind, settings=self._settings, api=noted.api, selector=SELECTOR, store=store, backend=self.address
        )

    def _store(self, context: Context) -> SnapshotStore:
        watch, poll = self._supervisor.address(WATCH), self._supervisor.address(POLL)
        rules = self._settings.pod_rules
        store = SnapshotStore(context, settings=self._settings, rules=rules, watch_source=watch, poll_source=poll)
        self._notes.stores.append(store)
        return store


HANG = timedelta(seconds=30)
"""Of a handler. None has anything to wait for."""
