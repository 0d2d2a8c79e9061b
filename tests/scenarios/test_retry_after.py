"""The whole tree and a server, or what stands before it, that asks to wait for days."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.errors import Forbidden, TooManyRequests, Unavailable
from actors.local.faults.kinds import Refuse, server_error
from actors.messages import AllocationBlocked, BackendStarted, BackendStopped, GetFleetStatus, StopBackend
from tests.scenarios.fleets import fleet, name
from tests.scenarios.test_outage import EVERYTHING, TroubledWorld

if TYPE_CHECKING:
    from actors.local.faults.kinds import Fault

DAYS = timedelta(seconds=999_999)
THROTTLED = Refuse(TooManyRequests("slow down", status=429, retry_after=DAYS))
MAINTENANCE = Refuse(Unavailable("be back soon", status=503, retry_after=timedelta(hours=1)))
LONGEST = 60 * 1.5
"""Seconds: `api.max_retry_after`, with its jitter."""


def test_one_429_that_asks_for_days_holds_creation_for_a_minute() -> None:
    with fleet(1) as world:
        world.api.fail_next("create", THROTTLED)
        world.target(4)
        world.advance(LONGEST + 5)
        assert world.running() == 4


def test_the_driver_hears_until_when_creation_waits_and_on_whose_word() -> None:
    with fleet(1) as world:
        world.api.fail_next("create", THROTTLED, times=3)
        world.target(2)
        world.advance(20)
        (blocked,) = world.heard(AllocationBlocked)
        assert "slow down; next try at 00:0" in blocked.cause
        assert "because the server asks for 999999s" in blocked.cause
        first = world.ask(GetFleetStatus()).profiles["default"].blocked
        world.advance(LONGEST)
        assert world.ask(GetFleetStatus()).profiles["default"].blocked != first, "the next try is later now"
        assert len(world.heard(AllocationBlocked)) == 1, "one cause is told once"
        world.advance(2 * LONGEST)
        assert world.running() == 2


def test_after_a_429_one_post_is_sent_until_the_server_takes_one() -> None:
    with TroubledWorld(executor={"instances": 1}) as world:
        world.advance(5)
        world.target(13)
        world.trouble(THROTTLED, "create")
        world.advance(LONGEST * 4)
        sent = world.tries("create")
        at_first = [at for at in sent if at < sent[0] + 1]
        assert 3 <= len(sent) - len(at_first) <= 6, "one a pause"
        world.api.trouble = {}
        world.advance(LONGEST + 5)
        assert world.running() == 13


@pytest.mark.parametrize("fault", [THROTTLED, MAINTENANCE], ids=["429", "503"])
def test_a_page_that_is_shown_for_ten_seconds_costs_a_minute(fault: Fault) -> None:
    with TroubledWorld(executor={"instances": 5}) as world:
        world.advance(10)
        world.target(8)
        world.trouble(fault, *EVERYTHING)
        world.advance(2)
        world.kubelet.exit(name(1), 1)
        world.advance(8)
        world.api.trouble = {}
        world.advance(LONGEST + 5)
        assert world.running() == 8
        assert list(world.removals()) == [1]
        assert len(world.pods()) == 8, "the one that ended is deleted"


def test_an_error_event_that_asks_for_days_holds_the_watch_for_a_minute() -> None:
    with fleet(1, executor={"api_polling_interval": "365d"}, source={"stale_after": "365d"}) as world:
        world.api.fail_next("watch", Refuse(TooManyRequests("busy", status=429, retry_after=timedelta(days=13))))
        world.api.cut()
        world.advance(LONGEST + 5)
        world.kubelet.exit(name(1), 3)
        world.advance(1)
        assert world.removals()[1].reason.exit_code == 3


@pytest.mark.parametrize("kind", [TooManyRequests, Unavailable])
@pytest.mark.parametrize("seconds", [5, 20, 25])
@pytest.mark.parametrize("seed", range(3))
def test_a_server_whose_cache_starts_starts_the_fleet_in_time(
    kind: type[TooManyRequests | Unavailable], seconds: int, seed: int
) -> None:
    starts = Refuse(kind("storage is (re)initializing", retry_after=timedelta(seconds=1)))
    with TroubledWorld(seed=seed, executor={"instances": 3}) as world:
        world.trouble(starts, "list", "watch")
        world.advance(seconds)
        world.api.trouble = {}
        world.advance(5)
        assert len(world.heard(BackendStarted)) == 1
        world.advance(5)
        assert world.running() == 3


def test_the_longest_wait_can_be_set() -> None:
    with fleet(1, api={"max_retry_after": "5s"}) as world:
        world.api.fail_next("create", THROTTLED)
        world.target(2)
        world.advance(5 * 1.5 + 3)
        assert world.running() == 2


@pytest.mark.parametrize("fault", [THROTTLED, MAINTENANCE], ids=["429", "503"])
def test_a_stop_waits_for_no_page_that_is_gone_in_ten_seconds(fault: Fault) -> None:
    with TroubledWorld(executor={"instances": 5}) as world:
        world.advance(10)
        world.trouble(fault, "delete", "delete_collection")
        world.backend.tell(StopBackend())
        world.advance(10)
        world.api.trouble = {}
        world.advance(21)
        (stopped,) = world.heard(BackendStopped)
        assert stopped.left_behind == ()
        assert world.pods() == []


@pytest.mark.parametrize(
    "refusal", [THROTTLED, Refuse(Forbidden("no", status=403)), Refuse(server_error())], ids=["429", "403", "500"]
)
def test_a_stop_repeats_at_once_the_deletions_that_were_refused_before(refusal: Fault) -> None:
    with TroubledWorld(executor={"instances": 3}) as world:
        world.advance(5)
        world.trouble(refusal, "delete")
        world.kubelet.exit(name(1), 1)
        world.advance(330)
        world.trouble(Refuse(Forbidden("no", status=403)), "delete_collection")
        world.backend.tell(StopBackend())
        world.advance(10)
        assert [stopped.left_behind for stopped in world.heard(BackendStopped)] == [()]
        assert world.pods() == []
