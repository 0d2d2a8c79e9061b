"""Dropping no-op events makes no difference to the store."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import given, settings
from hypothesis import strategies as st

from actors.kube.deduplication import PodDeduplicator
from actors.kube.http import decode
from actors.kube.http.decode import Complaints
from actors.kube.http.watch_lines import WatchDecoder
from actors.messages.internal import ReplaceSnapshot
from actors.pods.pod import EXECUTOR_ID_LABEL, ObjectMeta, Pod, PodStatus
from actors.pods.state import PodRules
from actors.store.history import History
from actors.store.lists import SECOND_LOOK, apply_list
from tests.unit.builders import apply_events

STREAM: Final = 1

CHANGES: Final[tuple[tuple[str, str, Any], ...]] = (
    ("metadata", "annotations", {"a": "b"}),
    ("metadata", "annotations", {}),
    ("metadata", "deletionTimestamp", "2024-01-01T00:00:09Z"),
    ("spec", "nodeName", "node-1"),
    ("status", "phase", "Running"),
    ("status", "phase", "Running"),
    ("status", "phase", "Failed"),
    ("status", "reason", "Evicted"),
    ("status", "reason", None),
)


@dataclass(slots=True)
class Consumer:
    """A store behind one client. A client that forgets everything after each event drops none."""

    forgets: bool
    deduplicator: PodDeduplicator = field(default_factory=PodDeduplicator)
    history: History = field(default_factory=lambda: History(PodRules()))
    decoder: WatchDecoder = field(init=False)
    left_out: int = 0

    def connect(self, version: int) -> None:
        self.decoder = WatchDecoder(str(version), Complaints(), self.deduplicator)

    def hears(self, lines: bytes, version: int, now: float) -> None:
        if self.forgets:
            self.deduplicator = PodDeduplicator()
            self.connect(version - 1)
        [told], error = self.decoder.decode(lines)
        assert error is None
        self.left_out += told.unchanged
        self.history = apply_events(self.history, told.events, told.resource_version, STREAM, now=now).history

    def sees(self, body: bytes, *, asked_at: float, now: float, stream: int | None, arrives: bool) -> None:
        page = decode.pod_page(body, Complaints(), self.deduplicator)
        if arrives:
            listed = ReplaceSnapshot(
                page.pods, page.resource_version, asked_at, consistent=True, stream=stream, versions=page.versions
            )
            self.history = apply_list(self.history, listed, now).history

    def shows(self) -> dict[int, Any]:
        """Return the state of each executor without the version."""
        return {
            number: (type(state), dict(state.pod.labels), state.pod.spec, state.pod.status, state.pod.terminating)
            for number, state in self.history.snapshot.states.items()
        }


class World:
    """A cluster with at most three pods, its watch, and its polls."""

    def __init__(self) -> None:
        self.version = 10
        self.now = 0.0
        self.uids = 0
        self.pods: dict[int, dict[str, Any]] = {}
        self.outside: dict[int, dict[str, Any]] = {}
        self.unread: list[tuple[int, bytes]] = []
        self.read = self.version
        self.polls: list[tuple[float, bytes]] = []
        self.consumers = Consumer(forgets=False), Consumer(forgets=True)
        for consumer in self.consumers:
            consumer.sees(self.listing(), asked_at=0.0, now=0.0, stream=STREAM, arrives=True)
            consumer.connect(self.version)

    def listing(self) -> bytes:
        return json.dumps({"metadata": {"resourceVersion": str(self.version)}, "items": [*self.pods.values()]}).encode()

    def write(self, kind: str, pod: dict[str, Any]) -> None:
        self.version += 1
        pod["metadata"]["resourceVersion"] = str(self.version)
        self.unread.append((self.version, json.dumps({"type": kind, "object": pod}).encode()))

    def change(self, argument: int) -> None:
        pod = self.pods.get(argument % 3 + 1)
        if pod is not None:
            part, name, value = CHANGES[argument // 3 % len(CHANGES)]
            pod[part][name] = deepcopy(value)
            self.write("MODIFIED", pod)

    def come_or_go(self, argument: int) -> None:
        number = argument % 3 + 1
        if number in self.pods:
            gone = self.pods.pop(number)
            self.write("DELETED", gone)
            if argument // 3 % 2:  # it only leaves the selector
                self.outside[number] = gone
            return
        if number in self.outside:
            self.pods[number] = self.outside.pop(number)
            self.write("ADDED", self.pods[number])
            return
        self.uids += 1
        self.pods[number] = {
            "metadata": {
                "name": f"e-exec-{number}",
                "uid": f"u-{self.uids}",
                "labels": {EXECUTOR_ID_LABEL: str(number)},
            },
            "spec": {"containers": [{"name": "executor"}]},
            "status": {"phase": ("Pending", "Running")[argument // 3 % 2]},
        }
        self.write("ADDED", self.pods[number])

    def hear(self, argument: int) -> None:
        for _ in range(1 + argument % 4):
            if self.unread:
                self.read, line = self.unread.pop(0)
                for consumer in self.consumers:
                    consumer.hears(line, self.read, self.now)

    def reconnect(self, argument: int) -> None:
        """Resume from the last event received. Later events of the old connection are lost."""
        for consumer in self.consumers:
            for _, line in self.unread[: argument % 4]:
                consumer.decoder.decode(line)
            consumer.connect(self.read)

    def ask(self, _argument: int) -> None:
        self.polls.append((self.now, self.listing()))
        for consumer in self.consumers:
            consumer.deduplicator.begin_list()

    def answer(self, argument: int) -> None:
        """Answer a poll late, or lose its answer."""
        if self.polls:
            asked_at, body = self.polls.pop(0)
            for consumer in self.consumers:
                consumer.sees(body, asked_at=asked_at, now=self.now, stream=None, arrives=argument % 4 != 0)


STEPS: Final = (
    World.change,
    World.change,
    World.hear,
    World.hear,
    World.come_or_go,
    World.reconnect,
    World.ask,
    World.answer,
)


@settings(max_examples=120)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 80)), max_size=60))
def test_a_store_has_the_same_state_with_and_without_no_op_events(steps: list[tuple[Any, int]]) -> None:
    world = World()
    for step, argument in steps:
        world.now += 1
        step(world, argument)
        shown, whole = (consumer.shows() for consumer in world.consumers)
        assert shown == whole
        assert world.consumers[1].left_out == 0


def test_no_op_events_are_dropped() -> None:
    """Otherwise the test before this one would prove nothing."""
    world = World()
    world.come_or_go(3)
    for _ in range(3):
        world.change(0)
    for _ in range(4):
        world.hear(0)
    assert world.consumers[0].left_out == 3
    assert [*world.consumers[0].shows()] == [1]


def test_after_a_reset_a_pod_has_the_version_of_the_list() -> None:
    """The version of the known object belongs to the old history."""
    metadata = ObjectMeta(name="e-exec-1", uid="u-1", shared_labels={EXECUTOR_ID_LABEL: "1"})
    known = Pod(metadata=metadata, status=PodStatus(phase="Running"), resource_version="30")
    history = History(PodRules())
    looks = (1.0, "40", "30"), (5.0, "20", "15"), (6.0 + SECOND_LOOK.total_seconds(), "20", "15")
    for requested_at, version, listed_at in looks:
        listed = ReplaceSnapshot((known,), version, requested_at, consistent=True, stream=STREAM, versions=[listed_at])
        merged = apply_list(history, listed, requested_at + 1)
        history = merged.history
    assert merged.reset
    assert history.snapshot.states[1].pod == known.at_version("15")
