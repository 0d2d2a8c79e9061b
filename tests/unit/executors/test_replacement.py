"""Which losses are replaced, by setting and by function, and whose end is no loss."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from actors.executors.fleet_state import FleetState
from actors.executors.replacement import Replacement
from actors.messages import ExecutorRemoved
from actors.messages.internal import ExecutorKilled, LedgerEntry
from actors.pods.loss import LossKind, LossReason
from actors.runtime import TookTooLong
from actors.settings import Settings

if TYPE_CHECKING:
    from actors.executors.replacement import ReplaceRule
    from actors.testing import Kit

NOW = datetime(2026, 3, 1, tzinfo=UTC)
EVICTED = LossReason(LossKind.EVICTED, 143, caused_by_app=False, message="it was evicted")
EXITED = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="it exited")


class Rig:
    """A driver that has requested executors 1, 2 and 3; the first has ended."""

    def __init__(self, kit: Kit, rule: ReplaceRule | None = None, **executor: Any) -> None:
        shape: Any = {"instances": 3, "image": "worker:1", **executor}
        subject = Settings(app_id="app", executor=shape, profiles={"other": {"replace": "always"}})
        self.state = FleetState(subject.initial_totals, subject.pod_prefix)
        ledger = self.state.ledger.requested((1, 2, 3), "default", NOW)
        self.state.ledger, _ = ledger.removed(1, "uid-1", EXITED, 1.0, NOW)
        self.subject = Replacement(subject, state=self.state, system=kit.system, rule=rule)

    def decide(self, reason: LossReason = EXITED, **entry: Any) -> tuple[bool, int]:
        """Whether the end lowered the target, and the target."""
        profile = entry.get("profile", "default")
        decided = self.subject.decide(LedgerEntry(1, **{"profile": profile, **entry}), removal(reason, profile))
        assert decided.reason == reason
        return decided.lowered_target, self.state.totals[profile]


def removal(reason: LossReason, profile: str = "default") -> ExecutorRemoved:
    return ExecutorRemoved(1, reason, profile)


def test_a_loss_lowers_the_target_unless_its_kind_is_replaced(kit: Kit) -> None:
    assert Rig(kit).decide() == (False, 3)
    assert Rig(kit, replace="never").decide() == (True, 2)
    assert Rig(kit, replace=["EVICTED"]).decide(EVICTED) == (False, 3)
    assert Rig(kit, replace=["EVICTED"]).decide(EXITED) == (True, 2)


def test_only_profiles_that_do_not_replace_every_loss_are_decided_on(kit: Kit) -> None:
    assert Rig(kit).subject.profiles == frozenset()
    assert Rig(kit, replace="never").subject.profiles == {"default"}
    assert Rig(kit, rule=lambda _: True).subject.profiles == {"default", "other"}


def test_every_loss_of_a_profile_whose_target_follows_its_leases_is_replaced(kit: Kit) -> None:
    assert Rig(kit, replace="never", warm=3).decide() == (False, 3)
    assert Rig(kit, rule=lambda _: False, warm=3).decide() == (False, 3)


@pytest.mark.parametrize(
    "entry",
    [
        {"scaled_down": True},
        {"killed": ExecutorKilled(1, NOW, 0.0, is_loss=False)},
        {"profile": "other"},
    ],
    ids=str,
)
def test_the_end_of_one_that_is_not_wanted_or_is_replaced_is_no_loss(kit: Kit, entry: dict[str, Any]) -> None:
    rig = Rig(kit, replace="never")
    before = rig.state.totals[entry.get("profile", "default")]
    assert rig.decide(**entry) == (False, before)


def test_a_kill_that_leaves_the_target_is_a_loss(kit: Kit) -> None:
    assert Rig(kit, replace="never").decide(killed=ExecutorKilled(1, NOW, 0.0)) == (True, 2)


def test_the_end_of_one_in_excess_is_no_loss(kit: Kit) -> None:
    rig = Rig(kit, replace="never")
    rig.state.totals["default"] = 2
    assert rig.decide() == (False, 2)


def test_a_driver_that_has_not_begun_to_write_or_that_stops_keeps_its_target(kit: Kit) -> None:
    stands_by, stops = Rig(kit, replace="never"), Rig(kit, replace="never")
    stands_by.state.ledger = type(stands_by.state.ledger)()
    stops.state.ending = None
    assert (stands_by.decide(), stops.decide()) == ((False, 3), (False, 3))


def test_a_function_decides_instead_of_the_setting(kit: Kit) -> None:
    asked: list[ExecutorRemoved] = []

    def rule(removed: ExecutorRemoved) -> bool:
        asked.append(removed)
        return False

    rig = Rig(kit, rule=rule, replace="always")
    assert rig.decide(EVICTED) == (True, 2)
    assert asked == [removal(EVICTED)]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)], ids=repr)
def test_a_function_that_fails_is_logged_and_the_executor_replaced(
    kit: Kit, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def rule(_: ExecutorRemoved) -> bool:
        raise error

    assert Rig(kit, rule=rule).decide() == (False, 3)
    assert "the function `replace_if` failed, replaced: executor=1" in caplog.text


def test_a_function_that_takes_too_long_is_called_once(kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[int] = []

    def rule(removed: ExecutorRemoved) -> bool:
        calls.append(removed.executor_id)
        raise TookTooLong

    rig = Rig(kit, rule=rule)
    assert [rig.decide(), rig.decide()] == [(False, 3), (False, 3)]
    assert calls == [1]
    assert "takes too long, every loss is replaced from now on" in caplog.text
