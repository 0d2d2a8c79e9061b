"""A driver whose process is killed again and again, at moments that a seed draws, and that starts again at once.

Line 5 (adoption) of the issue "Allocate and account for executors under every condition". The same on real processes:
tests/e2e/test_driver_restarts.py.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.kube.api import LEASES
from actors.lease.record import LAST_ID, lease_name
from actors.local.kubelet.scripted_kubelet import Run
from actors.messages import BackendStopped, ExecutorRunning, ExecutorTerminating, GetExecutorIds, KillExecutors
from actors.pods.pod import EXECUTOR_ID_LABEL
from tests.scenarios.rivals import APP_ID, Rivals
from tests.scenarios.seeds import seeds

if TYPE_CHECKING:
    from actors.local.store.object_store import WatchMessage
    from actors.runtime import Entropy
    from tests.scenarios.rivals import Rival

TARGET = 6
DEATHS = 10
SLOWLY = {"batch_size": 1, "max_batch_size": 1, "pacing": "batch"}
"""The next one when the last one runs: so that many a life ends while the fleet grows."""
SOON = {"lease_duration": "2s", "request_timeout": "1s"}
"""A lease of the dead does not hold the next one up for longer than most of them live."""
LIFE_SECONDS = (0.05, 1.0, 4.0, 15.0)
"""How long a life lasts at most, drawn for each: it ends before it may write, while it creates, or after that."""


class Lives(Rivals):
    """One driver after the other on one cluster; all pods that ever were, and the ids that each life found and made."""

    def __init__(self, seed: int, *, lease: bool) -> None:
        self.has_lease = lease
        self.ids: dict[str, int] = {}
        """UID → executor id, of all pods that ever were."""
        self.visible: dict[str, int] = {}
        """The same of those whose object is there."""
        self.reused: list[int] = []
        self.most = 0
        self.used: set[int] = set()
        """Ids that the present life must not give out: visible when it began, or given out since."""
        super().__init__(seed=seed, instances=TARGET, allocation=SLOWLY, backend={"lease": lease, **SOON})
        self.store.watch("pods", None, self._changed, resource_version=self.store.resource_version)

    def life(self) -> Rival:
        """The driver's process starts, for the first time or again."""
        self.used = set(self.visible.values())
        return self.begin(f"life {len(self.drivers) + 1}")

    def arrived(self, rival: Rival, what: str) -> None:
        """Without a lease it is always the turn of the one that was started last."""
        if self.has_lease:
            super().arrived(rival, what)
        else:
            rival.wrote.append(what)

    def some_end(self, dice: Entropy) -> None:
        """Up to two of those that run end by themselves, the ones with the highest ids as well as any other."""
        running = [name for name, phase in self.pods().items() if phase == "Running"]
        for _ in range(min(len(running), int(dice.uniform(0, 3)))):
            victim = dice.choice(running)
            running.remove(victim)
            self.kubelet.exit(victim, 1)

    def posts(self) -> int:
        """How many POSTs of pods reached the cluster."""
        return sum(rival.wrote.count("create pods") for rival in self.drivers)

    def _changed(self, message: WatchMessage) -> None:
        pod: dict[str, Any] = message.object
        uid, number = pod["metadata"]["uid"], int(pod["metadata"]["labels"][EXECUTOR_ID_LABEL])
        if message.type == "DELETED":
            del self.visible[uid]
        else:
            self.visible[uid] = number
        if message.type == "ADDED":
            if number in self.used:
                self.reused.append(number)
            self.used.add(number)
            self.ids[uid] = number
        self.most = max(self.most, len(self.pods()))


def kill_and_restart(cluster: Lives, dice: Entropy, *, executors_end: bool) -> None:
    """Ten lives that end by SIGKILL, each followed by the next at once."""
    for _ in range(DEATHS):
        driver = cluster.life()
        cluster.advance(dice.uniform(0, dice.choice(LIFE_SECONDS)))
        if executors_end:
            cluster.some_end(dice)
        cluster.advance(dice.uniform(0, 0.02))  # the answer is on its way, or has just been read
        driver.kill()
        if executors_end:
            cluster.some_end(dice)
            cluster.advance(dice.uniform(0, 1))


@pytest.mark.parametrize("lease", [False, True], ids=["no lease", "lease"])
@pytest.mark.parametrize("seed", seeds(1, of=5))
def test_ten_deaths_at_any_moment_end_with_the_target_and_no_id_was_used_twice(seed: int, lease: bool) -> None:
    with Lives(seed, lease=lease) as cluster:
        kill_and_restart(cluster, cluster.kit.entropy.fork("deaths"), executors_end=False)
        last = cluster.life()
        cluster.advance(60)
        assert sorted(cluster.pods()) == [f"app-exec-{number}" for number in range(1, TARGET + 1)]
        assert Counter(cluster.ids.values()) == Counter(range(1, TARGET + 1)), "nobody was made and taken back again"
        assert cluster.posts() == TARGET
        assert sorted(message.executor_id for message in last.heard(ExecutorRunning)) == list(range(1, TARGET + 1))
        assert cluster.kit.ask(last.backend, GetExecutorIds()) == tuple(range(1, TARGET + 1))
        assert last.stop(delete_pods=True) == BackendStopped()
        assert cluster.visible == {}


@pytest.mark.parametrize("lease", [False, True], ids=["no lease", "lease"])
@pytest.mark.parametrize("seed", seeds(1, of=5))
def test_executors_that_end_meanwhile_never_lead_to_excess(seed: int, lease: bool) -> None:
    with Lives(seed, lease=lease) as cluster:
        kill_and_restart(cluster, cluster.kit.entropy.fork("deaths"), executors_end=True)
        last = cluster.life()
        cluster.advance(90)
        assert list(cluster.pods().values()) == ["Running"] * TARGET
        assert len(cluster.visible) == TARGET, "what ended is cleared"
        assert cluster.most == TARGET
        assert cluster.reused == [], "an id that a life could know of was given out again"
        if lease:
            assert max(Counter(cluster.ids.values()).values()) == 1, "what no pod tells of any more the lease does"
        assert cluster.posts() == len(cluster.ids), "nobody was asked for who was there"
        assert cluster.kit.ask(last.backend, GetExecutorIds()) == tuple(sorted(cluster.visible.values()))
        assert last.stop(delete_pods=True) == BackendStopped()
        assert cluster.visible == {}


def test_an_id_whose_pod_was_gone_before_the_death_is_not_given_out_again() -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        for life, gone in enumerate((3, 4, 5), start=2):
            cluster.store.delete("pods", "default", f"app-exec-{gone}", grace_period_seconds=0)
            cluster.drivers[-1].kill()
            cluster.begin(f"life {life}")
            cluster.advance(30)
            assert sorted(cluster.pods()) == ["app-exec-1", "app-exec-2", f"app-exec-{gone + 1}"]


def test_ids_are_remembered_as_soon_as_they_are_given_out() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.target(5)
        while "app-exec-5" not in cluster.pods():
            cluster.advance(0.001)
        cluster.advance(0.01)
        for gone in (4, 5):
            cluster.store.delete("pods", "default", f"app-exec-{gone}", grace_period_seconds=0)
        first.kill()
        second = cluster.begin("second")
        second.target(5)
        cluster.advance(40)
        assert sorted(cluster.pods()) == [f"app-exec-{number}" for number in (1, 2, 3, 6, 7)]


def test_a_driver_that_restarts_after_an_orderly_stop_continues_the_ids() -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        assert cluster.drivers[0].stop(delete_pods=True) == BackendStopped()
        cluster.begin("second")
        cluster.advance(20)
        assert sorted(cluster.pods()) == ["app-exec-4", "app-exec-5", "app-exec-6"]


def test_one_that_gets_the_lease_back_counts_on_from_what_the_other_gave_out() -> None:
    with Rivals("first") as cluster:
        (first,) = cluster.drivers
        cluster.advance(10)
        first.api.outage = True
        second = cluster.begin("second")
        cluster.advance(40)
        for gone in (1, 4, 5):
            cluster.store.delete("pods", "default", f"app-exec-{gone}", grace_period_seconds=0)
            cluster.advance(10)
        assert sorted(cluster.pods()) == ["app-exec-2", "app-exec-3", "app-exec-6"]
        cluster.store.delete("pods", "default", "app-exec-6", grace_period_seconds=0)
        second.kill()
        first.api.outage = False
        cluster.advance(60)
        assert cluster.holder() is first
        assert sorted(cluster.pods()) == ["app-exec-2", "app-exec-3", "app-exec-7"]


def test_a_lease_that_knows_less_than_the_pods_show_learns_it() -> None:
    with Rivals("first") as cluster:
        cluster.advance(10)
        cluster.drivers[0].kill()
        bare = {"metadata": {"annotations": {LAST_ID: None}}}  # of an earlier version
        cluster.store.patch(LEASES.plural, "default", lease_name(APP_ID), bare, "merge")
        cluster.begin("second")
        cluster.advance(30)
        cluster.store.delete("pods", "default", "app-exec-3", grace_period_seconds=0)
        cluster.drivers[-1].kill()
        cluster.begin("third")
        cluster.advance(30)
        assert sorted(cluster.pods()) == ["app-exec-1", "app-exec-2", "app-exec-4"]


# ── what the dead one had asked for ──────────────────────────────────────────────────────────────────────────────────


def test_one_that_a_dead_driver_had_asked_to_end_and_not_deleted_is_taken_over_as_any_other() -> None:
    with Rivals("first", instances=2, executor={"kill_grace_period": "30s", "kill_label": "leaving=yes"}) as cluster:
        cluster.advance(10)
        cluster.drivers[0].backend.tell(KillExecutors((1,)))
        cluster.advance(5)
        cluster.drivers[0].kill()
        second = cluster.begin("second")
        cluster.advance(120)
        assert sorted(cluster.pods()) == ["app-exec-1", "app-exec-2"], "nobody has made another in its place"
        (taken_over,) = [message for message in second.heard(ExecutorRunning) if message.executor_id == 1]
        assert taken_over.pod.labels["leaving"] == "yes", "who set the label can tell"
        assert second.heard(ExecutorTerminating) == []
        assert cluster.kit.ask(second.backend, GetExecutorIds()) == (1, 2)
        assert cluster.kit.ask(second.backend, KillExecutors((1,))) == (1,)
        cluster.advance(60)
        assert sorted(cluster.pods()) == ["app-exec-2", "app-exec-3"]


def test_one_that_a_dead_driver_had_deleted_is_not_taken_over() -> None:
    with Rivals("first", instances=2, executor={"kill_grace_period": "1s"}) as cluster:
        cluster.kubelet.script = lambda _: Run(stop_delay=timedelta(seconds=29))
        cluster.advance(10)
        cluster.drivers[0].backend.tell(KillExecutors((1,)))
        while "app-exec-1" in cluster.pods():
            cluster.advance(0.1)
        cluster.drivers[0].kill()
        second = cluster.begin("second")
        cluster.advance(24)
        assert len(cluster.store.list("pods", "default").items) == 3, "it takes its time"
        cluster.advance(60)
        assert sorted(cluster.pods()) == ["app-exec-2", "app-exec-3"]
        assert 1 not in {message.executor_id for message in second.heard(ExecutorRunning)}
