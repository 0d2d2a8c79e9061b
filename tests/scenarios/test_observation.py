"""The whole tree sees the cluster late, twice, out of order, or not at all: what it makes of it is right every time."""

from __future__ import annotations

from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors.errors import Unavailable
from actors.kube.api import WatchEnded, WatchEvents
from actors.local.faults.kinds import DelayAnswer, gone
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import StayUnscheduled
from actors.messages import ExecutorRunning, GetExecutorIds, GetFleetStatus
from actors.pods.loss import LossKind
from actors.pods.pod import PodEvent
from tests.scenarios.test_whole_tree import pod_name
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.kube.api import Call, Operation, Watch, WatchSink
    from actors.messages import FleetStatus

POLL = 30.0
"""Seconds: `executor.api_polling_interval`; an interval is up to a tenth longer."""
LONGEST_POLL = 33.0
STALE = 90.0
SILENT = 70.0
ROUND = 1.5
"""Seconds in which the Allocator has had a round for certain: `allocation.batch_delay` and latencies."""
MARGIN = 0.5
"""Seconds in which whatever follows from one answer has happened: far more than latencies, less than any interval."""


@contextmanager
def fleet(instances: int = 2, *, cluster: type[World] = World, **settings: Any) -> Iterator[World]:
    """A fleet that has been running for a while. The first poll is due at 30 s."""
    executor = {"instances": instances, **settings.pop("executor", {})}
    with cluster(executor=executor, **settings) as world:
        world.advance(20)
        assert world.running() == instances
        yield world
        assert world.stop().left_behind == ()


def asked(world: World, operation: str, since: float = 0.0) -> int:
    """How many calls of a kind have reached the API since a moment of virtual time."""
    return sum(kind == operation and at >= since for at, kind in world.api.asked)


def to_store(world: World) -> dict[str, int]:
    """How many messages of each kind the snapshot store has handled."""
    counts: dict[str, int] = {}
    for line in world.kit.trace:
        _, receiver, _, *kind = line.split(" ")
        if receiver.startswith("snapshot-store"):
            counts[kind[-1]] = counts.get(kind[-1], 0) + 1
    return counts


def ids(world: World) -> list[int]:
    """The executors that the driver may use."""
    return list(world.ask(GetExecutorIds()))


def status(world: World) -> FleetStatus:
    """What the backend says of itself."""
    answer: FleetStatus = world.ask(GetFleetStatus())
    return answer


def vanish(world: World, executor_id: int) -> None:
    """A person deletes a pod by force."""
    world.invariants.taken_by_others(pod_name(world, executor_id))
    world.store.delete("pods", "default", pod_name(world, executor_id), grace_period_seconds=0)


def relabel(world: World, executor_id: int, role: str) -> None:
    """A person moves a pod out of our selector, or back."""
    patch = {"metadata": {"labels": {"executor-pods/role": role}}}
    world.store.patch("pods", "default", pod_name(world, executor_id), patch, "merge")


def note(world: World, executor_id: int) -> None:
    """A person writes a label on a pod that means nothing to us; the pod is at a later version for it."""
    patch = {"metadata": {"labels": {"note": world.store.resource_version}}}
    world.store.patch("pods", "default", pod_name(world, executor_id), patch, "merge")


def uid(world: World, executor_id: int) -> str:
    """The UID of the pod that has an executor's name now."""
    pod = world.store.get("pods", "default", pod_name(world, executor_id))
    return str(pod["metadata"]["uid"])


# ── lists and events out of step ─────────────────────────────────────────────────────────────────────────────────


def test_a_list_answered_after_newer_events_takes_no_pod_back_and_loses_none() -> None:
    """The list knows 1, which has ended meanwhile, and 2 as it was before, and not 3, which has come."""
    with fleet() as world:
        world.api.fail_next("list", DelayAnswer(timedelta(seconds=8)))
        world.advance(11)
        asked_ago = world.kit.clock.monotonic() - world.api.asked[-1][0]
        world.kubelet.exit(pod_name(world, 1), 9)
        note(world, 2)
        world.advance(3)
        assert (ids(world), status(world).sources["poll"].synced) == ([2, 3], False), "the list is on its way"
        world.advance(6)
        assert status(world).sources["poll"].since_full_sync == timedelta(seconds=asked_ago + 9)
        assert ids(world) == [2, 3]
        assert list(world.removals()) == [1]
        world.advance(2 * LONGEST_POLL)
        assert (ids(world), list(world.removals()), world.invariants.created) == ([2, 3], [1], 3)


def test_a_deletion_between_two_polls_is_seen_by_the_watch() -> None:
    with fleet() as world:
        since = world.kit.clock.monotonic()
        vanish(world, 1)
        world.advance(MARGIN)
        assert world.removals()[1].reason.kind is LossKind.DELETED
        assert asked(world, "list", since) == 0
        assert world.invariants.created == 3


def test_a_deletion_that_the_watch_does_not_bring_is_seen_by_the_poll() -> None:
    with fleet() as world:
        world.api.freeze()
        vanish(world, 1)
        world.advance(POLL - 20 - 1)
        assert world.invariants.created == 2, "nobody has looked"
        world.advance(1 + ROUND)
        assert world.invariants.created == 3, "it is replaced in the next round after a list that does not show it"
        assert world.removals() == {}, "how it ended may still be on its way"
        world.advance(LONGEST_POLL)
        assert world.removals()[1].reason.kind is LossKind.DELETED
        assert ids(world) == [2, 3]


class _Curt(InProcessPodApi):
    """A server that deletes by force without a word before: all that comes is DELETED, on the pod as it ran."""

    def watch(self, request: Watch, sink: WatchSink) -> Call:
        """See `PodApi`."""

        def curtly(told: WatchEvents | WatchEnded) -> None:
            if isinstance(told, WatchEvents):
                kept = tuple(map(_as_it_ran, (e for e in told.events if e.type == "DELETED" or not e.pod.terminating)))
                told = msgspec.structs.replace(told, events=kept)
            sink(told)

        return super().watch(request, curtly)


def _as_it_ran(event: PodEvent) -> PodEvent:
    metadata = msgspec.structs.replace(event.pod.metadata, deletion_timestamp=None)
    return PodEvent(event.type, msgspec.structs.replace(event.pod, metadata=metadata))


class _CurtWorld(World):
    door = _Curt


def test_a_running_pod_deleted_by_force_is_gone_at_once_though_its_last_event_says_running() -> None:
    with fleet(cluster=_CurtWorld) as world:
        vanish(world, 1)
        world.advance(0.1)
        assert world.removals()[1].reason.kind is LossKind.DELETED
        assert world.invariants.created == 3
        world.advance(2)
        assert (ids(world), asked(world, "get")) == ([2, 3], 1)


@pytest.mark.parametrize("first", ["poll", "watch"])
def test_a_pod_created_anew_by_another_client_is_another_pod_for_watch_and_poll(first: str) -> None:
    """Executor 1 has ended; what has its name and id now is none of the fleet's, and goes when it is seen."""
    with fleet() as world:
        pod = world.store.get("pods", "default", pod_name(world, 1))
        world.api.stall()
        vanish(world, 1)
        again = {"metadata": {k: pod["metadata"][k] for k in ("name", "labels")}, "spec": dict(pod["spec"])}
        again["spec"].pop("nodeName")
        world.invariants.taken_by_others(pod_name(world, 1))
        world.store.create("pods", "default", again)
        another = uid(world, 1)
        world.advance(MARGIN)
        assert world.removals() == {}
        if first == "poll":
            world.advance(POLL - 20)
        world.api.resume()
        world.advance(10)
        assert world.removals()[1].reason.kind is LossKind.DELETED
        assert (ids(world), world.running()) == ([2, 3], 2)
        assert another not in {p["metadata"]["uid"] for p in world.pods()}
        world.advance(2 * LONGEST_POLL)
        assert (list(world.removals()), ids(world)) == ([1], [2, 3])
        assert [m.executor_id for m in world.heard(ExecutorRunning)] == [1, 2, 3]


@pytest.mark.parametrize("cluster", [World, _CurtWorld], ids=["with a word before its end", "without"])
def test_a_pod_that_ended_before_the_watch_delivered_it_is_reported_and_replaced(cluster: type[World]) -> None:
    with fleet(cluster=cluster) as world:
        world.api.stall()
        world.target(3)
        world.advance(3)
        vanish(world, 3)
        world.advance(1)
        assert world.about(3) == []
        world.api.resume()
        world.advance(MARGIN)
        assert world.removals()[3].reason.kind is LossKind.DELETED
        world.advance(5)
        assert ids(world) == [1, 2, 4]


def test_a_pod_that_was_never_observed_is_requested_again_under_the_next_id() -> None:
    with fleet(allocation={"creation_timeout": "60s"}) as world:
        world.api.freeze()
        world.api.fail_next("watch", Unavailable("no route"), times=100)
        world.target(3)
        world.advance(3)
        vanish(world, 3)
        world.advance(50)
        assert world.invariants.created == 3, "its POST was answered less than the creation timeout ago"
        world.advance(60)
        assert ids(world) == [1, 2, 4]
        world.api.calm()
        world.advance(2 * LONGEST_POLL)
        assert (world.about(3), ids(world)) == ([], [1, 2, 4])


def test_a_watch_that_lags_behind_the_polls_takes_nothing_back_and_still_tells_how_each_ended() -> None:
    with fleet(6, executor={"api_polling_interval": "3s"}) as world:
        world.api.lag = timedelta(seconds=7)
        codes: dict[int, int] = {}
        for step in range(12):
            running = [p["metadata"]["name"] for p in world.pods("Running")]
            if step % 3 == 2:
                victim = int(running[0].rsplit("-", 1)[1])
                vanish(world, victim)
                codes[victim] = -1
            else:
                victim = int(running[-1].rsplit("-", 1)[1])
                world.kubelet.exit(pod_name(world, victim), 10 + step)
                codes[victim] = 10 + step
            world.advance(4)
        world.advance(30)
        removals = world.removals()
        assert {i: removals[i].reason.exit_code for i in removals} == codes
        assert {removals[i].reason.kind for i in codes if codes[i] == -1} == {LossKind.DELETED}
        assert (len(ids(world)), world.running()) == (6, 6)


@pytest.mark.parametrize(
    ("away", "latency"),
    [(0.2, 0.005), (10.0, 0.005), (60.0, 0.005), (1.5, 4.0)],
    ids=["a moment", "seconds", "over polls", "until it is looked for"],
)
def test_a_pod_relabelled_out_and_back_is_reported_as_released_once(away: float, latency: float) -> None:
    """Its id is used up: when it is back it is one too many, and goes."""
    with fleet(latency=timedelta(seconds=latency)) as world:
        world.invariants.taken_by_others(pod_name(world, 1))
        relabel(world, 1, "elsewhere")
        world.advance(away)
        world.invariants.back_again(uid(world, 1))
        relabel(world, 1, "executor")
        world.advance(2 * LONGEST_POLL)
        assert world.removals()[1].reason.kind is LossKind.RELEASED
        assert (list(world.removals()), ids(world)) == ([1], [2, 3])
        assert world.running() == 2


# ── a quiet hour, and one that is not ────────────────────────────────────────────────────────────────────────────


def test_an_idle_hour_costs_a_reconnect_per_lifetime_and_bookmarks() -> None:
    with fleet() as world:
        since, before = world.kit.clock.monotonic(), to_store(world)
        world.advance(3600)
        assert 3600 / 600 - 1 <= asked(world, "watch", since) <= 3600 / 300
        polls = asked(world, "list", since)
        assert 3600 / LONGEST_POLL - 1 <= polls <= 3600 / POLL
        after = to_store(world)
        assert after["ReplaceSnapshot"] - before["ReplaceSnapshot"] == polls, "the watch has asked for no list"
        assert after["UpdatePods"] - before.get("UpdatePods", 0) <= 60, "a bookmark a minute"
        assert (ids(world), status(world).sources["watch"].synced) == ([1, 2], True)


def test_a_version_outside_the_window_costs_exactly_one_list_and_tells_nothing_twice() -> None:
    with fleet(3, executor={"api_polling_interval": "10m"}) as world:
        world.api.stall()
        world.kubelet.exit(pod_name(world, 1), 9)
        vanish(world, 2)
        world.advance(MARGIN)
        world.store.expire()
        since = world.kit.clock.monotonic()
        world.api.expire()
        world.advance(60)
        assert asked(world, "list", since) == 1
        assert asked(world, "watch", since) == 1
        removals = world.removals()
        assert (removals[1].reason.exit_code, removals[2].reason.kind) == (9, LossKind.DELETED)
        assert (sorted(removals), ids(world), world.invariants.created) == ([1, 2], [3, 4, 5], 5)


def test_410_for_every_list_and_watch_is_asked_no_faster_than_the_backoff() -> None:
    with fleet() as world:
        world.api.fail_next("list", gone(), times=1000)
        world.api.fail_next("watch", gone(), times=1000)
        since = world.kit.clock.monotonic()
        world.api.expire()
        world.advance(60)
        assert asked(world, "list", since) + asked(world, "watch", since) <= 10
        since = world.kit.clock.monotonic()
        world.advance(600)
        polls = 600 / POLL
        assert asked(world, "list", since) + asked(world, "watch", since) <= polls + 600 / 30
        assert isinstance(status(world).sources["watch"].error, str)
        world.api.calm()
        world.advance(LONGEST_POLL + 60)
        assert (ids(world), world.removals()) == ([1, 2], {})


def test_410_for_every_watch_while_lists_are_answered_is_no_tight_loop_either() -> None:
    with fleet() as world:
        world.api.fail_next("watch", gone(), times=1000)
        since = world.kit.clock.monotonic()
        world.api.expire()
        world.advance(600)
        assert asked(world, "watch", since) <= 7 + 600 / 30
        assert asked(world, "list", since) <= 7 + 600 / 30 + 600 / POLL
        world.api.calm()
        world.advance(61)
        assert status(world).sources["watch"].synced


def test_an_outage_costs_ten_requests_a_minute_at_most_and_no_executor() -> None:
    with fleet() as world:
        world.api.outage = True
        world.advance(60)
        for _ in range(20):
            since = world.kit.clock.monotonic()
            world.advance(60)
            assert sum(at >= since for at, _ in world.api.asked) <= 10
        world.api.outage = False
        world.advance(61)
        assert (ids(world), world.removals()) == ([1, 2], {})
        assert status(world).sources["watch"].synced


def test_a_list_from_the_cache_nine_times_in_ten_keeps_the_fleet_as_well() -> None:
    with fleet(executor={"polling_from_cache": True}, source={"streaming_list": True}) as world:
        assert asked(world, "list") == 0, "the watch brought the list"
        for executor_id in (1, 2, 3):
            world.kubelet.exit(pod_name(world, executor_id), 9)
            world.advance(100)
        assert (sorted(world.removals()), ids(world)) == ([1, 2, 3], [4, 5])
        since_full_sync = status(world).sources["poll"].since_full_sync
        assert since_full_sync is not None
        assert since_full_sync > timedelta(seconds=2 * LONGEST_POLL), "what comes from a cache is none"


# ── stale data ───────────────────────────────────────────────────────────────────────────────────────────────────


def blind(world: World) -> None:
    """The watch says nothing any more, and nothing that is asked is answered; writes get through."""
    world.api.freeze()
    operations: tuple[Operation, ...] = ("list", "watch")
    for operation in operations:
        world.api.fail_next(operation, Unavailable("no route"), times=1000)


def test_on_stale_data_nothing_is_created_the_status_says_why_and_it_heals() -> None:
    with fleet() as world:
        blind(world)
        world.advance(STALE + 1)
        world.target(4)
        world.advance(120)
        assert world.invariants.created == 2
        shown = status(world).sources
        blind_for = timedelta(seconds=STALE + 121)
        for source in (shown["watch"], shown["poll"]):
            assert (source.synced, source.error) == (False, "no route")
        assert shown["poll"].since_full_sync is None, "it had no time for one"
        full_sync, heard = shown["watch"].since_full_sync, shown["watch"].since_heard
        assert full_sync is not None
        assert heard is not None
        assert full_sync >= heard >= blind_for
        world.api.calm()
        world.advance(61)
        assert (world.running(), ids(world)) == (4, [1, 2, 3, 4])
        healed = status(world).sources["watch"]
        assert healed.synced
        assert healed.since_heard is not None
        assert healed.since_heard < timedelta(seconds=61)


def test_on_stale_data_nothing_is_deleted_either() -> None:
    with fleet() as world:
        world.kubelet.script = lambda _: StayUnscheduled()
        world.target(4)
        world.advance(70)
        blind(world)
        world.advance(STALE + 1)
        world.target(2)
        world.advance(60)
        assert (len(world.pods("Pending")), asked(world, "delete")) == (2, 0)
        world.api.calm()
        world.advance(61)
        assert (world.pods("Pending"), asked(world, "delete")) == ([], 2)
        assert ids(world) == [1, 2]


def test_a_crashed_source_is_shown_out_of_touch_with_the_ages_that_it_had() -> None:
    with fleet() as world:
        world.advance(20)
        before = status(world).sources["watch"]
        assert before.synced
        world.api.outage = True
        world.crash("watch-source")
        world.advance(30)
        during = status(world).sources["watch"]
        assert not during.synced
        assert before.since_full_sync is not None
        assert during.since_full_sync == before.since_full_sync + timedelta(seconds=30)
        world.api.outage = False
        world.advance(60)
        after = status(world).sources["watch"]
        assert (after.synced, after.error) == (True, None)
        assert after.since_full_sync is not None
        assert after.since_full_sync <= timedelta(seconds=60)


# ── the cluster is restored from a backup ────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("moved_on", [False, True], ids=["quiet", "past us"])
def test_a_cluster_restored_from_a_backup_is_taken_as_it_is(moved_on: bool, caplog: pytest.LogCaptureFixture) -> None:
    """Since the backup 2 has ended, 4 and 5 have come; 1 and 3 are in both histories. 2, brought back, is one too many.

    Quiet, its versions are below those seen; past us, they are above them before anybody looks, and 1 is older than it
    was.
    """
    with fleet(3) as world:
        backup = world.store.snapshot()
        world.kubelet.exit(pod_name(world, 2), 1)
        world.advance(1)
        world.target(4)
        note(world, 1)
        world.advance(15)
        assert (ids(world), list(world.removals())) == ([1, 3, 4, 5], [2])
        seen = int(world.store.resource_version)
        told = len(world.about(1)) + len(world.about(3))
        world.restore(backup)
        assert int(world.store.resource_version) < seen
        while moved_on and int(world.store.resource_version) <= seen + 10:
            world.store.patch("namespaces", None, "default", _annotation(world), "merge")
        world.advance(2 * LONGEST_POLL)
        assert sum("history reset" in message for message in caplog.messages) == 1
        removals = world.removals()
        assert sorted(removals) == [2, 4, 5]
        assert {removals[i].reason.kind for i in (4, 5)} == {LossKind.DELETED}
        assert len(world.about(1)) + len(world.about(3)) == told, "those that live on are not told of"
        assert ids(world) == [1, 3, 6, 7]
        assert world.running() == 4
        world.kubelet.exit(pod_name(world, 6), 7)
        world.advance(MARGIN)
        assert world.removals()[6].reason.exit_code == 7


def _annotation(world: World) -> dict[str, Any]:
    return {"metadata": {"annotations": {"step": world.store.resource_version}}}
