"""Ten minutes behind an API that does everything wrong that one can: nothing is lost, nothing is told twice.

Sources and store alone, in virtual time. Pods come, change and go all the while; an oracle that watches the cluster's
store itself knows what happened.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Self

import pytest

from actors.local.faults.faulty_api import FaultyPodApi
from actors.local.faults.kinds import Chances
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet import pod_status
from actors.local.store.object_store import ObjectStore
from actors.local.store.objects import rfc3339
from actors.runtime import Entropy
from actors.settings.model import Settings
from actors.sources import listing
from actors.testing import Kit
from tests.scenarios.churn import Churn
from tests.scenarios.oracle import Truth, all_ends_are_told, shows_all_there_is, verdict
from tests.scenarios.seeds import seeds
from tests.scenarios.sources import POLL, WATCH, Household, Noted, Notes, hasty, rates
from tests.unit.builders import APP_ID

if TYPE_CHECKING:
    from types import TracebackType

LATENCY = timedelta(milliseconds=5)
TROUBLE = Chances(
    too_many_requests=0.05,
    server_error=0.05,
    lost_answer=0.05,
    stall=0.05,
    half_open=0.05,
    delay_request=0.1,
    delay_answer=0.1,
    gone=0.05,
    cut=0.004,
    freeze=0.001,
    lag=0.02,
)
"""All that can happen to one who only reads, but for a stale list: a consistent one is never stale."""

SMALL_PAGE = 7
"""So that a list of a few dozen pods takes several calls, between which its token may expire."""

TROUBLED_SECONDS = 600
CALM_SECONDS = 240
"""The silence of a frozen stream, the longest backoff, and two polls."""


class Plant:
    """A cluster in which things happen, and a household that looks at it through two faulty connections."""

    def __init__(self, seed: int, *, streaming_list: bool = False) -> None:
        self.kit = Kit(seed=seed)
        self.random = Random(seed)
        clock = self.kit.clock
        self.store = ObjectStore(clock, Entropy(seed))
        self.store.create("nodes", None, pod_status.scripted_node("node", rfc3339(clock.now())))
        self.truth = Truth()
        self.truth.watch(self.store)
        self.churn = Churn(self.store, self.random, clock)
        self.apis = [self._connect(name) for name in (WATCH, POLL)]
        self.notes = Notes(watching=Noted(self.apis[0], clock), polling=Noted(self.apis[1], clock))
        self.crashes: list[float] = []
        settings = Settings(app_id=APP_ID, source={"streaming_list": streaming_list})
        self.household = self.kit.spawn(lambda context: Household(context, settings, self.notes), name="household")

    def _connect(self, name: str) -> FaultyPodApi:
        inner = InProcessPodApi(self.store, "default", self.kit.timers, LATENCY)
        return FaultyPodApi(inner, self.kit.timers, self.kit.entropy.fork(name))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kit.close()

    def advance(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.kit.advance(timedelta(seconds=seconds))

    def seconds(self) -> float:
        """Virtual time."""
        return self.kit.clock.monotonic()

    def crash(self, name: str) -> None:
        """Let a source die of a message that it cannot handle."""
        if name == WATCH:
            self.crashes.append(self.seconds())
        self.household.tell(name)

    def outage(self, *, begins: bool) -> None:
        """The server is away, for both."""
        for api in self.apis:
            api.outage = begins

    def trouble(self) -> None:
        """Something that does not come about by chance."""
        api = self.random.choice(self.apis)
        match self.random.randrange(10):
            case 0:
                self.outage(begins=True)
                self.busy(self.random.uniform(1, 60))
                self.outage(begins=False)
            case 1 | 2:  # what the streams have not seen yet, they never will
                keep = self.random.randrange(6)
                self.store.expire(keep)
                api.cut()
            case 3:
                self.store.expire()
                api.expire()
            case 4:
                api.stall()
                self.busy(self.random.uniform(1, 100))
                api.resume()
            case 5:
                api.freeze()
            case 6 | 7:
                api.lag = timedelta(seconds=self.random.choice((0, 0.2, 3, 20)))
            case 8:
                api.cut()
            case _:
                self.crash(self.random.choice((WATCH, POLL)))

    def busy(self, seconds: float) -> None:
        """Time passes, with changes."""
        until = self.seconds() + seconds
        while self.seconds() < until:
            for _ in range(self.random.choice((0, 1, 1, 2, 6))):
                self.churn.step()
            self.advance(self.random.choice((0.001, 0.1, 0.5, 2)))

    def calm(self) -> None:
        """Nothing happens any more, and nothing is wrong."""
        for api in self.apis:
            api.calm()
        self.advance(CALM_SECONDS)

    def wrong(self) -> list[str]:
        """What the oracle has found."""
        notes = self.notes
        found = verdict(self.truth, notes.passage, notes.story, self.churn.asked_to_end)
        if not shows_all_there_is(notes.story.snapshot, self.store):
            found.append("the snapshot is not what the store has")
        if not notes.passage.has_reached(self.store.resource_version):
            found.append("the watch is not back")
        if not all_ends_are_told(self.truth, notes.story):
            found.append("some ends were never told")
        return found


@pytest.mark.parametrize("seed", seeds(1, of=8))
def test_nothing_is_lost_or_repeated_behind_a_connection_that_does_everything_wrong(
    seed: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(listing, "PAGE_SIZE", SMALL_PAGE)
    with Plant(seed, streaming_list=seed % 3 == 0) as plant:
        plant.busy(10)
        for api in plant.apis:
            api.chances = TROUBLE
        until = plant.seconds() + TROUBLED_SECONDS
        while plant.seconds() < until:
            plant.busy(plant.random.uniform(0, 60))
            plant.trouble()
        plant.calm()
        assert plant.wrong() == []
        assert plant.notes.escalated == []
        assert "was reset" not in caplog.text
        tries = plant.notes.watching.tries
        notes = plant.notes
        polls = notes.polling.tries
        assert hasty(tries, abandoned=notes.passage.abandoned, crashed=plant.crashes, polls=polls) == []
        (store,) = plant.notes.stores
        history = store._history
        assert (len(history.tombstones), len(history.absent)) == (0, 0), "what is over is forgotten"
        assert len(tries) > 5, "there was no trouble"
        assert plant.notes.passage.events > 100, "the watch was never there"


@pytest.mark.parametrize("seed", seeds(1, of=5))
def test_in_a_full_outage_the_sources_ask_at_most_ten_times_a_minute(seed: int) -> None:
    with Plant(seed) as plant:
        plant.busy(60)
        begin = plant.seconds()
        plant.outage(begins=True)
        plant.busy(TROUBLED_SECONDS)
        tries = [*plant.notes.watching.tries, *plant.notes.polling.tries]
        minutes = rates(tries, begin, plant.seconds())
        assert len(minutes) == 10
        assert max(minutes[1:]) <= 10, minutes
        assert min(minutes[1:]) >= 1, "nobody tries any more"
        assert hasty(plant.notes.watching.tries, abandoned=plant.notes.passage.abandoned) == []
        plant.calm()
        assert plant.wrong() == []
