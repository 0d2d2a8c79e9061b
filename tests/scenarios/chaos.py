"""A driver, a cluster and a network that do anything at any time, and what must hold all the same.

The world with three profiles, short timeouts and an eye on everything that can be seen from outside: the invariants of
the design, after every step and at the end. `machine` is Hypothesis' hand on it. The end is always the same: calm, a
target that is settled on, and a stop.
"""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Final

from actors.errors import Refused
from actors.local.kubelet.scripted_kubelet import Run
from actors.messages import (
    AllocationBlocked,
    BackendFailed,
    DecommissionExecutors,
    ExecutorDisconnected,
    ExecutorDrained,
    ExecutorIdle,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    FleetFailed,
    GetExecutors,
    HoldFleet,
    KillExecutors,
    RegisterExecutor,
    RequestTotalExecutors,
    ResumeFleet,
    ScaleExecutors,
    StopBackend,
)
from actors.messages.internal import AddSubscriber
from actors.pods.loss import LossKind
from actors.pods.pod import DEFAULT_PROFILE, EXECUTOR_ID_LABEL, INACTIVE_LABEL, ROLE_LABEL
from actors.view import FleetView
from tests.scenarios.memory import shared, sizes
from tests.scenarios.strangers import COSTLY, FAR, STRAY, Strangers, WatchedDoor
from tests.scenarios.world import LOOK, World

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from actors.executors.ledger import Ledger
    from actors.local.store.object_store import StoreSnapshot
    from actors.messages import Executor, FleetExecutors, Victims
    from actors.messages.internal import LedgerEntry
    from actors.runtime import Actor
    from tests.scenarios.world import WatchedApi

GATED: Final = "gated"
"""The second profile, whose pods wait until somebody opens their gate."""

SETTINGS: Final[Mapping[str, Any]] = {
    "executor": {
        "instances": 2,
        "api_polling_interval": "15s",
        "event_processing_interval": "2s",
        "missing_pod_detect_delta": "10s",
        "removed_executors_ttl": "30s",
        "kill_grace_period": "3s",
        "max_failures": 12,
        "failures_validity_interval": "2m",
        "stuck_timeout": "30s",
        "min_run_time": "2s",
        "disconnect_timeout": "20s",
        "terminating_timeout": "20s",
        "resources": {"limits": {"memory": "1Gi"}},
        "on_oom": {"factor": 2, "max": "4Gi"},
    },
    "allocation": {
        "batch_delay": "2s",
        "creation_timeout": "20s",
        "idle_timeout": "5s",
        "batch_size": 3,
        "max_batch_size": 6,
        "max_requests_in_flight": 4,
    },
    "backend": {"start_timeout": "1h"},
    "profiles": {
        GATED: {"template_patch": {"spec": {"schedulingGates": [{"name": "example.com/hold"}]}}},
        COSTLY: {"resources": {"requests": {"cpu": "1"}}, "drain_timeout": "6s"},
    },
}
"""Every timeout runs out within a few steps, but the one that a backend gives up at when it starts."""

MAX_CRASHES: Final = 3
"""Of one actor in a driver's life: at five in a row it is given up, and rightly so."""

FINALIZER: Final = "example.com/hold"

RECENT: Final = 900.0
"""Seconds. What ended before is forgotten, whatever holds the sources up: a stream is given up after 300 s, a book's
entry goes within two TTLs."""

ROOM: Final = 12
"""Entries that a collection may have besides one for each pod: kinds of causes, timers, subscribers."""

OF_ITS_OWN: Final = {"_counts": 60, "_buckets": 60, "_table": 80, "_window": 32, "addresses": ROOM}
"""Collections that are as large whatever the fleet is."""

GENERATIONS: Final = 8
"""How often all executors end, one after the other, before the fleet must have forgotten them."""

GENERATION: Final = 7.0
"""Seconds: until replacements run, and longer than `min_run_time`."""

UNTIL_POLLED: Final = 20.0
"""Seconds: until a poll has seen what a watch that was frozen has not."""

UNTIL_LISTED: Final = 65.0
"""Seconds: until whatever backoff runs is over and a list was seen, which a reset is found by. Before that nobody can
know what is there, and a target that is raised is filled up by what was there."""

ANSWERED_WITHIN: Final = 12.0
"""Seconds: a call's limit, and a batch's delay."""

PATIENCE: Final = (30.0,) * 16
"""Looks at whether the fleet has come to its target: 8 minutes, as backoffs of up to 5 may be running."""

FORGETFUL: Final = 130.0
"""Seconds: four times the TTL, and two bookmarks, by which tombstones go."""


PROFILES: Final = (DEFAULT_PROFILE, GATED, COSTLY)

LEASE_DURATION: Final = 15.0
"""Seconds, the default."""

UNTIL_HELD: Final = 120.0
"""Seconds until a stolen Lease is ours again: the thief renews it for 45 s, then its duration passes."""


class Broken(AssertionError):  # noqa: N818 - reads as what happened
    """Something that must always hold does not."""


class _Ear(logging.Handler):
    """Hears errors, letters that nobody got, and that the store found a reset."""

    def __init__(self, history_was_reset: Callable[[], None]) -> None:
        super().__init__(logging.DEBUG)
        self._history_was_reset = history_was_reset
        self.errors: list[str] = []
        self.letters: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            self.errors.append(record.getMessage())
        elif record.msg.startswith("dead letter"):
            self.letters.append(record.getMessage())
        elif record.msg.startswith("cluster history reset"):
            self._history_was_reset()


class Chaos(World):
    """The world in short time spans, with what a machine can do to it. Pods and executors are picked by number.

    At the end all executors end `generations` times; without, nobody looks at what is kept for ever.
    """

    door: ClassVar[type[WatchedDoor]] = WatchedDoor

    look_every: ClassVar[timedelta] = LOOK

    heed: ClassVar[str] = ""
    """A pattern: of what is broken, only what it finds counts. All, but when one planted bug is looked for."""

    def __init__(
        self,
        seed: int | None = None,
        *,
        generations: int = GENERATIONS,
        in_flight: int | None = None,
        lease: bool = False,
        **world: Any,
    ) -> None:
        self.generations = generations
        self._ear = _Ear(self._history_was_reset)
        self._hush = self._listen()
        self.totals: dict[str, int] = {}
        self.disturbed = lease
        """An actor was made to end, as a lost lease ends the Allocator, or all were: what was on its way is lost."""
        self.amnesia = False
        """The store began anew, or the cluster did: what ended meanwhile may be missing."""
        self.crashes: dict[str, int] = {}
        self.backup: StoreSnapshot | None = None
        self.on_hold = False
        self._scaled: set[str] = set()
        """Profiles whose excess is to be ended, running executors included."""
        self._decommissioned: set[int] = set()
        """Executors that are not ended because there are too many."""
        self._connected: set[int] = set()
        """Executors that the driver registered, and whose connection is not lost."""
        self._lifecycle_crashes: list[float] = []
        self._adjusted: set[int] = set()
        self._follows = bool((seed or 0) % 2)
        """The driver follows the fleet. Half of them do, as its messages come in another order then."""
        self.view: FleetView | None = None
        self._released: dict[str, str] = {}
        """Pods that were taken out of the selector: name → UID."""
        self._requests: dict[str, float] = {}
        """Name → when its creation was requested first. A quota may have refused it."""
        self._store_life = 0
        self._taken_over = 0
        """Pods of the last driver's life: the book keeps these, lest one that comes late is taken for new."""
        settings: dict[str, Any] = {group: dict(values) for group, values in SETTINGS.items()}
        if in_flight is not None:
            settings["allocation"]["max_requests_in_flight"] = in_flight
        settings["backend"]["lease"] = lease
        super().__init__(seed, **world, **settings)

    def close(self) -> None:
        """Leave nothing, broken or not."""
        with suppress(AssertionError):
            self.kit.close()
        self._hush()

    def _listen(self) -> Callable[[], None]:
        """Hear every error, and every dead letter, of which nobody else needs to hear; answers with the end of it."""
        everything, mailboxes = logging.getLogger("actors"), logging.getLogger("actors.runtime.mailbox")
        level = mailboxes.level
        everything.addHandler(self._ear)
        mailboxes.addHandler(self._ear)
        mailboxes.setLevel(logging.DEBUG)
        mailboxes.propagate = False

        def hush() -> None:
            everything.removeHandler(self._ear)
            mailboxes.removeHandler(self._ear)
            mailboxes.setLevel(level)
            mailboxes.propagate = True

        return hush

    def _start(self) -> None:
        self.totals = self.settings.initial_totals
        for of_one_driver in (self._adjusted, self._scaled, self._decommissioned, self._connected):
            of_one_driver.clear()
        self.on_hold = False
        self.invariants.retarget_exactly(self.totals, ())
        super()._start()
        self._look_on()
        self.view = FleetView(self.kit.clock) if self._follows else None
        if self.view is not None:
            self.view.follow(self.backend, self.view.fold)

    def _connect(self) -> WatchedApi:
        api = super()._connect()
        api.asked_for = self._note_request  # what was decided under which target is known better here
        if not hasattr(self, "strangers"):
            self.strangers = Strangers(self.store, self.kit.clock, self.kit.timers, "app", LEASE_DURATION)
        api.on_request = self.strangers.asked
        assert isinstance(self.inner, WatchedDoor)
        self.inner.arrived = self.strangers.arrived
        return api

    def _note_request(self, name: str) -> None:
        self._requests.setdefault(name, self.kit.clock.monotonic())

    def _look_on(self) -> None:
        """Have the onlooker see the snapshots of the store that lives now."""
        if not self.lives("snapshot-store"):
            return
        store = self.address("snapshot-store")
        if store.incarnation != self._store_life:
            self._store_life = store.incarnation
            self.invariants.another_store()
        store.tell(AddSubscriber(self.address("onlooker"), self.look_every))
        self.kit.settle()

    def restore(self, backup: StoreSnapshot) -> None:
        """Nobody is told: pods may go back in time when the store has found it out, and not before."""
        self.store.restore(backup)
        self.kubelet.close()
        self.kubelet = self._make_kubelet()
        self.invariants.watch(self.store)

    # ── the driver's side ────────────────────────────────────────────────────────────────────────────────────────

    def want(self, totals: Mapping[str, int]) -> None:
        """The driver asks for so many of each profile."""
        self._retarget(totals)
        self._scaled.clear()
        self.backend.tell(RequestTotalExecutors(totals))

    def scale(self, totals: Mapping[str, int], victims: Victims, grace: timedelta | None) -> None:
        """The driver asks for so many of some profiles, and for the end of whatever is in excess."""
        self._retarget({**self.totals, **totals})
        self._scaled.update(totals)
        self.backend.tell(ScaleExecutors(totals, victims, grace))

    def _retarget(self, totals: Mapping[str, int]) -> None:
        self.totals = dict(totals)
        prefix = self.settings.pod_prefix
        requested = [(f"{prefix}-exec-{entry.executor_id}", entry.profile) for entry in self._requested()]
        self.invariants.retarget_exactly(self.wanted, requested)

    @property
    def wanted(self) -> Mapping[str, int]:
        """What the fleet is to come to: nothing while it is on hold."""
        return {} if self.on_hold else self.totals

    def hold_or_resume(self, deadline: timedelta | None, *, holds: bool) -> None:
        """The driver puts the fleet on hold, or lets it go on."""
        self.on_hold = holds
        self._retarget(self.totals)
        self.ask(HoldFleet(deadline) if holds else ResumeFleet())

    def _requested(self) -> list[LedgerEntry]:
        """Executors whose pods were asked for and not seen yet."""
        ledger: Ledger = self._actor("backend")._state.ledger
        return [entry for entry in ledger.entries.values() if entry.uid is None and entry.removed_at is None]

    def _history_was_reset(self) -> None:
        """The store is about to take a list of another history."""
        self.invariants.history_was_reset(self._actor("snapshot-store")._seq)

    def _actor(self, name: str) -> Any:
        return next(actor for actor in self.kit.dispatcher.actors if actor.name == name)

    def present(self, pick: int, number: int = 1) -> tuple[int, ...]:
        """Executors that the driver knows of, from one on, or none."""
        present = sorted(self.invariants.present())
        return tuple(dict.fromkeys(present[(pick + i) % len(present)] for i in range(number))) if present else ()

    def connected(self, pick: int) -> tuple[int, ...]:
        """One of the executors that are connected, or none."""
        ids = sorted(self._connected & self.invariants.present())
        return (ids[pick % len(ids)],) if ids else ()

    def end(self, executor_ids: tuple[int, ...], grace: timedelta | None, *, adjust_target: bool) -> None:
        """The driver ends executors, perhaps for good."""
        with suppress(Refused):  # the lease is another's
            ended = self.ask(KillExecutors(executor_ids, adjust_target, grace))
            self._ended(ended, adjust_target=adjust_target)

    def retire_some(
        self, executor_ids: tuple[int, ...], deadline: timedelta | None, *, adjust_target: bool, drained: bool
    ) -> None:
        """The driver retires executors, which no longer count, and perhaps finds them drained at once."""
        with suppress(Refused):  # the lease is another's
            ended = self.retire(*executor_ids, deadline=deadline, adjust_target=adjust_target)
            self._ended(ended, adjust_target=adjust_target)
            for executor_id in ended if drained else ():
                self.ask(ExecutorDrained(executor_id))

    def _ended(self, ended: tuple[int, ...], *, adjust_target: bool) -> None:
        """Check by how much the target has fallen."""
        state = self._actor("backend")._state
        entries = state.ledger.entries
        new = Counter(entries[i].profile for i in ended if adjust_target and i not in self._adjusted)
        self._adjusted.update(ended)
        totals: dict[str, int] = dict(state.totals)  # only the Backend knows what was in excess
        for profile, before in self.totals.items():
            lowest = max(0, before - new[profile])
            if not lowest <= totals.get(profile, 0) <= before:
                self._break([f"{new[profile]} killed: the target of {profile} is {totals}, it was {before}"])
        self._retarget(totals)

    def decommission(self, executor_ids: tuple[int, ...]) -> None:
        """The driver lets executors finish."""
        with suppress(Refused):  # the lease is another's
            self._decommissioned.update(self.ask(DecommissionExecutors(executor_ids)))

    def requested(self, pick: int) -> tuple[int, ...]:
        """An executor whose pod was asked for and not seen yet, or none."""
        ids = sorted(entry.executor_id for entry in self._requested())
        return (ids[pick % len(ids)],) if ids else ()

    def register(self, executor_ids: tuple[int, ...]) -> None:
        """Executors connect to the driver, which may not know of them yet."""
        for executor_id in executor_ids:
            if self.ask(RegisterExecutor(executor_id)):
                self._connected.add(executor_id)
                self.invariants.knows(executor_id)

    def disconnect(self, executor_ids: tuple[int, ...]) -> None:
        """Executors lose their connection."""
        for executor_id in executor_ids:
            self._connected.discard(executor_id)
            self.backend.tell(ExecutorDisconnected(executor_id))

    def leave(self, *, in_order: bool) -> None:
        """The driver's process ends, as it should or at once, and another one begins."""
        self.disturbed = True
        if in_order:
            self.invariants.fleet_is_left()
            self.backend.tell(StopBackend(delete_pods=False))
        else:
            self.driver.stop()
        for _ in PATIENCE:
            if not self.backend.is_alive():
                break
            self.advance(2.5)
        self.crashes.clear()
        self._taken_over = len(self.pods())
        self.restart()

    # ── the cluster's side ───────────────────────────────────────────────────────────────────────────────────────

    def pick(self, number: int, *phases: str) -> dict[str, Any] | None:
        """One of the fleet's pods in these phases, or in any."""
        pods = [pod for pod in self.pods(*phases) if pod["metadata"]["labels"].get(ROLE_LABEL) == "executor"]
        return pods[number % len(pods)] if pods else None

    def delete(self, pod: Mapping[str, Any], grace: int) -> None:
        """Somebody else deletes a pod."""
        name = pod["metadata"]["name"]
        self.invariants.taken_by_others(name)
        self.store.delete("pods", "default", name, grace_period_seconds=grace)

    def disrupt(self, name: str, reason: str) -> None:
        """The cluster takes a pod: it is gone as if somebody had deleted it."""
        self.invariants.taken_by_others(name)
        self.kubelet.disrupt(name, reason)

    def label(self, name: str, labels: Mapping[str, str | None]) -> None:
        """Somebody else labels a pod."""
        self.store.patch("pods", "default", name, {"metadata": {"labels": labels}}, "merge")

    def annotate(self, name: str) -> None:
        """Somebody else changes what nobody here looks at."""
        self.store.patch(
            "pods", "default", name, {"metadata": {"annotations": {"at": str(self.kit.clock.elapsed)}}}, "merge"
        )

    def release(self, pod: Mapping[str, Any]) -> None:
        """Somebody takes a pod out of the fleet."""
        self._released[pod["metadata"]["name"]] = pod["metadata"]["uid"]
        self.label(pod["metadata"]["name"], {ROLE_LABEL: "pet"})

    def bring_back(self, number: int) -> None:
        """Somebody puts a pod back into the fleet that was taken out of it."""
        there = [pod for pod in self.pods() if self._released.get(pod["metadata"]["name"]) == pod["metadata"]["uid"]]
        if not there:
            return
        name = there[number % len(there)]["metadata"]["name"]
        self.invariants.taken_by_others(name)
        self.invariants.back_again(self._released.pop(name))
        self.label(name, {ROLE_LABEL: "executor"})

    def hold(self, pod: Mapping[str, Any]) -> None:
        """Somebody else deletes a pod, and something keeps it from going."""
        self.add_finalizer(pod)
        self.delete(pod, 1)

    def add_stray(self, number: str, profile: str | None) -> None:
        """Somebody else creates a pod with the fleet's labels. One that looks like an executor is taken for one."""
        self.invariants.taken_by_others(FAR)
        self.strangers.create_pod(number, profile)

    def add_finalizer(self, pod: Mapping[str, Any]) -> None:
        """A controller keeps a pod from going when it is deleted. The API allows no new one when that has begun."""
        if "deletionTimestamp" in pod["metadata"]:
            return
        self.store.patch("pods", "default", pod["metadata"]["name"], {"metadata": {"finalizers": [FINALIZER]}}, "merge")

    def let_go(self) -> None:
        """Nothing keeps a pod from going any more."""
        for pod in self.pods():
            if pod["metadata"].get("finalizers"):
                patch = {"metadata": {"finalizers": None}}
                self.store.patch("pods", "default", pod["metadata"]["name"], patch, "merge")

    def open_gates(self) -> None:
        """Whoever holds the gated pods back lets them go on."""
        for pod in self.pods("Pending"):
            if pod["spec"].get("schedulingGates") and "deletionTimestamp" not in pod["metadata"]:
                self.store.patch("pods", "default", pod["metadata"]["name"], {"spec": {"schedulingGates": []}}, "merge")

    def restore_backup(self) -> None:
        """The cluster is restored from a backup: what had gone since is back, and nobody's."""
        if self.backup is None:
            self.backup = self.store.snapshot()
            return
        before, there = self.invariants.living(), self._uids()
        self.restore(self.backup)
        for uid in self._uids() - there:
            self.invariants.back_again(uid)
        self.backup, self.amnesia = None, True
        for executor_id in self.invariants.living() - before:
            self.invariants.taken_by_others(f"{self.settings.pod_prefix}-exec-{executor_id}")

    def _uids(self) -> set[str]:
        """Of the fleet's pods."""
        return {pod["metadata"]["uid"] for pod in self.pods() if _is_the_fleets(pod)}

    def kill_part(self, name: str) -> None:
        """One of the backend's actors dies of a message."""
        if self.lives(name) and self.crashes.get(name, 0) < MAX_CRASHES:
            self.crashes[name] = self.crashes.get(name, 0) + 1
            self.disturbed = True
            self.amnesia = self.amnesia or name in ("request-pool", "snapshot-store")
            if name == "lifecycle-manager":
                self._lifecycle_crashes.append(self.kit.clock.monotonic())
            self.crash(name)

    # ── what must hold ───────────────────────────────────────────────────────────────────────────────────────────

    def go_on(self, seconds: float) -> None:
        """Let time pass; whatever began anew meanwhile is looked at again."""
        self.advance(seconds)
        if not self.backend.is_alive() or not self.lives("snapshot-store"):
            return
        if self.address("snapshot-store").incarnation != self._store_life:
            self._look_on()

    def look(self) -> None:
        """After every step.

        Raises:
            Broken: something does not hold.
        """
        for blocked in self.heard(AllocationBlocked):
            self.strangers.notified(blocked)
        broken = [*self.invariants.violations, *self.strangers.violations]
        broken += [f"an error was logged: {words}" for words in self._ear.errors if "message=object" not in words]
        broken += [f"the backend failed: {failed.cause!r}" for failed in self.heard(BackendFailed)]
        if not self.disturbed:
            broken += self._ear.letters
        if not self.amnesia:
            broken += self._lost()
        broken += self._swollen()
        broken += self._misinformed()
        self._break(broken)

    def _break(self, broken: list[str]) -> None:
        if heeded := [words for words in broken if re.search(self.heed, words)]:
            raise Broken("\n".join(heeded))

    def _lost(self) -> list[str]:
        """Whoever sees the whole story of a pod knows how it ended."""
        seen = {m.executor_id for m in self.heard(ExecutorPending) + self.heard(ExecutorRunning)}
        removed = [m.executor_id for m in self.heard(ExecutorRemoved) if m.reason.kind is LossKind.MISSING]
        lost = [each for each in removed if each in seen and not self._was_being_confirmed(each)]
        return [f"the end of executor {executor_id} was lost" for executor_id in lost]

    def _was_being_confirmed(self, executor_id: int) -> bool:
        """Whether who had asked what became of its pod crashed before the answer could come."""
        asked_at = self.invariants.to_confirm.get(executor_id, -math.inf)
        return any(abs(at - asked_at) < ANSWERED_WITHIN for at in self._lifecycle_crashes)

    def _misinformed(self) -> list[str]:
        """2: the driver is answered what it was told, and what it said itself."""
        if not self.backend.is_alive():
            return []
        fleet = self.ask(GetExecutors())
        connected = {each.id for each in fleet.alive if each.registered}
        said = self._connected & self.invariants.present()
        wrong = [f"2: {sorted(connected)} are registered, the driver said {sorted(said)}"] if connected != said else []
        if self.view is not None:
            wrong += [f"2: published {one}, answered {other}" for one, other in differences(self.view, fleet)]
        return [*self.invariants.contradicts(fleet, self.heard(ExecutorRemoved)), *wrong]

    def _swollen(self) -> list[str]:
        """5: no collection has more entries than there are pods, and were requested lately."""
        now = self.kit.clock.monotonic()
        recent = sum(now - at < RECENT for at in self._requests.values())
        return self._larger_than(2 * (recent + len(self.pods())) + ROOM)

    def _larger_than(self, limit: int) -> list[str]:
        return [
            f"5: {path} has {size} entries, {limit} are allowed"
            for path, size in sizes(self._parts()).items()
            if size > max(limit, OF_ITS_OWN.get(path.rpartition(".")[2], 0))
        ]

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def settle_down(self) -> None:
        """No trouble any more: the fleet comes to its target, forgets what was, and leaves nothing when it stops.

        Raises:
            Broken: it does not.
        """
        self.api.calm()
        self.strangers.set_quota(None)
        self.kubelet.script = lambda _: Run()
        self.let_go()
        self.open_gates()
        self.go_on(UNTIL_HELD if self.settings.uses_lease else UNTIL_LISTED if self.amnesia else UNTIL_POLLED)
        self.look()
        self._trim()
        self.hold_or_resume(None, holds=False)
        coming = Counter(entry.profile for entry in self._requested())  # what is up once, stays
        self.want({profile: self.invariants.alive(profile) + coming[profile] + 1 for profile in PROFILES})
        failed = len(self.heard(FleetFailed))
        for seconds in PATIENCE:
            self.go_on(seconds)
            self.look()
            self.open_gates()
            if not self._unsettled():
                break
            if len(self.heard(FleetFailed)) > failed:  # of what was stuck before: the driver wants it all the same
                failed += 1
                self.want(self.totals)
        self._break(self._unsettled())
        if self.generations:
            self._live_on()
        self._stop_well()

    def _trim(self) -> None:
        """4: nobody is busy any more, and no profile that was scaled has more than it should, whatever crashed."""
        for executor_id in sorted(self.invariants.present()):
            self.backend.tell(ExecutorIdle(executor_id))
        for seconds in PATIENCE:
            if not self._in_excess():
                break
            self.go_on(seconds)
            self.look()
            self.open_gates()
        self._break(self._in_excess())

    def _in_excess(self) -> list[str]:
        scaled, wanted = PROFILES if self.on_hold else self._scaled, self.wanted
        alive = {profile: self.invariants.alive(profile, but=self._decommissioned) for profile in scaled}
        return [
            f"4: {alive[profile]} {profile} pods live that may be ended, it was scaled to {wanted.get(profile, 0)}"
            for profile in sorted(scaled)
            if alive[profile] > wanted.get(profile, 0)
        ]

    def _unsettled(self) -> list[str]:
        """4: the fleet is at its target, and the driver knows it as it is."""
        wanted, invariants = self.totals, self.invariants
        wrong = [
            f"4: {invariants.alive(profile)} {profile} pods live, {total} are wanted"
            for profile, total in wanted.items()
            if invariants.alive(profile) != total
        ]
        if not wrong and invariants.present() != invariants.living():
            wrong = [f"2: the driver knows {sorted(invariants.present())}, there are {sorted(invariants.living())}"]
        return wrong

    def _live_on(self) -> None:
        """5: whatever ended is forgotten."""
        for generation in range(self.generations):
            self._end_all(untold=generation == 0)
        self.go_on(FORGETFUL)
        self.look()
        self._break(self._larger_than(len(self.pods()) + self._taken_over + ROOM // 2))

    def _end_all(self, *, untold: bool) -> None:
        """Every executor ends, by force or by itself, perhaps while nobody is there who could tell."""
        for number, pod in enumerate(self.pods("Running")):
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"] or not _is_the_fleets(pod) or name == STRAY:
                continue
            self.register((int(pod["metadata"]["labels"][EXECUTOR_ID_LABEL]),))
            if untold and number == 0:
                self.kill_part("lifecycle-manager")
            if number % 2:
                self.kubelet.exit(name, 0)
            else:
                self.delete(pod, 0)
            self.go_on(0.004)
        self.go_on(GENERATION)
        self.open_gates()
        self.go_on(GENERATION)
        self.look()

    def _strays(self) -> list[str]:
        """The UIDs of living pods that have the fleet's labels and no executor's name."""
        pods = [pod["metadata"] for pod in self.pods()]
        return [pod["uid"] for pod in pods if pod["name"] == STRAY and "deletionTimestamp" not in pod]

    def _stop_well(self) -> None:
        """6: a stop leaves nothing but what is another's, and tells the end of every executor."""
        self._break(shared(self._parts()))
        self.disturbed = True
        strays = self._strays()
        stopped = self.stop()
        self.look()
        if self._strays() != strays:
            self._break(["6: the stop deletes a stranger's pod"])
        left = [pod["metadata"]["name"] for pod in self.pods() if _is_the_fleets(pod)]
        left = [name for name in left if name != STRAY]
        if left or stopped.left_behind:
            self._break([f"6: the stop leaves {left}, and says {stopped.left_behind}"])
        if present := self.invariants.present():
            self._break([f"2: the ends of {sorted(present)} were never told"])
        if alive := [part.name for part in self._parts()]:
            self._break([f"6: {alive} live on"])
        if (calls := self.api.calls.open()) or not self.api.calls.closed:
            self._break([f"6: {len(calls)} calls and watches are open, or may be"])

    def _parts(self) -> list[Actor]:
        """The Backend's actors, and itself."""
        return [actor for actor in self.kit.dispatcher.actors if actor.name not in {"driver", "onlooker"}]


def _is_the_fleets(pod: Mapping[str, Any]) -> bool:
    labels = pod["metadata"]["labels"]
    return bool(labels.get(ROLE_LABEL) == "executor" and labels.get(INACTIVE_LABEL) != "true")


def differences(view: FleetView, answer: FleetExecutors) -> list[tuple[Executor | None, Executor | None]]:
    """What a follower knows and what the Backend answers, where that differs."""
    found = {each.id: each for each in answer.alive}
    both = [(view.alive.get(i), found.get(i)) for i in sorted({*view.alive, *found})]
    ended = zip_longest(view.ended, answer.ended)
    return [(one, other) for one, other in (*both, *ended) if one != other]
