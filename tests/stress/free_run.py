"""Minutes of a fleet on real threads, over HTTPS, with real processes, while everything goes wrong that can.

The seed draws what is done and when; what comes of it is not the same twice, as threads, processes and sockets take
turns as they like. What is true is taken from the cluster's own store, past the code under test.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import takewhile
from random import Random
from typing import TYPE_CHECKING, Any, Final, Self

from actors.local.kubelet.process_kubelet import ProcessKubelet
from actors.local.server.api_server import ApiServer
from actors.local.server.credentials import new_credentials
from actors.local.store.object_store import ApiStatus, ObjectStore, WatchMessage
from actors.messages import DecommissionExecutors, ExecutorDisconnected, KillExecutors, RegisterExecutor
from actors.pods.pod import APP_ID_LABEL, EXECUTOR_ID_LABEL, PROFILE_LABEL, ROLE_LABEL
from actors.runtime import Entropy, SystemClock, TimerThread
from actors.runtime.loop import LOOK_EVERY
from tests.scenarios.crashes import PARTS
from tests.scenarios.invariants import Invariants
from tests.stress.deeds import Deeds
from tests.stress.free_life import ENDS, Ear, Life, Moments, News, number_of
from tests.stress.hands_on_process import SILENCE, HandsOnProcess
from tests.stress.proxy import Odds, Proxy
from tests.stress.restarts import kill_groups, processes
from tests.stress.rig import TROUBLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from actors.messages import FromDriver
    from tests.stress.deeds import Deed

__all__ = ["FreeChaos"]

DEFAULT, SHORT, ABSENT, STUCK = "default", "short", "absent", "stuck"

GRACE: Final = {"terminationGracePeriodSeconds": 2}

LONG_SCRIPT: Final = "[ $((EXECUTOR_ID % 5)) = 0 ] && trap '' TERM || trap 'exit 0' TERM; sleep 6000 & wait; wait"
"""One in five has to be killed."""
SHORT_SCRIPT: Final = "sleep $((EXECUTOR_ID % 3)).$((EXECUTOR_ID % 7)); exit $((EXECUTOR_ID % 4))"

SETTINGS: Final[Mapping[str, Any]] = {
    "executor": {
        "image": "worker:1",
        "command": ["sh", "-c", LONG_SCRIPT],
        "template_patch": {"spec": GRACE},
        "api_polling_interval": "5s",
        "missing_pod_detect_delta": "5s",
        "removed_executors_ttl": "20s",
        "kill_grace_period": "1s",
        "max_failures": 100_000,
        "min_run_time": "300ms",
        "stuck_timeout": "5s",
        "disconnect_timeout": "5s",
        "terminating_timeout": "20s",
    },
    "allocation": {"batch_size": 3, "creation_timeout": "8s", "idle_timeout": "2s", "max_requests_in_flight": 4},
    "source": {"inactivity_timeout": "8s", "stale_after": "20s"},
    "backend": {
        "request_timeout": "2s",
        "lease": True,
        "lease_duration": "8s",
        "hang_timeout": "3s",
        "start_timeout": "5m",
    },
}
"""Every timeout runs out within seconds."""

PROFILES: Final[Mapping[str, Mapping[str, Any]]] = {
    SHORT: {"command": ["sh", "-c", SHORT_SCRIPT], "template_patch": {"spec": GRACE}},
    ABSENT: {"command": ["/no/such/program"]},
    STUCK: {
        "template_patch": {
            "spec": {
                "containers": [
                    {
                        "name": "executor",
                        "env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
                    }
                ]
            }
        }
    },
}
"""Those that end soon, cannot be started, and wait for what is not there."""

MOST: Final[Mapping[str, int]] = {DEFAULT: 14, SHORT: 5, ABSENT: 1, STUCK: 1}
"""The highest targets."""

AT_LAST: Final[Mapping[str, int]] = {DEFAULT: 16, SHORT: 0, ABSENT: 0, STUCK: 0}

KNOWN_WITHIN: Final = 2 + 2 * LOOK_EVERY
"""Seconds from the driver's wish until the allocator cannot act on an older one any more. A part that hangs holds the
others up for two looks of the loop. A process of the fleet may be stopped besides, until it is killed."""

LAST_WORDS: Final = 8.0
"""Seconds for which a request may be under way whose sender has ended: a delay, and what holds up who looks at it."""

CONVERGED_WITHIN: Final = 90.0
"""Seconds: two polling intervals, the creation timeout and the slowest backoff that may be running, of 30 s and half as
much jitter, twice: of a part that crashed, and then of its requests."""

STOPPED_WITHIN: Final = 31.0
"""Seconds: `backend.shutdown_timeout`, and until that is told."""

ENDED_WITHIN: Final = 60.0
"""Seconds until a thread that may not go on is seen to: nothing is to take that long."""

LOOK_SECONDS: Final = 0.02

FAULTS: Final = replace(
    TROUBLE,
    **{name: getattr(TROUBLE, name) / 2 for name in ("too_many", "broken", "expired", "hang", "refuse", "lose")},
)
"""One request in six fails: of two in a row each is put off for longer, and then nothing happens any more."""

PAUSES: Final = (0, 0.02, 0.1, 0.3, 0.5)
"""Seconds between two things that happen."""

QUOTA: Final = {"metadata": {"name": "few"}, "spec": {"hard": {"pods": "4"}}}

MALFORMED: Final = "pod-without-a-number"

ROOM: Final = 60
"""Entries that a collection may have besides those for pods of the last minutes."""


class FreeChaos:
    """A cluster, a way to it, and one driver after the other. A context manager that leaves nothing.

    `process`: each fleet has a process of its own, which has its own troubles.
    """

    def __init__(self, random: Random, folder: Path, *, process: bool = False) -> None:
        self.random = random
        self.hands = HandsOnProcess(random, lambda: self.life, self.rest)
        self._has_process = process
        self._known_within = KNOWN_WITHIN + process * SILENCE.total_seconds()
        self.app_id = f"free-{random.getrandbits(32):08x}"
        self.counts: Counter[str] = Counter()
        """What was done."""
        self.clock = Moments()
        self.truth = Invariants(self.clock)
        self.news = News()
        self.deeds = Deeds(frozenset({SHORT}), frozenset({ABSENT, STUCK}))
        self.store = ObjectStore(SystemClock(), Entropy(random.getrandbits(32)))
        self.totals: dict[str, int] = {DEFAULT: 4, SHORT: 1, ABSENT: 0, STUCK: 0}
        self._decided: set[str] = set()
        """Pods that an allocator was heard to request."""
        self._last_words_until = 0.0
        """Till then a pod may be made that a Backend has requested that has ended."""
        self._wishes: list[tuple[float, dict[str, int]]] = [(self.clock.monotonic(), dict(self.totals))]
        self._folder = folder
        self.lives: list[Life] = []
        self._pets: dict[str, str] = {}
        """Pods that were taken out of the selector: name → UID."""
        self._undo = ExitStack()
        self._steps = self._all_steps()

    def __enter__(self) -> Self:
        timers = TimerThread(SystemClock())
        self._undo.callback(timers.close)
        kubelet = ProcessKubelet(self.store, SystemClock(), timers, self._folder / "logs")
        kubelet.start()
        self._undo.callback(kubelet.stop)
        credentials = new_credentials()
        server = ApiServer(self.store, kubelet, credentials, SystemClock(), Entropy(self.random.getrandbits(32)))
        server.start()
        self._undo.callback(server.stop)
        self.proxy = self._undo.enter_context(Proxy(server.url, credentials, self.random, SystemClock()))
        self.proxy.on_request = self.hands.sent
        self._kubeconfig = self._folder / "kubeconfig"
        self.proxy.write_kubeconfig(self._kubeconfig)
        self.ear = self._undo.enter_context(Ear((credentials.token,), self._requested, self._elsewhere))
        self._watch()
        self._undo.callback(self._end_lives)
        self._begin_life()
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        for groups in processes(self.app_id).values():  # only where a test has failed
            kill_groups(groups)

    def _watch(self) -> None:
        """Each change of a pod is news, in the order of its making."""

        def changed(message: WatchMessage) -> None:
            self.news.tell(lambda: self._pod_changed(message))

        self.truth.retarget_exactly(self.totals, ())
        subscription = self.store.watch("pods", None, changed, resource_version=self.store.resource_version)
        self._undo.callback(subscription.cancel)

    def _pod_changed(self, message: WatchMessage) -> None:
        name = message.object["metadata"]["name"]
        if message.type == "ADDED" and name != MALFORMED and name not in self._decided:
            self._is_undecided(name, message.object["metadata"]["labels"].get(PROFILE_LABEL, DEFAULT))
        self.truth.pod_changed(message)

    def _is_undecided(self, name: str, profile: str) -> None:
        """Nobody was heard to decide that a pod be made. The last words of a Backend that does not stop are lost."""
        now = self.clock.monotonic()
        if now < self._last_words_until:
            self._allow(profile, range(number_of(name), number_of(name) + 1), now)
        else:
            self.truth.violations.append(f"1: {name} was made, and nobody was heard to decide that")

    # ── drivers ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def life(self) -> Life:
        """The driver that is asked for things."""
        return self.lives[-1]

    def _begin_life(self) -> None:
        cached = self.random.random() < 0.5
        executor = {**SETTINGS["executor"], "instances": self.totals[DEFAULT], "polling_from_cache": cached}
        profiles = {name: {**shape, "instances": self.totals[name]} for name, shape in PROFILES.items()}
        source = {**SETTINGS["source"], "process": self._has_process}
        settings = {**SETTINGS, "executor": executor, "profiles": profiles, "app_id": self.app_id, "source": source}
        chance = Random(self.random.random())
        life = Life(self._kubeconfig, settings, self.clock, self.news, self.truth.asked_to_go, self.deeds, chance)
        self.lives.append(life)

    def _another_driver(self) -> None:
        """It may have begun before the other one ends, and looks on till then."""
        old, how = self.life, self.random.choice(ENDS)
        self.counts[how] += 1
        if self.random.random() < 0.5:
            self._begin_life()
            self.rest(self.random.uniform(0, 6))
        self._last_words_until = math.inf
        old.die(how)
        self.until(old.is_over, f"the backend has ended: {how}", ENDED_WITHIN)
        self._last_words_until = self.clock.monotonic() + LAST_WORDS
        if how != "its driver died":
            self.until(lambda: old.ended, f"the driver hears of it: {how}", ENDED_WITHIN)
        old.close()
        if self.life is old:
            self._begin_life()

    def _end_lives(self) -> None:
        self.clock.let_go()
        for life in self.lives:
            life.close()

    def _requested(self, profile: str, executor_ids: Sequence[int], at: float) -> None:
        """In the thread that hears what an allocator has decided at that moment."""
        self.news.tell(lambda: self._allow(profile, executor_ids, at), at)

    def _elsewhere(self, pid: int, words: str, at: float) -> None:
        """In the thread that reads what a fleet's process sends."""
        for life in self.lives:
            if life.pid == pid:
                life.hear_from(words, at)

    def _allow(self, profile: str, executor_ids: Sequence[int], at: float) -> None:
        known = [*takewhile(lambda wish: wish[0] <= at - self._known_within, self._wishes)][-1:]
        recent = [wish for wish in self._wishes if wish[0] > at - self._known_within]
        highest = max(totals.get(profile, 0) for _, totals in [*known, *recent])
        for executor_id in executor_ids:
            name = f"{self.app_id}-exec-{executor_id}"
            self._decided.add(name)
            self.truth.asked_for_under(name, highest)

    def want(self, totals: Mapping[str, int]) -> None:
        """The driver moves its target."""
        for profile, total in totals.items():
            if total < self.totals.get(profile, 0):
                self.deeds.lowered(profile)
        self.totals = dict(totals)
        wish = (self.clock.monotonic(), self.totals)
        self.news.tell(lambda: self._wishes.append(wish))
        self.news.tell(partial(self.truth.retarget_exactly, self.totals, ()))
        self.life.want(totals)

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def rest(self, seconds: float) -> None:
        """Time passes, and all that happens is looked at."""
        until, pause = self.clock.monotonic() + seconds, threading.Event()
        while True:
            self.look()
            if (left := until - self.clock.monotonic()) <= 0:
                return
            pause.wait(min(LOOK_SECONDS, left))

    def until(self, true: Callable[[], bool], what: str, within: float) -> None:
        """Until it is so."""
        began = self.clock.monotonic()
        while not true():
            late = self.clock.monotonic() - began >= within
            assert not late, "\n".join([f"{what}: not within {within:g} s, after", *self.ear.last])
            self.rest(LOOK_SECONDS)

    def look(self) -> None:
        """Judge what has happened since."""
        self.news.read(min(life.heard_until() for life in self.lives))
        for life in self.lives:
            if not life.ended:
                life.look_on()
        wrong = [*self.truth.violations, *self.ear.wrong, *(words for life in self.lives for words in life.wrong())]
        assert not wrong, "\n".join([*wrong, "after", *self.ear.last])

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────

    def trouble(self, seconds: float) -> None:
        """One thing after the other."""
        until = self.clock.monotonic() + seconds
        names, weights = zip(*((name, weight) for name, (weight, _) in self._steps.items()), strict=True)
        while self.clock.monotonic() < until:
            (name,) = self.random.choices(names, weights)
            self.counts[name] += 1
            with suppress(ApiStatus):  # what it was about to change has gone meanwhile
                self._steps[name][1]()
            self.rest(self.random.choice(PAUSES))

    def _all_steps(self) -> dict[str, tuple[int, Callable[[], object]]]:
        """How often each is drawn, and what it does."""
        dice = self.random
        return {
            "target moves": (20, lambda: self.want({name: dice.randint(0, most) for name, most in MOST.items()})),
            "kill": (8, lambda: self._tell(KillExecutors, dice.randint(1, 3), ends=True)),
            "decommission": (5, lambda: self._tell(DecommissionExecutors, 1, ends=True)),
            "register": (10, lambda: self._tell(lambda ids: RegisterExecutor(ids[0]), 1)),
            "disconnect": (2, lambda: self._tell(lambda ids: ExecutorDisconnected(ids[0]), 1, ends=True)),
            "kill -9": (15, self._kill_a_process),
            "deleted by hand": (15, lambda: self._delete(dice.choice((0, 1, None)))),
            "evicted": (8, self._evict),
            "relabelled": (3, self._release),
            "brought back": (3, self._bring_back),
            "malformed pod": (1, self._make_a_malformed_pod),
            "quota": (2, self._quota),
            "faults": (5, lambda: setattr(self.proxy, "odds", FAULTS)),
            "no faults": (9, lambda: setattr(self.proxy, "odds", Odds())),
            "outage": (3, self._outage),
            "history forgotten": (4, self.store.expire),
            "bookmark": (10, self.store.bookmark),
            "a part crashes between messages": (8, lambda: self.life.break_part(self._a_part(), "lose")),
            "a part crashes in a message": (8, lambda: self.life.break_part(self._a_part(), "crash")),
            "a part hangs": (3, lambda: self.life.break_part(self._a_part(), "hang")),
            "another driver": (2, self._another_driver),
            **(self.hands.steps() if self._has_process else {}),
        }

    def _a_part(self) -> str:
        return self.random.choice(list(PARTS))

    def _tell(self, message: Callable[[tuple[int, ...]], FromDriver], number: int, *, ends: bool = False) -> None:
        # what never starts never connects; it would stay for ever, as it would if its driver let it finish
        stuck = self.truth.executors(STUCK) if message is not KillExecutors else frozenset()
        if present := sorted(self.life.story.present() - stuck):
            executor_ids = tuple(self.random.sample(present, min(number, len(present))))
            for executor_id in executor_ids if ends else ():
                self.deeds.wished(self.life, executor_id)
            self.life.backend.tell(message(executor_ids))

    def _a_pod(self) -> dict[str, Any] | None:
        """One of the fleet's."""
        selector = f"{APP_ID_LABEL}={self.app_id},{ROLE_LABEL}=executor"
        pods = self.store.list("pods", "default", label_selector=selector).items
        return self.random.choice(pods) if pods else None

    def _kill_a_process(self) -> None:
        if alive := processes(self.app_id):
            name = self.random.choice(sorted(alive))
            self.deeds.by_hand(number_of(name), "killed")
            kill_groups(alive[name])

    def _delete(self, grace: int | None) -> None:
        if (pod := self._a_pod()) is not None:
            self._is_taken(pod, "deleted")
            self.store.delete("pods", "default", pod["metadata"]["name"], grace_period_seconds=grace)

    def _evict(self) -> None:
        if (pod := self._a_pod()) is not None:
            self._is_taken(pod, "evicted")
            self.store.evict("default", pod["metadata"]["name"], grace_period_seconds=1)

    def _is_taken(self, pod: Mapping[str, Any], deed: Deed) -> None:
        name = pod["metadata"]["name"]
        if name != MALFORMED:
            self.deeds.by_hand(number_of(name), deed)
        self.news.tell(partial(self.truth.taken_by_others, name))

    def _release(self) -> None:
        if (pod := self._a_pod()) is not None:
            self._is_taken(pod, "relabelled")
            self._pets[pod["metadata"]["name"]] = pod["metadata"]["uid"]
            self._label(pod["metadata"]["name"], "pet")

    def _bring_back(self) -> None:
        if not self._pets:
            return
        name = self.random.choice(sorted(self._pets))
        uid = self._pets.pop(name)
        if self.store.get("pods", "default", name)["metadata"]["uid"] == uid:
            for life in self.lives:
                life.back_again(uid)
            self._label(name, "executor")

    def _label(self, name: str, role: str) -> None:
        self.store.patch("pods", "default", name, {"metadata": {"labels": {ROLE_LABEL: role}}}, "merge")

    def _make_a_malformed_pod(self) -> None:
        labels = {APP_ID_LABEL: self.app_id, ROLE_LABEL: "executor", EXECUTOR_ID_LABEL: "no-number"}
        container = {"name": "executor", "image": "x", "command": ["sleep", "600"]}
        pod = {"metadata": {"name": MALFORMED, "labels": labels}, "spec": {"containers": [container]}}
        self.store.create("pods", "default", pod)

    def _quota(self) -> None:
        """For a while nothing more is created."""
        self.store.create("resourcequotas", "default", QUOTA)
        try:
            self.rest(self.random.uniform(1, 5))
        finally:
            self.store.delete("resourcequotas", "default", "few")

    def _outage(self) -> None:
        self.proxy.outage(self.random.choice(("refuses", "is silent")))
        try:
            self.rest(self.random.uniform(0.2, 5))
        finally:
            self.proxy.end_outage()

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    def converge(self) -> float:
        """Nothing goes wrong any more: within how many seconds the fleet is as it should be."""
        self.proxy.odds = Odds()
        began = self.clock.monotonic()
        self.want(AT_LAST)
        while (unsettled := self._unsettled()) and self.clock.monotonic() - began < CONVERGED_WITHIN:
            self.rest(LOOK_SECONDS)
        assert not unsettled, "\n".join([f"{unsettled}, after {CONVERGED_WITHIN:g} s", *self.ear.last])
        assert self.ear.requests, "no allocator was heard to decide"
        took = self.clock.monotonic() - began
        swollen = self.life.swollen(2 * self.truth.created + ROOM)
        assert not swollen, "\n".join(swollen)
        return took

    def _unsettled(self) -> str:
        """How the fleet differs from what is wanted, and from what the driver knows."""
        alive = {profile: self.truth.alive(profile) for profile in AT_LAST}
        present, living = self.life.story.present(), self.truth.living()
        if alive != AT_LAST:
            return f"4: {alive} live, {AT_LAST} are wanted"
        return f"2: the driver knows {sorted(present)}, there are {sorted(living)}" if present != living else ""

    def stop(self) -> float:
        """The driver stops its Backend: within how many seconds nothing is left of the fleet."""
        began = self.clock.monotonic()
        self.life.stop()
        self.until(lambda: self.life.ended and self.life.is_over(), "the stop ends", STOPPED_WITHIN)
        took = self.clock.monotonic() - began
        assert self.life.left_behind == (), f"6: the stop leaves {self.life.left_behind}"
        assert self._a_pod() is None, f"6: the stop leaves {self._a_pod()}"
        assert not self.life.story.present(), f"2: the ends of {self.life.story.present()} were never told"
        for pod in self.store.list("pods", "default").items:
            assert pod["metadata"]["name"] in self._pets, f"6: {pod['metadata']['name']} is left"
            self.store.delete("pods", "default", pod["metadata"]["name"], grace_period_seconds=0)
        self.until(lambda: not processes(self.app_id), "6: no process is left", ENDED_WITHIN)
        return took
