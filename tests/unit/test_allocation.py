"""The Allocator's decisions, as functions of values."""

from __future__ import annotations

from datetime import timedelta

from actors.allocation import LIVE, LIVE_OR_GOING, BatchSize, Blockade, NewlyCreated, counted, overdue, slots, surplus
from actors.pods import PodPending
from actors.runtime import Entropy
from actors.snapshot import PodsSnapshot
from tests.unit.views import View, going, pending, running

MINUTE = timedelta(minutes=1)


def snapshot(view: View, *, synced_at: float) -> PodsSnapshot:
    view.sync(synced_at)
    return view.batch(synced_at).snapshot


def test_one_that_goes_counts_only_when_replacements_wait_for_its_end() -> None:
    view = View()
    view.show(pending(1), running(2), going(running(3)))
    shown = snapshot(view, synced_at=0.0)
    assert counted((1, 2, 3, 4), shown, "default", LIVE) == 2
    assert counted((1, 2, 3, 4), shown, "default", LIVE_OR_GOING) == 3
    assert counted((1, 2, 3), shown, "gpu", LIVE) == 0


def test_one_whose_request_is_not_answered_is_never_overdue() -> None:
    newly = {1: NewlyCreated("default", 0.0)}
    assert overdue(newly, snapshot(View(), synced_at=999.0), now=1000.0, timeout=MINUTE) == ()


def test_one_is_overdue_when_the_timeout_has_passed_since_the_answer() -> None:
    newly = {1: NewlyCreated("default", 0.0, answered_at=10.0)}
    shown = snapshot(View(), synced_at=11.0)
    assert overdue(newly, shown, now=69.9, timeout=MINUTE) == ()
    assert overdue(newly, shown, now=70.0, timeout=MINUTE) == (1,)


def test_one_is_not_overdue_before_a_full_sync_that_was_asked_for_after_the_answer() -> None:
    newly = {1: NewlyCreated("default", 0.0, answered_at=10.0)}
    assert overdue(newly, snapshot(View(), synced_at=10.0), now=500.0, timeout=MINUTE) == ()
    assert overdue(newly, PodsSnapshot.EMPTY, now=500.0, timeout=MINUTE) == ()


def test_one_that_the_snapshot_shows_is_not_overdue() -> None:
    view = View()
    view.show(pending(1))
    newly = {1: NewlyCreated("default", 0.0, answered_at=10.0)}
    assert overdue(newly, snapshot(view, synced_at=11.0), now=500.0, timeout=MINUTE) == ()


def chosen(
    excess: int,
    newly: dict[int, NewlyCreated],
    pending_since: dict[int, float],
    *,
    spared: frozenset[int] = frozenset(),
    running_ids: tuple[int, ...] = (),
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    view = View()
    view.show(*(pending(executor_id) for executor_id in pending_since))
    view.show(*(running(executor_id) for executor_id in running_ids))
    unseen, waiting = surplus(
        excess,
        newly,
        snapshot(view, synced_at=0.0),
        pending_since,
        profile="default",
        spared=spared,
        now=100.0,
        idle_timeout=MINUTE,
    )
    assert all(isinstance(state, PodPending) for state in waiting)
    return unseen, tuple(state.pod.name for state in waiting)


def test_newly_created_ones_go_before_pending_ones_and_the_oldest_first() -> None:
    newly = {8: NewlyCreated("default", 20.0, 20.0), 7: NewlyCreated("default", 10.0, 10.0)}
    assert chosen(3, newly, {2: 5.0, 1: 6.0}) == ((7, 8), ("app-exec-2",))
    assert chosen(1, newly, {2: 5.0, 1: 6.0}) == ((7,), ())


def test_no_more_than_the_excess_is_chosen() -> None:
    assert chosen(0, {7: NewlyCreated("default", 0.0, 0.0)}, {1: 0.0}) == ((), ())


def test_one_younger_than_the_idle_timeout_is_left() -> None:
    assert chosen(2, {7: NewlyCreated("default", 40.1, 40.1)}, {1: 40.1, 2: 40.0}) == ((), ("app-exec-2",))


def test_one_whose_request_is_under_way_is_left() -> None:
    assert chosen(1, {7: NewlyCreated("default", 0.0)}, {}) == ((), ())


def test_a_spared_one_is_left() -> None:
    newly = {7: NewlyCreated("default", 0.0, 0.0)}
    assert chosen(2, newly, {1: 0.0, 2: 0.0}, spared=frozenset({1, 7})) == ((), ("app-exec-2",))


def test_a_running_one_is_never_chosen() -> None:
    assert chosen(5, {}, {}, running_ids=(1, 2)) == ((), ())


def test_one_of_another_profile_is_left() -> None:
    assert chosen(1, {7: NewlyCreated("gpu", 0.0, 0.0)}, {}) == ((), ())


def test_a_limit_leaves_what_is_not_used_of_it() -> None:
    assert (slots(None, 5), slots(7, 5), slots(5, 7)) == (None, 2, 0)


def test_batches_double_up_to_a_maximum_and_fall_back() -> None:
    size = BatchSize(20, 50)
    sizes = [size.current]
    for _ in range(3):
        size.succeeded()
        sizes.append(size.current)
    size.failed()
    assert (sizes, size.current) == ([20, 40, 50, 50], 20)


def test_a_refusal_is_news_once_a_kind() -> None:
    blockade, entropy = Blockade(), Entropy(0)
    news = [blockade.refused(kind, kind, now=now, entropy=entropy) for now, kind in enumerate("aab")]
    assert (news, blockade.cause) == ([True, False, True], "b")


def test_each_refused_batch_doubles_the_wait_up_to_a_minute() -> None:
    blockade, entropy, waits, now = Blockade(), Entropy(0), [], 0.0
    for _ in range(8):
        blockade.refused("a", "a", now=now, entropy=entropy)
        blockade.refused("a", "a", now=now, entropy=entropy)  # of the same batch
        waits.append(blockade.until - now)
        now = blockade.until
    for wait, least in zip(waits, (1, 2, 4, 8, 16, 32, 60, 60), strict=True):
        assert least <= wait <= least * 1.2, waits


def test_a_lifted_blockade_is_news_once_and_starts_from_the_shortest_wait_again() -> None:
    blockade, entropy = Blockade(), Entropy(0)
    for now in (0.0, 10.0, 20.0):
        blockade.refused("a", "a", now=now, entropy=entropy)
    assert (blockade.lifted(), blockade.lifted(), blockade.until) == (True, False, 0.0)
    assert blockade.refused("a", "a", now=30.0, entropy=entropy)
    assert blockade.until <= 31.2
