"""One life of an executor: how its pod is made, what happens to it, and what the driver is told of its end."""

from __future__ import annotations

import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from actors import Fleet
from actors.messages import ExecutorRemoved, ExecutorRunning, ExecutorStuck, ExecutorTerminating
from tests.node.world import IMAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from actors.pods.loss import LossReason
    from tests.node.world import World

__all__ = ["Life", "Living", "Story", "Told", "live", "merged"]

SAFETY: Final = 240.0
"""Seconds until an event that does not come fails a life. Reached by a failure only: a node's loss takes a minute."""
GRACE: Final = 2
"""Seconds between SIGTERM and SIGKILL, unless a life says otherwise."""

EXECUTOR: Final = {
    "image": IMAGE,
    "instances": 1,
    "template_patch": {"spec": {"terminationGracePeriodSeconds": GRACE}},
}


@dataclass(frozen=True)
class Told:
    """What the driver is told of an end."""

    kind: str
    code: int
    app: bool
    """Whether the application caused it."""
    says: tuple[str, ...] = ()
    """What the message contains besides the executor and its pod."""
    unseen: bool = False
    """The exit code may be none, too: a kubelet that evicts may write the status that the pod had before it ran."""

    def problems(self, reason: LossReason) -> list[str]:
        """What is otherwise in a reason."""
        code = reason.exit_code if self.unseen and reason.exit_code < 0 else self.code
        found = [
            f"{name} is {was}, not {wanted}"
            for name, was, wanted in (
                ("kind", reason.kind, self.kind),
                ("exit code", reason.exit_code, code),
                ("caused by the application", reason.caused_by_app, self.app),
            )
            if was != wanted
        ]
        return found + [f"the message lacks {fact!r}" for fact in self.says if fact not in reason.message]


@dataclass(frozen=True)
class Life:
    """A row of the table."""

    name: str
    what: str
    """How the pod is made and what happens to it, for people."""
    told: Told
    make: Mapping[str, Any] = field(default_factory=dict)
    """Settings of its executor."""
    act: Callable[[Living], None] = lambda _: None
    stuck: str | None = None
    """The reason of `ExecutorStuck` that comes first."""
    within: float | None = None
    """Seconds to the end that only a failure exceeds: then a pause lasts to its own limit."""
    alone: bool = False
    """It needs a node of its own."""
    not_embedded: str = ""
    """Why the embedded cluster cannot live it; empty if it can."""
    differs: Mapping[str, tuple[Told, str]] = field(default_factory=dict)
    """By world: what is told there instead, and why."""

    def told_in(self, world: str) -> Told:
        """What is told in this world."""
        return self.differs[world][0] if world in self.differs else self.told


@dataclass(frozen=True)
class Story:
    """What became of an executor."""

    reason: LossReason
    stuck: tuple[str, ...]
    """Reasons of `ExecutorStuck`, in order."""
    took: float
    """Seconds from the last act to the end."""
    left: set[str]
    """Pods that the fleet left."""


class Living:
    """An executor that lives. Its acts are called one after the other."""

    def __init__(self, world: World, life: Life) -> None:
        self.world = world
        self.app_id = f"life-{uuid.uuid4().hex[:8]}"
        self.pod = f"{self.app_id}-exec-1"
        self._news = threading.Condition()
        self._events: list[Any] = []
        self._acted = time.monotonic()
        executor: Any = merged(EXECUTOR, world.placement, life.make)
        self.fleet = Fleet(
            app_id=self.app_id,
            kubeconfig=world.kubeconfig,
            on_event=self._note,
            backend={"lease": False, "kubernetes_events": False, "shutdown_timeout": "2m"},
            executor=executor,
        )

    # ── what is awaited ─────────────────────────────────────────────────────────────────────────────────────────────

    def runs(self) -> None:
        """Wait until the executor runs."""
        self._wait(ExecutorRunning)

    def is_ready(self) -> None:
        """Wait until its program says that it handles SIGTERM, or does not."""
        self.runs()
        self.world.await_line(self.pod, "ready")
        self._acted = time.monotonic()

    def is_stuck(self) -> None:
        """Wait until the driver is told that its pod is stuck."""
        self._wait(ExecutorStuck)

    def terminates(self) -> None:
        """Wait until the driver is told that it terminates."""
        self._wait(ExecutorTerminating)

    def is_gone(self) -> LossReason:
        """Wait for its end."""
        reason: LossReason = self._wait(ExecutorRemoved).reason
        return reason

    def acts(self) -> None:
        """The end is measured from here."""
        self._acted = time.monotonic()

    def story(self, reason: LossReason, left: set[str]) -> Story:
        with self._news:
            ended = next(at for at, event in self._events if isinstance(event, ExecutorRemoved))
            stuck = tuple(event.reason for _, event in self._events if isinstance(event, ExecutorStuck))
        return Story(reason, stuck, ended - self._acted, left)

    def _note(self, event: object) -> None:
        if getattr(event, "executor_id", None) == 1:
            with self._news:
                self._events.append((time.monotonic(), event))
                self._news.notify_all()

    def _wait(self, kind: type[Any]) -> Any:
        def found() -> Any:
            awaited = (kind, ExecutorRemoved)  # nothing follows the end
            return next((event for _, event in self._events if isinstance(event, awaited)), None)

        with self._news:
            self._news.wait_for(lambda: found() is not None, SAFETY)
            told = [str(event)[:500] for _, event in self._events]
            assert isinstance(found(), kind), f"no {kind.__name__}; the driver was told {told}"
            return found()


def live(world: World, life: Life) -> Story:
    """Live a life to its end, and stop its fleet."""
    living = Living(world, life)
    with living.fleet:
        life.act(living)
        reason = living.is_gone()
    return living.story(reason, world.pods(living.app_id))


def merged(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of all layers; a later one wins, key by key."""
    result: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            both = isinstance(value, dict) and isinstance(result.get(name), dict)
            result[name] = merged(result[name], value) if both else value
    return result
