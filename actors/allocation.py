"""What the Allocator decides, as pure functions and small values: whom to give up, whom to delete, how many to request.

Nothing here sends a message or reads a clock; `now` and ages are handed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.pods import Pod, PodPending, PodRunning, PodState, PodTerminating, PodUnknown
from actors.runtime import Backoff

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from actors.runtime import Entropy
    from actors.snapshot import PodsSnapshot

__all__ = [
    "LIVE",
    "LIVE_OR_GOING",
    "Answers",
    "BatchSize",
    "Blockade",
    "NewlyCreated",
    "counted",
    "overdue",
    "slots",
    "surplus",
]

CREATE_BACKOFF: Final = Backoff(
    initial=timedelta(seconds=1), maximum=timedelta(minutes=1), reset_after=timedelta(minutes=2), jitter=0.2
)
"""After a POST that the API refused: quota and rights heal from outside, and are looked at again once a minute."""


@dataclass(slots=True)
class NewlyCreated:
    """An executor that was requested and that no snapshot has shown yet."""

    profile: str
    requested_at: float
    answered_at: float | None = None
    """When its POST was answered (monotonic); None while it is queued or under way."""
    pod: Pod | None = None
    """The answer."""


LIVE: Final = (PodPending, PodRunning, PodUnknown)
"""What counts toward a target with `pod_replacement_policy = "TerminatingOrFailed"`."""

LIVE_OR_GOING: Final = (*LIVE, PodTerminating)
"""What counts with `"Failed"`: an executor is replaced when it has ended, not before."""


def counted(
    executor_ids: Iterable[int], snapshot: PodsSnapshot, profile: str, kinds: tuple[type[PodState], ...]
) -> int:
    """How many of these executors the snapshot shows in one of `kinds`."""
    states = (snapshot.states.get(executor_id) for executor_id in executor_ids)
    return sum(isinstance(state, kinds) and state.pod.profile == profile for state in states)


def overdue(
    newly: Mapping[int, NewlyCreated], snapshot: PodsSnapshot, *, now: float, timeout: timedelta
) -> tuple[int, ...]:
    """Newly created executors to give up.

    Their POST was answered `timeout` ago, and a full sync that was asked for after the answer does not show them.
    """
    synced_at = snapshot.full_sync_at
    if synced_at is None:
        return ()
    return tuple(
        executor_id
        for executor_id, new in newly.items()
        if new.answered_at is not None
        and timedelta(seconds=now - new.answered_at) >= timeout
        and synced_at > new.answered_at
        and executor_id not in snapshot.states
    )


def surplus(
    excess: int,
    newly: Mapping[int, NewlyCreated],
    snapshot: PodsSnapshot,
    pending_since: Mapping[int, float],
    *,
    profile: str,
    spared: Collection[int],
    now: float,
    idle_timeout: timedelta,
) -> tuple[tuple[int, ...], tuple[PodPending, ...]]:
    """Whom to delete when there are `excess` executors too many: newly created ones first, then pending, oldest first.

    Never one that is younger than `idle_timeout`, that is `spared`, whose POST is not answered, or that runs: which of
    the running ones is of least use only the driver knows.
    """

    def old_enough(since: float) -> bool:
        return timedelta(seconds=now - since) >= idle_timeout

    unseen = sorted(
        (new.requested_at, executor_id)
        for executor_id, new in newly.items()
        if new.profile == profile
        and new.answered_at is not None
        and old_enough(new.requested_at)
        and executor_id not in spared
    )[:excess]
    pending = sorted(
        (since, executor_id)
        for executor_id, since in pending_since.items()
        if old_enough(since) and executor_id not in spared
    )
    states = (snapshot.states.get(executor_id) for _, executor_id in pending)
    waiting = [state for state in states if isinstance(state, PodPending) and state.pod.profile == profile]
    return tuple(executor_id for _, executor_id in unseen), tuple(waiting[: excess - len(unseen)])


def slots(limit: int | None, used: int) -> int | None:
    """What a limit on pending pods leaves, None without a limit."""
    return None if limit is None else max(0, limit - used)


@dataclass(slots=True)
class BatchSize:
    """How many executors to request at a time: doubles while creation succeeds, falls back when it fails.

    Slow start, as the Job and ReplicaSet controllers have it: a cluster that refuses is not asked 500 times over.
    """

    initial: int
    maximum: int
    current: int = 0

    def __post_init__(self) -> None:
        self.current = self.initial

    def succeeded(self) -> None:
        """Every POST of a batch made a pod."""
        self.current = min(self.current * 2, self.maximum)

    def failed(self) -> None:
        """A POST of a batch made none."""
        self.current = self.initial


@dataclass(slots=True)
class Answers:
    """How the POSTs of one profile's newest batch were answered so far."""

    awaited: int = 0
    created: int = 0
    failed: int = 0
    refused: int = 0
    """Of those that failed: for a cause that concerns the next one too, unlike a name that was taken."""

    def count(self, *, created: int, failed: int, refused: int) -> None:
        """One more is answered."""
        self.awaited -= 1
        self.created += created
        self.failed += failed
        self.refused += refused


@dataclass(slots=True)
class Blockade:
    """Why creation in one profile stands still, and until when it does."""

    cause: str | None = None
    """What the API refuses, as told to the driver; None while it refuses nothing."""
    kind: str = ""
    refusals: int = 0
    until: float = 0.0
    """Not before then is the next request (monotonic)."""

    def refused(self, kind: str, words: str, *, now: float, entropy: Entropy) -> bool:
        """The API refused a POST. Answers whether that is news: the first refusal, or one of another kind."""
        news = kind != self.kind
        if now >= self.until:  # refusals of one batch are one refusal
            self.until = now + CREATE_BACKOFF.delay(self.refusals, entropy).total_seconds()
            self.refusals += 1
        if news:
            self.kind, self.cause = kind, words
        return news

    def lifted(self) -> bool:
        """A batch made pods and nothing of it was refused. Answers whether that is news."""
        news = self.cause is not None
        self.cause, self.kind, self.refusals, self.until = None, "", 0, 0.0
        return news
