"""Bugs to plant into the real code, one function each, which the chaos runs must find.

Each breaks what one invariant is about, and each invariant has one that does: too many executors, an end reported twice
or never, a pod that goes back in time, a fleet that never is whole, memory that grows, a stop that leaves something,
one bad pod or one wrong message that harms all, a write without the lease, a request that is sent for ever, a profile
that is blocked by another's cause, actors that share something, executors in excess that stay, an answer about the
executors that is not what was told. That a secret is logged is found in `tests/stress/free_run`. A bug that another
part makes good, in whatever order things happen, cannot be found from outside and does not stand here.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from actors.allocation import allocator
from actors.allocation.creator import Creator
from actors.allocation.executor_tracker import ExecutorTracker
from actors.allocation.expectations import Expectations
from actors.allocation.profile import Profile
from actors.backend import backend
from actors.backend.backend import Backend
from actors.backend.shutdown import Shutdown
from actors.executors.executors import Executors
from actors.executors.fleet_state import FleetState
from actors.executors.ledger import Ledger
from actors.executors.scaling import Scaling
from actors.kube.api import DeleteOptions
from actors.lease.write_permission import WritePermission
from actors.lifecycle.cleanup import Cleanup
from actors.lifecycle.lifecycle_manager import LifecycleManager
from actors.lifecycle.reported_ends import ReportedEnds
from actors.messages.internal import DeletePod, LeaseHeld
from actors.pods.state import PodPending, PodSucceeded
from actors.runtime import Supervisor
from actors.sources.listing import PagedList
from actors.store import merge
from actors.store.snapshot_store import SnapshotStore, _Subscription
from tests.scenarios.strangers import COSTLY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["BUGS", "SIGNS", "Bug"]


@dataclass(frozen=True)
class Bug:
    """What to put in the place of a function."""

    kind: str
    owner: Any
    name: str
    broken: Callable[..., Any]
    """Gets the right function first, then its arguments."""
    begins: int = 0
    """The seed to begin with. Few seeds come to where this bug does harm."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        """For as long as this lasts."""
        right, broken = getattr(self.owner, self.name), self.broken
        setattr(self.owner, self.name, lambda *args, **kwargs: broken(right, *args, **kwargs))
        try:
            yield
        finally:
            setattr(self.owner, self.name, right)


# ── too many ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def the_unseen_do_not_count(right: Any, tracker: Any, snapshot: Any, profile: str) -> int:
    return int(right(tracker, snapshot, profile)) - int(tracker.requested.count(profile))


def the_pending_do_not_count(right: Any, tracker: Any, snapshot: Any, profile: str) -> int:
    return int(right(tracker, snapshot, profile)) - int(snapshot.count(PodPending, profile=profile))


def an_answer_is_as_good_as_a_pod(right: Any, unseen: Any, executor_id: int, at: float, pod: Any) -> None:
    right(unseen, executor_id, at, pod)
    unseen._counts[unseen[executor_id].profile] = 0


def a_fleet_on_hold_goes_on(right: Any, state: Any, **how: Any) -> Any:
    hold, state.hold = state.hold, None
    try:
        return right(state, **how)
    finally:
        state.hold = hold


# ── told twice ───────────────────────────────────────────────────────────────────────────────────────────────────────


def an_end_is_not_noted(right: Any, book: Any, *args: Any, **more: Any) -> Any:
    after, told = right(book, *args, **more)
    return (book, told) if told else (after, told)


# ── published wrongly ────────────────────────────────────────────────────────────────────────────────────────────────


def an_end_is_no_news_for_followers(right: Any, state: Any, ended: Any) -> None:
    changed, state.changed = state.changed, None
    right(state, ended)
    state.changed = changed


def pods_are_no_news_for_followers(right: Any, state: Any, message: Any) -> None:
    changed, state.changed = state.changed, None
    right(state, message)
    state.changed = changed


# ── lost ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def ends_push_out_ends(right: Any, subscription: Any, merged: Any, *, full_sync: bool) -> None:
    right(subscription, merged, full_sync=full_sync)
    del subscription.ended[:-1]


def nobody_says_where_one_went(right: Any, lifecycle: Any, answer: Any) -> None:
    pass


def success_is_no_news(right: Any, lifecycle: Any, executor_id: int, state: Any, **how: Any) -> None:
    if not isinstance(state, PodSucceeded):
        right(lifecycle, executor_id, state, **how)


# ── kept for ever ────────────────────────────────────────────────────────────────────────────────────────────────────


def the_book_forgets_nobody(right: Any, book: Any, before: float) -> Any:
    return book


def tombstones_stay(right: Any, merging: Any) -> None:
    pass


def what_is_gone_counts_as_visible(right: Any, told: Any, uid: str) -> bool:
    return uid in told


def who_was_registered_stays_so(right: Any, tracker: Any, batch: Any, now: float) -> None:
    registered = set(tracker.registered)
    right(tracker, batch, now)
    tracker.registered |= registered


# ── back in time ─────────────────────────────────────────────────────────────────────────────────────────────────────


def an_older_snapshot_is_sent_now_and_then(right: Any, store: Any, subscription: Any) -> None:
    newest, store._kept = store._history, [*getattr(store, "_kept", []), store._history][-3:]
    store._history = store._kept[0] if store._seq % 2 else newest
    right(store, subscription)
    store._history = newest


# ── never whole ──────────────────────────────────────────────────────────────────────────────────────────────────────


def one_fewer_is_enough(right: Any, tracker: Any, snapshot: Any, totals: Any) -> Any:
    return {profile: count - (count > 0) for profile, count in right(tracker, snapshot, totals).items()}


# ── scaling, and what is shown ───────────────────────────────────────────────────────────────────────────────────────


def nobody_counts_again(right: Any, scaling: Any) -> None:
    pass


def who_ends_as_soon_as_seen_is_not_shown(
    right: Any, executors: Any, book: Any, executor_id: int, told: Any, pod: Any
) -> None:
    right(executors, book, executor_id, told, pod)
    if len(told) > 1:
        executors._state.ended.pop()


def a_lost_connection_is_no_news(right: Any, book: Any, executor_id: int, now: float, suspected: Any) -> Any:
    return None


# ── others ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def the_fleet_is_left_behind(right: Any, stopping: Any) -> None:
    stopping._fleet.remaining.listed((), float("inf"))
    stopping._give_fleet_up()


def actors_outlive_their_owner(right: Any, supervisor: Any) -> None:
    pass


def the_connection_is_never_closed(right: Any, backend: Any) -> None:
    backend._api = SimpleNamespace(close=lambda: None)
    right(backend)


def one_bad_pod_ends_all(right: Any, merging: Any, pod: Any) -> Any:
    number = right(merging, pod)
    if number is None:
        raise ValueError(f"pod {pod.name} is malformed")
    return number


def any_id_is_believed(right: Any, executor_id: int) -> int:
    return executor_id


def a_message_is_not_checked(right: Any, message: Any, profiles: Any) -> Any:
    return message


def a_lost_lease_is_ignored(right: Any, permission: Any, message: Any) -> Any:
    match message:
        case LeaseHeld(until):
            return right(permission, replace(message, until=until + HOURS))
        case _:
            return None if permission.may_write else right(permission, message)


def one_block_is_every_profiles(right: Any, profile: Any, fleet: Any, now: Any, *, lacks_some: bool) -> Any:
    block = right(profile, fleet, now, lacks_some=lacks_some)
    if profile.name == COSTLY:
        BLOCKS[0] = block
    return (block and BLOCKS[0]) or block


HOURS: Final = 10_000.0
"""Seconds."""

BLOCKS: Final[list[Any]] = [None]


def terminating_pods_are_deleted_again(right: Any, cleanup: Any, snapshot: Any) -> Iterator[Any]:
    yield from right(cleanup, snapshot)
    for state in snapshot.states.values():
        if state.pod.terminating:
            yield DeletePod(state.pod.name, DeleteOptions(uid=state.pod.uid))


def a_full_quota_blocks_for_good(right: Any, creator: Any, profile: Any) -> bool:
    profile.blocked = getattr(profile, "blocked", False) or (
        profile.refusal is not None and profile.refusal.cause == "QuotaExceeded"
    )
    return bool(right(creator, profile)) and not profile.blocked


ONE_FOR_ALL: Final[list[Any]] = []


def lists_share_a_default(right: Any, listing: Any, *args: Any, **kwargs: Any) -> None:
    right(listing, *args, **kwargs)
    listing._default = ONE_FOR_ALL


TOO_MANY: Final = "over-allocation"
TWICE: Final = "double report"
LOST: Final = "lost report"
LEAK: Final = "leak"
LEFT: Final = "left behind"
BACK: Final = "back in time"
NEVER: Final = "never whole"
OPEN: Final = "left open"
HARM: Final = "harm to others"
MISTAKE: Final = "a driver's mistake"
STOLEN: Final = "a stolen lease"
CAUSE: Final = "another's cause"
AGAIN: Final = "a delete again and again"
EXCESS: Final = "excess that stays"
SHOWN: Final = "shown wrongly"
SHARED: Final = "shared state"
UNPUBLISHED: Final = "published wrongly"

SIGNS: Final = {
    TOO_MANY: "^invariant 1 ",
    TWICE: "is removed . times$",
    LOST: "^the end of executor|^2: the driver knows|never told",
    LEAK: "^5: ",
    LEFT: "^6: the stop leaves",
    BACK: "^invariant 3 ",
    NEVER: "^4: ",
    OPEN: "^6: .* (live on|are open, or may be)$",
    HARM: "^an error was logged: actor crashed: actor=snapshot-store",
    MISTAKE: "^an error was logged: actor crashed: actor=backend",
    STOLEN: "^strangers .* after the lease was taken",
    AGAIN: "^strangers .* was asked to be deleted",
    CAUSE: "^strangers .* is blocked by what blocks",
    SHARED: "^8: ",
    EXCESS: "^4: .* that may be ended",
    SHOWN: "^2: .* (is shown as|are shown as ended|are registered)",
    UNPUBLISHED: "^2: published ",
}
"""By what each kind is to be found, in the words of `chaos`: whatever else a bug breaks does not count."""

BUGS: Final = (
    Bug(TOO_MANY, ExecutorTracker, "expected", the_unseen_do_not_count),
    Bug(TOO_MANY, ExecutorTracker, "expected", the_pending_do_not_count),
    Bug(TOO_MANY, Expectations, "answered", an_answer_is_as_good_as_a_pod),
    Bug(TOO_MANY, FleetState, "target", a_fleet_on_hold_goes_on, begins=20),
    Bug(TWICE, Ledger, "removed", an_end_is_not_noted),
    Bug(LOST, _Subscription, "add", ends_push_out_ends, begins=2),
    Bug(LOST, LifecycleManager, "_confirmed", nobody_says_where_one_went),
    Bug(LOST, LifecycleManager, "_report_end", success_is_no_news, begins=2),
    Bug(LEAK, Ledger, "forgotten", the_book_forgets_nobody, begins=2),
    Bug(LEAK, merge.Merge, "purge", tombstones_stay, begins=2),
    Bug(LEAK, ReportedEnds, "left", what_is_gone_counts_as_visible, begins=10),
    Bug(LEAK, ExecutorTracker, "follow", who_was_registered_stays_so, begins=2),
    Bug(LEFT, Shutdown, "_delete_fleet", the_fleet_is_left_behind),
    Bug(BACK, SnapshotStore, "_send", an_older_snapshot_is_sent_now_and_then, begins=1),
    Bug(NEVER, ExecutorTracker, "missing", one_fewer_is_enough),
    Bug(OPEN, Supervisor, "_stop_now", actors_outlive_their_owner, begins=14),
    Bug(OPEN, Backend, "_close", the_connection_is_never_closed),
    Bug(HARM, merge.Merge, "_valid_id", one_bad_pod_ends_all),
    Bug(NEVER, allocator, "believed", any_id_is_believed, begins=151),
    Bug(NEVER, Creator, "_may_request", a_full_quota_blocks_for_good, begins=3),
    Bug(MISTAKE, backend, "checked", a_message_is_not_checked, begins=20),
    Bug(STOLEN, WritePermission, "handle", a_lost_lease_is_ignored, begins=77),
    Bug(AGAIN, Cleanup, "requests", terminating_pods_are_deleted_again, begins=12),
    Bug(CAUSE, Profile, "_blocked_by", one_block_is_every_profiles, begins=396),
    Bug(SHARED, PagedList, "__init__", lists_share_a_default),
    Bug(EXCESS, Scaling, "_count_soon", nobody_counts_again, begins=21),
    Bug(SHOWN, Executors, "_end", who_ends_as_soon_as_seen_is_not_shown, begins=43),
    Bug(SHOWN, Ledger, "disconnected", a_lost_connection_is_no_news, begins=304),
    Bug(UNPUBLISHED, FleetState, "ends", an_end_is_no_news_for_followers, begins=1),
    Bug(UNPUBLISHED, FleetState, "observe", pods_are_no_news_for_followers, begins=1),
)
