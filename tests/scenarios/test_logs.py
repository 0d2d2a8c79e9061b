"""What an operator finds in the log of a fleet."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.local.faults.kinds import DelayAnswer, Stall
from actors.messages import RegisterExecutor, StopBackend
from actors.text import fields_of, get_logger, rfc3339
from tests.scenarios.fleets import fleet, name, names
from tests.scenarios.world import World

if TYPE_CHECKING:
    from collections.abc import Callable

SELECTOR = "executor-pods/app-id=app,executor-pods/role=executor,executor-pods/inactive!=true"


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Callable[..., list[str]]:
    """The messages of the log that begin so, of one level or of all."""
    caplog.set_level(logging.DEBUG, "actors")

    def said(beginning: str, level: str = "") -> list[str]:
        records = [record for record in caplog.records if level in {"", record.levelname}]
        return [message for record in records if (message := record.getMessage()).startswith(beginning)]

    return said


def test_the_start_and_the_end_of_a_backend_are_said(said: Callable[..., list[str]]) -> None:
    with fleet(1) as world:
        assert said("backend start", "INFO") == [
            "backend starting: app_id=app namespace=default",
            "backend started: app_id=app namespace=default",
        ]
        assert said("backend ended:") == []
        world.stop()
        assert len(said("backend ended: stop=", "INFO")) == 1


def test_requests_that_were_lost_are_named_when_they_are_sent_again(said: Callable[..., list[str]]) -> None:
    with fleet(0) as world:
        for fault in (Stall(), DelayAnswer(timedelta()), Stall()):
            world.api.fail_next("create", fault)
        world.target(3)
        world.advance(0.1)
        world.crash("request-pool")
        world.advance(30)
        assert said("executors requested:", "INFO") == [
            "executors requested: profile=default ids=1-3 again=False",
            "executors requested: profile=default ids=1,3 again=True",
        ]
        assert names(world) == [name(1), name(2), name(3)]


def test_the_watch_says_once_which_labels_it_selects(said: Callable[..., list[str]]) -> None:
    with fleet(1) as world:
        world.api.cut()
        world.advance(30)
        assert said("watch started:", "INFO") == [f"watch started: labels={SELECTOR}"]


def test_each_event_with_news_is_logged_at_debug(said: Callable[..., list[str]]) -> None:
    with fleet(1) as world:
        before = len(said("event:", "DEBUG"))
        world.store.patch("pods", "default", name(1), {"metadata": {"annotations": {"no": "news"}}}, "merge")
        world.advance(5)
        assert len(said("event:", "DEBUG")) == before
        world.kubelet.exit(name(1), 3)
        world.target(0)
        world.advance(5)
        events = [line.split(" version=")[0] for line in said("event:", "DEBUG")]
        assert list(dict.fromkeys(events)) == [
            f"event: type=ADDED pod={name(1)} phase=Pending",
            f"event: type=MODIFIED pod={name(1)} phase=Pending",
            f"event: type=MODIFIED pod={name(1)} phase=Running",
            f"event: type=MODIFIED pod={name(1)} phase=Failed",
            f"event: type=DELETED pod={name(1)} phase=Failed",
        ]


def test_a_round_of_the_allocator_that_changes_something_is_logged_at_debug(said: Callable[..., list[str]]) -> None:
    with World(executor={"instances": 2}) as world:
        world.advance(10)
        world.target(1)
        world.advance(10)
        rounds = said("allocation round:", "DEBUG")
        assert rounds[0].startswith(
            "allocation round: profile=default target=2 requested=2 pending=0 running=0 terminating=0 missing=0"
        )
        assert any("requested=0 pending=0 running=2" in line for line in rounds)
        assert len(rounds) < 12, "a round without a change says nothing"


def test_each_created_executor_is_a_line_at_debug_with_its_id_and_pod(said: Callable[..., list[str]]) -> None:
    with fleet(3) as world:
        assert said("executor created:", "DEBUG") == [
            f"executor created: executor={executor_id} pod={name(executor_id)}" for executor_id in (1, 2, 3)
        ]
        world.kubelet.exit(name(2), 3)
        world.advance(5)
        assert said("executor created:", "DEBUG")[3:] == [f"executor created: executor=4 pod={name(4)}"]


def test_a_poll_is_announced_at_debug_before_its_request(said: Callable[..., list[str]]) -> None:
    with fleet(1) as world:
        world.api.fail_next("list", DelayAnswer(timedelta(seconds=5)))
        world.advance(26)
        assert said("polling: ", "DEBUG") == ["polling: consistent=True"]
        assert said("polled: ", "DEBUG") == []
        world.advance(10)
        assert [line.split(" version=")[0] for line in said("polled: ", "DEBUG")] == ["polled: pods=1"]


def test_whose_creation_is_not_answered_is_said_at_debug_with_the_time_of_the_request(
    said: Callable[..., list[str]],
) -> None:
    with fleet(0) as world:
        world.api.fail_next("create", DelayAnswer(timedelta(seconds=8)))
        begun = rfc3339(world.kit.clock.now())
        world.target(3)
        world.api.stall()
        world.advance(7)
        waits = said("creation not answered yet:", "DEBUG")
        assert waits[0] == f"creation not answered yet: profile=default ids=1-3 since={begun}"
        assert waits[-1] == f"creation not answered yet: profile=default ids=1 since={begun}"
        assert len(waits) < 4, "a wait is said once, not in each round"


def test_which_created_pods_are_not_observed_is_said_at_debug_with_the_time_of_their_creation(
    said: Callable[..., list[str]],
) -> None:
    with fleet(1) as world:
        world.api.stall()
        world.target(3)
        world.advance(0.1)
        created = rfc3339(world.kit.clock.now())[:-5]
        world.advance(20)
        assert [line[:-5] for line in said("pods not observed yet:", "DEBUG")[-1:]] == [
            f"pods not observed yet: profile=default ids=2-3 since={created}"
        ]
        world.api.resume()
        world.advance(5)
        rounds = len(said("pods not observed yet:", "DEBUG"))
        world.advance(60)
        assert len(said("pods not observed yet:", "DEBUG")) == rounds


def test_an_executor_that_is_seen_pending_running_or_registered_is_logged_at_debug(
    said: Callable[..., list[str]],
) -> None:
    with fleet(1, start_delay=timedelta(seconds=10), seconds=30) as world:
        world.ask(RegisterExecutor(1))
        assert said("executor seen:", "DEBUG") == [
            f"executor seen: executor=1 pod={name(1)} state={state}" for state in ("PodPending", "PodRunning")
        ]
        assert said("executor registered:", "DEBUG") == ["executor registered: executor=1"]


def test_an_unknown_phase_is_a_warning_with_the_namespace(said: Callable[..., list[str]]) -> None:
    with fleet(1) as world:
        world.store.patch("pods", "default", name(1), {"status": {"phase": "Odd"}}, "merge", subresource="status")
        world.advance(60)
        assert said("unknown phase", "WARNING") == [
            f"unknown phase, executor counted as alive: executor=1 namespace=default pod={name(1)} phase=Odd"
        ]


def test_an_executor_of_an_earlier_life_that_reconnects_every_second_is_one_warning(
    said: Callable[..., list[str]],
) -> None:
    with fleet(1) as world:
        for _ in range(30):
            assert world.ask(RegisterExecutor(77)) is False
            assert world.ask(RegisterExecutor(78)) is False
            world.advance(1)
        assert said("unknown or ended executor", "WARNING") == [
            f"unknown or ended executor registered: executor={executor_id}" for executor_id in (77, 78)
        ]


def test_an_executor_that_registers_while_the_fleet_stops_is_refused_without_a_warning(
    said: Callable[..., list[str]],
) -> None:
    with fleet(1) as world:
        world.backend.tell(StopBackend())
        assert world.ask(RegisterExecutor(1)) is False
        assert said("unknown or ended executor", "WARNING") == []


def test_without_debug_nothing_is_logged_for_each_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "actors")
    with fleet(1) as world:
        world.advance(5)
        assert not [record for record in caplog.records if record.levelno < logging.INFO]


def test_every_record_of_a_fleet_has_its_app_id_and_that_of_an_end_its_executor_and_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "actors")
    with fleet(1) as world:
        world.kubelet.exit(name(1), 3)
        world.advance(5)
        records = [record for record in caplog.records if record.name.startswith("actors.") and record.args]
        assert {fields_of(record).get("app_id") for record in records} == {"app"}
        (removed,) = [record for record in records if record.getMessage().startswith("executor removed:")]
        assert fields_of(removed)["executor_id"] == 1
        assert "exited with exit code 3" in str(fields_of(removed)["reason"])
        get_logger("actors.of_the_test").warning("it is not an actor's")
        assert "app_id" not in fields_of(caplog.records[-1]), "whoever runs the actors has fields of its own"


class _FullDisk(logging.Handler):
    """Raises at each record, and counts them."""

    records = 0

    def emit(self, _: logging.LogRecord) -> None:
        self.records += 1
        raise OSError(28, "No space left on device")


def test_a_fleet_whose_log_cannot_be_written_starts_replaces_scales_and_stops() -> None:
    library, handler = logging.getLogger("actors"), _FullDisk()
    level = library.level
    library.addHandler(handler)
    library.setLevel(logging.DEBUG)
    try:
        with fleet(3) as world:
            world.kubelet.exit(name(1), 3)
            world.advance(60)
            assert sorted(names(world)) == [name(2), name(3), name(4)]
            world.crash("allocator")
            world.target(5)
            world.advance(60)
            assert world.running() == 5
            world.stop()
            assert names(world) == []
    finally:
        library.removeHandler(handler)
        library.setLevel(level)
    assert handler.records > 20
