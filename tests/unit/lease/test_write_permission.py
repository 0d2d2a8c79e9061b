"""What a Backend must have before it may write, or create."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.lease.write_permission import LeaseChange, WritePermission
from actors.messages import AllocationBlocked, AllocationUnblocked, ProfileStatus
from actors.messages.internal import AllowWrites, LeaseHeld, LeaseNotHeld, SuspendWrites
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
            tell=rig.sent.append,
        )
        self._journal = rig.journal

    def receive(self, message: Any) -> object:
        change = self.permission.handle(message)
        if change is not None:
            self._journal.append("first grant" if change is LeaseChange.FIRST_GRANT else "changed hands")
        return None


class Rig:
    def __init__(self, kit: Kit, **settings: Any) -> None:
        self.kit = kit
        self.pool = kit.probe("pool")
        self.sent: list[object] = []
        self.journal: list[str] = []
        made: list[Owner] = []

        def make(context: Context) -> Owner:
            made.append(Owner(context, self, Settings(**{"app_id": "app", **settings})))
            return made[0]

        self.address = kit.spawn(make, name="owner")
        self.subject = made[0].permission
        self.subject.begin_to_notify()

    def receive(self, message: LeaseHeld | LeaseNotHeld) -> None:
        self.address.tell(message)
        self.kit.settle()

    def hold(self, seconds: float = 10) -> None:
        self.receive(LeaseHeld(self.kit.clock.monotonic() + seconds))

    def reports(self) -> list[str]:
        """What the driver was notified of, then how the permission has changed."""
        sent = [message.cause if isinstance(message, AllocationBlocked) else "unblocked" for message in self.sent]
        reports, self.sent[:], self.journal[:] = [*sent, *self.journal], [], []
        return reports


def test_a_lease_that_is_acquired_at_once_is_not_reported(kit: Kit) -> None:
    rig = Rig(kit)
    assert (rig.subject.may_write, rig.subject.may_create) == (False, False)
    rig.hold()
    assert (rig.subject.may_write, rig.subject.may_create) == (True, True)
    assert rig.reports() == ["first grant"]
    rig.hold()
    assert rig.reports() == []
    kit.advance(timedelta(seconds=5))
    rig.hold()
    assert [allowed.until for allowed in rig.pool.take_all(AllowWrites)] == [1010.0, 1010.0, 1015.0]


def test_the_lease_of_another_is_reported_and_our_knowledge_is_outdated_when_it_becomes_ours(kit: Kit) -> None:
    rig = Rig(kit)
    rig.receive(LeaseNotHeld("it is a's", holder="a", holder_lives=True))
    assert (rig.subject.may_write, rig.subject.holder, rig.subject.why_not()) == (False, "a", "it is a's")
    assert rig.reports() == ["it is a's", "changed hands"]
    rig.receive(LeaseNotHeld("it is b's", holder="b", holder_lives=True))
    assert rig.reports() == ["it is b's", "changed hands"]
    rig.hold()
    assert (rig.subject.holder, rig.reports()) == (None, ["unblocked", "changed hands"])


def test_a_holder_that_may_have_ended_does_not_count_until_it_is_known_to_be_alive(kit: Kit) -> None:
    rig = Rig(kit)
    rig.receive(LeaseNotHeld("a may have ended", holder="a"))
    assert (rig.subject.may_write, rig.subject.holder) == (False, None)
    rig.receive(LeaseNotHeld("it is a's", holder="a", holder_lives=True))
    assert rig.subject.holder == "a"
    assert rig.reports() == ["a may have ended", "it is a's", "changed hands", "changed hands"]


def test_a_restarted_keeper_that_forgot_that_the_holder_is_alive_is_ignored(kit: Kit) -> None:
    rig = Rig(kit)
    rig.receive(LeaseNotHeld("it is a's", holder="a", holder_lives=True))
    rig.reports()
    rig.receive(LeaseNotHeld("a may have ended", holder="a"))
    assert (rig.subject.holder, rig.subject.why_not(), rig.reports()) == ("a", "it is a's", [])
    rig.receive(LeaseNotHeld("b may have ended", holder="b"))
    assert (rig.subject.holder, rig.reports()) == (None, ["b may have ended", "changed hands"])


def test_a_restarted_pool_learns_whether_it_may_write_and_until_when(kit: Kit) -> None:
    rig = Rig(kit)
    rig.subject.introduce_pool()
    kit.settle()
    assert rig.pool.take(SuspendWrites).reason == "waiting for the lease of 'app'"
    rig.hold()
    until = rig.pool.take(AllowWrites).until
    rig.subject.introduce_pool()
    kit.settle()
    assert rig.pool.take(AllowWrites).until == until == kit.clock.monotonic() + 10


def test_a_lease_that_is_not_renewed_expires_at_its_moment(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hold(10)
    kit.advance(timedelta(seconds=6))
    rig.hold(10)
    rig.reports()
    kit.advance(timedelta(seconds=9.9))
    assert rig.subject.may_write
    kit.advance(timedelta(seconds=0.1))
    assert not rig.subject.may_write
    assert rig.reports()[-1] == "changed hands"
    rig.pool.take(SuspendWrites)


def test_a_lease_that_was_lost_does_not_end_a_second_time(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hold(10)
    rig.receive(LeaseNotHeld("it is a's", holder="a"))
    rig.reports()
    kit.advance(timedelta(seconds=20))
    assert rig.reports() == []


def test_a_late_report_of_a_lease_is_ignored(kit: Kit) -> None:
    rig = Rig(kit)
    rig.hold(0)
    assert not rig.subject.may_write
    assert rig.reports() == []


def test_an_account_without_the_right_continues_unless_a_lease_is_required(
    kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig(kit)
    for why in ("leases is forbidden", "leases is still forbidden"):
        rig.receive(LeaseNotHeld(why, forbidden=True))
    assert rig.subject.may_write
    assert rig.reports() == ["first grant"]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "leases is forbidden" in warnings[0]

    strict = Rig(kit, backend={"lease": True})
    strict.receive(LeaseNotHeld("leases is forbidden", forbidden=True))
    assert not strict.subject.may_write
    assert strict.reports() == ["leases is forbidden", "changed hands"]


def test_an_account_without_the_right_continues_also_when_the_api_did_not_answer_at_first(kit: Kit) -> None:
    rig = Rig(kit)
    rig.receive(LeaseNotHeld("the API is away"))
    rig.receive(LeaseNotHeld("leases is forbidden", forbidden=True))
    assert rig.subject.may_write


def test_an_account_without_the_right_continues_also_when_the_lease_of_a_dead_holder_has_expired(kit: Kit) -> None:
    rig = Rig(kit)
    rig.receive(LeaseNotHeld("a may have ended", holder="a"))
    assert not rig.subject.may_write
    rig.receive(LeaseNotHeld("leases is forbidden", forbidden=True))
    assert rig.subject.may_write


@pytest.mark.parametrize(
    "before",
    [LeaseHeld(1e9), LeaseNotHeld("it is a's", holder="a", holder_lives=True)],
    ids=["ours", "another's"],
)
def test_a_right_that_is_lost_where_a_lease_is_kept_permits_nothing(kit: Kit, before: LeaseHeld | LeaseNotHeld) -> None:
    rig = Rig(kit)
    rig.receive(before)
    rig.receive(LeaseNotHeld("leases is forbidden", forbidden=True))
    assert not rig.subject.may_write


def test_creation_waits_for_both_the_lease_and_the_drivers_pod(kit: Kit) -> None:
    rig = Rig(kit, driver_pod_name="driver-0")
    waits = "waiting for the driver's pod 'driver-0' to be ready"
    assert rig.reports() == [waits]
    rig.receive(LeaseNotHeld("it is a's", holder="a"))
    assert rig.reports() == [f"it is a's; {waits}", "changed hands"]
    rig.subject.driver_pod_ready()
    assert not rig.subject.may_create
    assert rig.reports() == ["it is a's"]
    rig.hold()
    assert rig.subject.may_create
    assert rig.reports() == ["unblocked", "changed hands"]


def test_the_driver_is_notified_of_the_kind_of_the_cause_that_it_is_notified_of(kit: Kit) -> None:
    rig = Rig(kit, driver_pod_name="driver-0")
    waits = "waiting for the driver's pod 'driver-0' to be ready"
    assert rig.sent == [AllocationBlocked("default", waits, "driver_pod")]
    rig.receive(LeaseNotHeld("it is a's", holder="a"))
    assert rig.sent[1:] == [AllocationBlocked("default", f"it is a's; {waits}", "lease")]


def test_every_profile_is_blocked_and_unblocked(kit: Kit) -> None:
    rig = Rig(kit, profiles={"large": {"instances": 1}})
    rig.receive(LeaseNotHeld("it is a's", holder="a"))
    rig.hold()
    assert rig.sent == [
        AllocationBlocked("default", "it is a's", "lease"),
        AllocationBlocked("large", "it is a's", "lease"),
        AllocationUnblocked("default"),
        AllocationUnblocked("large"),
    ]


def test_a_backend_that_stops_does_not_report_blockers(kit: Kit) -> None:
    rig = Rig(kit)
    rig.subject.end_to_notify()
    rig.receive(LeaseNotHeld("it is a's", holder="a"))
    assert rig.reports() == ["changed hands"]


def test_the_status_has_the_quiet_blocker(kit: Kit) -> None:
    rig = Rig(kit)
    (status,) = rig.subject.over({"default": ProfileStatus(target=2)}, ()).values()
    assert status.blocked == "waiting for the lease of 'app'"
