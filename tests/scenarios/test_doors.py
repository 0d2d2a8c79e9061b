"""`Fleet` and `AsyncFleet` through the whole tree, in virtual time: each scenario runs on both, with one outcome."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from actors.errors import FleetEnded, Forbidden, Refused, SettingsError, Unavailable, Unreachable, WaitTimeout
from actors.fleet.stream import EventsMissed
from actors.local.kubelet.scripted_kubelet import Run, StayUnscheduled, StayWaiting
from actors.messages import (
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
)
from actors.messages.internal import ExecutorSeen
from actors.pods.loss import LossKind
from actors.settings import Settings
from tests.scenarios.doors import KINDS, Stage

pytestmark = pytest.mark.parametrize("kind", KINDS)

REFUSED = 'Back-off pulling image "worker:1": ErrImagePull: rpc error: code = NotFound desc = worker:1: not found'
STUCK = StayWaiting("ImagePullBackOff", REFUSED)


# ── entering and leaving ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_fleet_starts_runs_and_leaves_no_pod(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=3) as fleet:
            await fleet.wait_for(running=3, timeout="1m")
            assert [executor.state for executor in fleet.executors.values()] == [ExecutorState.RUNNING] * 3
            assert len(stage.cluster.pods) == 3

    stage.run(program())
    assert stage.cluster.pods == {}
    assert stage.kit.dispatcher.actors == ()


def test_a_fleet_says_the_app_id_of_its_pods(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            await fleet.wait_for(running=1)
            pod = stage.cluster.pods[1]
            assert pod["metadata"]["name"] == f"{fleet.app_id}-exec-1"
            assert fleet.settings.app_id == fleet.app_id
            assert not fleet.settings.app_id_given

    stage.run(program())


def test_a_fleet_that_is_kept_leaves_its_pods(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2, keep=True) as fleet:
            await fleet.wait_for(running=2)

    stage.run(program())
    assert stage.cluster.phases == {1: "Running", 2: "Running"}


def test_stop_says_which_pods_are_left(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> Any:
        async with stage.fleet(instances=1, app_id="etl", backend={"lease": False}) as fleet:
            await fleet.wait_for(running=1)
            with stage.cluster.outage():
                return await fleet.stop()

    assert stage.run(program()) == ("etl-exec-1",)


@pytest.mark.parametrize(("own_grace", "seconds"), [(None, 4), (600, 300)])
def test_executors_that_ignore_sigterm_are_waited_for_as_long_as_they_have_to_end(
    kind: str, own_grace: int | None, seconds: float
) -> None:
    stage = Stage(kind, script=lambda _pod: Run(stop_delay=timedelta(minutes=5)))
    template = {"spec": {"terminationGracePeriodSeconds": own_grace}}

    async def program() -> timedelta:
        async with stage.fleet(instances=2, template_patch=template) as fleet:
            await fleet.wait_for(running=2)
            begun = stage.kit.clock.elapsed
            assert await fleet.stop() == ()
            return stage.kit.clock.elapsed - begun

    took = stage.run(program())
    assert timedelta(seconds=seconds) <= took <= timedelta(seconds=seconds + 2)
    assert stage.cluster.pods == {}


def test_a_fleet_that_nobody_waits_for_tells_in_its_events_how_it_starts_and_stops(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        fleet = stage.fleet(instances=1, app_id="etl", backend={"lease": False})
        await fleet.start(wait=False)
        events = fleet.events()
        assert isinstance(await events.get("1m"), BackendStarted)
        await fleet.wait_for(running=1)
        assert fleet.last_status == await fleet.status()
        assert await fleet.stop(wait=False) == ()
        assert len(stage.cluster.pods) == 1
        told = [type(event) async for event in events]
        assert told[-2:] == [ExecutorRemoved, BackendStopped]
        assert await fleet.stop() == ()

    stage.run(program())
    assert stage.cluster.pods == {}
    assert stage.kit.dispatcher.actors == ()


def test_a_start_that_nobody_waits_for_may_fail_or_be_stopped_in_the_middle(kind: str) -> None:
    stage = Stage(kind)

    async def program(*, stops: bool) -> list[type]:
        with stage.cluster.outage():
            fleet = stage.fleet(backend={"start_timeout": "7s"})
            await fleet.start(wait=False)
            events = fleet.events()
            if stops:
                await fleet.stop(wait=False)
            told = [type(event) async for event in events]
            await fleet.stop()
            return told

    assert stage.run(program(stops=False)) == [BackendFailed]
    assert stage.run(program(stops=True)) == [BackendStopped]


def test_a_fleet_that_is_abandoned_leaves_its_pods_and_no_actor(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            await fleet.wait_for(running=2)
            await fleet.stop(wait=False)
            await fleet.abandon()
            assert await fleet.stop() == ()

    stage.run(program())
    assert stage.kit.dispatcher.actors == ()
    assert stage.cluster.phases == {1: "Running", 2: "Running"}


def test_the_last_event_says_that_the_fleets_own_actor_crashed(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            events = fleet.events()
            stage.kit.address("fleet").tell("no message of anybody")
            last = [event async for event in events][-1]
            assert isinstance(last, BackendFailed)
            assert "the fleet's actor crashed" in str(last.cause)

    stage.run(program())
    assert len(stage.kit.crashes) == 1


def test_a_fleet_whose_template_cannot_work_is_not_entered(kind: str) -> None:
    stage = Stage(kind)
    fleet = stage.fleet(template_patch={"spec": {"terminationGracePeriodSeconds": "soon"}})

    async def program() -> None:
        async with fleet:
            raise AssertionError("not reached")

    with pytest.raises(SettingsError, match="terminationGracePeriodSeconds is 'soon'"):
        stage.run(program())
    assert stage.kit.dispatcher.actors == ()


def test_an_error_of_the_program_stops_the_fleet_and_reaches_the_user(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            await fleet.wait_for(running=2)
            raise KeyError("of the program")

    with pytest.raises(KeyError, match="of the program"):
        stage.run(program())
    assert stage.cluster.pods == {}


def test_an_api_that_does_not_answer_ends_the_start_within_its_limit(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        with stage.cluster.outage():
            async with stage.fleet(backend={"start_timeout": "7s"}):
                raise AssertionError("not reached")

    with pytest.raises(Unavailable):
        stage.run(program())
    assert stage.kit.clock.elapsed <= timedelta(seconds=8)
    assert stage.kit.dispatcher.actors == ()


def test_a_missing_right_ends_the_start(kind: str) -> None:
    stage = Stage(kind)
    stage.cluster.refuse("list", 403, 'pods is forbidden: User "x" cannot list resource "pods"', times=9)
    stage.cluster.refuse("watch", 403, 'pods is forbidden: User "x" cannot list resource "pods"', times=9)

    async def program() -> None:
        async with stage.fleet():
            raise AssertionError("not reached")

    with pytest.raises(Forbidden, match="list"):
        stage.run(program())


def test_a_wrong_setting_is_an_error_before_anything_starts(kind: str) -> None:
    with pytest.raises(SettingsError, match=r"instancs: there is no such setting; did you mean executor\.instances\?"):
        Stage(kind).fleet(instancs=3)


@pytest.mark.parametrize(("given", "meant"), [("Local", "local"), ("pag", "page"), ("onevent", "on_event")])
def test_a_misspelled_argument_is_an_error_that_names_the_argument(kind: str, given: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{given}: there is no such setting; did you mean {meant}\?$"):
        Stage(kind).fleet(**{given: 1})


def test_settings_are_given_as_settings_or_as_values(kind: str, tmp_path: Any) -> None:
    stage = Stage(kind)
    file = tmp_path / "fleet.toml"
    file.write_text('namespace = "batch"\n[executor]\nimage = "worker:1"\ninstances = 5\n')
    from_file = stage.fleet(file, instances=2)
    assert from_file.settings.executor.instances == 2
    assert from_file.settings.namespace == "batch"
    assert stage.fleet(Settings(executor={"instances": 7})).settings.executor.instances == 7
    assert stage.fleet(executor={"instances": 4}, image="x").settings.executor.image == "x"
    with pytest.raises(TypeError, match="instances: put these into the Settings"):
        stage.fleet(Settings(), instances=3)
    with pytest.raises(TypeError, match="image is given twice"):
        stage.fleet(executor={"image": "a"}, image="b")
    with pytest.raises(TypeError, match="local=True starts a cluster of its own"):
        stage.fleet(local=True)


def test_a_fleet_is_entered_once_and_not_used_before(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        fleet = stage.fleet(instances=0)
        with pytest.raises(RuntimeError, match="was not entered"):
            await fleet.scale(3)
        async with fleet:
            with pytest.raises(RuntimeError, match="entered once"):
                async with fleet:
                    pass
        with pytest.raises(FleetEnded, match="the fleet has ended"):
            await fleet.scale(3)

    stage.run(program())


def test_a_process_that_was_forked_cannot_use_the_fleet(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            await fleet.wait_for(running=1)
            with monkeypatch.context() as child:
                child.setattr(os, "getpid", lambda: -1)
                with pytest.raises(RuntimeError, match="a process that was forked cannot use it"):
                    await fleet.scale(2)
                with pytest.raises(RuntimeError, match="forked"):
                    _ = fleet.executors
                assert await fleet.stop() == ()
            assert len(stage.cluster.pods) == 1

    stage.run(program())


def test_a_failure_that_nobody_was_told_of_is_raised_at_the_end(kind: str) -> None:
    stage = Stage(kind)

    async def program(*, reads: bool) -> None:
        async with stage.fleet(instances=1) as fleet:
            await fleet.wait_for(running=1)
            events = fleet.events()
            stage.kit.address("backend").tell(ExecutorSeen(1, "uid", None))  # type: ignore[arg-type]  # it crashes
            stage.kit.settle()
            if reads:
                assert [event async for event in events if isinstance(event, BackendFailed)]

    with pytest.raises(FleetEnded, match="the fleet has failed"):
        stage.run(program(reads=False))
    stage.run(program(reads=True))


# ── events and executors ─────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_reader_gets_every_event(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> Any:
        async with stage.fleet(instances=1) as fleet:
            await fleet.wait_for(running=1)
            events = fleet.events()
            stage.cluster.fail(1, 3)
            got = []
            async for event in events:
                got.append(event)
                if isinstance(event, ExecutorRunning) and event.executor_id == 2:
                    await fleet.stop()
            return got

    got = stage.run(program())
    assert isinstance(got[0], BackendStarted)
    assert isinstance(got[-1], BackendStopped)
    ends = [(event.executor_id, event.reason.kind) for event in got if isinstance(event, ExecutorRemoved)]
    assert ends == [(1, LossKind.EXITED), (2, LossKind.KILLED_BY_DRIVER)]


def test_a_later_reader_gets_the_events_from_then_on(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            first = fleet.events()
            await fleet.wait_for(running=1)
            second = fleet.events()
            await fleet.kill(1)
            await fleet.wait_for(running=1)
            assert (await second.get()).executor_id == 1  # terminating
            assert isinstance(await first.get(), BackendStarted)

    stage.run(program())


def test_a_reader_that_is_too_slow_is_told_so(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=20, max_events=5) as fleet:
            events = fleet.events()
            await fleet.wait_for(running=20)
            got = [await events.get() for _ in range(6)]
            assert isinstance(got[5], EventsMissed)
            assert got[5].count == 41 - 5
            assert len(fleet.executors) == 20
            stage.cluster.fail(7, 1)
            assert isinstance(await events.get(), ExecutorRemoved)
            assert 7 not in fleet.executors

    stage.run(program())


def test_get_waits_for_at_most_its_timeout(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=0) as fleet:
            events = fleet.events()
            assert isinstance(await events.get(), BackendStarted)
            before = stage.kit.clock.elapsed
            assert await events.get("90s") is None
            assert stage.kit.clock.elapsed - before == timedelta(seconds=90)
            assert await events.get(1.5) is None
            assert stage.kit.clock.elapsed - before == timedelta(seconds=91.5)
            words = r"timeout = \S+: (has no unit|is not a duration|must be (at most|longer))"
            for wrong in ("90", True, -1, 0, float("nan"), float("inf"), 1e300, 10**400):
                with pytest.raises(ValueError, match=words):
                    await events.get(wrong)

    stage.run(program())


def test_on_event_gets_every_event_and_may_use_the_fleet(kind: str) -> None:
    stage = Stage(kind)
    got: list[str] = []
    fleet: Any = None

    def on_event(event: object) -> None:
        got.append(type(event).__name__)
        if isinstance(event, ExecutorRunning) and event.executor_id == 1:
            fleet.inner.kill(1) if kind == "threads" else None
            raise ValueError("of the callback")

    async def program() -> None:
        nonlocal fleet
        fleet = stage.fleet(instances=2, on_event=on_event)
        async with fleet:
            await fleet.wait_for(running=2)
            if kind == "threads":
                await fleet.wait_for(running=2)

    stage.run(program())
    assert got[0] == "BackendStarted"
    assert got[-1] == "BackendStopped"
    assert got.count("ExecutorRemoved") >= 2


def test_on_event_that_awaits_a_cancelled_task_gets_the_next_events_too(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    if kind == "threads":
        pytest.skip("of asyncio")
    stage = Stage(kind)
    got: list[str] = []

    async def on_event(event: object) -> None:
        got.append(type(event).__name__)
        if len(got) == 2:
            task = asyncio.create_task(asyncio.sleep(3600))
            task.cancel()
            await task

    async def program() -> None:
        async with stage.fleet(instances=2, on_event=on_event) as fleet:
            await fleet.wait_for(running=2)

    stage.run(program())
    assert got[-1] == "BackendStopped"
    assert [message.split(":")[0] for message in caplog.messages if "on_event" in message] == ["on_event failed"]


def test_executors_are_values_that_do_not_change(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            await fleet.wait_for(running=2)
            before = fleet.executors
            assert await fleet.register(1)
            assert not before[1].registered
            assert fleet.executors[1].registered
            assert fleet.executors[2] is before[2]  # not made again
            assert fleet.executors is fleet.executors
            fleet.disconnected(1, "hang")
            while fleet.executors[1].registered:
                await fleet.events().get("1ms")
            with pytest.raises(Refused, match="suspected = 'slow': must be one of 'hang', 'network', or None"):
                fleet.disconnected(1, "slow")
            with pytest.raises(TypeError):
                before[3] = before[1]
            events = fleet.events()
            stage.cluster.oom(2)
            while not isinstance(await events.get(), ExecutorRemoved):
                pass
            await fleet.wait_for(running=2)
            assert [executor.id for executor in fleet.ended] == [2]
            assert fleet.ended[0].loss.kind is LossKind.OOM_KILLED
            assert fleet.ended[0].node is not None
            assert list(before) == [1, 2]
            assert list(fleet.executors) == [1, 3]

    stage.run(program())


def test_an_executor_that_registers_before_its_event_is_registered_when_it_comes(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1, executor={"event_processing_interval": "10s"}) as fleet:
            while not stage.cluster.pods:
                await fleet.events().get("100ms")
            assert not await fleet.is_excluded(1)
            assert await fleet.register(1)
            assert not await fleet.register(99)
            await fleet.wait_for(registered=1)
            assert fleet.executors[1].registered

    stage.run(program())


# ── scale, kill, wait_for ────────────────────────────────────────────────────────────────────────────────────────


def test_a_loss_that_is_not_replaced_lowers_the_target(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> list[tuple[int, bool]]:
        async with stage.fleet(instances=3, replace_if=lambda end: end.reason.kind is LossKind.EXITED) as fleet:
            await fleet.wait_for(running=3)
            stage.cluster.fail(1, 3)
            await fleet.wait_for(running=3)
            stage.cluster.oom(2)
            ends: list[tuple[int, bool]] = []
            async for event in fleet.events():
                if isinstance(event, ExecutorRemoved):
                    ends.append((event.executor_id, event.lowered_target))
                    if len(ends) == 2:
                        break
            await fleet.wait_for(running=2)
            assert fleet.profiles["default"].target == 2
            assert sorted(stage.cluster.pods) == [3, 4]
            return ends

    assert stage.run(program()) == [(1, False), (2, True)]


def test_what_decides_on_losses_must_be_a_plain_function(kind: str) -> None:
    async def replace_if(_: object) -> bool:
        return False

    for rule in (replace_if, "never"):
        with pytest.raises(TypeError, match=r"^replace_if = .+: must be a plain function of an ExecutorRemoved$"):
            Stage(kind).fleet(instances=1, replace_if=rule)


@pytest.mark.parametrize(
    ("victims", "left"),
    [
        ("newest", [1, 2, 3]),
        ("oldest", [8, 9, 10]),
        ("idle", [1, 4, 7]),
        (lambda executor: -abs(executor.id - 5), [4, 5, 6]),
    ],
)
def test_the_excess_goes_by_policy(kind: str, victims: Any, left: list[int]) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=0) as fleet:
            for number in range(1, 11):  # one after the other, so that ages differ
                await fleet.scale(number)
                await fleet.wait_for(running=number)
            for busy in (1, 4, 7):
                fleet.mark_busy(busy)
            ended = await fleet.scale(3, victims=victims, grace="1s")
            assert sorted((*ended, *left)) == list(range(1, 11))
            await fleet.events().get("30s")
            stage.kit.advance(timedelta(seconds=30))
            assert sorted(stage.cluster.pods) == left
            assert (await fleet.status()).profiles["default"].target == 3

    stage.run(program())


def test_whoever_acts_reads_what_it_has_changed(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            await fleet.wait_for(running=2)
            for target in (5, 1, 3):
                await fleet.scale(target)
                assert fleet.profiles["default"].target == target
            with pytest.raises(TypeError):
                fleet.profiles["gpu"] = fleet.profiles["default"]
            await fleet.kill(2)
            assert fleet.executors[2].state == "terminating"
            assert await fleet.register(1)
            assert fleet.executors[1].registered

    stage.run(program())


def test_a_profile_that_is_not_named_keeps_its_target(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2, profiles={"gpu": {"instances": 1}}) as fleet:
            await fleet.wait_for(running=3)
            await fleet.scale({"gpu": 2})
            await fleet.wait_for(running=2, profile="gpu")
            await fleet.wait_for(running=4)
            assert await fleet.scale(1) in {(1,), (2,)}

    stage.run(program())


def test_a_kill_may_leave_no_time(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=4) as fleet:
            await fleet.wait_for(running=4)
            for executor_id, grace in enumerate(("0s", "0ms", 0, timedelta()), start=1):
                assert await fleet.kill(executor_id, grace=grace) == (executor_id,)
            for wrong in ("-1s", "0", timedelta(-1), False):
                with pytest.raises(ValueError, match="grace = "):
                    await fleet.kill(2, grace=wrong)

    stage.run(program())


def test_a_kill_without_replacement_lowers_the_target(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=3) as fleet:
            await fleet.wait_for(running=3)
            assert await fleet.kill(2, grace="2s", replace=False) == (2,)
            assert await fleet.kill([1, 99]) == (1,)
            stage.kit.advance(timedelta(seconds=20))
            assert sorted(fleet.executors) == [3, 4]
            with pytest.raises(Refused, match="executor id"):
                await fleet.kill(0)

    stage.run(program())


def test_waiting_for_more_than_is_wanted_is_an_error_at_once(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            with pytest.raises(
                Unreachable, match="3 executors should run: only 2 are wanted; scale the fleet up first"
            ):
                await fleet.wait_for(running=3)
            with pytest.raises(TypeError, match="needs running="):
                await fleet.wait_for(timeout="1s")
            with pytest.raises(ValueError, match="profile = 'gpu': there is no such profile; there are default"):
                await fleet.wait_for(running=1, profile="gpu")
            with pytest.raises(ValueError, match="running = -1"):
                await fleet.wait_for(running=-1)

    stage.run(program())


def test_an_image_that_cannot_be_pulled_ends_the_wait_in_the_pods_own_words(kind: str) -> None:
    stage = Stage(kind, script=lambda _pod: STUCK)

    async def program() -> None:
        async with stage.fleet(instances=4) as fleet:
            with pytest.raises(
                Unreachable,
                match="4 executors should run, 0 run: executor 1 is stuck: ImagePullBackOff: executor: Back-off pulling"
                r' image "worker:1": .* not found \(and 3 more\)',
            ):
                await fleet.wait_for(running=4, timeout="10m")
            assert timedelta(seconds=45) < stage.kit.clock.elapsed < timedelta(seconds=50)

    stage.run(program())
    assert stage.cluster.pods == {}


def test_an_image_that_comes_late_does_not_end_the_wait(kind: str) -> None:
    stage = Stage(kind, script=lambda _pod: STUCK)

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            for executor_id in (1, 2):
                stage.kit.timers.schedule(timedelta(seconds=12), partial(stage.cluster.run, executor_id))
            await fleet.wait_for(running=2, timeout="10m")

    stage.run(program())


@pytest.mark.parametrize("seconds", [1, 5])  # 1: its pod is deleted in the second in which it ends
def test_executors_that_fail_at_once_end_the_wait_with_the_reason_of_the_last_one(kind: str, seconds: int) -> None:
    stage = Stage(kind, script=lambda _pod: Run(exits_after=timedelta(seconds=seconds), exit_code=2))

    async def program() -> None:
        async with stage.fleet(instances=1, max_failures=2) as fleet:
            reason = r"allows \(2\); the last one that ended: executor \d \(pod .*\) exited with exit code 2"
            with pytest.raises(Unreachable, match=f"1 executor should be registered, . run and 0 are: .*{reason}"):
                await fleet.wait_for(registered=1, timeout="10m")

    stage.run(program())


def test_one_stuck_executor_does_not_matter_if_enough_others_run(kind: str) -> None:
    stage = Stage(kind, script=lambda pod: STUCK if pod["metadata"]["name"].endswith("-1") else Run())

    async def program() -> None:
        async with stage.fleet(instances=3) as fleet:
            await fleet.wait_for(running=2, timeout="1m")
            with pytest.raises(Unreachable, match="executor 1 is stuck"):
                await fleet.wait_for(running=3, timeout="10m")

    stage.run(program())


def test_a_wait_that_takes_too_long_says_what_holds_it_up(kind: str) -> None:
    stage = Stage(kind, script=lambda _pod: StayUnscheduled("0/3 nodes are available: 3 Insufficient cpu."))

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            with pytest.raises(
                WaitTimeout, match=r"2 executors should run, 0 run after 2m: executor 1 is stuck: Unsch.* cpu"
            ):
                await fleet.wait_for(running=2, timeout="2m")

    stage.run(program())


def test_a_wait_for_gated_pods_names_the_gate_that_is_there_at_its_end(kind: str) -> None:
    """Kueue holds plain pods with its gate until it admits them."""
    stage = Stage(kind)
    gates = {"spec": {"schedulingGates": [{"name": "kueue.x-k8s.io/admission"}]}}

    async def program() -> None:
        async with stage.fleet(instances=3, template_patch=gates) as fleet:
            words = "executor 1 waits for the scheduling gate kueue.x-k8s.io/admission"
            with pytest.raises(WaitTimeout, match=rf"3 executors should run, 0 run after 2m: {words} \(and 2 more\)$"):
                await fleet.wait_for(running=3, timeout="2m")
            name = stage.cluster.pods[1]["metadata"]["name"]
            stage.cluster.store.patch("pods", "default", name, {"spec": {"schedulingGates": []}}, "merge")
            await fleet.wait_for(running=1, timeout="10s")
            with pytest.raises(WaitTimeout, match=r"executor 2 waits for the scheduling gate .* \(and 1 more\)$"):
                await fleet.wait_for(running=3, timeout="1m")

    stage.run(program())


def test_a_full_quota_is_said_when_the_time_is_over(kind: str) -> None:
    stage = Stage(kind)
    stage.cluster.quota(pods=3)

    async def program() -> None:
        async with stage.fleet(instances=5) as fleet:
            with pytest.raises(
                TimeoutError, match=r"5 executors should run, 3 run after 1m: 'default' is blocked: .*quota"
            ):
                await fleet.wait_for(running=5, timeout="1m")

    stage.run(program())


def test_pods_that_the_api_refuses_end_the_wait_in_its_words(kind: str) -> None:
    stage = Stage(kind)
    stage.cluster.refuse("create", 422, "Pod is invalid: spec.containers[0].image: Required value", times=99)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            with pytest.raises(Unreachable, match=r"1 executor should run, 0 run: .*Required value"):
                await fleet.wait_for(running=1, timeout="10m")
            assert stage.kit.clock.elapsed < timedelta(seconds=10)

    stage.run(program())


# ── asyncio's own ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_cancellation_stops_the_fleet_in_order(kind: str) -> None:
    if kind == "threads":
        pytest.skip("there is no cancellation of threads")
    stage = Stage(kind)

    async def service() -> None:
        async with stage.fleet(instances=3) as fleet:
            await fleet.wait_for(running=3)
            await asyncio.sleep(3600)

    async def program() -> None:
        for seconds in (0.0, 0.001, 0.5, 1.2, 30.0):  # while it is entered, starts and runs
            task = asyncio.create_task(service())
            await asyncio.sleep(seconds)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert stage.cluster.pods == {}
            assert stage.kit.dispatcher.actors == ()

    stage.run(program())


def test_a_fleet_in_virtual_time_says_so_in_a_real_loop(kind: str) -> None:
    if kind == "threads":
        pytest.skip("of asyncio")
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet():
            pass

    with pytest.raises(RuntimeError, match=r"run the program with Kit\.run"):
        asyncio.run(program())


def test_a_fleet_retires_executors_is_held_and_resumed(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2, drain_timeout="1m") as fleet:
            await fleet.wait_for(running=2)
            assert await fleet.retire(1, deadline="5m") == (1,)
            await fleet.wait_for(running=2)
            assert await fleet.drained(1)
            assert not await fleet.drained(2)
            assert await fleet.retire([2, 99], replace=False) == (2,)
            assert (await fleet.status()).profiles["default"].target == 1
            assert await fleet.hold(deadline="10s") == (3,)
            assert (await fleet.status()).on_hold
            fleet.resume()
            await fleet.wait_for(running=1)
            assert not (await fleet.status()).on_hold

    stage.run(program())
