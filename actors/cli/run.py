"""`executor-pods run` after its arguments are parsed: start the fleet, show its events, stop it.

One `ExitStack` owns everything that is started, and closes it in reverse order however the run ends. The main thread
reads one inbox: events of the driver, warnings of the library, signals of the user.
"""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeAlias

from actors import kube
from actors.backend.backend import Backend
from actors.cli.driver import FORCE_AFTER, FleetDriver, Plan, StopFleet, UseBackend
from actors.cli.events import NOTHING_MADE, Event, to_json, to_line
from actors.cli.logs import LogFormat, LogLevel, Repeats, as_json, as_text, is_told_by_event
from actors.cli.output import Lines, Output, OutputFormat
from actors.cli.streams import discard, has_no_reader, say, say_raw, unwritten
from actors.manifests import executor_pod
from actors.runtime import ActorSystem, Address, Clock, Moment, SystemClock, elapsed, later

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.messages import FleetExecutors, FleetStatus
    from actors.metrics.counts import Metrics
    from actors.page.plan import PagePlan
    from actors.settings.model import Settings

__all__ = [
    "EXIT_FAILED",
    "EXIT_INTERRUPTED",
    "EXIT_OK",
    "ClusterFaults",
    "Inbox",
    "Item",
    "Key",
    "MainLoop",
    "Observed",
    "Request",
    "run_fleet",
    "run_local",
]

EXIT_OK: Final = 0
"""Ended as asked: after `--for`, by SIGTERM, or because stdout was closed."""
EXIT_FAILED: Final = 1
"""The fleet failed, or could not be started."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C: 128 + SIGINT, as in shells."""

REDRAW_SECONDS: Final = 0.5
"""Ages have seconds: at twice that rate, every second is visible."""

FRAME: Final = timedelta(milliseconds=50)
REST: Final = 4
"""The least time between two pictures, and as a multiple of what one takes."""

LOCAL_STOP: Final = FORCE_AFTER + timedelta(seconds=3)
"""How long an orderly stop may take on the embedded cluster, which ends with the command and leaves nothing behind.
After `FORCE_AFTER` no pod is left; the rest is the Backend's, to report that."""


@dataclass(frozen=True, slots=True)
class Key:
    """A key that was pressed."""

    name: str


@dataclass(frozen=True, slots=True)
class Observed:
    """What the Backend answered to the driver."""

    status: FleetStatus
    executors: FleetExecutors | None


Item: TypeAlias = Event | Observed | Key | logging.LogRecord | signal.Signals
Inbox = SimpleQueue[Item]
"""What the main thread reads. A SimpleQueue, because its `put` is safe in a signal handler."""


@dataclass(frozen=True, slots=True)
class ClusterFaults:
    """What goes wrong on the embedded cluster; see `LocalCluster`."""

    failing_pulls: tuple[str, ...] = ()
    lose_node_after: timedelta | None = None
    node_outage: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """A run, from its arguments."""

    settings: Settings
    output: OutputFormat = "live"
    local: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    run_for: timedelta | None = None
    kill_every: timedelta | None = None
    faults: ClusterFaults = ClusterFaults()
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    page: PagePlan | None = None
    log_format: LogFormat = "text"
    log_level: LogLevel = "warning"


class _Handler(logging.Handler):
    """Passes log records to the main thread: on stderr they would tear the table."""

    def __init__(self, inbox: Inbox, level: LogLevel) -> None:
        super().__init__(level.upper())
        self._inbox = inbox

    def emit(self, record: logging.LogRecord) -> None:
        """Put the record into the inbox."""
        self._inbox.put(record)


def run_fleet(request: Request, inbox: Inbox) -> int:
    """Keep the fleet until its time is up or a signal comes; return the exit code.

    Raises:
        SettingsError: a value from the user is wrong. Nothing was started.
    """
    executor_pod.check_template(request.settings)
    with ExitStack() as stack:
        _take_records(inbox, request.log_level, stack)
        metrics, metrics_url = _serve_metrics(request, stack)
        clock = SystemClock()
        page = None
        if request.page is not None:
            page = stack.enter_context(request.page.serve(request.settings.app_id, clock, metrics))
            metrics = page.metrics
        plan = Plan(run_for=request.run_for)
        kubeconfig, context = request.kubeconfig, request.context
        if request.local:
            from actors.local.cluster import LocalCluster  # noqa: PLC0415 - only this needs the HTTP server

            namespace = request.settings.namespace or "default"
            cluster = stack.enter_context(LocalCluster(namespace=namespace, **asdict(request.faults)))
            kubeconfig, context = cluster.kubeconfig_path, None
            force = partial(cluster.store.delete_collection, "pods", namespace, grace_period_seconds=0)
            plan = replace(plan, kill_every=request.kill_every, kill=cluster.kill, kubeconfig=kubeconfig, force=force)
        api = kube.connect(
            kubeconfig=kubeconfig,
            context=context,
            namespace=request.settings.namespace,
            request_timeout=request.settings.backend.request_timeout,
            max_connections=request.settings.allocation.connections,
            bounds=request.settings.api.bounds,
        )
        stack.callback(api.close)
        output = choose_output(request, inbox, clock)
        stack.callback(output.close)
        if not isinstance(output, Lines):
            plan = replace(plan, observe=lambda status, executors: inbox.put(Observed(status, executors)))
        system = ActorSystem()
        stack.callback(system.close)
        feed = None if page is None else page.feed
        driver = system.spawn(
            lambda context: FleetDriver(context, plan=plan, show=inbox.put, feed=feed), name="driver", owner=None
        )
        stack.callback(driver.stop)
        backend = Backend.start(request.settings, driver, api, system=system, metrics=metrics)
        driver.tell(UseBackend(backend))
        patience = LOCAL_STOP if request.local else None
        loop = MainLoop(inbox, output, driver=driver, patience=patience, clock=clock, log_format=request.log_format)
        if metrics_url is not None:
            loop.remark(f"metrics at {metrics_url}", stays=True)
        if page is not None:
            page.backend = backend
            loop.remark(f"page at {page.url}", stays=True)
        return loop.run()


def _take_records(inbox: Inbox, level: LogLevel, stack: ExitStack) -> None:
    """Pass log records to the main thread until the end: ours of this level, and those of others."""
    root, handler = logging.getLogger(), _Handler(inbox, level)  # noqa: TID251 - for the records of others too
    root.addHandler(handler)
    stack.callback(root.removeHandler, handler)
    ours = logging.getLogger("actors")  # noqa: TID251 - for the level of all our loggers
    stack.callback(ours.setLevel, ours.level)
    ours.setLevel(level.upper())


def choose_output(request: Request, inbox: Inbox, clock: Clock) -> Output:
    """Return a table for a terminal that can draw one, lines for a pipe, a file or a command in the background."""
    if request.output == "json":
        return Lines(sys.stdout, to_json)
    from rich.console import Console  # noqa: PLC0415 - only a table needs the modules of the terminal

    from actors.cli.live.keyboard import Keyboard, in_foreground  # noqa: PLC0415 - as above
    from actors.cli.live.screen import LiveTable  # noqa: PLC0415 - as above

    console = Console()
    # rich also takes a pipe for a terminal, if FORCE_COLOR is set
    draws = console.is_terminal and sys.stdout.isatty() and not console.is_dumb_terminal
    if not draws or not in_foreground(sys.stdout.fileno()):
        return Lines(sys.stdout, to_line)
    has_keys = sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()
    keyboard = Keyboard(sys.stdin.fileno(), lambda name: inbox.put(Key(name))) if has_keys else None
    return LiveTable(
        console, targets=request.settings.initial_totals, now=clock.now, keyboard=keyboard, signalled=inbox.put
    )


def _serve_metrics(request: Request, stack: ExitStack) -> tuple[Metrics | None, str | None]:
    """Serve metrics first and until the end, so that they cover the stop."""
    if request.metrics_port is None:
        return None, None
    from actors.cli.metrics_page import serve_metrics  # noqa: PLC0415 - only this needs the Prometheus client

    return stack.enter_context(serve_metrics(request.metrics_address, request.metrics_port))


def run_local(port: int, kubeconfig: Path | None, faults: ClusterFaults, inbox: Inbox) -> int:
    """Run the embedded cluster alone until a signal comes; return the exit code.

    Raises:
        SettingsError: the port or the kubeconfig's path is in use.
    """
    from actors.local.cluster import LocalCluster  # noqa: PLC0415 - as above

    with LocalCluster(port=port, kubeconfig=kubeconfig, **asdict(faults)) as cluster:
        path = cluster.kubeconfig_path
        try:
            print(f"cluster ready; its pods are processes of this machine\nexport KUBECONFIG={path}", flush=True)
        except OSError as error:
            if not has_no_reader(error):
                raise
            discard(sys.stdout)
        return EXIT_INTERRUPTED if _next_signal(inbox) is signal.SIGINT else EXIT_OK


def _next_signal(inbox: Inbox) -> object:
    """Wait for a signal. Look up now and then: one that the system hands to another thread does not wake this one."""
    while True:
        with suppress(Empty):
            return inbox.get(timeout=REDRAW_SECONDS)


class MainLoop:
    """The loop of the main thread: shows events, turns signals into stops, and determines the exit code.

    Args:
        inbox: see `Inbox`.
        output: shows the events.
        driver: receives `StopFleet`.
        patience: how long an orderly stop may take; None means any time.
        clock: measures it.
        log_format: of log records: notes of the output, or JSON on stderr.
    """

    def __init__(
        self,
        inbox: Inbox,
        output: Output,
        *,
        driver: Address,
        patience: timedelta | None,
        clock: Clock,
        log_format: LogFormat = "text",
    ) -> None:
        self._inbox = inbox
        self._output = output
        self._driver = driver
        self._patience = patience
        self._clock = clock
        self._log_format = log_format
        self._repeats = Repeats()
        self._exit_code: int | None = None
        self._deadline: Moment | None = None
        self._changed = True
        """Something has happened since the last picture."""
        self._draw_from: Moment = clock.monotonic()

    def run(self) -> int:
        """Run until the fleet has stopped, `patience` is over, or a second Ctrl-C comes; return the exit code."""
        while not self._is_late():
            match self._next():
                case None if not self._driver.is_alive():
                    return EXIT_FAILED  # it crashed, and the cause was shown as a warning
                case None:
                    pass
                case Event(event="stopped") as event:
                    self._show(event)
                    return self._final_exit_code(left_behind=bool(event.details.get("left_behind")))
                case signal.Signals.SIGINT if self._exit_code == EXIT_INTERRUPTED:
                    self.remark("exiting at once")
                    break
                case item:
                    self._take(item)
        return self._final_exit_code(left_behind=self._patience is None)

    def _next(self) -> Item | None:
        """Return the next item, None if there is none for a while. Draw what has changed, but not for each item."""
        if self._changed and self._clock.monotonic() >= self._draw_from:
            self._draw()
        pause = self._draw_from - self._clock.monotonic() if self._changed else REDRAW_SECONDS
        try:
            item = self._inbox.get(timeout=max(pause, 0.0))
        except Empty:
            self._draw()
            return None
        self._changed = True
        return item

    def _draw(self) -> None:
        """Draw, and then leave most of the time to other things: the picture of a large fleet takes a while."""
        begun = self._clock.monotonic()
        self._write(self._output.refresh)
        ended = self._clock.monotonic()
        self._draw_from = later(ended, max(FRAME, REST * elapsed(begun, ended)))
        self._changed = False

    def _take(self, item: Item) -> None:
        match item:
            case Event():
                self._show(item)
            case Observed(status, executors):
                self._write(partial(self._output.observe, status, executors))
            case Key(name):
                if self._output.press(name) == "stop":
                    self._stop(EXIT_OK, "a key was pressed")
            case logging.LogRecord() if self._log_format == "json" and not self._output.owns_stderr:
                say_raw(as_json(item))
            case logging.LogRecord():
                if not is_told_by_event(item):
                    self._note(as_text(item))
            case signal.Signals():
                self._handle_signal(item)

    def _show(self, event: Event) -> None:
        self._write(partial(self._output.show, event))
        if event.reason == NOTHING_MADE:
            self._exit_code = EXIT_FAILED
        elif event.event == "failed":
            self._stop(EXIT_FAILED, "the fleet failed")

    def remark(self, text: str, *, stays: bool = False) -> None:
        """Show a remark of the command itself; `stays` if it is of use until the end."""
        self._write(partial(self._output.remark, text, stays=stays))

    def _note(self, text: str) -> None:
        """Show a warning. The same one again is counted, and said more and more rarely."""
        self._write(partial(self._output.note, text, self._repeats.count(text)))

    def _handle_signal(self, number: signal.Signals) -> None:
        """Begin to stop, or do what concerns the terminal."""
        match number:
            case signal.Signals.SIGINT:
                self.remark("stopping the fleet; press Ctrl-C again to exit at once")
                self._stop(EXIT_INTERRUPTED, "interrupted")
            case signal.Signals.SIGTSTP:
                self._write(self._output.suspend)
            case signal.Signals.SIGCONT:
                self._write(self._output.resume)
            case signal.Signals.SIGWINCH:
                pass  # the next picture has the new size
            case _:
                self._stop(EXIT_OK, f"{number.name} received")

    def _stop(self, exit_code: int, why: str) -> None:
        """Begin an orderly stop. The first reason decides the exit code, except that Ctrl-C always wins."""
        if self._exit_code is None or exit_code == EXIT_INTERRUPTED:
            self._exit_code = exit_code
        if self._deadline is None and self._patience is not None:
            self._deadline = later(self._clock.monotonic(), self._patience)
        self._driver.tell(StopFleet(why))

    def _is_late(self) -> bool:
        return self._deadline is not None and self._clock.monotonic() > self._deadline

    def _final_exit_code(self, *, left_behind: bool) -> int:
        if self._exit_code is None or self._exit_code == EXIT_OK:
            return EXIT_FAILED if left_behind else EXIT_OK
        return self._exit_code

    def _write(self, write: Callable[[], None]) -> None:
        """Write to the output. Stop the fleet if stdout cannot be written: only a reader that ended is no failure."""
        try:
            write()
        except OSError as error:
            self._output, is_closed = Output(), has_no_reader(error)
            discard(sys.stdout)
            if is_closed:
                self._stop(EXIT_OK, "stdout was closed")
                return
            say(f"{unwritten(error)}; stopping the fleet")
            self._stop(EXIT_FAILED, "stdout cannot be written")
            if self._exit_code == EXIT_OK:
                self._exit_code = EXIT_FAILED
