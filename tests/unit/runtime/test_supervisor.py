"""A supervisor restarts crashed children, in order, with backoff, up to a limit."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from actors.runtime import Actor, Address, Backoff, ChildSpec, Context, Lost, StoppedByHost, Supervisor, Terminated
from tests.unit.runtime.stage import Boss

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.testing import Kit

pytestmark = pytest.mark.usefixtures("expect_crashes")

SECOND = timedelta(seconds=1)
BACKOFF = Backoff(initial=SECOND, maximum=8 * SECOND, jitter=0.0, reset_after=60 * SECOND)


class Child(Actor):
    """Writes a journal. Crashes on `"die"`, is lost on `"lose"`; its factory fails while its name is in `broken`."""

    def __init__(self, context: Context, journal: list[str], broken: set[str]) -> None:
        super().__init__(context)
        if self.name in broken:
            raise LookupError(f"{self.name} is broken")
        self._journal = journal

    def started(self) -> None:
        self._journal.append(f"{self} starts")

    def receive(self, message: Any) -> object:
        if message == "die":
            raise ValueError(f"{self.name} dies")
        if message == "lose":
            self.end(Lost(f"{self.name} is lost"))
            return None
        self._journal.append(f"{self} gets {message}")
        return message

    def stopped(self) -> None:
        self._journal.append(f"{self} stops")


class Company:
    """A boss and the journal of its children."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.journal: list[str] = []
        self.broken: set[str] = set()
        made: list[Boss] = []

        def make(context: Context) -> Boss:
            made.append(Boss(context, self.journal, 30 * SECOND))
            return made[0]

        self.observer = kit.probe("observer")
        self.address = kit.spawn(make, name="boss", owner=self.observer.address)
        self.boss = made[0]

    def do(self, action: Callable[[Supervisor], Any]) -> Any:
        return self.kit.ask(self.address, action)

    def hire(self, *names: str, **spec: Any) -> None:
        for name in names:
            child = ChildSpec(
                name,
                lambda context: Child(context, self.journal, self.broken),
                on_start=lambda address: address.tell("begin"),
                **{"backoff": BACKOFF, **spec},
            )
            self.do(partial(_start, child))

    def child(self, name: str) -> Address:
        return self.boss.supervisor.address(name)

    def crash(self, name: str) -> None:
        self.child(name).tell("die")
        self.kit.settle()

    def lose(self, name: str) -> None:
        self.child(name).tell("lose")
        self.kit.settle()

    def alive(self) -> list[str]:
        return [actor.name for actor in self.kit.dispatcher.actors if isinstance(actor, Child)]

    def read(self) -> list[str]:
        """Return the lines since the last call."""
        lines = self.journal[:]
        self.journal.clear()
        return lines


def _start(child: ChildSpec, supervisor: Supervisor) -> Address:
    return supervisor.start(child)


def _restart_b_and_stop_all(supervisor: Supervisor) -> None:
    supervisor.restart("b")
    supervisor.stop_all()


@pytest.fixture
def company(kit: Kit) -> Company:
    return Company(kit)


def test_children_start_in_order_and_get_their_first_messages(company: Company) -> None:
    company.hire("a", "b")
    assert company.read() == ["a-1 starts", "a-1 gets begin", "b-1 starts", "b-1 gets begin"]
    assert company.do(lambda supervisor: supervisor.children()) == ("a", "b")


def test_a_crashed_child_comes_back_at_its_address_after_the_backoff(company: Company) -> None:
    company.hire("a")
    address = company.child("a")
    company.read()
    company.crash("a")
    company.kit.advance(SECOND - timedelta(microseconds=1))
    assert company.read() == []
    company.kit.advance(timedelta(microseconds=1))
    assert company.read() == ["a-2 starts", "a-2 gets begin"]
    assert company.child("a") is address
    assert company.kit.ask(address, "hi") == "hi"


def test_an_address_that_was_given_away_before_is_the_childs(company: Company) -> None:
    address = company.child("a")
    company.hire("a")
    assert company.kit.ask(address, "hi") == "hi"
    assert company.child("a") is address


def test_the_backoff_grows_with_each_failure_and_is_reset_by_health(company: Company) -> None:
    company.hire("a")
    waits = []
    for _ in range(5):
        company.crash("a")
        due = company.kit.clock.elapsed
        while not company.alive():
            company.kit.advance(SECOND / 2)
        waits.append((company.kit.clock.elapsed - due).total_seconds())
    assert waits == [1, 2, 4, 8, 8]
    company.kit.advance(BACKOFF.reset_after)
    company.crash("a")
    company.kit.advance(SECOND)
    assert company.alive() == ["a"]


def test_too_many_failures_in_a_row_are_escalated(company: Company) -> None:
    company.hire("a", limit=3)
    for _ in range(2):
        company.crash("a")
        company.kit.advance(10 * SECOND)
    company.read()
    company.crash("a")
    company.kit.advance(100 * SECOND)
    assert company.read() == ["a given up"]
    ((name, cause),) = company.boss.escalated
    assert name == "a"
    assert str(cause) == "a dies"
    assert company.do(lambda supervisor: supervisor.children()) == ()


def test_a_child_that_is_lost_is_restarted_for_ever_and_its_backoff_doubles_twice_at_the_most(company: Company) -> None:
    company.hire("a", limit=2)
    waits = []
    for _ in range(5):
        company.lose("a")
        due = company.kit.clock.elapsed
        while not company.alive():
            company.kit.advance(SECOND / 2)
        waits.append((company.kit.clock.elapsed - due).total_seconds())
    assert waits == [1, 2, 4, 4, 4]
    company.crash("a")
    company.kit.advance(SECOND)
    assert company.alive() == ["a"], "no loss counts as a failure"
    assert company.boss.escalated == []


def test_failures_with_health_between_them_are_not_in_a_row(company: Company) -> None:
    company.hire("a", limit=2)
    for _ in range(5):
        company.crash("a")
        company.kit.advance(SECOND + BACKOFF.reset_after)
    assert company.boss.escalated == []
    assert company.alive() == ["a"]


def test_after_an_escalation_nothing_is_restarted(company: Company) -> None:
    company.hire("a", "b")
    company.hire("c", limit=1)
    company.crash("c")
    company.crash("a")
    company.kit.advance(100 * SECOND)
    assert company.alive() == ["b"]
    assert len(company.boss.escalated) == 1


def test_those_started_after_a_crashed_one_are_restarted_with_it_in_order(company: Company) -> None:
    company.hire("a", "b", "c", "d")
    company.read()
    company.crash("b")
    assert company.read() == ["d-1 stops", "c-1 stops"]
    company.kit.advance(SECOND)
    assert [line for line in company.read() if line.endswith("starts")] == ["b-2 starts", "c-2 starts", "d-2 starts"]
    assert company.child("a").incarnation == 1


def test_the_group_waits_until_all_of_it_has_ended(company: Company) -> None:
    company.hire("a", "b")
    company.read()
    mailbox = company.child("b").handle
    assert mailbox is not None
    company.child("a").tell("die")
    for _ in range(50):
        company.child("b").tell("work")
    company.kit.settle()
    assert company.read() == ["b-1 gets work"] * 50 + ["b-1 stops"]
    company.kit.advance(SECOND)
    assert [line for line in company.read() if line.endswith("starts")] == ["a-2 starts", "b-2 starts"]


def test_an_isolated_child_is_restarted_alone(company: Company) -> None:
    company.hire("a")
    company.hire("b", isolated=True)
    company.hire("c")
    company.read()
    company.crash("b")
    company.kit.advance(SECOND)
    assert company.read() == ["b-2 starts", "b-2 gets begin"]


def test_an_isolated_child_is_restarted_with_those_it_depends_on(company: Company) -> None:
    company.hire("a")
    company.hire("b", isolated=True)
    company.read()
    company.crash("a")
    company.kit.advance(SECOND)
    assert [line for line in company.read() if line.endswith("starts")] == ["a-2 starts", "b-2 starts"]


def test_an_isolated_child_that_still_backs_off_does_not_block_its_group(company: Company) -> None:
    company.hire("a")
    company.hire("b", isolated=True, backoff=replace(BACKOFF, initial=5 * SECOND))
    company.hire("c")
    company.read()
    company.crash("b")
    company.crash("a")
    company.kit.advance(SECOND)
    assert company.alive() == ["a", "c"]
    company.kit.advance(4 * SECOND)
    assert company.alive() == ["a", "c", "b"]


def test_an_isolated_child_waits_for_those_it_depends_on(company: Company) -> None:
    company.hire("a", backoff=replace(BACKOFF, initial=5 * SECOND))
    company.hire("b", isolated=True)
    company.crash("b")
    company.crash("a")
    company.read()
    company.kit.advance(2 * SECOND)
    assert company.read() == []
    company.kit.advance(3 * SECOND)
    assert company.alive() == ["a", "b"]


def test_a_crash_further_up_widens_the_group_that_is_down(company: Company) -> None:
    company.hire("a", "b", "c")
    company.read()
    company.crash("b")
    company.kit.advance(SECOND / 2)
    company.crash("a")
    company.kit.advance(SECOND / 2)
    assert company.alive() == [], "b is ready, but a is not"
    company.kit.advance(SECOND / 2)
    assert company.alive() == ["a", "b", "c"]
    assert [company.child(name).incarnation for name in "abc"] == [2, 2, 2]


def test_a_child_that_crashes_while_it_is_stopped_for_its_group_comes_back_with_it(company: Company) -> None:
    company.hire("a", "b")
    company.child("a").tell("die")
    company.child("b").tell("die")
    company.kit.settle()
    company.kit.advance(SECOND)
    assert company.alive() == ["a", "b"]


def test_a_child_that_cannot_be_made_again_is_one_that_failed(company: Company) -> None:
    company.hire("a", "b", limit=3)
    company.broken.add("a")
    company.crash("a")
    company.kit.advance(SECOND)
    assert company.alive() == []
    company.broken.clear()
    company.kit.advance(2 * SECOND)
    assert company.alive() == ["a", "b"]
    company.broken.add("a")
    company.crash("a")
    assert [name for name, _ in company.boss.escalated] == ["a"]


def test_a_child_that_cannot_be_made_at_first_is_no_child(company: Company) -> None:
    company.broken.add("a")
    with pytest.raises(LookupError, match="a is broken"):
        company.hire("a")
    assert company.boss.supervisor.children() == ()


def test_a_child_that_is_stopped_in_order_stays_stopped(company: Company) -> None:
    company.hire("a", "b")
    company.child("a").stop()
    company.kit.advance(100 * SECOND)
    assert company.alive() == ["b"]
    assert company.do(lambda supervisor: supervisor.children()) == ("b",)


def test_one_child_can_be_stopped_for_good(company: Company) -> None:
    company.hire("a", "b")
    company.do(lambda supervisor: supervisor.stop("a"))
    assert company.do(lambda supervisor: supervisor.children()) == ("b",)
    company.kit.advance(100 * SECOND)
    assert company.alive() == ["b"]


def test_a_child_that_is_to_be_stopped_is_not_restarted_when_it_crashes_first(company: Company) -> None:
    company.hire("a")
    company.child("a").tell("die")
    company.do(lambda supervisor: supervisor.stop("a"))
    company.kit.advance(100 * SECOND)
    assert company.alive() == []
    assert company.boss.escalated == []


def test_a_child_that_waits_for_its_restart_can_be_stopped(company: Company) -> None:
    company.hire("a", "b")
    company.crash("a")
    company.do(lambda supervisor: supervisor.stop("a"))
    assert company.kit.timers.pending == 1, "the check for hangs, and no restart"
    company.kit.advance(100 * SECOND)
    assert company.do(lambda supervisor: supervisor.children()) == ("b",)
    assert company.alive() == ["b"], "the rest of its group is restarted"


def test_all_are_stopped_in_reverse_each_after_those_that_depend_on_it(company: Company) -> None:
    company.hire("a", "b", "c")
    company.read()
    company.do(lambda supervisor: supervisor.stop_all())
    assert company.read() == ["c-1 stops", "b-1 stops", "a-1 stops"]
    assert company.do(lambda supervisor: supervisor.children()) == ()
    assert company.kit.timers.pending == 0


def test_all_are_stopped_while_the_last_one_waits_for_its_restart(company: Company) -> None:
    company.hire("a", "b", "c")
    company.crash("c")
    company.do(lambda supervisor: supervisor.stop_all())
    assert company.do(lambda supervisor: supervisor.children()) == ()
    assert company.alive() == []


def test_all_are_stopped_even_if_one_crashes_or_waits_for_its_restart(company: Company) -> None:
    company.hire("a", "b", "c")
    company.crash("c")
    company.child("b").tell("die")
    company.do(lambda supervisor: supervisor.stop_all())
    company.kit.advance(100 * SECOND)
    assert company.alive() == []
    assert company.do(lambda supervisor: supervisor.children()) == ()
    assert company.boss.escalated == []


def test_restart_restarts_one_child_at_its_address_and_no_other(company: Company) -> None:
    company.hire("a", "b", "c")
    address = company.child("b")
    company.read()
    company.do(lambda supervisor: supervisor.restart("b"))
    company.kit.settle()
    assert company.read() == ["b-1 stops", "b-2 starts", "b-2 gets begin"]
    assert company.child("b") is address
    assert company.alive() == ["a", "c", "b"]


def test_a_restart_on_request_is_no_failure(company: Company) -> None:
    company.hire("a", limit=2)
    for _ in range(5):
        company.do(lambda supervisor: supervisor.restart("a"))
        company.kit.settle()
    company.crash("a")
    company.kit.advance(SECOND)
    assert company.alive() == ["a"], "the first failure has the first backoff and is below the limit"


def test_a_child_that_crashes_before_it_could_stop_is_restarted_on_request_all_the_same(company: Company) -> None:
    company.hire("a")
    company.read()
    company.child("a").tell("die")
    company.do(lambda supervisor: supervisor.restart("a"))
    company.kit.advance(SECOND)
    assert company.read() == ["a-2 starts", "a-2 gets begin"]


def test_restart_ignores_children_that_are_down_unknown_or_being_stopped(company: Company) -> None:
    company.hire("a", "b")
    company.crash("a")
    company.read()
    company.do(lambda supervisor: supervisor.restart("a"))
    company.do(lambda supervisor: supervisor.restart("nobody"))
    assert company.read() == []
    company.kit.advance(SECOND)
    assert company.read() == ["a-2 starts", "a-2 gets begin", "b-2 starts", "b-2 gets begin"]
    company.do(lambda supervisor: supervisor.stop("a"))
    company.do(lambda supervisor: supervisor.restart("a"))
    company.kit.advance(SECOND)
    assert company.alive() == ["b"]


def test_a_child_that_restarts_when_all_are_stopped_stays_stopped(company: Company) -> None:
    company.hire("a", "b")
    company.do(_restart_b_and_stop_all)
    company.kit.advance(SECOND)
    assert company.alive() == []


def test_a_child_that_the_host_stops_is_not_restarted_and_the_owner_knows(company: Company) -> None:
    company.hire("a", "b")
    ref = company.child("a").ref
    assert ref is not None
    stopped = ref.stop(block=False)
    company.kit.advance(100 * SECOND)
    assert stopped.get(timeout=0) is True
    assert company.alive() == ["b"]
    ((name, cause),) = company.boss.escalated
    assert name == "a"
    assert isinstance(cause, StoppedByHost)


def test_a_host_that_stops_everything_is_reported_once(company: Company) -> None:
    company.hire("a", "b")
    futures = [company.child(name).ref.stop(block=False) for name in "ba"]  # type: ignore[union-attr]
    company.kit.advance(100 * SECOND)
    assert [future.get(timeout=0) for future in futures] == [True, True]
    assert [name for name, _ in company.boss.escalated] == ["b"]
    assert company.alive() == []


@pytest.mark.parametrize("orderly", [True, False])
def test_the_end_of_the_owner_stops_its_children(company: Company, orderly: bool) -> None:
    def fail(_: Supervisor) -> None:
        raise ValueError("boss dies")

    company.hire("a", "b")
    company.crash("a")
    company.hire("c")
    if orderly:
        company.address.stop()
    else:
        company.address.tell(fail)
    company.kit.settle()
    assert company.observer.take(Terminated).name == "boss"
    assert company.alive() == []
    assert company.kit.timers.pending == 0


def test_messages_about_unknown_actors_are_ignored(company: Company) -> None:
    company.hire("a")
    company.address.tell(Terminated("stranger", 1, ValueError("x")))
    company.address.tell(Terminated("a", 7, ValueError("x")))
    company.kit.settle()
    assert company.kit.timers.pending == 1, "the check for hangs, and no restart"
    company.kit.advance(100 * SECOND)
    assert company.alive() == ["a"]
    assert company.child("a").incarnation == 1


def test_an_owner_that_is_notified_twice_of_an_end_restarts_once(company: Company) -> None:
    company.hire("a")
    company.crash("a")
    company.address.tell(Terminated("a", 1, ValueError("again")))
    company.kit.advance(SECOND)
    assert company.child("a").incarnation == 2
