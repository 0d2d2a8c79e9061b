"""Whatever happens to executors in whatever order, the driver hears of ends only of those that it knows, and once."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.executors.ledger import Ledger
from actors.messages import ExecutorPending, ExecutorRemoved, ExecutorRunning, ExecutorState, ExecutorTerminating
from actors.messages.internal import ExecutorKilled
from actors.pods.loss import LossKind, LossReason
from actors.pods.state import PodPending, PodRunning, PodTerminating, PodUnknown
from tests.unit.views import going, pending, running

if TYPE_CHECKING:
    from actors.pods.pod import Pod

BEGAN = datetime(2024, 1, 1, tzinfo=UTC)
GONE = LossReason(LossKind.EXITED, 1, caused_by_app=True, message="it exited")
STATES = {
    ExecutorPending: ExecutorState.PENDING,
    ExecutorRunning: ExecutorState.RUNNING,
    ExecutorTerminating: ExecutorState.TERMINATING,
    ExecutorRemoved: ExecutorState.ENDED,
}


class Story:
    """A ledger, and what the driver was told and has registered. Each step checks what it may be told."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.now = 0.0
        self.told: dict[int, type] = {}
        self.registered: set[int] = set()
        self.observed: set[int] = set()
        """Executors of which a pod was observed."""

    @property
    def at(self) -> datetime:
        return BEGAN + timedelta(seconds=self.now)

    def hear(self, *messages: Any) -> None:
        for message in filter(None, messages):
            executor_id: int = message.executor_id
            assert self.told.get(executor_id) is not ExecutorRemoved, f"{message} after its removal"
            if isinstance(message, ExecutorRemoved):
                assert executor_id in self.told or (
                    executor_id in self.registered and executor_id not in self.observed
                ), f"the driver does not know executor {executor_id}"
            self.told[executor_id] = type(message)

    def step(self, kind: str, number: int, extra: Any) -> None:
        self.now += 1.0
        before = {entry.executor_id: (entry.state, entry.since) for entry in self.ledger.entries.values()}
        getattr(self, kind)(number, extra)
        for entry in self.ledger.entries.values():
            state, since = before.get(entry.executor_id, (None, self.at))
            assert entry.since == (since if state is entry.state else self.at), "since when it is in its state"
        known = self.told.keys() | self.registered
        ended = {i for i, last in self.told.items() if last is ExecutorRemoved}
        assert {entry.executor_id for entry in self.ledger.present()} == known - ended

    def request(self, number: int, _: Any) -> None:
        self.ledger = self.ledger.requested((number,), "default", self.at)

    def see(self, number: int, kind: Any) -> None:
        pod = pending(number) if kind is PodPending else running(number)
        pod = going(pod) if kind is PodTerminating else pod
        self.ledger, message, ours = self.ledger.seen(number, kind(pod), self.now, self.at)
        if ours:
            self.observed.add(number)
        self.hear(message)

    def kill(self, number: int, _: Any) -> None:
        if self.ledger.current(number) is not None:
            kill = ExecutorKilled(number, self.at, self.now + 5)
            self.ledger, _, message = self.ledger.killed(kill, self.now)
            self.hear(message)

    def remove(self, number: int, pod: Pod | None) -> None:
        pod = pod and msgspec.structs.replace(running(number))
        if pod is not None and self.ledger.current(number) is not None:
            self.observed.add(number)
        uid = f"uid-{number}" if pod is not None else None
        earlier = pending(number) if number in self.observed else None
        self.ledger, messages = self.ledger.removed(number, uid, GONE, self.now, self.at, pod=pod, earlier=earlier)
        self.hear(*messages)

    def abandon(self, number: int, _: Any) -> None:
        pod = pending(number) if number in self.observed else None
        self.ledger, messages = self.ledger.abandoned(number, "no pod", self.now, self.at, pod=pod)
        self.hear(*messages)

    def register(self, number: int, _: Any) -> None:
        ledger = self.ledger.registered(number, self.now)
        if ledger is not None:
            self.ledger = ledger
            self.registered.add(number)

    def disconnect(self, number: int, _: Any) -> None:
        self.ledger = self.ledger.disconnected(number, self.now) or self.ledger

    def scale_down(self, number: int, _: Any) -> None:
        self.ledger = self.ledger.scaled_down({number: f"uid-{number}"})

    def take_over(self, *_: Any) -> None:
        self.ledger = self.ledger.begun()


IDS = st.integers(1, 3)
STEPS = st.one_of(
    st.tuples(st.just("see"), IDS, st.sampled_from((PodPending, PodRunning, PodTerminating, PodUnknown))),
    st.tuples(st.just("remove"), IDS, st.sampled_from((None, running(1)))),
    st.tuples(
        st.sampled_from(("request", "kill", "abandon", "register", "disconnect", "scale_down", "take_over")),
        IDS,
        st.none(),
    ),
)


@settings(max_examples=60)
@given(st.lists(STEPS, max_size=20))
def test_the_driver_hears_of_ends_once_and_only_of_executors_that_it_knows(steps: list[tuple[str, int, Any]]) -> None:
    story = Story()
    for step in steps:
        story.step(*step)
