"""The actor: decides when each subscriber gets its next batch.

Sources send every event, subscribers get the newest snapshot and all changes since their last batch.
`actors.store.merge` has the merge rules, which are pure.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final, assert_never

from actors.messages import internal
from actors.metrics.counts import StoreCounts
from actors.pods.id_ranges import IdRanges
from actors.pods.state import PodRules, malformed
from actors.runtime import Actor, Address, Context, elapsed
from actors.store.history import History
from actors.store.lists import SECOND_LOOK, abandon_stream, apply_list
from actors.store.merge import Merge
from actors.text import get_logger

if TYPE_CHECKING:
    from actors.pods.snapshot import Ended
    from actors.runtime import Moment
    from actors.settings.model import Settings
    from actors.store.history import Merged

__all__ = ["SnapshotStore"]

logger = get_logger(__name__)

START_INTERVAL: Final = timedelta(milliseconds=100)
"""The least time between two batches because pods begin to run: a driver that waits for its fleet notices no more, and
the start of a large fleet takes ten rounds a second, not fifty."""


@dataclass(frozen=True, slots=True)
class _RoundDue:
    """A subscriber's next batch is due."""

    subscriber: Address


@dataclass(frozen=True, slots=True)
class _IntervalOver:
    """A subscriber's interval after some batch is over. It may have had a later one."""

    subscriber: Address


@dataclass(slots=True)
class _Subscription:
    """One subscriber and the changes that it has not received yet. Bounded by the fleet's size, except `ended`."""

    address: Address
    interval: timedelta
    follows_starts: bool
    changed: set[int] = field(default_factory=set)
    appeared: set[int] = field(default_factory=set)
    ended: list[Ended] = field(default_factory=list)
    full_sync: bool = False
    outstanding: internal.SnapshotBatch | None = None
    due: bool = False
    """A batch became due while one was outstanding."""
    sent_at: Moment | None = None
    urgent_since: Moment | None = None
    """When the first urgent change arrived that is not sent yet."""

    def add(self, merged: Merged, *, full_sync: bool) -> None:
        states = merged.history.snapshot.states  # another pod may have an ended pod's id
        self.changed.difference_update(one.executor_id for one in merged.ended if one.executor_id not in states)
        self.changed.update(merged.changed)
        self.appeared.update(merged.appeared)
        self.ended.extend(merged.ended)
        self.full_sync = self.full_sync or full_sync


class SnapshotStore(Actor):
    """Merges `UpdatePods` and `ReplaceSnapshot` and sends `SnapshotBatch` to subscribers."""

    def __init__(
        self,
        context: Context,
        *,
        settings: Settings,
        rules: PodRules,
        watch_source: Address,
        poll_source: Address,
        counts: StoreCounts | None = None,
    ) -> None:
        super().__init__(context)
        self._counts = counts or StoreCounts()
        self._history = History(rules)
        self._merge: Merge | None = None
        """The events since `_history`; finished when a batch or a LIST needs the snapshot."""
        self._watch_source = watch_source
        self._poll_source = poll_source
        self._min_round_interval = settings.store.min_round_interval
        self._subscriptions: dict[Address, _Subscription] = {}
        self._seq = 0
        self._heard_at: Moment | None = None
        """When the last event or consistent LIST arrived. A LIST from a cache does not count: it may be of any age."""

    def receive(  # noqa: C901 - one case a message
        self, message: internal.ToSnapshotStore | _RoundDue | _IntervalOver
    ) -> object:
        """One case a message."""
        match message:
            case internal.UpdatePods():
                self._update(message)
            case internal.ReplaceSnapshot():
                self._replace(message)
            case internal.StreamAbandoned(stream):
                self._finish_merge()
                self._take_over(abandon_stream(self._history, stream))
            case internal.ExecutorsRequested(executor_ids):
                self._know(IdRanges.of(executor_ids))
            case internal.CloseAdoption(known):
                self._close_adoption(known)
            case internal.OpenAdoption():
                self._finish_merge()
                self._history = replace(self._history, adopts=True)
            case internal.AddSubscriber(subscriber, interval, follows_starts):
                self._subscribe(subscriber, interval, follows_starts=follows_starts)
            case internal.BatchDone(subscriber, seq):
                self._done(subscriber, seq)
            case _RoundDue(subscriber):
                self._round(self._subscriptions[subscriber])
            case _IntervalOver(subscriber):
                self._interval_over(self._subscriptions[subscriber])
            case _:
                assert_never(message)
        return None

    def _update(self, update: internal.UpdatePods) -> None:
        now = self.clock.monotonic()
        self._counts.reads += 1
        self._counts.events += len(update.events) + update.unchanged
        merge = self._merge = self._merge or Merge(self._history)
        if merge.read(update.events, update.resource_version, update.stream, now):
            self._heard_at = now
        if merge.urgent:
            merge.urgent = False
            self._round_soon()
        if merge.begun:
            merge.begun = False
            self._tell_starts()
        if merge.malformed or merge.strange:
            self._finish_merge()

    def _replace(self, listed: internal.ReplaceSnapshot) -> None:
        self._finish_merge()
        first = self._history.snapshot.full_sync_at is None
        merged = apply_list(self._history, listed, self.clock.monotonic())
        source = internal.Source.POLL if listed.stream is None else internal.Source.WATCH
        seconds = self.clock.monotonic() - listed.requested_at
        self._counts.listed(source.value, applied=merged.applied, seconds=seconds)
        if merged.reset:
            self._counts.resets += 1
            logger.warning(
                "cluster history reset, replacing the snapshot: version=%s pods=%d",
                listed.resource_version,
                len(listed.pods),
            )
        if merged.look_again:
            logger.info(
                "list contradicts what is known, looking again: version=%s known=%s pods=%d",
                listed.resource_version,
                self._history.progress.version,
                len(listed.pods),
            )
            self._poll_source.tell(internal.LookAgain(SECOND_LOOK))
        logger.debug(
            "list merged: version=%s pods=%d applied=%s", listed.resource_version, len(listed.pods), merged.applied
        )
        synced = merged.applied and listed.consistent
        if synced:
            self._heard_at = self.clock.monotonic()
        self._take_over(merged, full_sync=synced)
        if first and merged.applied:
            self._round_soon()

    def _know(self, ids: IdRanges) -> None:
        """Take the pods of these ids for executors."""
        self._finish_merge()
        self._history = replace(self._history, known=self._history.known.union(ids))

    def _close_adoption(self, known: IdRanges) -> None:
        """Take no other pods for executors than those of these ids, and those that were observed."""
        self._know(known)
        absent = (one.executor_id for one in self._history.absent.values())
        self._know(IdRanges.of((*self._history.snapshot.states, *absent)))
        self._history = replace(self._history, adopts=False)

    def _finish_merge(self) -> None:
        """Finish the open merge, if there is one."""
        merge, self._merge = self._merge, None
        if merge is not None:
            self._take_over(merge.finish())

    def _take_over(self, merged: Merged, *, full_sync: bool = False) -> None:
        """Make the result the current history and record its changes for each subscriber."""
        self._history = merged.history
        self._counts.malformed += len(merged.malformed)
        for pod in merged.malformed:
            reason = malformed(pod, self._history.rules.app_id) or "another pod has its executor id"
            logger.warning("malformed pod set aside: pod=%s reason=%s", pod.name, reason)
        for pod in merged.strange:
            logger.warning("stranger's pod left alone, this driver did not request its id: pod=%s", pod.name)
        for subscription in self._subscriptions.values():
            subscription.add(merged, full_sync=full_sync)
        if merged.relist:
            self._watch_source.tell(internal.Relist())
        if merged.urgent:
            self._round_soon()
        if merged.begun:
            self._tell_starts()

    def _subscribe(self, address: Address, interval: timedelta, *, follows_starts: bool) -> None:
        """Send a first batch with the whole snapshot and with the ends that an earlier subscription did not confirm."""
        self._finish_merge()
        snapshot = self._history.snapshot
        ids = set(snapshot.states)
        appeared = {*ids, *self._history.strangers.values()}
        subscription = _Subscription(
            address, interval, follows_starts, ids, appeared, full_sync=snapshot.full_sync_at is not None
        )
        earlier = self._subscriptions.get(address)
        if earlier is not None:
            unconfirmed = earlier.outstanding.ended if earlier.outstanding else ()
            subscription.ended = [*unconfirmed, *earlier.ended]
        self._subscriptions[address] = subscription
        self.timers.cancel(("round", address))  # of the earlier one, which may have had another interval
        self._send(subscription)

    def _round_soon(self) -> None:
        """Send a batch to each subscriber as soon as `store.min_round_interval` allows."""
        now = self.clock.monotonic()
        for subscription in self._subscriptions.values():
            if subscription.urgent_since is None:
                subscription.urgent_since = now
            self._round_within("soon", self._min_round_interval, subscription)

    def _tell_starts(self) -> None:
        """Send a batch to those who follow starts, as soon as `START_INTERVAL` allows."""
        for subscription in self._subscriptions.values():
            if subscription.follows_starts:
                self._round_within("start", max(START_INTERVAL, self._min_round_interval), subscription)

    def _round_within(self, timer: str, interval: timedelta, subscription: _Subscription) -> None:
        """Send a batch, not sooner than `interval` after the last."""
        since = elapsed(subscription.sent_at, self.clock.monotonic()) if subscription.sent_at is not None else None
        if since is None or since >= interval:
            self._round(subscription)
        elif not self.timers.active((timer, subscription.address)):
            due = _RoundDue(subscription.address)
            self.timers.start((timer, subscription.address), interval - since, due)

    def _interval_over(self, subscription: _Subscription) -> None:
        """Send a batch if the last one is so long ago, else wait for the rest. Most batches follow from a change."""
        assert subscription.sent_at is not None
        rest = subscription.interval - elapsed(subscription.sent_at, self.clock.monotonic())
        if rest <= timedelta():
            self._round(subscription)
            rest = subscription.interval
        self._await_interval(subscription, rest)

    def _await_interval(self, subscription: _Subscription, rest: timedelta) -> None:
        self.timers.start(("round", subscription.address), rest, _IntervalOver(subscription.address))

    def _round(self, subscription: _Subscription) -> None:
        if subscription.outstanding is None:
            self._send(subscription)
        else:
            subscription.due = True

    def _done(self, subscriber: Address, seq: int) -> None:
        subscription = self._subscriptions.get(subscriber)
        if subscription is None or subscription.outstanding is None or subscription.outstanding.seq != seq:
            return
        subscription.outstanding = None
        if subscription.due:
            self._send(subscription)

    def _send(self, subscription: _Subscription) -> None:
        self._finish_merge()
        self._seq += 1
        batch = internal.SnapshotBatch(
            self._seq,
            self._history.snapshot,
            frozenset(subscription.changed),
            frozenset(subscription.appeared),
            tuple(subscription.ended),
            subscription.full_sync,
            self._heard_at,
            subscription.urgent_since,
        )
        self._counts.batches += 1
        subscription.outstanding = batch
        subscription.changed, subscription.appeared, subscription.ended = set(), set(), []
        subscription.full_sync = subscription.due = False
        subscription.urgent_since = None
        subscription.sent_at = self.clock.monotonic()
        for timer in ("soon", "start"):
            self.timers.cancel((timer, subscription.address))
        if not self.timers.active(("round", subscription.address)):
            self._await_interval(subscription, subscription.interval)
        subscription.address.tell(batch)
