"""`executor-pods run` in virtual time: its main loop over a real `Fleet`, with a screen that records what is shown."""

from __future__ import annotations

from collections import Counter, deque
from datetime import timedelta
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING, Any, cast

from actors.cli.driver import Plan
from actors.cli.main_loop import Happened, MainLoop
from actors.cli.output import Output
from actors.fleet.fleet import Fleet
from actors.fleet.stream import EventsMissed
from actors.messages import BackendStopped, ToDriver
from actors.testing import FakeCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from actors.cli.events import Event
    from actors.cli.logs import LogFormat
    from actors.cli.main_loop import Inbox, Item
    from actors.fleet.stream import Event as FleetEvent
    from actors.messages import Executor, FleetStatus
    from actors.testing import Kit

__all__ = ["OVER", "Run", "Screen"]

OVER = BackendStopped()
"""Ends a run at once, as its fleet's last message."""

LEAST_WAIT = 0.001
"""Seconds. A wait of nothing would stop the virtual time."""


class Screen(Output):
    """An output that records what is shown."""

    def __init__(self, fail: Exception | None = None, *, owns_stderr: bool = False) -> None:
        self.owns_stderr = owns_stderr
        self.events: list[Event] = []
        self.acts: list[str] = []
        self.notes: list[str] = []
        self.drawn: list[int] = []
        """How many events were shown before each picture."""
        self.executors: Mapping[int, Executor] = {}
        self.status: FleetStatus | None = None
        self.on_refresh: Callable[[], object] = lambda: None
        self._fail = fail

    def show(self, event: Event) -> None:
        if self._fail:
            raise self._fail
        self.events.append(event)

    def look(self, fleet: Fleet) -> None:
        self.executors, self.status = fleet.executors, fleet.last_status

    def note(self, text: str, times: int = 1) -> None:
        self.notes.append(text if times == 1 else f"{text} ({times})")

    def remark(self, text: str, *, stays: bool = False) -> None:
        self.notes.append(f"{text} (stays)" if stays else text)

    def refresh(self) -> None:
        self.drawn.append(len(self.events))
        self.on_refresh()

    def press(self, key: str) -> Any:
        return "stop" if key == "y" else None

    def suspend(self) -> None:
        self.acts.append("suspended")

    def resume(self) -> None:
        self.acts.append("resumed")

    def plainer(self) -> Output:
        self._fail = None
        return self


class KitInbox:
    """An inbox for which virtual time passes while nothing is in it."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._items: deque[Item] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)

    def get(self, *, timeout: float) -> Item:
        if not self._kit.wait_until(lambda: bool(self._items), timedelta(seconds=max(timeout, LEAST_WAIT))):
            raise Empty
        return self._items.popleft()


class Run:
    """A run to its end.

    Args:
        kit: of the virtual time.
        items: are in the inbox from the beginning on.
        at: what else comes into the inbox, or is called, by seconds.
        plan: what the driver does.
        cluster: where the fleet lives.
        screen: what is shown.
        output: in place of the screen.
        log_format: of log records.
        settings: of the fleet, which has no executor unless they say so.
    """

    def __init__(
        self,
        kit: Kit,
        *items: Item | FleetEvent,
        at: Mapping[int, Sequence[Item | FleetEvent] | Callable[[], object]] | None = None,
        plan: Plan | None = None,
        cluster: FakeCluster | None = None,
        screen: Screen | None = None,
        output: Output | None = None,
        log_format: LogFormat = "text",
        **settings: Any,
    ) -> None:
        self.screen = screen or Screen()
        self.cluster = cluster or FakeCluster(kit)
        inbox = KitInbox(kit)

        def happen(*messages: Item | FleetEvent) -> None:
            for each in messages:
                inbox.put(Happened(kit.clock.now(), each) if isinstance(each, ToDriver | EventsMissed) else each)

        values: dict[str, Any] = {"app_id": "etl", "image": "worker:1", "instances": 0, **settings}
        fleet = Fleet(pod_api=self.cluster.api, system=kit.system, on_event=happen, **values)
        happen(*items)
        for seconds, what in (at or {}).items():
            kit.after(what if callable(what) else partial(happen, *what), seconds=seconds)
        fleet.start(wait=False)
        loop = MainLoop(
            cast("Inbox", inbox),
            output or self.screen,
            fleet,
            plan or Plan(),
            clock=kit.clock,
            entropy=kit.entropy.fork("victims"),
            log_format=log_format,
        )
        self.exit_code = loop.run()
        self.took = kit.clock.elapsed
        fleet.abandon()
        kit.settle()

    @property
    def last(self) -> Event:
        return self.screen.events[-1]

    @property
    def names(self) -> list[str]:
        return [event.event for event in self.screen.events]

    @property
    def counts(self) -> Counter[str]:
        return Counter(self.names)

    def first(self, name: str) -> Event:
        return next(event for event in self.screen.events if event.event == name)

    @property
    def stops(self) -> list[str | None]:
        """Why the run was stopped, once."""
        return [event.reason for event in self.screen.events if event.event == "stopping"]
