"""PollSource between two probes: the store and the backend."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.errors import Refused, TooManyRequests, Unavailable
from actors.kube.api import PodPage
from actors.messages.internal import Freshness, LookAgain, Polled, ReplaceSnapshot, Source, StartPolling
from actors.settings import ExecutorSettings, Settings
from actors.sources.poll_source import JITTER, PollSource
from actors.testing.manual_api import ManualPodApi
from tests.unit.builders import pod

if TYPE_CHECKING:
    from actors.testing import Kit

INTERVAL = timedelta(seconds=30)
LONGEST = INTERVAL * (1 + JITTER)
MOMENT = timedelta(microseconds=1)
TWICE = "Cannot start polling more than once."


class World:
    def __init__(self, kit: Kit, settings: Settings | None = None) -> None:
        self.kit = kit
        self.api = ManualPodApi()
        self.store = kit.probe("store")
        self.backend = kit.probe("backend")
        self.owner = kit.probe("owner")
        self.source = kit.spawn(
            lambda context: PollSource(
                context,
                settings=settings or Settings(app_id="app"),
                api=self.api,
                selector="a=b",
                store=self.store.address,
                backend=self.backend.address,
            ),
            name="poll-source",
            owner=self.owner.address,
        )

    def tell(self, message: object) -> None:
        self.source.tell(message)
        self.kit.settle()

    def started(self) -> World:
        self.tell(StartPolling())
        return self

    def answer(self, answer: object) -> None:
        self.api.take("list").answer(answer)
        self.kit.settle()

    def seconds_to_next_list(self) -> float:
        """Advance to the next LIST and return the seconds."""
        start = self.kit.clock.elapsed
        while not self.api.open("list"):
            due = self.kit.timers.next_due()
            assert due is not None, "no LIST is under way and no timer is set"
            self.kit.advance(due - self.kit.clock.elapsed)
        return (self.kit.clock.elapsed - start).total_seconds()


@pytest.fixture
def world(kit: Kit) -> World:
    return World(kit)


def test_nothing_is_listed_before_polling_is_started(world: World, kit: Kit) -> None:
    kit.advance(2 * LONGEST)
    assert world.api.calls == []


def test_the_first_poll_is_one_interval_after_the_start(world: World, kit: Kit) -> None:
    world.started()
    kit.advance(INTERVAL - MOMENT)
    assert world.api.calls == []
    kit.advance(MOMENT)
    assert [call.request.selector for call in world.api.open("list")] == ["a=b"]


def test_the_interval_is_the_setting_30_seconds_by_default(kit: Kit) -> None:
    assert Settings(app_id="app").executor.api_polling_interval == INTERVAL
    quick = World(kit, Settings(app_id="app", executor=ExecutorSettings(api_polling_interval=timedelta(seconds=2))))
    assert quick.started().seconds_to_next_list() == 2.0


def test_a_list_replaces_the_snapshot_and_has_the_moment_of_its_request(world: World, kit: Kit) -> None:
    world.started().seconds_to_next_list()
    asked_at = kit.clock.monotonic()
    kit.advance(timedelta(seconds=4))
    world.answer(PodPage((pod(1),), "7", "next"))
    world.store.expect_nothing()
    world.answer(PodPage((pod(2),), "7"))
    assert world.store.take(ReplaceSnapshot) == ReplaceSnapshot(
        (pod(1), pod(2)), "7", asked_at, consistent=True, stream=None
    )
    assert [told.synced_at for told in world.backend.take_all(Freshness)] == [None, asked_at]


def test_a_list_has_the_listed_version_of_each_pod(world: World) -> None:
    world.started().seconds_to_next_list()
    world.answer(PodPage((pod(1), pod(2)), "7", "next", versions=["5", "6"]))
    world.answer(PodPage((), "7", "next-but-one", malformed=1))
    world.answer(PodPage((pod(3),), "7", "last"))
    world.answer(PodPage((pod(4),), "7", versions=["4"]))
    versions = world.store.take(ReplaceSnapshot).versions
    assert versions is not None
    assert [versions[place] for place in range(4)] == ["5", "6", pod(3).resource_version, "4"]


def test_a_poll_is_reported_once_when_it_is_complete(world: World) -> None:
    world.started().seconds_to_next_list()
    world.answer(Unavailable("no answer"))
    world.seconds_to_next_list()
    world.answer(PodPage((pod(1),), "7", "next"))
    assert world.backend.take_all(Polled) == []
    world.answer(PodPage((), "7"))
    assert world.backend.take_all(Polled) == [Polled()]


def test_polls_repeat_with_an_interval_and_up_to_a_tenth_of_it_between(world: World) -> None:
    world.started().seconds_to_next_list()
    pauses = []
    for version in range(20):
        world.answer(PodPage((), str(version)))
        pauses.append(world.seconds_to_next_list())
    assert INTERVAL.total_seconds() <= min(pauses) < max(pauses) <= LONGEST.total_seconds()


def test_one_list_is_under_way_at_a_time_however_long_it_takes(world: World, kit: Kit) -> None:
    world.started().seconds_to_next_list()
    kit.advance(10 * INTERVAL)
    assert len(world.api.calls) == 1


def test_a_failed_poll_is_reported_and_the_next_one_comes_after_an_interval(world: World) -> None:
    world.started().seconds_to_next_list()
    error = Unavailable("no answer")
    world.answer(error)
    world.store.expect_nothing()
    assert world.backend.take(Freshness) == Freshness(Source.POLL, None, error)
    assert INTERVAL.total_seconds() <= world.seconds_to_next_list() <= LONGEST.total_seconds()


@pytest.mark.parametrize("kind", [TooManyRequests, Unavailable])
def test_a_retry_after_that_is_longer_than_the_interval_is_honoured(
    world: World, kind: type[TooManyRequests | Unavailable]
) -> None:
    world.started().seconds_to_next_list()
    world.answer(kind("slow down", retry_after=timedelta(seconds=50)))
    assert 50 <= world.seconds_to_next_list() <= 75


def test_a_failure_does_not_forget_when_the_last_full_sync_was(world: World, kit: Kit) -> None:
    world.started().seconds_to_next_list()
    asked_at = kit.clock.monotonic()
    world.answer(PodPage((), "7"))
    world.seconds_to_next_list()
    world.backend.take(Freshness)
    error = Unavailable("no answer")
    world.answer(error)
    assert world.backend.take(Freshness) == Freshness(Source.POLL, asked_at, error, asked_at)


def test_each_page_counts_as_fresh_data_and_only_the_last_clears_the_error(world: World, kit: Kit) -> None:
    world.started().seconds_to_next_list()
    error = Unavailable("no answer")
    world.answer(error)
    world.seconds_to_next_list()
    world.backend.take_all()
    asked_at = kit.clock.monotonic()
    for page in range(1, 4):
        kit.advance(timedelta(seconds=2))
        world.answer(PodPage((pod(page),), "7", f"next-{page}"))
        assert world.backend.take(Freshness) == Freshness(Source.POLL, None, error, asked_at + 2.0 * page)
    world.answer(PodPage((), "7"))
    assert world.backend.take(Freshness) == Freshness(Source.POLL, asked_at, None, asked_at + 6.0)


# ── from the server's cache ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def caching(kit: Kit) -> World:
    """A source that may poll from the cache, at its first LIST."""
    world = World(kit, Settings(app_id="app", executor=ExecutorSettings(polling_from_cache=True)))
    world.started().seconds_to_next_list()
    return world


def test_every_tenth_poll_is_consistent_and_the_others_are_from_the_cache(caching: World) -> None:
    asked, told = [], []
    for version in range(25):
        asked.append(caching.api.open("list")[0].request.resource_version)
        caching.answer(PodPage((), str(version)))
        told.append(caching.store.take(ReplaceSnapshot).consistent)
        caching.seconds_to_next_list()
    assert asked == [None if poll % 10 == 0 else "0" for poll in range(25)]
    assert told == [poll % 10 == 0 for poll in range(25)]


def test_a_consistent_poll_that_fails_is_made_up_for_by_the_next(caching: World) -> None:
    caching.answer(Unavailable("no answer"))
    caching.seconds_to_next_list()
    assert caching.api.open("list")[0].request.resource_version is None


def test_a_later_page_continues_its_list_whether_cached_or_consistent(caching: World) -> None:
    caching.answer(PodPage((), "7"))
    caching.seconds_to_next_list()
    caching.answer(PodPage((pod(1),), "7", "next"))
    later = caching.api.open("list")[0].request
    assert (later.continue_token, later.resource_version) == ("next", None)
    caching.answer(PodPage((pod(2),), "7"))
    assert [replaced.consistent for replaced in caching.store.take_all(ReplaceSnapshot)] == [True, False]


def test_a_list_from_the_cache_is_fresh_data_but_no_full_sync(caching: World, kit: Kit) -> None:
    synced_at = kit.clock.monotonic()
    caching.answer(PodPage((), "7"))
    caching.seconds_to_next_list()
    caching.backend.take_all()
    caching.answer(PodPage((), "7"))
    assert caching.backend.take(Freshness) == Freshness(Source.POLL, synced_at, None, kit.clock.monotonic())


def test_polls_are_consistent_unless_the_settings_say_otherwise(world: World) -> None:
    world.started()
    for version in range(3):
        world.seconds_to_next_list()
        assert world.api.open("list")[0].request.resource_version is None
        world.answer(PodPage((), str(version)))
    assert [replaced.consistent for replaced in world.store.take_all(ReplaceSnapshot)] == [True] * 3


# ── trouble, starting, stopping ──────────────────────────────────────────────────────────────────────────────────


def test_an_error_is_logged_once_when_it_begins_and_once_when_it_ends(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.started().seconds_to_next_list()
    caplog.set_level(logging.INFO, "actors.sources.poll_source")
    for _ in range(3):
        world.answer(Unavailable("no answer"))
        world.seconds_to_next_list()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    caplog.clear()
    world.answer(PodPage((), "7"))
    world.seconds_to_next_list()
    world.answer(PodPage((), "7"))
    assert [record.levelname for record in caplog.records] == ["INFO"]


def test_the_interval_is_logged_at_the_start(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "actors.sources.poll_source")
    world.started()
    assert caplog.messages == ["polling started: interval=30s"]


def test_a_second_start_is_an_error_for_who_asks(world: World, kit: Kit) -> None:
    world.started()
    with pytest.raises(Refused, match=TWICE):
        kit.ask(world.source, StartPolling())
    assert world.seconds_to_next_list() == INTERVAL.total_seconds(), "the first start counts"
    world.owner.expect_nothing()


def test_a_second_start_by_tell_is_logged_and_changes_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.started()
    world.tell(StartPolling())
    assert [(record.levelname, TWICE in record.getMessage()) for record in caplog.records] == [("WARNING", True)]
    world.seconds_to_next_list()
    assert len(world.api.calls) == 1
    world.owner.expect_nothing()


def test_a_stop_abandons_the_list_under_way(world: World, kit: Kit) -> None:
    world.started().seconds_to_next_list()
    world.source.stop()
    kit.settle()
    assert world.api.calls[0].cancelled
    world.store.expect_nothing()


# ── the store looks again ────────────────────────────────────────────────────────────────────────────────────────

SOON = timedelta(seconds=5)


def test_the_store_gets_another_list_soon_and_then_one_an_interval_later(world: World, kit: Kit) -> None:
    world.started()
    world.tell(LookAgain(SOON))
    assert world.seconds_to_next_list() == SOON.total_seconds()
    world.answer(PodPage((pod(1),), "7"))
    assert world.store.take(ReplaceSnapshot).consistent
    assert INTERVAL.total_seconds() <= world.seconds_to_next_list() <= LONGEST.total_seconds()


def test_the_other_list_is_consistent_though_polls_come_from_the_servers_cache(kit: Kit) -> None:
    settings = Settings(app_id="app", executor=ExecutorSettings(image="x", polling_from_cache=True))
    world = World(kit, settings).started()
    for _ in range(2):
        world.seconds_to_next_list()
        world.answer(PodPage((), "7"))
    assert [listed.consistent for listed in world.store.take_all(ReplaceSnapshot)] == [True, False]
    world.tell(LookAgain(SOON))
    world.seconds_to_next_list()
    world.answer(PodPage((), "7"))
    assert world.store.take(ReplaceSnapshot).consistent


def test_the_retry_of_the_other_list_is_consistent_too(kit: Kit) -> None:
    settings = Settings(app_id="app", executor=ExecutorSettings(image="x", polling_from_cache=True))
    world = World(kit, settings).started()
    world.seconds_to_next_list()
    world.answer(PodPage((), "7"))
    world.tell(LookAgain(SOON))
    for answer in (Unavailable("no route"), PodPage((), "7")):
        world.seconds_to_next_list()
        world.answer(answer)
    assert [listed.consistent for listed in world.store.take_all(ReplaceSnapshot)] == [True, True]


def test_a_store_that_asks_again_meanwhile_gets_one_list_at_the_first_ones_time(world: World, kit: Kit) -> None:
    world.started()
    world.tell(LookAgain(SOON))
    kit.advance(SOON / 2)
    world.tell(LookAgain(SOON))
    assert world.seconds_to_next_list() == SOON.total_seconds() / 2
    world.answer(PodPage((), "7"))
    assert world.seconds_to_next_list() >= INTERVAL.total_seconds()


def test_a_poll_that_is_due_does_not_abandon_the_list_for_another_look(world: World, kit: Kit) -> None:
    world.started()
    kit.advance(INTERVAL - SOON)
    world.tell(LookAgain(SOON - MOMENT))
    kit.advance(SOON)
    world.answer(PodPage((), "7"))
    assert world.store.take(ReplaceSnapshot).resource_version == "7"
