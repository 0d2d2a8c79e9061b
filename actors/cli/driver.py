"""`Driver`: what `executor-pods run` does with its fleet, and which events tell of it.

It gives its executors no work and has no connections to them. It registers one only before it kills it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, final

from actors.cli.events import NOTHING_MADE, Event, describe, failed, stopped, stopping
from actors.cli.tally import Tally, stands_by
from actors.errors import ExecutorPodsError
from actors.manifests.stop_grace import longest_stop_grace
from actors.messages import (
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ToDriver,
)
from actors.runtime import later

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from actors.fleet.fleet import Fleet
    from actors.runtime import Clock, Entropy, Moment

__all__ = ["FORCE_AFTER", "Driver", "Plan"]

FORCE_AFTER: Final = timedelta(seconds=7)
"""How long a stop waits for executors on the embedded cluster, which ends with the command. Enough for the default
grace period, and short enough that Ctrl-C takes at most 10 s."""

_Act: TypeAlias = Literal["stop", "kill", "force"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the driver should do."""

    run_for: timedelta | None = None
    """How long to keep the fleet, from its start; None means until it is stopped."""
    kill_every: timedelta | None = None
    kill: Callable[[str], object] | None = None
    """Kills the pod of this name without the API, as a failing machine would."""
    kubeconfig: Path | None = None
    """The kubeconfig of an embedded cluster, for the first event: the user cannot know its path."""
    force: Callable[[], object] | None = None
    """Ends all pods of an embedded cluster at once, if a stop takes longer than `FORCE_AFTER`."""


@final
class Driver:
    """Passes each event to `show`. The last one is `stopped`. Only the main thread calls it.

    Args:
        fleet: is started, and nobody else stops it.
        plan: what to do.
        show: gets each event.
        clock: tells the time.
        entropy: chooses whom to kill.
    """

    def __init__(
        self, fleet: Fleet, plan: Plan, *, show: Callable[[Event], object], clock: Clock, entropy: Entropy
    ) -> None:
        self._fleet = fleet
        self._plan = plan
        self._show_event = show
        self._clock = clock
        self._entropy = entropy
        self._tally = Tally()
        self._pods: dict[int, str] = {}
        """The names of the pods of executors, until the event of their end was shown."""
        self._due: dict[_Act, Moment] = {}
        self._stopping: str | None = None
        self._failed = False

    def take(self, message: ToDriver, at: datetime) -> None:
        """Take in a message of the fleet, which came at this time."""
        self._failed |= isinstance(message, BackendFailed)
        if not isinstance(message, BackendStopped):
            self._show(describe(message, at, self._pods, self._plan.kubeconfig))
        match message:
            case BackendStarted():
                self._begin()
            case ExecutorPending(executor_id, pod) | ExecutorRunning(executor_id, pod):
                self._pods[executor_id] = pod.name
            case ExecutorRemoved(executor_id):
                self._pods.pop(executor_id, None)
            case BackendStopped(left_behind):
                self._end(at, left_behind)
            case BackendFailed():
                self._end(at, ())
            case _:
                pass

    def stop(self, why: str, *, hands_over: bool = False) -> None:
        """Stop the fleet in order. Further calls have no effect.

        Args:
            why: for the event.
            hands_over: leave the executors to the next driver, whatever `backend.delete_on_stop` says.
        """
        if self._stopping is not None or self._failed:
            return
        self._stopping = why
        settings, self._due = self._fleet.settings, {}
        keep, grace = hands_over or not settings.backend.delete_on_stop, longest_stop_grace(settings)
        if self._plan.force is not None:
            grace = min(grace, FORCE_AFTER)
            self._due["force"] = later(self._clock.monotonic(), FORCE_AFTER)
        count, standby = len(self._fleet.executors), stands_by(self._fleet.profiles)
        self._show(stopping(self._clock.now(), why, count, None if keep else grace, stands_by=standby))
        self._fleet.stop(keep=keep, wait=False)

    @property
    def next_due(self) -> Moment | None:
        """When to call `act` next; None: not before another call."""
        return min(self._due.values(), default=None)

    def act(self) -> None:
        """Do what is due."""
        now = self._clock.monotonic()
        while self._due and min(self._due.values()) <= now:
            act = min(self._due, key=self._due.__getitem__)
            del self._due[act]
            match act:
                case "stop":
                    self.stop("time is up")
                case "kill":
                    self._kill_one()
                    self._plan_kill()
                case "force":
                    assert self._plan.force is not None
                    self._plan.force()

    def _show(self, event: Event) -> None:
        self._tally.apply(event)
        self._show_event(event)

    def _begin(self) -> None:
        if self._stopping is None:
            if self._plan.run_for is not None:
                self._due["stop"] = later(self._clock.monotonic(), self._plan.run_for)
            self._plan_kill()

    def _plan_kill(self) -> None:
        if self._plan.kill_every is not None:
            self._due["kill"] = later(self._clock.monotonic(), self._plan.kill_every)

    def _kill_one(self) -> None:
        """Kill a random executor. Register it first: its end is no failure to start then, and it is killed once."""
        pods = {
            each.id: each.pod
            for each in self._fleet.executors.values()
            if each.state is ExecutorState.RUNNING and each.pod is not None and not each.registered
        }
        if pods and self._plan.kill is not None:
            victim = self._entropy.choice([*pods])
            with suppress(ExecutorPodsError):  # the fleet has just ended; its last event says why
                self._fleet.register(victim)
                self._plan.kill(pods[victim])

    def _end(self, at: datetime, left_behind: tuple[str, ...]) -> None:
        """Show the last event, and before it why not one executor was made."""
        if not self._failed and (cause := self._tally.nothing_made(self._fleet.profiles)) is not None:
            self._show(failed(at, cause, NOTHING_MADE))
        why = "the backend failed" if self._failed else self._stopping or "the backend ended"
        self._show(stopped(at, why, left_behind, self._tally.sums(), str(self._tally)))
