"""The live table: what it shows at every width, what its keys do, and how it leaves the terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import termios
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from actors.cli.driver import Plan
from actors.cli.events import Event, describe, stopped, stopping
from actors.cli.live.cells import Shown
from actors.cli.live.fleet import ADVICE, LiveFleet
from actors.cli.live.frame import render, summary
from actors.cli.live.keyboard import Keyboard, keys_of
from actors.cli.live.screen import LiveTable
from actors.cli.live.view import View
from actors.messages import (
    BackendStarted,
    Executor,
    ExecutorState,
    HeldPod,
    ProfileStatus,
    SourceStatus,
)
from actors.text import age
from tests.unit import changes
from tests.unit.cli.runs import Run
from tests.unit.hostile import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from actors.testing import Kit

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
STARTED = describe(BackendStarted("etl", "batch"), NOW - timedelta(minutes=12), {})
QUOTA = 'the namespace has no room: pods "etl-exec-13" is forbidden: exceeded quota: team-a, limited: pods=10'
PULL = 'executor: Back-off pulling image "registry.example/team/etl-worker:2026.02.30": ErrImagePull: not found'
WIDTHS = (40, 80, 120, 200)


def executor(
    name: str,
    executor_id: int,
    profile: str = "default",
    reason: str | None = None,
    message: str | None = None,
    *,
    ago: int = 60,
    node: str | None = None,
    pod: str = "etl-exec",
) -> Executor:
    """An executor in a state, or stuck for a reason."""
    is_stuck = name == "stuck"
    return changes.executor(
        executor_id,
        ExecutorState.PENDING if is_stuck else ExecutorState(name),
        profile=profile,
        pod=f"{pod}-{executor_id}",
        node=node,
        ip="10.1.2.3" if node else None,
        since=NOW - timedelta(seconds=ago),
        restarts=2,
        reason=": ".join(part for part in (reason, message) if part) or None,
        stuck=reason if is_stuck else None,
    )


def lost(executor_id: int, profile: str, kind: str) -> Event:
    message = f"executor {executor_id} was lost"
    return Event(NOW, "removed", executor_id, f"etl-exec-{executor_id}", kind, message, {"profile": profile})


def blocked(profile: str, cause: str = QUOTA, kind: str = "QuotaExceeded") -> dict[str, ProfileStatus]:
    since = NOW - timedelta(minutes=3)
    return {profile: ProfileStatus(blocked=cause, blocked_by=kind, blocked_since=since)}


def a_fleet(
    *what: Event | Executor,
    targets: dict[str, int] | None = None,
    encoding: str = "utf-8",
    profiles: dict[str, ProfileStatus] | None = None,
    **status: Any,
) -> LiveFleet:
    fleet = LiveFleet(targets or {"default": 8}, Shown(encoding))
    executors = [each for each in what if isinstance(each, Executor)]
    fleet.look({each.id: each for each in executors}, changes.fleet(profiles or {}, **status))
    for event in what:
        if isinstance(event, Event):
            fleet.apply(event)
    return fleet


def in_trouble() -> LiveFleet:
    """Three profiles, a full quota, pods that are stuck for long reasons."""
    quota = blocked("gpu")["gpu"]
    return a_fleet(
        STARTED,
        *(executor("running", number, node=f"node-{number}") for number in range(1, 6)),
        executor("stuck", 7, "default", "ImagePullBackOff", PULL, ago=400, node="node-1"),
        executor("pending", 8, "gpu", ago=10),
        executor("stuck", 9, "gpu", "Unschedulable", "0/12 nodes are available: 12 Insufficient nvidia.com/gpu."),
        executor("terminating", 10, "big-memory", message="pod etl-exec-10 is being evicted", ago=5, node="node-2"),
        lost(11, "big-memory", "OOM_KILLED"),
        lost(12, "big-memory", "EVICTED"),
        lost(13, "default", "OOM_KILLED"),
        profiles={
            "default": ProfileStatus(target=8),
            "gpu": replace(quota, target=4),
            "big-memory": ProfileStatus(target=2),
        },
    )


def picture(
    fleet: LiveFleet, width: int = 100, height: int = 30, view: View | None = None, *, keys: bool = False
) -> list[str]:
    lines = render(fleet, view or View(), width=width, height=height, now=NOW, has_keys=keys)
    return [line.plain.rstrip() for line in lines]


def line_of(lines: list[str], beginning: str) -> str:
    """The one line that begins with these words."""
    (found,) = [line for line in lines if line.split()[: len(beginning.split())] == beginning.split()]
    return found


# ── at every width ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("height", [10, 24, 50])
@pytest.mark.parametrize("width", [1, 7, 20, *WIDTHS])
def test_every_line_fits_and_no_line_is_too_many(width: int, height: int) -> None:
    for view in (View(), pressed("?"), pressed("/", "x"), pressed("q")):
        lines = render(in_trouble(), view, width=width, height=height, now=NOW, has_keys=True)
        assert len(lines) <= height
        assert [line.plain for line in lines if cell_len(line.plain) > width] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_what_names_an_executor_never_gives_way_to_a_long_reason(width: int) -> None:
    lines = picture(in_trouble(), width)
    assert line_of(lines, "ID").split()[:4] == ["ID", "POD", "STATE", "FOR"]
    assert line_of(lines, "7").split()[:4] == ["7", "etl-exec-7", "stuck", "6m40s"]
    assert line_of(lines, "10").split()[:4] == ["10", "etl-exec-10", "terminating", "5s"]
    assert "ImagePullBackOff" in " ".join(lines)


@pytest.mark.parametrize(
    ("width", "more"),
    [
        (40, ["NODE"]),
        (80, ["PROFILE", "RESTARTS", "NODE", "IP"]),
        (120, ["PROFILE", "RESTARTS", "NODE", "REASON"]),
        (200, ["PROFILE", "RESTARTS", "NODE", "IP", "REASON"]),
    ],
)
def test_where_there_is_room_profile_node_restarts_and_ip_are_shown(width: int, more: list[str]) -> None:
    lines = picture(in_trouble(), width)
    assert line_of(lines, "ID").split()[4:] == more
    if width > 40:
        assert line_of(lines, "10").split()[4:7] == ["big-memory", "2", "node-2"]


def test_long_names_are_cut_and_a_pods_name_keeps_its_end() -> None:
    node = "ip-10-0-12-203.eu-central-1.compute.internal"
    event = executor("running", 12345, node=node, pod="nightly-aggregation-of-all-the-things-exec")
    assert line_of(picture(a_fleet(event), 40), "12345").split()[:4] == ["12345", "…ings-exec-12345", "running", "60s"]
    assert line_of(picture(a_fleet(event), 80), "12345").split()[1] == "…ggregation-of-all-the-things-exec-12345"
    assert node[:12] in line_of(picture(a_fleet(event), 120), "12345")


@pytest.mark.parametrize("width", WIDTHS)
def test_every_profile_has_its_target_and_its_counts(width: int) -> None:
    lines = picture(in_trouble(), width)
    numbers = {name: line_of(lines, name).split()[1:] for name in ("default", "gpu", "big-memory")}
    requested = ["0"] if width > 40 else []
    assert numbers == {
        "default": ["8", *requested, "5", "0", "0", "1", "1"],
        "gpu": ["4", *requested, "0", "1", "0", "1", "0"],
        "big-memory": ["2", *requested, "0", "0", "1", "0", "2"],
    }


@pytest.mark.parametrize("width", WIDTHS)
def test_what_is_blocked_stays_on_top_with_since_when_and_what_to_do(width: int) -> None:
    fleet = in_trouble()
    more = {number: executor("running", number) for number in range(100, 200)}
    fleet.look(more, fleet.status)
    words = " ".join(" ".join(picture(fleet, width)).split())
    assert f"BLOCKED gpu since {(NOW - timedelta(minutes=3)).astimezone():%H:%M:%S} (3m): {QUOTA}" in words
    assert f"-> {ADVICE['QuotaExceeded']}" in words
    fleet.look(more, changes.fleet({"gpu": ProfileStatus(target=4)}))
    assert "BLOCKED" not in " ".join(picture(fleet, width))


@pytest.mark.parametrize("width", WIDTHS)
def test_losses_are_counted_by_kind(width: int) -> None:
    (line,) = [line for line in picture(in_trouble(), width) if line.startswith("lost:")]
    assert line.startswith("lost: OOM_KILLED 2, EVICTED 1")


def test_one_cause_in_several_profiles_is_one_alarm() -> None:
    fleet = a_fleet(profiles=blocked("default", "quota: used: pods=9") | blocked("gpu", "quota: used: pods=10"))
    (line,) = [line for line in picture(fleet) if line.startswith("BLOCKED")]
    assert line.startswith("BLOCKED default, gpu since")


def test_a_failed_fleet_says_so_on_top() -> None:
    fleet = a_fleet(Event(NOW, "failed", message="6 executors ended too soon"), executor("running", 1))
    assert "FAILED: 6 executors ended too soon" in picture(fleet)


def test_many_profiles_leave_room_for_executors_and_those_that_lack_some_come_first() -> None:
    targets = dict.fromkeys((f"profile-{number:02}" for number in range(50)), 0) | {"lacking": 3}
    lines = picture(a_fleet(executor("running", 1), targets=targets), height=24)
    assert "and 46 more profiles" in lines
    assert line_of(lines, "lacking").split()[1] == "3"
    assert line_of(lines, "1").split()[2] == "running"


def test_a_warning_that_comes_again_has_one_line_with_its_count() -> None:
    fleet = a_fleet(executor("running", 1))
    fleet.note("polling fails: error=503 after 1s", NOW, 1)
    fleet.note("the watch is cut", NOW, 1)
    fleet.note("polling fails: error=503 after 20s", NOW, 2)
    assert [line.split(maxsplit=1)[1] for line in picture(fleet)[-2:]] == [
        "the watch is cut",
        "polling fails: error=503 after 20s (2 times)",
    ]


def test_what_is_of_use_until_the_end_stays_on_top_and_no_remark_stays_after_it() -> None:
    fleet = a_fleet(STARTED)
    fleet.remark("page at http://127.0.0.1:8080", NOW, stays=True)
    fleet.remark("stopping the fleet", NOW, stays=False)
    lines = picture(fleet)
    assert lines[1] == "page at http://127.0.0.1:8080"
    assert lines[-1].endswith("stopping the fleet")
    assert "stopping the fleet" not in " ".join(line.plain for line in summary(fleet, 80, NOW))


# ── what the Backend publishes ───────────────────────────────────────────────────────────────────────────────────


def test_targets_requested_executors_and_quiet_blocks_come_from_the_status() -> None:
    profile = ProfileStatus(target=5, requested=3, blocked="no lease yet", blocked_by="lease", blocked_since=NOW)
    lines = picture(a_fleet(executor("running", 1), profiles={"default": profile}))
    assert line_of(lines, "default").split() == ["default", "5", "3", "1", "0", "0", "0", "0"]
    assert any(line.startswith("BLOCKED default since") and line.endswith("no lease yet") for line in lines)


def test_an_executor_is_shown_as_it_is_now() -> None:
    fleet = a_fleet(executor("requested", 3), executor("stuck", 2, "default", "ErrImagePull", "no such image"))
    assert not any(line.split()[:1] == ["3"] for line in picture(fleet)), "its pod was not observed yet"
    stuck, waits = (
        executor("stuck", 2, "default", "ErrImagePull", "no such image"),
        executor("pending", 3, reason="waits for a gate", node="node-9"),
    )
    fleet.look({2: stuck, 3: waits}, None)
    lines = picture(fleet, 120)
    assert line_of(lines, "3").split()[2:] == ["pending", "60s", "2", "node-9", "waits", "for", "a", "gate"]
    assert line_of(lines, "2").endswith("ErrImagePull: no such image")
    before = fleet.rows[2]
    fleet.look({2: stuck}, None)
    assert fleet.rows[2] is before, "it has not changed"
    fleet.look({2: executor("running", 2)}, None)
    assert [line.split()[2] for line in picture(fleet) if line.split()[:1] in (["2"], ["3"])] == ["running"]
    fleet.look({}, None)
    assert fleet.rows == {}


def test_the_table_of_a_run_has_its_executors(kit: Kit) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, height=30, color_system=None)
    table = LiveTable(console, targets={"default": 2}, now=kit.clock.now)
    Run(kit, output=table, plan=Plan(run_for=timedelta(minutes=1)), instances=2)
    table.close()
    assert re.search(r"2 +etl-exec-2 +running +58s", screen.getvalue())
    assert re.search(r"default +2 +0 +2 ", screen.getvalue())
    assert "etl in namespace default: time is up after 60s" in screen.getvalue()


def test_a_hold_a_source_that_is_not_synced_and_a_pod_that_is_held_are_alarms() -> None:
    source = SourceStatus(synced=False, since_full_sync=None, since_heard=None, error="connection refused")
    held = (HeldPod(3, "etl-exec-3", ("example.com/x",), NOW - timedelta(minutes=5)),) * 2
    fleet = a_fleet(STARTED, sources={"watch": source, "poll": source}, held=held, on_hold=True)
    words = " ".join(picture(fleet, 120))
    assert "ON HOLD: all executors retire and none is created" in words
    assert "NOT SYNCED watch, poll: connection refused" in words
    assert "HELD for 5m: pod etl-exec-3 and 1 more, by the finalizers example.com/x" in words


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def pressed(*keys: str) -> View:
    view = View()
    for key in keys:
        assert view.press(key) is None
    return view


def ids(lines: list[str]) -> list[int]:
    header = next(index for index, line in enumerate(lines) if line.split()[:1] == ["ID"])
    return [int(match[1]) for line in lines[header:] if (match := re.match(r" *(\d+)  ", line))]


def test_executors_in_trouble_come_first_and_s_and_r_change_the_order() -> None:
    fleet = in_trouble()
    assert ids(picture(fleet, 120)) == [7, 9, 10, 8, 1, 2, 3, 4, 5]
    assert ids(picture(fleet, 120, view=pressed("s"))) == [1, 2, 3, 4, 5, 7, 8, 9, 10]
    assert ids(picture(fleet, 120, view=pressed("s", "r"))) == [10, 9, 8, 7, 5, 4, 3, 2, 1]
    assert ids(picture(fleet, 120, view=pressed("s", "s")))[0] == 7, "the longest in its state"
    assert ids(picture(fleet, 120, view=pressed("s", "s", "s")))[0] == 10, "by profile"
    assert ids(picture(fleet, 120, view=pressed(*"ssssss"))) == [7, 9, 10, 8, 1, 2, 3, 4, 5]


def test_a_filter_finds_words_in_every_column_until_it_is_cleared() -> None:
    fleet, view = in_trouble(), pressed("/", *"GPU nvid")
    assert ids(picture(fleet, 120, view=view)) == [9]
    lines = picture(fleet, 120, view=view, keys=True)
    assert "1 to 1 of 1 executors, of 9 in all" in lines
    assert lines[-1].startswith("/GPU nvid_")
    view.press("enter")
    assert picture(fleet, 120, view=view, keys=True)[-1].startswith("s sort: state  / filter: GPU nvid")
    view.press("s")
    assert view.order == "id", "keys are keys again"
    view.press("escape")
    assert len(ids(picture(fleet, 120, view=view))) == 9


def test_a_large_fleet_is_scrolled_and_its_end_is_reached() -> None:
    fleet, view = a_fleet(*(executor("running", number) for number in range(1, 1001))), View()
    first = ids(picture(fleet, view=view))
    assert first[0] == 1
    assert f"1 to {len(first)} of 1000 executors" in picture(fleet, view=view)
    view.press("pagedown")
    assert ids(picture(fleet, view=view))[0] == len(first)
    view.press("end")
    assert ids(picture(fleet, view=view))[-1] == 1000
    view.press("up")
    assert ids(picture(fleet, view=view))[-1] == 999
    view.press("home")
    assert ids(picture(fleet, view=view)) == first


def test_q_of_a_standby_driver_says_that_the_executors_stay() -> None:
    standby = ProfileStatus(target=2, blocked="the lease is held by 'a'", blocked_by="lease")
    fleet = a_fleet(STARTED, profiles={"default": standby})
    assert picture(fleet, view=pressed("q"), keys=True)[-1].startswith("stop this standby driver, and leave the exec")


def test_q_asks_first() -> None:
    view = pressed("q")
    assert picture(in_trouble(), view=view, keys=True)[-1].startswith("stop the fleet and delete its executors? y")
    assert view.press("n") is None
    assert pressed("q").press("y") == "stop"
    assert pressed("q").press("q") == "stop"
    assert pressed("/").press("q") is None, "it is a letter of the filter"


def test_a_question_mark_explains_the_keys() -> None:
    words = " ".join(picture(in_trouble(), 120, view=pressed("?"), keys=True))
    for key in ("s ", "/ ", "q ", "Ctrl-Z"):
        assert f" {key}" in words
    assert "ID  POD" in " ".join(picture(in_trouble(), 120, view=pressed("?", "x")))


# ── text from outside ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("width", [20, *WIDTHS])
def test_hostile_text_is_text_in_every_place(width: int) -> None:
    fleet = a_fleet(
        describe(BackendStarted(HOSTILE, HOSTILE), NOW, {}),
        changes.executor(
            1, ExecutorState.PENDING, profile=HOSTILE, pod=HOSTILE, node=HOSTILE, ip=HOSTILE, reason=HOSTILE, stuck="x"
        ),
        Event(NOW, "stuck", 1, HOSTILE, HOSTILE, HOSTILE, {"profile": HOSTILE}),
        Event(NOW, "failed", message=HOSTILE),
        targets={HOSTILE: 3},
        profiles=blocked(HOSTILE, HOSTILE, HOSTILE),
    )
    fleet.note(HOSTILE, NOW)
    view = pressed("/", *"failed")
    for lines in (render(fleet, view, width=width, height=40, now=NOW), summary(fleet, width, NOW)):
        assert all(line.plain.isprintable() for line in lines)
        assert all(not line.spans or cell_len(line.plain) <= width for line in lines)


def test_markup_is_text() -> None:
    message = "failed to run [/bin/sh -c foo] [/] [bold red]x [link=file:///]y"
    lines = picture(a_fleet(executor("stuck", 1, reason="RunContainerError", message=message)), 200)
    assert message in line_of(lines, "1")


@pytest.mark.parametrize("text", ["日本語の長い理由" * 20, "e\u0301a\u0300" * 100, "👍🏽❤\ufe0f🇩🇪" * 40, "กำ" * 100])
def test_wide_and_combining_characters_are_measured(text: str) -> None:
    fleet = a_fleet(executor("stuck", 1, reason=text, pod=text, node=text), executor("running", 2))
    for width in WIDTHS:
        lines = render(fleet, View(), width=width, height=30, now=NOW)
        assert max(cell_len(line.plain) for line in lines) <= width
        (row,) = [line.plain for line in lines if line.plain.lstrip().startswith("1 ")]
        (other,) = [line.plain for line in lines if line.plain.lstrip().startswith("2 ")]
        assert cell_len(row[: row.index("stuck")]) == cell_len(other[: other.index("running")])


def test_what_a_terminals_encoding_lacks_is_escaped_before_it_is_measured() -> None:
    fleet = a_fleet(executor("stuck", 1, reason="größe日" * 40), encoding="ascii")
    lines = picture(fleet, 80)
    assert all(line.isascii() for line in lines)
    assert max(map(len, lines)) == 80
    assert r"gr\xf6\xdfe" in " ".join(lines)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (119, "119s"), (121, "2m1s"), (700, "11m"), (7200, "120m"), (11_000, "3h3m"), (200_000, "2d7h")],
)
def test_ages_read_as_kubectl_shows_them(seconds: int, text: str) -> None:
    assert age(timedelta(seconds=seconds)) == text


# ── the terminal ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_end_says_what_the_run_came_to_and_gives_the_terminal_back() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, height=24, color_system=None)
    table = LiveTable(console, targets={"default": 8}, now=lambda: NOW)
    table.note("the watch is cut")
    running = Event(NOW, "running", 1, "etl-exec-1", details={"profile": "default"})
    for event in (STARTED, running, lost(1, "default", "EVICTED"), stopping(NOW, "time")):
        table.show(event)
    table.refresh()
    table.show(stopped(NOW, "time is up", ("etl-exec-1",)))
    table.close()
    written = screen.getvalue()
    drawn, left = written.rsplit("\x1b[?1049l", 1)
    assert drawn.startswith("\x1b[?1049h")
    assert "STOPPING: time" in drawn
    assert drawn.count("\x1b[?7l") == drawn.count("\x1b[?7h") == 1
    assert drawn.rindex("\x1b[?25h") > drawn.rindex("\x1b[?25l")
    assert [line for line in left.splitlines() if line][-4:] == [
        f"{NOW.astimezone():%H:%M:%S}  the watch is cut",
        "etl in namespace batch: time is up after 12m",
        "1 executor ran, 1 lost (EVICTED 1), 0 replaced",
        "pods that may be left behind: etl-exec-1",
    ]


def test_a_table_that_failed_gives_the_terminal_back_and_goes_on_as_lines() -> None:
    screen = io.StringIO()
    table = LiveTable(Console(file=screen, force_terminal=True), targets={}, now=lambda: NOW)
    lines = table.plainer()
    lines.show(Event(NOW, "running", 1, "etl-exec-1"))
    table.close()
    assert screen.getvalue().split("\x1b[?1049l")[1].endswith("running      executor 1     etl-exec-1\n")


def test_what_still_blocks_and_what_failed_is_said_at_the_end_in_full() -> None:
    fleet = a_fleet(STARTED, profiles=blocked("default", "the account may not create pods " * 9 + "grant create"))
    assert "grant create" in " ".join(line.plain for line in summary(fleet, 80, NOW))
    fleet.apply(Event(NOW, "failed", message="no executor could be made " * 9 + "for lack of a right"))
    assert "for lack of a right" in " ".join(line.plain for line in summary(fleet, 80, NOW))


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = pty.openpty()
    yield ours, theirs
    os.close(ours)
    os.close(theirs)


def test_keys_of_a_terminal_come_one_by_one_and_it_is_left_as_it_was(terminal: tuple[int, int]) -> None:
    ours, theirs = terminal
    before, pressed = termios.tcgetattr(theirs), SimpleQueue[str]()
    keyboard = Keyboard(theirs, pressed.put)
    for _ in range(2):
        keyboard.enter()
        assert not termios.tcgetattr(theirs)[3] & (termios.ECHO | termios.ICANON)
        assert termios.tcgetattr(theirs)[3] & termios.ISIG, "Ctrl-C is a signal"
        for sent, key in ((b"s", "s"), (b"\x1b[6~", "pagedown"), (b"\x1b", "escape"), ("ü".encode(), "ü")):
            os.write(ours, sent)
            assert pressed.get(timeout=60) == key
        keyboard.leave()
        assert termios.tcgetattr(theirs) == before
    keyboard.leave()


def test_a_terminal_that_is_hung_up_has_no_keys() -> None:
    nowhere = os.open(os.devnull, os.O_RDONLY)
    keyboard = Keyboard(nowhere, lambda _: None)
    keyboard.enter()
    keyboard.leave()
    os.close(nowhere)


def test_sequences_of_keys_are_read_and_unknown_ones_dropped() -> None:
    text = "a\x1b[A\x1bOB\x1b[15~\x1b[1;5C\r\x7f\x00\x1b[200~x"
    assert list(keys_of(text)) == ["a", "up", "down", "enter", "backspace", "x"]
