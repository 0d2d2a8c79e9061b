"""`Fleet` and `AsyncFleet` used wrongly, in a hurry, or while something fails: an error that says so, and no harm."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import tracemalloc
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from actors.errors import FleetEnded, Refused, Unreachable, WaitTimeout
from actors.fleet.stream import EventsMissed
from actors.local.kubelet.scripted_kubelet import StayUnscheduled
from actors.messages import BackendFailed, ExecutorRunning
from actors.messages.internal import ExecutorSeen
from tests.scenarios.doors import KINDS, Stage
from tests.unit.builders import pod

pytestmark = pytest.mark.parametrize("kind", KINDS)


async def outcome(method: Any, arguments: Any) -> Any:
    answer = method(*arguments)
    return answer if answer is None else await answer


# ── wrong values ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("method", "arguments", "words"),
    [
        ("scale", ("3",), r"totals = '3': must be a whole number"),
        ("scale", (-1,), "totals = -1: must be a whole number"),
        ("scale", (None,), "totals = None"),
        ("scale", (True,), "totals = True"),
        ("scale", (2.0,), "totals = 2.0"),
        ("scale", ({"gpu": 1},), "totals has 'gpu': there is no such profile; there are 'default'"),
        ("scale", ({"default": "3"},), r"totals\['default'\] = '3'"),
        ("kill", ("12",), "executor_ids has '12': an executor id is a whole number"),
        ("kill", (b"12",), "executor_ids has b'12'"),
        ("kill", (None,), "executor_ids has None"),
        ("kill", (True,), "executor_ids has True"),
        ("kill", ([1, "2"],), "executor_ids has '2'"),
        ("decommission", (1.0,), "executor_ids has 1.0"),
        ("register", ("1",), "executor_id has '1'"),
        ("is_excluded", (None,), "executor_id has None"),
        ("disconnected", ([1],), "executor_id has a value of type list"),
        ("mark_busy", ("1",), "executor_id has '1'"),
        ("mark_idle", (0,), "executor_id has 0"),
    ],
)
def test_a_wrong_value_is_refused_by_name_and_changes_nothing(
    kind: str, method: str, arguments: Any, words: str
) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            await fleet.wait_for(running=2)
            with pytest.raises(Refused, match=words):
                await outcome(getattr(fleet, method), arguments)
            assert list(fleet.executors) == [1, 2]
            assert (await fleet.status()).profiles["default"].target == 2
            assert not await fleet.kill(99)

    stage.run(program())


@pytest.mark.parametrize("value", [True, -5, float("inf"), "5", "-1s", timedelta(0), float("nan"), "soon", [], "400d"])
def test_a_wrong_duration_is_refused_by_the_argument_s_name(kind: str, value: Any) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            with pytest.raises(ValueError, match=r"^timeout = "):
                await fleet.wait_for(running=1, timeout=value)
            with pytest.raises(ValueError, match=r"^timeout = "):
                await fleet.events().get(value)
            if value != timedelta(0):  # a kill may leave no time
                with pytest.raises(ValueError, match=r"^grace = "):
                    await fleet.scale(0, grace=value)
            await fleet.wait_for(running=1)

    stage.run(program())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_events": "5"}, "max_events = '5'"),
        ({"max_events": 0}, "max_events = 0"),
        ({"max_events": True}, "max_events = True"),
        ({"max_events": 1.5}, "max_events = 1.5"),
        ({"keep": "no"}, "keep = 'no': must be True, False or None"),
        ({"on_event": "print"}, "on_event = 'print'"),
        ({"kubeconfig": 5}, "kubeconfig = 5"),
        ({"context": 5}, "context = 5"),
        ({"pod_api": object(), "context": "one"}, "pod_api has a cluster of its own"),
        ({"local": "yes"}, "local = 'yes': must be True, False or a LocalCluster"),
    ],
)
def test_a_wrong_argument_of_a_fleet_is_an_error_before_anything_starts(kind: str, values: Any, words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        Stage(kind).fleet(**{"pod_api": None, **values})


def test_a_fleet_cannot_be_pickled_and_says_so(kind: str) -> None:
    fleet = Stage(kind).fleet()
    with pytest.raises(TypeError, match="a fleet cannot be pickled"):
        pickle.dumps(fleet.inner if kind == "threads" else fleet)


def test_a_coroutine_function_as_on_event_is_for_asyncio(kind: str) -> None:
    async def on_event(_: object) -> None:
        pass

    class Callback:
        async def __call__(self, _: object) -> None:
            pass

    for callback in (on_event, partial(on_event), Callback()):
        if kind == "threads":
            with pytest.raises(TypeError, match="use AsyncFleet"):
                Stage(kind).fleet(on_event=callback)
        else:
            Stage(kind).fleet(on_event=callback)


# ── targets ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_status_has_a_new_target_at_once(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            await fleet.wait_for(running=1)
            await fleet.scale(7)
            assert (await fleet.status()).profiles["default"].target == 7

    stage.run(program())


def test_a_kill_without_replacement_is_known_to_who_waits(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            await fleet.wait_for(running=2)
            await fleet.kill(1, replace=False)
            stage.kit.advance(timedelta(seconds=30))
            with pytest.raises(Unreachable, match="only 1 are wanted"):
                await fleet.wait_for(running=2)

    stage.run(program())


def test_a_victims_function_cannot_use_the_fleet_and_is_told_so(kind: str) -> None:
    if kind == "asyncio":
        pytest.skip("a plain function cannot await")
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            await fleet.wait_for(running=2)
            for call in (fleet.inner.status, partial(fleet.inner.wait_for, running=9), fleet.inner.events().get):
                with pytest.raises(Refused, match="must not use the fleet"):
                    await fleet.scale(1, victims=lambda _, call=call: call())
            with pytest.raises(Refused, match="victims failed: TypeError: '<' not supported"):
                await fleet.scale(1, victims=lambda _: object())
            assert (await fleet.status()).profiles["default"].target == 2
            assert await fleet.scale(1, victims=lambda executor: fleet.app_id + str(executor.id)) == (1,)

    stage.run(program())


def test_a_victims_function_may_use_another_fleet(kind: str) -> None:
    if kind == "asyncio":
        pytest.skip("a plain function cannot await")
    stage = Stage(kind)
    other = stage.fleet(app_id="other")

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            await fleet.wait_for(running=2)
            with pytest.raises(Refused, match="the fleet was not entered"):  # it is asked, and says so itself
                await fleet.scale(1, victims=lambda _: other.inner.status())

    stage.run(program())


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_metrics_or_traces_that_raise_at_the_start_are_the_programs_error_and_leave_nothing(
    kind: str, error: type[BaseException]
) -> None:
    class Broken:
        def add(self, _: object) -> None:
            raise error("broken")

        def begin(self, *_: object) -> None:
            raise error("broken")

    for broken in ("metrics", "traces"):
        stage = Stage(kind)

        async def program(stage: Stage = stage, broken: str = broken) -> None:
            with pytest.raises(FleetEnded, match=f"the fleet has failed: {error.__name__}"):
                async with stage.fleet(instances=2, **{broken: Broken()}):
                    pass

        stage.run(program())
        stage.kit.advance(timedelta(seconds=60))
        assert not [actor for actor in stage.kit.dispatcher.actors if actor.name == "backend"]
        assert not stage.cluster.store.list("pods", "default").items


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_readers_that_are_given_up_are_forgotten(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            await fleet.wait_for(running=1)
            async for _ in fleet.events():
                break
            for _ in range(1000):
                fleet.events()
            gc.collect()
            door = (fleet.inner if kind == "threads" else fleet)._door
            assert len(door.state._readers) == 0

    stage.run(program())


def test_a_reader_of_a_fleet_that_has_ended_ends(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=0) as fleet:
            first = fleet.events()
        assert [event async for event in first]
        assert [event async for event in fleet.events()] == []

    stage.run(program())


def test_a_reader_that_sleeps_costs_no_memory(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1, max_events=10) as fleet:
            await fleet.wait_for(running=1)
            events = fleet.events()
            door = (fleet.inner if kind == "threads" else fleet)._door
            event = ExecutorRunning(1, pod(1))
            for _ in range(100):
                door.state.apply(event)
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            for _ in range(5_000):
                door.state.apply(event)
            after, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert after - before < 20_000
            got = [await events.get() for _ in range(11)]
            assert isinstance(got[10], EventsMissed)

    stage.run(program())


def test_a_wait_ends_at_its_moment_however_it_is_rounded(kind: str) -> None:
    stage = Stage(kind, script=lambda _pod: StayUnscheduled("0/3 nodes are available"))

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            events = fleet.events()
            for step in range(1, 60):
                stage.kit.advance(timedelta(microseconds=step * 333))
                with pytest.raises(WaitTimeout):
                    await fleet.wait_for(running=1, timeout=f"{100 + step * 7}ms")
                while await events.get("1ms") is not None:
                    pass

    stage.run(program())


# ── while something fails ────────────────────────────────────────────────────────────────────────────────────────


def crash(stage: Stage) -> None:
    stage.kit.address("backend").tell(ExecutorSeen(1, "uid", None))  # type: ignore[arg-type]  # it crashes


@pytest.mark.parametrize("act", ["wait_for", "kill", "status", "events"])
def test_a_failure_in_the_middle_is_told_with_its_cause(kind: str, act: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            await fleet.wait_for(running=1)
            events = fleet.events()
            await fleet.scale(2)
            crash(stage)
            if act == "events":
                assert isinstance([event async for event in events][-1], BackendFailed)
                return
            with pytest.raises(FleetEnded, match=r"the fleet has failed: .*AttributeError"):
                await {"wait_for": partial(fleet.wait_for, running=2), "kill": partial(fleet.kill, 1)}.get(
                    act, fleet.status
                )()

    stage.run(program())


def test_an_outage_does_not_hold_up_what_needs_no_api(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            await fleet.wait_for(running=1)
            with stage.cluster.outage():
                before = stage.kit.clock.elapsed
                await fleet.scale(3)
                assert (await fleet.status()).profiles["default"].target == 3
                assert await fleet.register(1)
                assert stage.kit.clock.elapsed == before
                with pytest.raises(WaitTimeout, match="3 executors should run, 1 run after 2m"):
                    await fleet.wait_for(running=3, timeout="2m")
            await fleet.wait_for(running=3, timeout="2m")

    stage.run(program())


def test_a_fleet_that_cannot_start_its_first_thread_leaves_nothing(kind: str) -> None:
    for name in ("fleet", "on-event"):
        stage = Stage(kind)
        real = stage.kit.dispatcher.start

        def start(actor: Any, name: str = name, real: Any = real) -> None:
            if actor.name == name:
                raise RuntimeError("can't start new thread")
            real(actor)

        stage.kit.dispatcher.start = start  # type: ignore[method-assign]  # the machine has no more threads

        async def program(stage: Stage = stage) -> None:
            async with stage.fleet(on_event=lambda _: None):
                raise AssertionError("not reached")

        if kind == "asyncio" and name == "on-event":
            continue  # it has none
        with pytest.raises(RuntimeError, match="can't start new thread"):
            stage.run(program())
        assert stage.kit.clock.elapsed == timedelta(0)
        assert stage.kit.dispatcher.actors == ()


def test_a_child_process_that_reads_its_parent_s_events_is_told_so(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            events = fleet.events()
            with monkeypatch.context() as child:
                child.setattr(os, "getpid", lambda: -1)
                with pytest.raises(RuntimeError, match="forked"):
                    await events.get()
                with pytest.raises(RuntimeError, match="forked"):
                    _ = fleet.ended

    stage.run(program())


# ── interrupts ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_one_cancellation_while_the_fleet_stops_comes_after_the_stop(kind: str) -> None:
    if kind == "threads":
        pytest.skip("test_interrupted_fleet has all moments of Ctrl-C")
    stage = Stage(kind)

    async def service() -> None:
        async with stage.fleet(instances=2) as fleet:
            await fleet.wait_for(running=2)
            async with asyncio.timeout(0.001):  # the stop takes longer
                await fleet.stop()

    with pytest.raises(TimeoutError):
        stage.run(service())
    assert stage.cluster.pods == {}
    assert stage.kit.dispatcher.actors == ()


def test_a_loop_that_is_closed_in_the_middle_leaves_a_fleet_that_can_still_be_stopped(kind: str) -> None:
    if kind == "threads":
        pytest.skip("of asyncio")
    stage = Stage(kind)
    fleet = stage.fleet(instances=1, on_event=lambda _: None)

    async def begin() -> None:
        await fleet.start()

    async def stop() -> None:
        await fleet.wait_for(running=1)
        await fleet.stop()

    stage.run(begin())
    stage.run(stop())  # in another loop
    assert stage.cluster.pods == {}
    assert stage.kit.dispatcher.actors == ()
