"""The driver behind `executor-pods run`: owns the Backend, and turns its messages into events for the command.

It gives its executors no work and has no connections to them, so it does not register them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, assert_never

from actors.cli.events import NOTHING_MADE, Event, describe, failed, stopped, stopping
from actors.cli.tally import Tally, stands_by
from actors.messages import (
    AllocationBlocked,
    AllocationUnblocked,
    BackendFailed,
    BackendStarted,
    BackendStopped,
    ExecutorPending,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorState,
    ExecutorStuck,
    ExecutorTerminating,
    FleetChanged,
    FleetFailed,
    RegisterExecutor,
    StopBackend,
    ToDriver,
)
from actors.runtime import Actor, Address, Context, Terminated
from actors.view import FleetView

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


__all__ = ["FORCE_AFTER", "FleetDriver", "Plan", "StopFleet", "UseBackend"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What the driver should do."""

    run_for: timedelta | None = None
    """How long to keep the fleet, from its start; None means until `StopFleet`."""
    kill_every: timedelta | None = None
    kill: Callable[[str], object] | None = None
    """Kills the pod of this name without the API, as a failing machine would."""
    kubeconfig: Path | None = None
    """The kubeconfig of an embedded cluster, for the first event: the user cannot know its path."""
    force: Callable[[], object] | None = None
    """Ends all pods at once, without their grace periods, if a stop takes longer than `FORCE_AFTER`."""
    grace: timedelta | None = None
    """How long executors have to end at a stop, at the most; None if the stop leaves them."""


FORCE_AFTER: Final = timedelta(seconds=7)
"""How long a stop waits for executors on the embedded cluster, which ends with the command. Enough for the default
grace period of 5 s, and short enough that Ctrl-C takes at most 10 s."""


@dataclass(frozen=True, slots=True)
class UseBackend:
    """The Backend that was started for this driver."""

    backend: Address


@dataclass(frozen=True, slots=True)
class StopFleet:
    """Stop the fleet in order. Further ones have no effect."""

    why: str
    hands_over: bool = False
    """Leave the executors to the next driver, whatever `backend.delete_on_stop` says."""


@dataclass(frozen=True, slots=True)
class _TimeIsUp:
    """`--for` is over."""


@dataclass(frozen=True, slots=True)
class _KillDue:
    """The next kill of `--kill-every` is due."""


@dataclass(frozen=True, slots=True)
class _ForceDue:
    """The stop takes too long."""


ToFleetDriver: TypeAlias = (
    ToDriver | FleetChanged | Terminated | UseBackend | StopFleet | _TimeIsUp | _KillDue | _ForceDue
)


class FleetDriver(Actor):
    """Passes each event to `show`. The last one, `stopped`, comes after the Backend has ended.

    Args:
        plan: what to do.
        show: gets each event.
        feed: gets each message, for the page.
    """

    def __init__(
        self,
        context: Context,
        *,
        plan: Plan,
        show: Callable[[Event], None],
        feed: Callable[[object], None] | None = None,
    ) -> None:
        super().__init__(context)
        self._plan = plan
        self._output = show
        self._feed = feed
        self._tally = Tally()
        self._backend: Address | None = None
        self._view = FleetView(self.clock)
        self._pods: dict[int, str] = {}
        """The names of the pods of executors, until the message of their end was shown."""
        self._stopping: str | None = None
        self._failed = False
        self._left_behind: tuple[str, ...] = ()

    def receive(self, message: ToFleetDriver) -> Any:  # noqa: C901, PLR0912 - one case a message
        """Handle one message."""
        if self._feed is not None:
            self._feed(message)
        if isinstance(message, ToDriver) and not isinstance(message, BackendStopped):
            self._show(describe(message, self.clock.now(), self._pods, self._plan.kubeconfig))
        match message:
            case UseBackend(backend):
                self._backend = backend
                self._view.follow(backend, self.address.tell)
            case FleetChanged():
                self._fold(message)
            case StopFleet(why, hands_over):
                self._stop_fleet(why, hands_over=hands_over)
            case _TimeIsUp():
                self._stop_fleet("time is up")
            case _KillDue():
                self._kill_one()
            case _ForceDue():
                assert self._plan.force is not None
                self._plan.force()
            case BackendStarted():
                self._begin()
            case ExecutorRemoved(executor_id):
                self._pods.pop(executor_id, None)
            case ExecutorPending() | ExecutorRunning() | ExecutorTerminating() | ExecutorStuck():
                pass
            case AllocationBlocked() | AllocationUnblocked():
                pass
            case FleetFailed():
                self._stop_fleet("the fleet failed")
            case BackendFailed():
                self._failed = True
            case BackendStopped(left_behind):
                self._left_behind = left_behind
            case Terminated(cause=cause):
                self._backend_ended(cause)
            case _:
                assert_never(message)

    def _fold(self, change: FleetChanged) -> None:
        self._view.fold(change)
        self._pods |= {each.id: each.pod for each in change.executors if each.pod is not None}

    def _show(self, event: Event) -> None:
        self._tally.apply(event)
        self._output(event)

    def _begin(self) -> None:
        if self._plan.run_for is not None:
            self.timers.start("for", self._plan.run_for, _TimeIsUp())
        if self._plan.kill_every is not None:
            self.timers.every("kill", self._plan.kill_every, _KillDue())

    def _kill_one(self) -> None:
        """Kill a random executor. Register it first: its end is no failure to start then, and it is killed once."""
        pods = {
            each.id: each.pod
            for each in self._view.executors().values()
            if each.state is ExecutorState.RUNNING and each.pod is not None and not each.registered
        }
        if pods and self._backend is not None and self._plan.kill is not None:
            victim = self.entropy.choice([*pods])
            self._backend.tell(RegisterExecutor(victim))
            self._plan.kill(pods[victim])

    def _stop_fleet(self, why: str, *, hands_over: bool = False) -> None:
        if self._stopping is None and self._backend is not None and not self._failed:
            self._stopping = why
            grace, count = None if hands_over else self._plan.grace, len(self._view.executors())
            self._show(stopping(self.clock.now(), why, count, grace, stands_by=stands_by(self._view.profiles)))
            self.timers.cancel_all()
            if self._plan.force is not None:
                self.timers.start("force", FORCE_AFTER, _ForceDue())
            self._backend.tell(StopBackend(delete_pods=False if hands_over else None))

    def _backend_ended(self, cause: BaseException | None) -> None:
        """Emit the last event, and a failure that the Backend could not report itself."""
        if cause is not None and not self._failed:
            self._show(failed(self.clock.now(), f"the backend crashed: {cause!r}"))
            self._failed = True
        elif not self._failed and (cause_of_none := self._tally.nothing_made(self._view.profiles)) is not None:
            self._show(failed(self.clock.now(), cause_of_none, NOTHING_MADE))
        why = "the backend failed" if self._failed else self._stopping or "the backend ended"
        self._show(stopped(self.clock.now(), why, self._left_behind, self._tally.sums(), str(self._tally)))
        self.stop()
