"""The scripted kubelet: pods go through their states as on a real node, on a manual clock."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors.local.kubelet.delays import Delays
from actors.local.kubelet.scripted_kubelet import Run, ScriptedKubelet, StayUnscheduled, StayWaiting
from actors.local.store.objects import rfc3339
from actors.manifests.pause import pre_stop
from actors.runtime import Entropy
from tests.unit.local.bench import Bench, manifest

if TYPE_CHECKING:
    from collections.abc import Callable

SECOND = timedelta(seconds=1)


def _kubelet(bench: Bench, **options: Any) -> ScriptedKubelet:
    options = {"start_delay": SECOND, "stop_delay": 2 * SECOND, **options}
    return ScriptedKubelet(bench.store, bench.clock, bench.timers, **options)


def _running(bench: Bench, *names: str, **options: Any) -> ScriptedKubelet:
    kubelet = _kubelet(bench, **options)
    for name in names:
        bench.pod(name)
    bench.advance(SECOND)
    return kubelet


def _terminated(pod: dict[str, Any]) -> list[tuple[int, str]]:
    states = [status["state"]["terminated"] for status in pod["status"]["containerStatuses"]]
    return [(state["exitCode"], state["reason"]) for state in states]


def test_a_pod_is_bound_at_once_and_runs_after_the_delay(bench: Bench) -> None:
    _kubelet(bench)
    seen = bench.watch()
    bench.pod("a")
    assert bench.get("a")["spec"]["nodeName"] == "local"
    assert bench.get("a")["status"]["phase"] == "Pending"
    bench.advance(SECOND)
    status = bench.get("a")["status"]
    assert (status["phase"], status["podIP"]) == ("Running", "127.0.0.1")
    assert status["containerStatuses"][0]["state"] == {"running": {"startedAt": "2024-01-01T00:00:01Z"}}
    conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
    assert conditions["PodScheduled"] == conditions["Ready"] == "True"
    assert seen.types == ["ADDED", "MODIFIED", "MODIFIED"]


def test_its_node_is_there_and_ready(bench: Bench) -> None:
    _kubelet(bench, node="n1")
    node = bench.store.get("nodes", None, "n1")
    assert node["status"]["conditions"][0]["type"] == "Ready"


def test_existing_pods_are_run(bench: Bench) -> None:
    bench.pod("new")
    bench.pod("old", node="local", phase="Running")
    bench.pod("leaving", node="local")
    bench.delete("leaving")
    _kubelet(bench)
    bench.advance(SECOND)
    assert bench.names() == ["new", "old"]
    assert bench.get("new")["status"]["phase"] == "Running"
    bench.delete("old")
    bench.advance(2 * SECOND)
    assert bench.names() == ["new"]


def test_pods_of_another_node_scheduler_or_with_gates_are_ignored(bench: Bench) -> None:
    _kubelet(bench)
    bench.pod("elsewhere", nodeName="other")
    bench.pod("unserved", schedulerName="mine")
    bench.pod("gated", schedulingGates=[{"name": "example.org/gate"}])
    bench.advance(SECOND)
    assert {bench.get(name)["status"]["phase"] for name in bench.names()} == {"Pending"}
    bench.patch("gated", {"spec": {"schedulingGates": None}})
    bench.advance(SECOND)
    assert bench.get("gated")["status"]["phase"] == "Running"


def test_a_deleted_pod_ends_with_sigterm_and_is_removed(bench: Bench) -> None:
    _running(bench, "a")
    seen = bench.watch()
    bench.delete("a")
    bench.advance(SECOND)
    assert bench.get("a")["status"]["phase"] == "Running"
    bench.advance(SECOND)
    assert bench.names() == []
    assert seen.types[-1] == "DELETED"
    last = seen.messages[-1].object
    assert (last["status"]["phase"], _terminated(last)) == ("Failed", [(143, "Error")])


def test_a_pod_that_ignores_sigterm_is_killed_at_the_end_of_its_grace(bench: Bench) -> None:
    _running(bench, "a", stop_delay=timedelta(minutes=5))
    seen = bench.watch()
    bench.delete("a", grace=3)
    bench.advance(timedelta(seconds=2.9))
    assert bench.names() == ["a"]
    bench.advance(timedelta(seconds=0.1))
    assert bench.names() == []
    assert _terminated(seen.messages[-1].object) == [(137, "Error")]


def test_a_grace_made_shorter_does_not_end_the_pod_sooner(bench: Bench) -> None:
    _running(bench, "a", stop_delay=timedelta(minutes=5))
    bench.delete("a")
    bench.advance(SECOND)
    bench.delete("a", grace=2)
    bench.advance(28 * SECOND)
    assert bench.names() == ["a"]
    bench.advance(SECOND)
    assert bench.names() == []


def test_a_pod_deleted_before_its_start_ends_with_an_unknown_status(bench: Bench) -> None:
    _kubelet(bench)
    bench.pod("a")
    seen = bench.watch()
    bench.delete("a")
    assert bench.names() == []
    last = seen.messages[-1].object
    assert (last["status"]["phase"], _terminated(last)) == ("Failed", [(137, "ContainerStatusUnknown")])
    bench.advance(timedelta(minutes=1))
    assert bench.timers.pending == 0


def test_a_forced_delete_is_forgotten_and_a_new_pod_of_that_name_starts_afresh(bench: Bench) -> None:
    _running(bench, "a")
    bench.delete("a", grace=0)
    bench.pod("a")
    assert bench.get("a")["status"]["phase"] == "Pending"
    bench.advance(SECOND)
    assert bench.get("a")["status"]["phase"] == "Running"


@pytest.mark.parametrize(("code", "phase", "reason"), [(0, "Succeeded", "Completed"), (3, "Failed", "Error")])
def test_exit_ends_a_pod_with_a_code(bench: Bench, code: int, phase: str, reason: str) -> None:
    kubelet = _running(bench, "a")
    kubelet.exit("a", code)
    pod = bench.get("a")
    assert (pod["status"]["phase"], _terminated(pod)) == (phase, [(code, reason)])
    terminated = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    assert terminated["startedAt"] == terminated["finishedAt"] == "2024-01-01T00:00:01Z"
    bench.delete("a")
    assert bench.names() == []


def test_exit_can_name_a_reason_a_message_and_a_container(bench: Bench) -> None:
    kubelet = _kubelet(bench)
    containers = [{"name": "executor", "image": "i"}, {"name": "sidecar", "image": "i"}]
    bench.pod("a", containers=containers)
    bench.advance(SECOND)
    kubelet.exit("a", 1, "Crash", message="last words", container="sidecar")
    pod = bench.get("a")
    assert pod["status"]["phase"] == "Running"
    assert pod["status"]["containerStatuses"][1]["state"]["terminated"]["message"] == "last words"
    kubelet.exit("a", 0, container="executor")
    pod = bench.get("a")
    assert (pod["status"]["phase"], _terminated(pod)) == ("Failed", [(0, "Completed"), (1, "Crash")])


def test_oom_and_eviction_look_as_on_a_real_node(bench: Bench) -> None:
    kubelet = _running(bench, "a", "b", "c")
    kubelet.oom("a")
    kubelet.oom("b", code=0)
    kubelet.evict("c", message="no memory left")
    assert _terminated(bench.get("a")) == [(137, "OOMKilled")]
    assert _terminated(bench.get("b")) == [(0, "OOMKilled")]
    status = bench.get("c")["status"]
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "Evicted", "no memory left")
    disruptions = [each["reason"] for each in status["conditions"] if each["type"] == "DisruptionTarget"]
    assert disruptions == ["TerminationByKubelet"]


def test_a_pending_pod_can_be_evicted(bench: Bench) -> None:
    kubelet = _kubelet(bench)
    bench.pod("a")
    kubelet.evict("a")
    bench.advance(SECOND)
    assert bench.get("a")["status"]["phase"] == "Failed"


def test_a_disruption_is_written_before_the_pod_is_deleted(bench: Bench) -> None:
    kubelet = _running(bench, "a")
    kubelet.disrupt("a", "PreemptionByScheduler", message="a better pod came")
    pod = bench.get("a")
    assert "deletionTimestamp" in pod["metadata"]
    disruptions = [each for each in pod["status"]["conditions"] if each["type"] == "DisruptionTarget"]
    assert [each["reason"] for each in disruptions] == ["PreemptionByScheduler"]
    bench.advance(2 * SECOND)
    assert bench.names() == []


def test_an_unknown_pod_is_an_error(bench: Bench) -> None:
    with pytest.raises(LookupError, match="node local has no pod default/nope"):
        _kubelet(bench).exit("nope", 1)


def test_a_script_plans_each_pod(bench: Bench) -> None:
    plans = {
        "short": Run(start_delay=timedelta(0), exits_after=timedelta(seconds=5), exit_code=4),
        "stuck": StayWaiting("ImagePullBackOff", 'Back-off pulling image "worker:1"'),
        "homeless": StayUnscheduled("0/1 nodes are available"),
        "graceful": Run(stop_delay=timedelta(0), stop_exit_code=0),
    }
    _kubelet(bench, script=lambda pod: plans[pod["metadata"]["name"]])
    for name in plans:
        bench.pod(name)
    bench.advance(timedelta(minutes=1))
    assert _terminated(bench.get("short")) == [(4, "Error")]
    waiting = bench.get("stuck")["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting == {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "worker:1"'}
    homeless = bench.get("homeless")
    assert "nodeName" not in homeless["spec"]
    assert homeless["status"]["conditions"][0]["reason"] == "Unschedulable"
    seen = bench.watch()
    bench.delete("graceful")
    bench.delete("stuck")
    bench.advance(timedelta(0))
    assert _terminated(seen.messages[-1].object) == [(0, "Completed")]
    assert bench.names() == ["homeless", "short"]


def test_while_it_is_held_nothing_happens_and_then_all_of_it(bench: Bench) -> None:
    kubelet = _running(bench, "old")
    kubelet.hold()
    bench.pod("new")
    bench.delete("old")
    bench.advance(timedelta(minutes=1))
    assert bench.get("new").get("spec", {}).get("nodeName") is None
    assert bench.get("old")["status"]["phase"] == "Running"
    kubelet.release()
    bench.advance(2 * SECOND)
    assert bench.names() == ["new"]
    assert bench.get("new")["status"]["phase"] == "Running"


def test_a_timer_that_was_due_while_held_counts_after_the_release(bench: Bench) -> None:
    kubelet = _kubelet(bench)
    bench.pod("a")
    kubelet.hold()
    bench.advance(SECOND)
    assert bench.get("a")["status"]["phase"] == "Pending"
    kubelet.release()
    assert bench.get("a")["status"]["phase"] == "Running"


def test_closed_it_does_nothing_more(bench: Bench) -> None:
    kubelet = _kubelet(bench)
    bench.pod("a")
    kubelet.close()
    bench.pod("b")
    bench.advance(timedelta(minutes=1))
    assert {bench.get(name)["status"]["phase"] for name in ("a", "b")} == {"Pending"}
    assert bench.timers.pending == 0


def test_its_node_may_be_there_already(bench: Bench) -> None:
    bench.store.create("nodes", None, {"metadata": {"name": "local"}})
    _running(bench, "a")
    assert bench.get("a")["status"]["phase"] == "Running"


def test_an_ended_pod_is_not_run_again_by_a_new_kubelet(bench: Bench) -> None:
    kubelet = _running(bench, "a")
    kubelet.exit("a", 0)
    kubelet.close()
    _kubelet(bench)
    bench.advance(timedelta(minutes=1))
    assert bench.get("a")["status"]["phase"] == "Succeeded"


def test_a_container_ends_once(bench: Bench) -> None:
    kubelet = _running(bench, "a")
    kubelet.exit("a", 3)
    kubelet.exit("a", 4)
    assert _terminated(bench.get("a")) == [(3, "Error")]


def test_an_exit_while_terminating_removes_the_pod_at_once(bench: Bench) -> None:
    kubelet = _running(bench, "a")
    seen = bench.watch()
    bench.delete("a")
    kubelet.exit("a", 0)
    assert bench.names() == []
    assert _terminated(seen.messages[-1].object) == [(0, "Completed")]


def test_a_finalizer_keeps_an_ended_pod_visible(bench: Bench) -> None:
    _kubelet(bench)
    sent = manifest("a")
    sent["metadata"]["finalizers"] = ["example.org/keep"]
    bench.store.create("pods", "default", sent)
    bench.advance(SECOND)
    bench.delete("a")
    bench.advance(2 * SECOND)
    assert bench.get("a")["status"]["phase"] == "Failed"
    bench.patch("a", {"metadata": {"finalizers": None}})
    assert bench.names() == []


# ── lifecycle hooks ──────────────────────────────────────────────────────────────────────────────────────────────


def _hooked(bench: Bench, grace: int = 10, **options: Any) -> ScriptedKubelet:
    """A running pod with these hooks, and this grace period."""
    hooks = {name: options.pop(name) for name in ("preStop", "postStart") if name in options}
    kubelet = _kubelet(bench, **options)
    pod = manifest("a")
    pod["spec"]["containers"][0]["lifecycle"] = hooks
    pod["spec"]["terminationGracePeriodSeconds"] = grace
    bench.store.create("pods", "default", pod)
    bench.advance(SECOND)
    return kubelet


def _gone_after(bench: Bench) -> float:
    """Seconds until the pod is gone, to a tenth."""
    for tenths in range(1000):
        if not bench.names():
            return tenths / 10
        bench.advance(SECOND / 10)
    raise AssertionError("it stays")


SLEEP = {"sleep": {"seconds": 6}}


def test_sigterm_comes_after_the_pre_stop_hook_has_slept(bench: Bench) -> None:
    _hooked(bench, preStop=SLEEP)
    seen = bench.watch()
    bench.delete("a")
    assert _gone_after(bench) == 8  # it takes 2 s from SIGTERM on
    assert _terminated(seen.messages[-1].object) == [(143, "Error")]


def test_the_grace_period_counts_from_the_begin_of_the_hook(bench: Bench) -> None:
    _hooked(bench, preStop=SLEEP, stop_delay=timedelta(minutes=5))
    seen = bench.watch()
    bench.delete("a")
    assert _gone_after(bench) == 10
    assert _terminated(seen.messages[-1].object) == [(137, "Error")]


@pytest.mark.parametrize("grace", [1, 2])
def test_sigkill_comes_two_seconds_after_a_deletion_at_the_earliest(bench: Bench, grace: int) -> None:
    _running(bench, "a", stop_delay=timedelta(minutes=5))
    bench.delete("a", grace=grace)
    assert _gone_after(bench) == 2


@pytest.mark.parametrize(("grace", "after"), [(6, 8), (7, 8), (8, 8), (9, 9)])
def test_sigkill_comes_two_seconds_after_sigterm_at_the_earliest(bench: Bench, grace: int, after: float) -> None:
    _hooked(bench, grace, preStop=SLEEP, stop_delay=timedelta(minutes=5))
    bench.delete("a")
    assert _gone_after(bench) == after


def test_a_hook_is_cut_off_at_the_end_of_the_grace_period(bench: Bench) -> None:
    _hooked(bench, preStop=SLEEP)
    bench.delete("a", grace=1)
    assert _gone_after(bench) == 3


def test_a_second_delete_with_a_shorter_grace_period_does_not_end_the_pause(bench: Bench) -> None:
    _hooked(bench, 60, preStop={"sleep": {"seconds": 30}}, stop_delay=timedelta(0))
    bench.delete("a")
    bench.advance(5 * SECOND)
    bench.delete("a", grace=1)
    assert _gone_after(bench) == 25


def test_an_exit_shows_once_the_hook_has_slept(bench: Bench) -> None:
    kubelet = _hooked(bench, preStop=SLEEP)
    seen = bench.watch()
    bench.delete("a")
    bench.advance(SECOND)
    kubelet.exit("a", 0)
    assert bench.get("a")["status"]["phase"] == "Running"
    assert _gone_after(bench) == 5
    assert _terminated(seen.messages[-1].object) == [(0, "Completed")]


COMMAND = {"exec": {"command": ["bye"]}}


def test_a_command_pauses_as_long_as_its_plan_says(bench: Bench) -> None:
    _hooked(bench, preStop=COMMAND, script=lambda _: Run(pre_stop=4 * SECOND))
    bench.delete("a")
    assert _gone_after(bench) == 6


@pytest.mark.parametrize(("hook", "after"), [(pre_stop(None, 60), 62), (COMMAND, 2)])
def test_without_a_plan_the_command_of_a_drain_timeout_pauses_as_long_as_it_says_and_another_not_at_all(
    bench: Bench, hook: dict[str, Any], after: float
) -> None:
    _hooked(bench, 90, preStop=hook)
    bench.delete("a")
    assert _gone_after(bench) == after


def test_a_command_ends_with_its_container(bench: Bench) -> None:
    kubelet = _hooked(bench, preStop=COMMAND, script=lambda _: Run(pre_stop=4 * SECOND))
    bench.delete("a")
    kubelet.exit("a", 0)
    assert bench.names() == []


def test_a_container_runs_once_its_post_start_hook_has_slept(bench: Bench) -> None:
    _hooked(bench, postStart={"sleep": {"seconds": 3}})
    bench.advance(2.9 * SECOND)
    assert bench.get("a")["status"]["phase"] == "Pending"
    bench.advance(SECOND / 10)
    assert bench.get("a")["status"]["phase"] == "Running"


# ── the delays of a node ─────────────────────────────────────────────────────────────────────────────────────────


def _delayed(bench: Bench, seed: int = 1) -> ScriptedKubelet:
    return ScriptedKubelet(bench.store, bench.clock, bench.timers, delays=Delays(Entropy(seed)))


def _steps(bench: Bench, holds: Callable[[], bool]) -> float:
    """Seconds until something holds, to a hundredth."""
    for hundredths in range(1000):
        if holds():
            return hundredths / 100
        bench.advance(SECOND / 100)
    raise AssertionError("it does not hold within ten seconds")


def _life(bench: Bench, seed: int) -> tuple[float, float, float]:
    """Seconds from creation to running, from exit to its status, from deletion to the end of another pod."""
    kubelet = _delayed(bench, seed)
    bench.pod("a")
    start = _steps(bench, lambda: bench.get("a")["status"]["phase"] == "Running")
    bench.pod("b")
    bench.advance(2 * SECOND)
    kubelet.exit("a", 3)
    exited = rfc3339(bench.clock.now())
    end = _steps(bench, lambda: bench.get("a")["status"]["phase"] == "Failed")
    assert bench.get("a")["status"]["containerStatuses"][0]["state"]["terminated"]["finishedAt"] == exited
    bench.delete("b")
    return start, end, _steps(bench, lambda: "b" not in bench.names())


@pytest.mark.parametrize("seed", range(5))
def test_with_delays_a_start_takes_about_a_second_and_an_end_is_seen_one_to_two_seconds_later(seed: int) -> None:
    start, end, stop = _life(Bench(), seed)
    assert 0.7 <= start <= 1.3
    assert 1 <= end <= 2
    assert 1 <= stop <= 2
    assert _life(Bench(), seed) == (start, end, stop)


def test_with_delays_a_container_still_ends_once(bench: Bench) -> None:
    kubelet = _delayed(bench)
    bench.pod("a")
    bench.advance(2 * SECOND)
    kubelet.exit("a", 3)
    kubelet.exit("a", 4)
    bench.delete("a")
    seen = bench.watch()
    bench.advance(2 * SECOND)
    assert bench.names() == []
    assert _terminated(seen.messages[-1].object) == [(3, "Error")]
