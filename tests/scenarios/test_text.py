"""Text of strangers through the whole tree: what the driver is told and what is logged is one line of text."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from actors.cli.events import describe, to_json, to_line
from actors.cli.live.screen import LiveTable
from actors.errors import Forbidden, Invalid
from actors.local.faults.kinds import Refuse
from actors.local.kubelet.scripted_kubelet import StayWaiting
from actors.messages import (
    AllocationBlocked,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorStuck,
    GetFleetStatus,
    ToDriver,
)
from tests.scenarios.fleets import fleet, name
from tests.scenarios.world import World
from tests.unit.hostile import HOSTILE

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 3, 1, tzinfo=UTC)

LONGEST = 12_000
"""Characters of a message; a hostile text has a million."""


@pytest.fixture(autouse=True)
def log(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Look at DEBUG lines, too: `tests/conftest.py` demands of each line that it is text."""
    with caplog.at_level(logging.DEBUG, "actors"):
        yield caplog


def texts(value: object) -> Iterator[str]:
    """All texts of a message, but not those of the pod in it, which is data."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, ExecutorPending | ExecutorRunning):
        return
    elif isinstance(value, Mapping):
        for each in (*value, *value.values()):
            yield from texts(each)
    elif hasattr(value, "__slots__"):
        for field in value.__slots__:
            yield from texts(getattr(value, field))


def shown(world: World) -> None:
    """Each message that the driver heard is text, and can be shown as table, as line and as JSON."""
    heard = [message for message in world.heard(object) if isinstance(message, ToDriver)]
    for message in heard:
        for text in texts(message):
            assert text.isprintable(), text[:300]
            assert len(text) < LONGEST
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=120, color_system=None)
    table = LiveTable(console, targets={}, now=lambda: NOW)
    for message in heard:
        event = describe(message, NOW, {})
        table.show(event)
        table.refresh()
        assert to_line(event).isprintable()
        line = to_json(event)
        assert line.isascii()
        assert line.isprintable()
        json.loads(line)
    table.note(HOSTILE)
    table.refresh()
    table.close()
    for act in ("\x1b[2J", "\x1b]0;", "\x9b", "\u202e", "\x07"):
        assert act not in screen.getvalue()


def last_words(world: World) -> None:
    world.kubelet.exit(name(1), 1, HOSTILE, message=HOSTILE)
    world.advance(5)
    (removed,) = world.heard(ExecutorRemoved)
    assert "failed to run [/bin/sh -c foo]" in removed.reason.message
    assert "exit code 1" in removed.reason.message


def evicted(world: World) -> None:
    world.kubelet.evict(name(1), message=HOSTILE)
    world.advance(5)
    (removed,) = world.heard(ExecutorRemoved)
    assert "was evicted" in removed.reason.message
    assert "failed to run [/bin/sh -c foo]" in removed.reason.message


def waits(reason: str) -> Callable[[World], None]:
    def wait(world: World) -> None:
        world.kubelet.script = lambda _: StayWaiting(reason, HOSTILE)
        world.target(2)
        world.advance(6 * 60)
        stuck = world.heard(ExecutorStuck)
        assert stuck

    return wait


def refused(world: World) -> None:
    for _ in range(20):
        world.api.fail_next("create", Refuse(Forbidden(HOSTILE, status=403, reason=HOSTILE)))
    world.target(2)
    world.advance(10)
    (blocked, *_) = world.heard(AllocationBlocked)
    assert "failed to run [/bin/sh -c foo]" in blocked.cause


def invalid(world: World) -> None:
    for _ in range(20):
        error = Invalid(HOSTILE, status=422, reason="Invalid", causes=((HOSTILE, HOSTILE),) * 1_000)
        world.api.fail_next("create", Refuse(error))
    world.target(2)
    world.advance(10)
    assert world.heard(AllocationBlocked)


def refused_delete(world: World) -> None:
    for _ in range(20):
        world.api.fail_next("delete", Refuse(Forbidden(HOSTILE, status=403, reason=HOSTILE)))
    world.kill(1)
    world.advance(20)


def blind(world: World) -> None:
    for operation in ("list", "watch"):
        for _ in range(10):
            world.api.fail_next(operation, Refuse(Forbidden(HOSTILE, status=403, reason=HOSTILE)))
    world.crash("watch-source")
    world.advance(60)
    status = world.ask(GetFleetStatus())
    assert all(text.isprintable() for text in texts(status))


def unknown_phase(world: World) -> None:
    status: dict[str, Any] = {"status": {"phase": HOSTILE, "reason": HOSTILE, "message": HOSTILE}}
    world.store.patch("pods", "default", name(1), status, "merge", subresource="status")
    world.advance(5)


HAPPENINGS = {
    "last words": last_words,
    "evicted": evicted,
    "stuck": waits("ErrImagePull"),
    "slow": waits(HOSTILE),
    "refused": refused,
    "invalid": invalid,
    "delete refused": refused_delete,
    "blind": blind,
    "unknown phase": unknown_phase,
}


@pytest.mark.parametrize("happens", HAPPENINGS.values(), ids=HAPPENINGS)
def test_what_strangers_write_is_told_logged_and_shown_as_text(happens: Callable[[World], None]) -> None:
    with fleet(1) as world:
        happens(world)
        shown(world)


def test_the_holder_of_a_lease_has_a_name_that_is_only_text() -> None:
    spec = {"holderIdentity": HOSTILE, "leaseDurationSeconds": 600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "executor-pods-app"}}
    with World(executor={"instances": 1}, backend={"lease": True}) as world:
        world.store.create("leases", "default", {**lease, "spec": spec})
        world.advance(30)
        shown(world)
