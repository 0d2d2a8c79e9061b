"""What a Backend must have before it may write, or create."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.lease.write_permission import LeaseChange, WritePermission
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    LeaseHeld,
    LeaseNotHeld,
    ProfileStatus,
    ResumeWrites,
    SuspendWrites,
)
from actors.runtime import Actor, Context
from actors.settings.model import Settings

if TYPE_CHECKING:
    from actors.testing import Kit


class Owner(Actor):
    """Has a permission, and journals what it calls for."""

    def __init__(self, context: Context, rig: Rig, settings: Settings) -> None:
        super().__init__(context)
        self.permission = WritePermission(
            self,
            settings,
            pool=rig.pool.address,
            tell=rig.told.append,
        )
        self._journal = rig.journal

    def receive(self, message: Any) -> object:
        change = self.permission.handle(message)
        if change is not None:
            self._journal.append("go on" if change is LeaseChange.FIRST_GRANT else "lease changed")
        return None


class Rig:
    def __init__(self, kit: Kit, **settings: Any) -> None:
        self.kit = kit
        self.pool = kit.probe("pool")
        self.told: list[object] = []
        self.journal: list[str] = []
        made: list[Owner] = []

        def make(context: Context) -> Owner:
            made.append(Owner(context, self, Settings(**{"app_id": "app", **settings})))
            return made[0]

        self.address = kit.spawn(make, name="owner")
        self.subject = made[0].permission
        self.subject.begin_to_notify()

    def hear(self, message: LeaseHeld | LeaseNotHeld) -> None:
        self.address.tell(message)
        self.kit.settle()

    def hold(self, seconds: float = 10) -> None:
        self.hear(LeaseHeld(self.kit.clock.monotonic() + seconds))

    def news(self) -> list[str]:
        """Why nothing is created, in words, or that it is over; what is called for after that."""
        said = [message.cause if isinstance(message, AllocationBlocked) else "unblocked" for message in self.told]
        words, self.told[:], self.journal[:] = [*said, *self.journal], [], []
        return words


def test_a_lease_that_comes_at_once_is_no_news(kit: Kit) -> None:
    rig = Rig(kit)
    assert (rig.subject.may_write, rig.subject.may_create) == (False, False)
    rig.hold()
    assert (rig.subject.may_write, rig.subject.may_create) == (True, True)
    assert rig.news() == ["go on"]
    rig.pool.take(ResumeWrites)
    rig.hold()
    assert rig.news() == []
    rig.pool.expect_nothing()


def test_a_lease_of_another_is_told_and_what_is_known_is_old_when_it_becomes_ours(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hear(LeaseNotHeld("it is a's", holder="a", holder_lives=True))
    assert (rig.subject.may_write, rig.subject.holder, rig.subject.why_not()) == (False, "a", "it is a's")
    assert rig.news() == ["it is a's", "lease changed"]
    rig.hear(LeaseNotHeld("it is b's", holder="b", holder_lives=True))
    assert rig.news() == ["it is b's", "lease changed"]
    rig.hold()
    assert (rig.subject.holder, rig.news()) == (None, ["unblocked", "lease changed"])


def test_one_that_may_have_ended_is_nobody_who_holds_it_until_it_is_seen_to_live(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hear(LeaseNotHeld("a may have ended", holder="a"))
    assert (rig.subject.may_write, rig.subject.holder) == (False, None)
    rig.hear(LeaseNotHeld("it is a's", holder="a", holder_lives=True))
    assert rig.subject.holder == "a"
    assert rig.news() == ["a may have ended", "it is a's", "lease changed", "lease changed"]


def test_a_keeper_that_has_forgotten_that_the_holder_lives_is_not_believed(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hear(LeaseNotHeld("it is a's", holder="a", holder_lives=True))
    rig.news()
    rig.hear(LeaseNotHeld("a may have ended", holder="a"))
    assert (rig.subject.holder, rig.subject.why_not(), rig.news()) == ("a", "it is a's", [])
    rig.hear(LeaseNotHeld("b may have ended", holder="b"))
    assert (rig.subject.holder, rig.news()) == (None, ["b may have ended", "lease changed"])


def test_a_pool_that_comes_up_is_told_only_of_what_it_may_not(kit: Kit) -> None:
    rig = Rig(kit)
    rig.subject.introduce_pool()
    kit.settle()
    assert rig.pool.take(SuspendWrites).reason == "waiting for the lease of 'app'"
    rig.hold()
    rig.pool.take(ResumeWrites)
    rig.subject.introduce_pool()
    kit.settle()
    rig.pool.expect_nothing()


def test_a_lease_that_nobody_renews_is_over_when_it_was_said_to_be(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hold(10)
    kit.advance(timedelta(seconds=6))
    rig.hold(10)
    rig.news()
    kit.advance(timedelta(seconds=9.9))
    assert rig.subject.may_write
    kit.advance(timedelta(seconds=0.1))
    assert not rig.subject.may_write
    assert rig.news()[-1] == "lease changed"
    rig.pool.take(SuspendWrites)


def test_a_lease_that_was_lost_does_not_end_a_second_time(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hold(10)
    rig.hear(LeaseNotHeld("it is a's", holder="a"))
    rig.news()
    kit.advance(timedelta(seconds=20))
    assert rig.news() == []


def test_word_of_a_lease_that_comes_too_late_is_none(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hold(0)
    assert not rig.subject.may_write
    assert rig.news() == []


def test_an_account_without_the_right_goes_on_unless_a_lease_was_asked_for(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(kit)
    for why in ("leases is forbidden", "leases is still forbidden"):
        rig.hear(LeaseNotHeld(why, forbidden=True))
    assert rig.subject.may_write
    assert rig.news() == ["go on"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "leases is forbidden" in warnings[0]

    strict = Rig(kit, backend={"lease": True})
    strict.hear(LeaseNotHeld("leases is forbidden", forbidden=True))
    assert not strict.subject.may_write
    assert strict.news() == ["leases is forbidden", "lease changed"]


def test_an_account_without_the_right_goes_on_also_when_the_api_was_away_at_first(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hear(LeaseNotHeld("the API is away"))
    rig.hear(LeaseNotHeld("leases is forbidden", forbidden=True))
    assert rig.subject.may_write


def test_an_account_without_the_right_goes_on_also_when_the_lease_of_a_dead_one_has_run_out(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hear(LeaseNotHeld("a may have ended", holder="a"))
    assert not rig.subject.may_write
    rig.hear(LeaseNotHeld("leases is forbidden", forbidden=True))
    assert rig.subject.may_write


@pytest.mark.parametrize(
    "before",
    [LeaseHeld(1e9), LeaseNotHeld("it is a's", holder="a", holder_lives=True)],
    ids=["ours", "another's"],
)
def test_a_right_that_is_lost_where_a_lease_is_kept_is_no_licence(kit: Kit, before: LeaseHeld | LeaseNotHeld) -> None:
    rig = Rig(kit)
    rig.hear(before)
    rig.hear(LeaseNotHeld("leases is forbidden", forbidden=True))
    assert not rig.subject.may_write


def test_creation_waits_for_both_the_lease_and_the_drivers_pod(kit: Kit) -> None:
    rig = Rig(kit, driver_pod_name="driver-0")
    waits = "waiting for the driver's pod 'driver-0' to be ready"
    assert rig.news() == [waits]
    rig.hear(LeaseNotHeld("it is a's", holder="a"))
    assert rig.news() == [f"it is a's; {waits}", "lease changed"]
    rig.subject.driver_pod_ready()
    assert not rig.subject.may_create
    assert rig.news() == ["it is a's"]
    rig.hold()
    assert rig.subject.may_create
    assert rig.news() == ["unblocked", "lease changed"]


def test_every_profile_is_blocked_and_unblocked(kit: Kit) -> None:
    rig = Rig(kit, profiles={"large": {"instances": 1}})
    rig.hear(LeaseNotHeld("it is a's", holder="a"))
    rig.hold()
    assert rig.told == [
        AllocationBlocked("default", "it is a's"),
        AllocationBlocked("large", "it is a's"),
        AllocationUnblocked("default"),
        AllocationUnblocked("large"),
    ]


def test_a_backend_that_stops_tells_nothing_of_it(kit: Kit) -> None:
    rig = Rig(kit)
    rig.subject.end_to_notify()
    rig.hear(LeaseNotHeld("it is a's", holder="a"))
    assert rig.news() == ["lease changed"]


def test_the_status_shows_the_wait_that_is_no_news(kit: Kit) -> None:
    rig = Rig(kit)
    (status,) = rig.subject.over({"default": ProfileStatus(target=2)}, ()).values()
    assert status.blocked == "waiting for the lease of 'app'"
