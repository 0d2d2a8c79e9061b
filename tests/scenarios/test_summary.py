"""A fleet as `repr` and a notebook show it, through both doors."""

from __future__ import annotations

import re
from typing import Any

import pytest

import actors
from actors.errors import Unavailable
from actors.local.kubelet.scripted_kubelet import Run, StayUnscheduled
from tests.scenarios.doors import KINDS, Stage

pytestmark = pytest.mark.parametrize("kind", KINDS)


def shown(fleet: Any) -> str:
    """Without the name of the class, which is the door's."""
    fleet = getattr(fleet, "inner", fleet)
    assert repr(fleet).startswith(f"<{type(fleet).__name__} ")
    return repr(fleet).partition(" ")[2]


def cells(fleet: Any) -> list[list[str]]:
    html = getattr(fleet, "inner", fleet)._repr_html_()
    assert html.count("<table>") == html.count("</table>") == 1
    return [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)][1:]


def test_it_says_the_app_id_the_target_and_who_runs(kind: str) -> None:
    stage = Stage(
        kind, script=lambda pod: StayUnscheduled("no room") if pod["metadata"]["name"].endswith("3") else Run()
    )
    fleet = stage.fleet(instances=3, app_id="etl")
    assert shown(fleet) == "etl: target ?, 0 running, not started>"

    async def program() -> None:
        async with fleet:
            await fleet.wait_for(running=2)
            assert shown(fleet) == "etl: target 3, 2 running>"
            await fleet.register(1)
            assert cells(fleet) == [["default", "3", "2", "1", "0", "1", ""]]

    stage.run(program())
    assert shown(fleet) == "etl: target 3, 0 running, ended>"


def test_the_target_follows_every_act_that_changes_it(kind: str) -> None:
    stage = Stage(kind)

    async def program() -> None:
        async with stage.fleet(instances=2, app_id="etl", profiles={"gpu": {"instances": 1}}) as fleet:
            await fleet.wait_for(running=3)
            await fleet.scale({"gpu": 3})
            await fleet.status()
            assert shown(fleet).startswith("etl: target 5, ")
            await fleet.kill(1, replace=False)
            await fleet.status()
            assert shown(fleet).startswith("etl: target 4, ")
            assert [row[:2] for row in cells(fleet)] == [["default", "1"], ["gpu", "3"]]

    stage.run(program())


def test_it_says_what_is_blocked_and_a_strangers_words_are_text(kind: str) -> None:
    stage = Stage(kind)
    stage.cluster.refuse("create", 403, "<b>no\x1b[2J</b>", times=1000)

    async def program() -> None:
        async with stage.fleet(instances=2, app_id="etl") as fleet:
            with pytest.raises(actors.Unreachable):
                await fleet.wait_for(running=1, timeout="1m")
            assert re.match(r"etl: target 2, 0 running, 'default' is blocked: .*<b>no\\x1b", shown(fleet))
            assert "&lt;b&gt;no\\x1b" in cells(fleet)[0][-1]

    stage.run(program())


def test_it_says_why_it_could_not_start(kind: str) -> None:
    stage = Stage(kind)
    fleet = stage.fleet(instances=2, app_id="etl", backend={"start_timeout": "10s"})

    async def program() -> None:
        async with fleet:
            raise AssertionError("not reached")

    with stage.cluster.outage(), pytest.raises(Unavailable):
        stage.run(program())
    assert shown(fleet).startswith("etl: target 2, 0 running, ended: ")
