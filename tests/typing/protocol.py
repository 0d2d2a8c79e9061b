"""A driver's program, right and wrong, as mypy --strict and pyright see it.

Each `type: ignore` is a test of its own: a type checker reports one that hides no error. `# E:` says what is wrong.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, assert_type

from actors import (
    Backend,
    BackendRef,
    DecommissionExecutors,
    Executor,
    ExecutorDisconnected,
    ExecutorRemoved,
    ExecutorRunning,
    FleetChanged,
    FleetExecutors,
    FleetStatus,
    FollowFleet,
    GetExecutorIds,
    GetExecutors,
    GetFleetStatus,
    HasEnoughExecutors,
    IsExecutorActive,
    IsExecutorExcluded,
    KillExecutors,
    LossKind,
    RegisterExecutor,
    RequestTotalExecutors,
    ScaleExecutors,
    Settings,
    StopBackend,
)
from actors import ExecutorRunnin as Misspelled  # type: ignore[attr-defined]  # E: a misspelled name
from actors import RemoveExecutor as NotPublic  # type: ignore[attr-defined]  # E: of the internal protocol
from actors.messages import FromDriver, ToDriver
from actors.messages import RemoveExecutor as NotThereEither  # type: ignore[attr-defined]  # E: of the internal protocol
from actors.messages.internal import ExecutorsRequested

if TYPE_CHECKING:
    from pykka import ActorRef

__all__ = ["Misspelled", "NotPublic", "NotThereEither"]

SOON = timedelta(seconds=5)


def starts(settings: Settings, driver: ActorRef[Any]) -> BackendRef:
    return assert_type(Backend.start(settings, driver), BackendRef)


def sends(backend: BackendRef, message: FromDriver) -> None:
    backend.tell(message)
    backend.tell(RequestTotalExecutors({"default": 3}))
    backend.tell(ExecutorDisconnected(1))
    backend.stop()


def sends_wrongly(backend: BackendRef) -> None:
    backend.tell(ExecutorsRequested((1,), "default"))  # type: ignore[arg-type]  # E: no driver sends it
    backend.tell(GetFleetStatus)  # type: ignore[arg-type]  # E: a class, not a message
    backend.tell(KillExecutors(ids=(1,)))  # type: ignore[call-arg]  # E: a misspelled field
    backend.tell(KillExecutors((1,), adjust_targt=True))  # type: ignore[call-arg]  # E: a misspelled field
    backend.tell(KillExecutors(1))  # type: ignore[arg-type]  # E: not a tuple of ids
    backend.tel(StopBackend())  # type: ignore[attr-defined]  # E: a misspelled method


def answers(backend: BackendRef) -> None:
    assert_type(backend.ask(RequestTotalExecutors(3), SOON), bool)
    assert_type(backend.ask(ScaleExecutors(3), SOON), tuple[int, ...])
    assert_type(backend.ask(KillExecutors((1,)), SOON), tuple[int, ...])
    assert_type(backend.ask(DecommissionExecutors((1,)), 5), tuple[int, ...])
    assert_type(backend.ask(RegisterExecutor(1), 0.5), bool)
    assert_type(backend.ask(GetExecutorIds(), SOON), tuple[int, ...])
    assert_type(backend.ask(GetExecutors(), SOON), FleetExecutors)
    assert_type(backend.ask(GetExecutors(), SOON).alive[0], Executor)
    assert_type(backend.ask(IsExecutorActive(1), SOON), bool)
    assert_type(backend.ask(IsExecutorExcluded(1), SOON), bool)
    assert_type(backend.ask(HasEnoughExecutors(), SOON), bool)
    assert_type(backend.ask(GetFleetStatus(), SOON), FleetStatus)
    assert_type(backend.request(GetFleetStatus()).get(), FleetStatus)


def follows(backend: BackendRef) -> None:
    def follow(change: FleetChanged) -> None:
        assert_type(change.executors, tuple[Executor, ...])
        assert_type(change.status, FleetStatus | None)

    def takes_events(message: ExecutorRunning) -> None:
        """Something else is sent."""

    backend.tell(FollowFleet(follow))
    backend.tell(FollowFleet(takes_events))  # type: ignore[arg-type]  # E: it takes no change


def asks_wrongly(backend: BackendRef) -> None:
    backend.ask(GetFleetStatus(), SOON).profils  # type: ignore[attr-defined]  # E: a misspelled field  # noqa: B018
    backend.ask(GetExecutors(), SOON).alive[0].stat  # type: ignore[attr-defined]  # E: a misspelled field  # noqa: B018
    backend.ask(ExecutorsRequested((1,), "default"), SOON)  # type: ignore[arg-type]  # E: no driver sends it
    backend.ask(GetFleetStatus())  # type: ignore[call-arg]  # E: without a timeout


def events(message: ToDriver) -> None:
    match message:
        case ExecutorRunning(executor_id, pod):
            assert_type((executor_id, pod.name, message.node), tuple[int, str, str | None])
        case ExecutorRemoved():
            assert_type(message.reason.kind, LossKind)
            message.reason.exit_cod  # type: ignore[attr-defined]  # E: a misspelled field  # noqa: B018
            message.pod  # type: ignore[attr-defined]  # E: it has none  # noqa: B018
        case _:
            message.executor_id  # type: ignore[union-attr]  # E: not all have one  # noqa: B018
