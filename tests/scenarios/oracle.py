"""What really happened to the pods of a store, what a subscriber of the snapshots was told, and whether that is true.

The truth is taken from the store itself, the story from the batches; what lies between, `Passage` sees pass: it knows
which changes no source can have seen, because a watch had to begin again from a list that came after them.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from actors.kube.deduplication import PodDeduplicator
from actors.kube.http import decode
from actors.messages.internal import ReplaceSnapshot, SnapshotBatch, StreamAbandoned, UpdatePods
from actors.pods.pod import EXECUTOR_ID_LABEL, fleet_selector
from actors.pods.snapshot import PodsSnapshot
from actors.pods.state import runs_on
from tests.scenarios.churn import NAMESPACE
from tests.unit.builders import APP_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.kube.api import PodPage
    from actors.local.store.object_store import ObjectStore, WatchMessage
    from actors.pods.pod import Pod
    from actors.pods.state import PodState

SELECTOR = fleet_selector(APP_ID)


@dataclass(slots=True)
class Life:
    """One pod, from the first version that our selector showed to the one at which it was gone."""

    executor_id: int
    came: int
    gone: int | None = None
    versions: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Truth:
    """Every pod that there was, by UID."""

    lives: dict[str, Life] = field(default_factory=dict)

    def watch(self, store: ObjectStore) -> None:
        """See every change from now on."""
        version = store.resource_version
        store.watch("pods", NAMESPACE, self._changed, label_selector=SELECTOR, resource_version=version)

    def _changed(self, message: WatchMessage) -> None:
        metadata: Mapping[str, Any] = message.object["metadata"]
        version, number = int(metadata["resourceVersion"]), int(metadata["labels"][EXECUTOR_ID_LABEL])
        life = self.lives.setdefault(metadata["uid"], Life(number, version))
        life.versions.add(version)
        if message.type == "DELETED":
            life.gone = version


@dataclass(slots=True)
class Passage:
    """What the sources told the store, and what they cannot have seen."""

    events: int = 0
    lists: int = 0
    streams: int = 0
    abandoned: list[float] = field(default_factory=list)
    """When a stream was given up."""
    shown: set[str] = field(default_factory=set)
    """UIDs in lists and events that the store was to take."""
    unseen: list[tuple[int, int]] = field(default_factory=list)
    """No event after the first version, up to the second, was on any stream that counts."""
    _stream: int | None = None
    _reached: int = 0
    _floor: int = 0

    def passed(self, message: object, now: float) -> None:
        """A source told the store this."""
        match message:
            case ReplaceSnapshot(pods, version, stream=stream):
                self.lists += 1
                self._listed({pod.uid for pod in pods}, int(version), stream)
            case UpdatePods(events, version, stream, unchanged):
                self.events += len(events) + unchanged
                if stream == self._stream:
                    self.shown |= {event.pod.uid for event in events}
                    self._reached = max(self._reached, int(version))
            case StreamAbandoned():
                self.abandoned.append(now)
                self._stream = None
            case _:
                raise TypeError(f"no source says {type(message).__name__} to the store")

    def _listed(self, uids: set[str], version: int, stream: int | None) -> None:
        """A list below one that was taken is dropped whole, and the stream that starts from it does not count."""
        if stream is not None:
            self.streams += 1
            self._stream = stream if version >= self._floor else None
        if version < self._floor:
            return
        self._floor = version
        self.shown |= uids
        if stream is not None:
            self.unseen.append((self._reached, version))
            self._reached = max(self._reached, version)

    def has_reached(self, version: str) -> bool:
        """Whether the stream that counts has come as far."""
        return self._stream is not None and self._reached >= int(version)

    def could_miss(self, life: Life) -> bool:
        """Whether it came and went where nobody was looking."""
        gone = life.gone
        return gone is not None and any(after < life.came and gone <= upto for after, upto in self.unseen)


@dataclass(slots=True)
class Story:
    """What a subscriber was told, in order. What cannot be true of any cluster is noted as it is heard."""

    snapshot: PodsSnapshot = PodsSnapshot.EMPTY
    batches: int = 0
    appeared: Counter[int] = field(default_factory=Counter)
    """How many batches named the executor id."""
    ended: dict[str, float] = field(default_factory=dict)
    """UID → when its end was told."""
    shown: dict[str, int] = field(default_factory=dict)
    """UID → its newest version that was told as a change."""
    states: dict[str, PodState] = field(default_factory=dict)
    """UID → its state at that version."""
    versions: set[tuple[str, int]] = field(default_factory=set)
    wrong: list[str] = field(default_factory=list)

    def heard(self, batch: SnapshotBatch, now: float) -> None:
        """The next batch."""
        self.batches += 1
        self.snapshot = batch.snapshot
        self.appeared.update(batch.appeared)
        for ended in batch.ended:
            if ended.uid in self.ended:
                self.wrong.append(f"the end of pod {ended.uid} is told twice")
            if ended.executor_id not in self.appeared:
                self.wrong.append(f"executor {ended.executor_id} ended and never appeared")
            self.ended[ended.uid] = now
        for number in batch.changed:
            self._changed(number, batch)

    def _changed(self, number: int, batch: SnapshotBatch) -> None:
        state = batch.snapshot.states.get(number)
        if state is None:  # a list shows it no more, and its end is still to be told
            return
        uid, version = state.pod.uid, int(state.pod.resource_version)
        if uid in self.ended:
            self.wrong.append(f"pod {uid} is back after its end")
        if uid not in self.shown and number not in batch.appeared:
            self.wrong.append(f"executor {number} is there and never appeared")
        if version < self.shown.get(uid, 0):
            self.wrong.append(f"pod {uid} went from version {self.shown[uid]} back to {version}")
        self.shown[uid], self.states[uid] = version, state
        self.versions.add((uid, version))


def listed(store: ObjectStore) -> PodPage:
    """The fleet's pods, as an API client that knows nothing of them shows them."""
    there = store.list("pods", NAMESPACE, label_selector=SELECTOR)
    body = json.dumps({"metadata": {"resourceVersion": there.resource_version}, "items": there.items}).encode()
    return decode.pod_page(body, decode.Complaints(), PodDeduplicator())


def shows_all_there_is(snapshot: PodsSnapshot, store: ObjectStore) -> bool:
    """Whether the snapshot is the store: the same pods, each as it is now, and no others.

    A pod that runs may be at an older version, if it has looked the same ever since: `kube.sharing` has the rule.
    """
    newest = {pod.uid: pod for pod in listed(store).pods}
    shown = {state.pod.uid: state.pod for state in snapshot.states.values()}
    return newest.keys() == shown.keys() and all(_is_or_looks_like(pod, newest[uid]) for uid, pod in shown.items())


def _is_or_looks_like(pod: Pod, newest: Pod) -> bool:
    runs = pod.status is not None and pod.status.phase == "Running"
    return pod == (newest.at_version(pod.resource_version) if runs else newest)


def all_ends_are_told(truth: Truth, story: Story) -> bool:
    """Whether nothing that went is still waited for."""
    return all(life.gone is None or uid in story.ended for uid, life in truth.lives.items() if uid in story.shown)


def verdict(truth: Truth, passage: Passage, story: Story, asked_to_end: Mapping[str, float]) -> list[str]:
    """Everything that is wrong with the story, once it is over: a sentence each."""
    return [
        *story.wrong,
        *_of_pods(truth, passage, story, asked_to_end),
        *_of_appearances(truth, story),
        *_of_the_last(story),
        *(f"the end of pod {uid} is told, and there was none such" for uid in story.ended.keys() - truth.lives.keys()),
    ]


def _of_pods(truth: Truth, passage: Passage, story: Story, asked_to_end: Mapping[str, float]) -> Iterable[str]:
    for uid, life in truth.lives.items():
        told = uid in story.shown or uid in story.ended
        if not told and (uid in passage.shown or not passage.could_miss(life)):
            yield f"pod {uid} (versions {life.came} to {life.gone}) is lost"
        if uid in story.shown and life.gone is not None and uid not in story.ended:
            yield f"the end of pod {uid} at version {life.gone} is lost"
        if uid in story.ended and story.ended[uid] < asked_to_end.get(uid, float("inf")):
            yield f"the end of pod {uid} is told before it had ended"
    for uid, version in story.versions:
        if uid not in truth.lives or version not in truth.lives[uid].versions:
            yield f"pod {uid} is shown at version {version}, which it never had"


def _of_the_last(story: Story) -> Iterable[str]:
    """Only what a running pod's status says may be newer than what was told."""
    for number, state in story.snapshot.states.items():
        uid, version = state.pod.uid, int(state.pod.resource_version)
        told = story.shown.get(uid, 0)
        if told != version and not (told < version and runs_on(story.states.get(uid), state)):
            yield f"executor {number} is in the snapshot at a version that was never told as a change"


def _of_appearances(truth: Truth, story: Story) -> Iterable[str]:
    """An executor id that had several pods may have appeared with two of them in one batch."""
    told = [life.executor_id for uid, life in truth.lives.items() if uid in story.shown or uid in story.ended]
    for number, lives in Counter(told).items():
        if not 1 <= story.appeared[number] <= lives:
            yield f"executor {number} appeared {story.appeared[number]} times with {lives} pods"
    for number in story.appeared.keys() - set(told):
        yield f"executor {number} appeared, and nothing more is told of it"
