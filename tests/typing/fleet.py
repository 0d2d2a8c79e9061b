"""A program with a fleet, right and wrong, as mypy --strict and pyright see it: checked as `protocol` is."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from actors import AsyncFleet, EventsMissed, Executor, ExecutorRemoved, Fleet, FleetStatus, Settings


def makes(settings: Settings) -> list[Fleet | AsyncFleet]:
    return [
        Fleet(),
        Fleet(settings, kubeconfig="config", context="one"),
        Fleet("fleet.toml", instances=4),
        Fleet(image="worker:1", instances=4, env={"A": "b"}, namespace="batch", backend={"start_timeout": "5s"}),
        Fleet(local=True, profiles={"gpu": {"instances": 1}}, on_event=print),
        AsyncFleet(image="worker:1", keep=True, roll={"interval": timedelta(hours=1)}),
    ]


def makes_wrongly() -> None:
    Fleet(instancs=4)  # type: ignore[call-arg]  # E: a misspelled setting
    Fleet(executor={"instancs": 4})  # type: ignore[arg-type]  # E: a misspelled setting in a group
    AsyncFleet(on_evnt=print)  # type: ignore[call-arg]  # E: a misspelled argument


def uses(fleet: Fleet) -> None:
    with fleet as entered:
        entered.wait_for(running=4, timeout="5m")
        assert_type(entered.scale({"gpu": 2}, victims=lambda executor: executor.restarts), tuple[int, ...])
        assert_type(entered.kill(3, grace="5s"), tuple[int, ...])
        assert_type(entered.executors[3], Executor)
        assert_type(entered.status(), FleetStatus)
        for event in entered.events():
            match event:
                case ExecutorRemoved(executor_id, reason):
                    assert_type((executor_id, reason.exit_code), tuple[int, int])
                case EventsMissed(count):
                    assert_type(count, int)
                case _:
                    pass


def uses_wrongly(fleet: Fleet) -> None:
    fleet.scale(3, victims="newst")  # type: ignore[arg-type]  # E: a misspelled policy
    fleet.wait_for(runing=3)  # type: ignore[call-arg]  # E: a misspelled argument
    fleet.kill("3")  # type: ignore[arg-type]  # E: a text is no id
    print(fleet.executors[3].nod)  # type: ignore[attr-defined]  # E: a misspelled field
    print(fleet.status().profils)  # type: ignore[attr-defined]  # E: a misspelled field of an answer


async def awaits(fleet: AsyncFleet) -> None:
    async with fleet as entered:
        await entered.wait_for(registered=2, profile="gpu")
        assert_type(await entered.register(3), bool)
        assert_type(await entered.is_excluded(3), bool)
        async for event in entered.events():
            print(event)
