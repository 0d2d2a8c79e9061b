"""A model of a cluster, its replicas and the two sources: late, out of step, restarted, restored from a backup.

A *script* is a sequence of steps, each a pair of small numbers: the kind of step and its target. `run` plays it against
the merge rules, checks after every message that they report nothing false, lets everything catch up, and checks that
nothing was lost. The truth is the cluster's own log; the model shares no code with the rules.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from actors.messages.internal import ReplaceSnapshot
from actors.pods.pod import EXECUTOR_ID_LABEL, ObjectMeta, Pod, PodEvent, PodStatus
from actors.pods.state import PodRules
from actors.store.history import History
from actors.store.lists import abandon_stream, apply_list
from actors.store.merge import Merge
from tests.unit.builders import DELETION, apply_events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.pods.pod import EventType
    from actors.store.history import Merged

__all__ = ["STEPS", "Script", "Violation", "run"]

Script: TypeAlias = "Sequence[tuple[int, int]]"

PAUSES: Final = (0.0, 0.01, 0.15, 6.0)
"""Seconds between steps: none (two words at one moment), within and beyond a granule of what was seen, and longer than
it takes until a second list confirms a first one."""

CONFIRMED_AFTER: Final = 5.0
"""Seconds."""

LABELS: Final = {number: {EXECUTOR_ID_LABEL: str(number)} for number in range(1, 5)}


class Violation(AssertionError):  # noqa: N818 - reads as what was found
    """The rules reported something false."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A pod as the cluster stores it."""

    uid: str
    name: str
    number: int
    version: int
    phase: str = "Pending"
    terminating: bool = False
    selected: bool = True

    def pod(self) -> Pod:
        return Pod(
            metadata=ObjectMeta(
                name=self.name,
                uid=self.uid,
                shared_labels=LABELS[self.number],
                deletion_timestamp=DELETION if self.terminating else None,
            ),
            status=PodStatus(phase=self.phase),
            resource_version=str(self.version),
        )


@dataclass(slots=True)
class Epoch:
    """One history of the cluster, from a start or a restore to the next restore."""

    version: int
    things: dict[str, Thing]
    log: list[tuple[int, EventType, Thing]] = field(default_factory=list)
    states: dict[int, dict[str, Thing]] = field(default_factory=dict)
    """The pods at each version."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A LIST: requested, answered by the cluster at some version, and later passed to the store."""

    requested_at: float
    consistent: bool
    epoch: int = -1
    version: int = 0
    things: tuple[Thing, ...] = ()
    lies: bool = False
    """A replica that is behind has answered as if it were not."""


Told: TypeAlias = (
    tuple[Literal["list"], Listing, int] | tuple[Literal["events"], tuple[int, tuple[PodEvent, ...], int], int]
    | tuple[Literal["given up"], None, int]
)  # fmt: skip
"""What WatchSource has sent to the store: kind, content, stream."""


class World:
    """The cluster, the sources, and the store's history."""

    def __init__(self) -> None:
        self.now = 100.0
        self.uids = 0
        self.epochs = [Epoch(1, {}, [], {1: {}})]
        self.backup: tuple[int, dict[str, Thing]] = (1, {})
        self.lag = [0, 0]
        """How many versions each replica is behind."""
        self.polls: list[Listing] = []
        self.sent: deque[Told] = deque()
        self.incarnation = 1
        self.stream = 1 << 32
        self.listing: Listing | None = None
        self.position: int | None = None
        """The version that WatchSource's stream has reached."""
        self.replica = 0
        self.relist = False
        self.history = History(PodRules())
        self.step = Merge(self.history)
        """All reads since the last LIST in one step; `since` has one step per read."""
        self.since: list[Merged] = []
        # what the store received since it last detected a reset
        self.words: set[int] = set()
        """The epochs of its messages."""
        self.base = (0, 0)
        """Epoch and version from which ends count."""
        self.told: Counter[str] = Counter()
        self.shown: dict[str, int] = {}
        """The highest version in a snapshot, by UID."""
        self.handled: list[tuple[float, int]] = []
        self.resets = 0
        self.looks: list[float] = []
        """When the store asked for another look."""
        self.contradicted: tuple[float, int, int] | None = None
        """The first list below a handled version: when it came, its version, and the highest one handled by then."""
        self.has_lied = False

    # ── the cluster ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def epoch(self) -> Epoch:
        return self.epochs[-1]

    def write(self, kind: EventType | None, thing: Thing | None) -> None:
        """Make one write: it raises the version, and it is in the log if it concerns one of our pods."""
        epoch = self.epoch
        epoch.version += 1
        if thing is not None:
            thing = replace(thing, version=epoch.version)
            if kind == "DELETED" and thing.selected:
                del epoch.things[thing.name]
            else:
                epoch.things[thing.name] = thing
        if kind is not None and thing is not None:
            epoch.log.append((epoch.version, kind, thing))
        epoch.states[epoch.version] = dict(epoch.things)
        self.lag = [lag + 1 for lag in self.lag]

    def pick(self, argument: int) -> Thing | None:
        things = list(self.epoch.things.values())
        return things[argument % len(things)] if things else None

    def create(self, argument: int) -> None:
        number = argument % 3 + 1
        name = f"{'copy' if argument % 16 == 15 else 'app'}-exec-{number}"
        if name not in self.epoch.things:
            self.uids += 1
            self.write("ADDED", Thing(f"uid-{self.uids}", name, number, 0))

    def modify(self, argument: int) -> None:
        thing = self.pick(argument)
        if thing is not None:
            phase = {"Pending": "Running", "Running": ("Failed", "Succeeded")[argument % 2]}.get(
                thing.phase, thing.phase
            )
            self.write("MODIFIED" if thing.selected else None, replace(thing, phase=phase))

    def terminate(self, argument: int) -> None:
        thing = self.pick(argument)
        if thing is not None and not thing.terminating:
            self.write("MODIFIED" if thing.selected else None, replace(thing, terminating=True))

    def delete(self, argument: int) -> None:
        """Delete a pod at the end of its grace period, or by force."""
        thing = self.pick(argument)
        if thing is not None and thing.selected:
            self.write("DELETED", thing)
        elif thing is not None:
            del self.epoch.things[thing.name]
            self.write(None, None)

    def relabel(self, argument: int) -> None:
        """Make a pod leave our selector, or match it again."""
        outside = [thing for thing in self.epoch.things.values() if not thing.selected]
        thing = outside[0] if outside and argument % 2 else self.pick(argument // 2)
        if thing is not None and thing.selected:
            self.write("DELETED", replace(thing, selected=False))
        elif thing is not None:
            self.write("ADDED", replace(thing, selected=True))

    def other(self, argument: int) -> None:
        """Write an object that is not ours."""
        self.write(None, None)

    def save(self, argument: int) -> None:
        self.backup = (self.epoch.version, dict(self.epoch.things))

    def restore(self, argument: int) -> None:
        """Restore the cluster from its backup: every connection breaks, sent answers still arrive."""
        version, things = self.backup
        self.epochs.append(Epoch(version, dict(things), [], {version: dict(things)}))
        self.lag = [0, 0]
        for _ in range(argument % 4):
            self.write(None, None)
        self.lag = [0, 0]

    def catch_up(self, argument: int) -> None:
        """Let a replica catch up."""
        replica = argument % 2
        self.lag[replica] = max(0, self.lag[replica] - 1 - argument // 2 % 4)

    def at(self, replica: int) -> int:
        """Return the version that a replica has reached."""
        return max(self.epoch.version - self.lag[replica], min(self.epoch.states))

    # ── lists ────────────────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, listing: Listing, replica: int) -> Listing:
        version = self.epoch.version if listing.consistent else self.at(replica)
        things = tuple(thing for thing in self.epoch.states[version].values() if thing.selected)
        return replace(listing, epoch=len(self.epochs) - 1, version=version, things=things)

    def ask_poll(self, argument: int) -> None:
        """Request one poll, or two."""
        for _ in range(1 + argument // 4 % 2):
            if len(self.polls) < 3:
                self.polls.append(Listing(self.now, consistent=argument % 4 != 0))

    def answer_poll(self, argument: int) -> None:
        """Answer waiting polls; the answers may arrive much later. Once, a replica that is behind answers any list."""
        for index, poll in enumerate(self.polls):
            if poll.epoch < 0 and (argument // 2 % 4 or index == 0):
                lies = argument >= 48 and not self.has_lied
                self.has_lied = self.has_lied or lies
                answered = self.answer(replace(poll, consistent=poll.consistent and not lies), argument % 2)
                self.polls[index] = replace(answered, consistent=poll.consistent, lies=lies)

    def hand_poll(self, argument: int) -> None:
        answered = [poll for poll in self.polls if poll.epoch >= 0]
        if answered:
            poll = answered[argument % len(answered)]
            self.polls.remove(poll)
            self.hear_list(poll, None)

    # ── WatchSource ──────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, argument: int) -> None:
        """Make WatchSource's next step: obey a Relist, request a LIST, get its answer, or read from the stream."""
        if self.relist:
            self.relist, self.listing, self.position = False, None, None
        elif self.listing is None and self.position is None:
            self.listing = Listing(self.now, consistent=True)
        elif self.listing is not None and self.listing.epoch < 0:
            self.listing = self.answer(self.listing, 0)
        elif self.listing is not None:
            self.stream += 1
            self.sent.append(("list", self.listing, self.stream))
            self.position, self.listing = self.listing.version, None
        else:
            self.read(argument)

    def read(self, argument: int) -> None:
        """Read events, or a bookmark if there are none, from a replica that may lag."""
        assert self.position is not None
        until = self.at(self.replica)
        log = [entry for entry in self.epoch.log if self.position < entry[0] <= until][: 1 + argument % 3]
        if log:
            self.position = log[-1][0]
        elif until > self.position:
            self.position = until
        else:
            return
        events = tuple(PodEvent(kind, thing.pod()) for _, kind, thing in log)
        self.sent.append(("events", (len(self.epochs) - 1, events, self.position), self.stream))

    def reconnect(self, argument: int) -> None:
        """Resume the stream from the other replica."""
        self.replica = argument % 2

    def gone(self, argument: int) -> None:
        """Answer 410: WatchSource must LIST."""
        if self.listing is None:
            self.position = None

    def crash(self, argument: int) -> None:
        """Restart WatchSource; messages of the old incarnation are still in the store's mailbox."""
        self.incarnation += 1
        self.stream = self.incarnation << 32
        self.listing, self.position, self.relist = None, None, False

    def give_up(self, argument: int) -> None:
        if self.position is not None:
            self.sent.append(("given up", None, self.stream))
            self.position = None

    # ── the store ────────────────────────────────────────────────────────────────────────────────────────────────

    def handle(self, argument: int) -> None:
        """Let the store handle WatchSource's next messages."""
        for _ in range(1 + argument % 3):
            if not self.sent:
                return
            match self.sent.popleft():
                case ("list", listing, stream):
                    self.hear_list(listing, stream)
                case ("events", (epoch, events, version), stream):
                    merged = apply_events(self.history, events, str(version), stream, now=self.now)
                    self.since.append(merged)
                    if self.step.read(events, str(version), stream, self.now) != merged.applied:
                        raise Violation(f"the read of stream {stream} counts alone or in a longer step, not in both")
                    if merged.applied:
                        self.words.add(epoch)
                        self.handled.append((self.now, version))
                    self.check(merged)
                case ("given up", _, stream):
                    self.check_step()
                    self.check(abandon_stream(self.history, stream))
                    self.step = Merge(self.history)

    def hear_list(self, listing: Listing, stream: int | None) -> None:
        self.check_step()
        pods = tuple(thing.pod() for thing in listing.things)
        answer = ReplaceSnapshot(pods, str(listing.version), listing.requested_at, listing.consistent, stream)
        merged = apply_list(self.history, answer, self.now)
        self.check_proof(listing, merged)
        if merged.look_again:
            if not (listing.lies or self.words - {listing.epoch}):
                raise Violation(f"the list at {listing.version} is doubted without a reason")
            self.looks.append(self.now)
        if merged.reset:
            if not self.words - {listing.epoch}:
                raise Violation(f"a reset was found where there was none, by the list at {listing.version}")
            self.looks, self.contradicted = [], None
            self.resets += 1
            self.words, self.shown, self.handled = set(), {}, []
            self.base, self.told = (listing.epoch, listing.version), Counter()
        if merged.applied:
            self.words.add(listing.epoch)
            self.handled.append((self.now, listing.version))
        self.check(merged)
        self.step = Merge(self.history)
        self.relist = self.relist or merged.relist

    def check_proof(self, listing: Listing, merged: Merged) -> None:
        """Check that two lists prove a reset, and one does not."""
        if merged.reset and not any(at + CONFIRMED_AFTER <= listing.requested_at + 1e-6 for at in self.looks):
            raise Violation(f"a reset was believed at the first look, by the list at {listing.version}")
        is_below = listing.consistent and any(
            version > listing.version for at, version in self.handled if at + 0.2 < listing.requested_at
        )
        if not is_below:
            self.contradicted = None if listing.consistent and merged.applied else self.contradicted
            return
        if merged.applied and not merged.reset:
            raise Violation(f"the list at {listing.version} was applied, though it contradicts what was handled")
        highest = max(version for _, version in self.handled)
        first = self.contradicted
        if first is None or listing.version < first[1] or first[2] < highest:
            self.contradicted = (self.now, listing.version, highest)
        elif first[0] + CONFIRMED_AFTER + 1e-6 < listing.requested_at and not (merged.reset or merged.relist):
            raise Violation(f"the reset that the list at {listing.version} proves was not found")

    def check_step(self) -> None:
        """Check that many reads in one step report the same as one by one."""
        merged, since, self.since = self.step.finish(), self.since, []
        changed: frozenset[int] = frozenset()
        for each in since:
            changed = frozenset(i for i in changed | each.changed if i in each.history.snapshot.states)
        appeared = frozenset(number for each in since for number in each.appeared)
        ended = tuple(one for each in since for one in each.ended)
        if merged.history != self.history:
            raise Violation(f"{len(since)} reads in one step made {merged.history}, one by one {self.history}")
        if (merged.changed, merged.appeared, merged.ended) != (changed, appeared, ended):
            raise Violation(f"{len(since)} reads in one step told {merged}, one by one {changed}, {appeared}, {ended}")

    def check(self, merged: Merged) -> None:
        """Check that nothing false was reported. Messages of two mixed histories cannot be checked."""
        self.history = merged.history
        self.check_shape(merged)
        if len(self.words) > 1:
            return
        for number in merged.changed:
            pod = merged.history.snapshot.states[number].pod
            version = int(pod.resource_version)
            if version < self.shown.get(pod.uid, 0):
                raise Violation(f"{pod.uid} went back in time, from {self.shown[pod.uid]} to {version}")
            self.shown[pod.uid] = version
        if not merged.reset:
            self.told.update(ended.uid for ended in merged.ended)
            self.check_ends(merged)

    def check_ends(self, merged: Merged) -> None:
        (epoch,) = self.words or {self.base[0]}
        since = self.base[1] if epoch == self.base[0] else 0
        for ended in merged.ended:
            left = sum(
                1
                for version, kind, thing in self.epochs[epoch].log
                if thing.uid == ended.uid and kind == "DELETED" and version > since
            )
            if self.told[ended.uid] > left:
                raise Violation(f"{ended.uid} ended {left} times and {self.told[ended.uid]} ends were told")

    def check_shape(self, merged: Merged) -> None:
        """Check what holds for any history: the indexes agree, and `changed` and `ended` are true."""
        history = merged.history
        states = history.snapshot.states
        uids = {state.pod.uid for state in states.values()}
        if len(uids) < len(states):
            raise Violation("a pod is shown twice")
        counts = Counter((state.pod.profile, type(state)) for state in states.values())
        if dict(history.snapshot.counts) != dict(counts):
            raise Violation("the counts are wrong")
        buried = set(history.tombstones)
        if buried & uids or set(history.absent) & (uids | buried):
            raise Violation("a pod is two things at once")
        if not merged.changed <= set(states):
            raise Violation("something changed that is not there")
        if any(not ended.state.final for ended in merged.ended):
            raise Violation("something ended that is not final")

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def settle(self) -> None:
        """Let everything catch up: run both sources until two polls in a row change nothing."""
        for _ in range(4):
            self.now += 6.0
            self.lag = [0, 0]
            self.other(0)
            self.ask_all()
            for _ in range(40):
                self.lag = [0, 0]
                self.watch(0)
                self.handle(2)
        live = [thing for thing in self.epoch.things.values() if thing.selected]
        states = self.history.snapshot.states
        if set(states) != {thing.number for thing in live}:
            raise Violation(f"the snapshot shows {sorted(states)}, the cluster has {live}")
        shown = {(state.pod.uid, state.pod.resource_version) for state in states.values()}
        if not shown <= {(thing.uid, str(thing.version)) for thing in live}:
            raise Violation(f"the snapshot shows {shown}, the cluster has {live}")
        if self.history.tombstones or self.history.absent:
            raise Violation(f"left over: {self.history.tombstones} {self.history.absent}")
        if len(self.words) <= 1:
            gone = self.shown.keys() - {state.pod.uid for state in states.values()}
            if lost := sorted(uid for uid in gone if not self.told[uid]):
                raise Violation(f"the ends of {lost} were not told")

    def ask_all(self) -> None:
        """Pass all answered polls to the store, and one more."""
        self.ask_poll(1)
        while self.polls:
            self.answer_poll(0)
            self.hand_poll(0)
        self.now += 6.0
        self.ask_poll(1)
        self.answer_poll(0)
        self.hand_poll(0)


STEPS: Final = (
    *(World.create,) * 5,
    *(World.modify,) * 4,
    *(World.terminate,) * 2,
    *(World.delete,) * 4,
    *(World.relabel,) * 2,
    World.other,
    *(World.catch_up,) * 4,
    *(World.ask_poll,) * 2,
    *(World.answer_poll,) * 2,
    *(World.hand_poll,) * 2,
    *(World.watch,) * 8,
    *(World.handle,) * 6,
    World.reconnect,
    World.gone,
    World.crash,
    World.give_up,
    World.save,
    World.restore,
)
"""What can happen; more often what happens more often."""

QUIET: Final = STEPS[:-2]
"""Without restores."""


def run(script: Script, *, restores: bool = True) -> World:
    """Play a script and let everything catch up.

    Raises:
        Violation: the rules reported something false or lost something.
    """
    steps = STEPS if restores else QUIET
    world = World()
    for step, argument in script:
        world.now += PAUSES[argument % len(PAUSES)]
        steps[step % len(steps)](world, argument // len(PAUSES))
    world.settle()
    return world
