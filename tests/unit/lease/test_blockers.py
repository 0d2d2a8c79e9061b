"""What blocks creation: the reason, since when, and what the driver is notified of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from actors.lease.blockers import Blockers
from actors.messages import ProfileStatus
from actors.messages.internal import LedgerEntry

NOW = datetime(2024, 1, 1, 12, tzinfo=UTC)
LATER = NOW + timedelta(minutes=1)


def test_the_driver_is_notified_when_a_blocker_begins_changes_its_reason_or_the_last_one_ends() -> None:
    subject = Blockers()
    assert subject.changed() is None
    subject.begin("lease", "it is a's", NOW)
    assert (subject.changed(), subject.changed()) == ("it is a's", None)
    subject.begin("pod", "it is not ready", NOW)
    assert subject.changed() == "it is a's; it is not ready"
    subject.begin("lease", "it is b's", LATER)
    assert subject.changed() == "it is b's; it is not ready"
    subject.end("lease")
    assert subject.changed() == "it is not ready"
    subject.end("pod")
    assert (subject.changed(), subject.changed()) == ("", None)
    assert not subject


def test_a_quiet_blocker_blocks_and_is_not_reported_until_its_reason_changes() -> None:
    subject = Blockers()
    subject.begin("lease", "a moment", NOW, quiet=True)
    assert (bool(subject), subject.of("lease"), subject.changed()) == (True, "a moment", None)
    subject.begin("lease", "it is a's", LATER)
    assert subject.changed() == "it is a's"
    subject.end("lease")
    assert subject.changed() == ""


def test_a_blocker_that_ends_before_it_was_reported_is_never_reported() -> None:
    subject = Blockers()
    subject.begin("pod", "it is not ready", NOW)
    subject.end("pod")
    assert subject.changed() is None


def test_the_counts_are_the_allocators_while_nothing_blocks() -> None:
    counts = {"default": ProfileStatus(target=3, running=2, requested=1)}
    assert Blockers().over(counts, [LedgerEntry(1, "default", notified_at=1.0, running=True)]) == counts


def test_the_counts_are_the_ledgers_while_something_blocks_with_reason_and_time() -> None:
    subject = Blockers()
    subject.begin("lease", "it is a's", NOW)
    subject.begin("lease", "it is b's", LATER)
    entries = [
        LedgerEntry(1, "default", notified_at=1.0, running=True),
        LedgerEntry(2, "default", notified_at=1.0, running=True, terminating=True),
        LedgerEntry(3, "default", notified_at=1.0, running=True, removed_at=2.0),
        LedgerEntry(4, "default", notified_at=1.0),
        LedgerEntry(5, "default"),
        LedgerEntry(6, "other", notified_at=1.0, running=True),
    ]
    stale = {"default": ProfileStatus(target=9, running=9, requested=9)}
    blocked = {"blocked": "it is b's", "blocked_since": NOW, "blocked_by": "lease"}
    assert subject.over(stale, entries) == {
        "default": ProfileStatus(target=9, pending=1, running=1, terminating=1, **blocked),  # type: ignore[arg-type]  # two of them
        "other": ProfileStatus(running=1, **blocked),  # type: ignore[arg-type]  # the same
    }
