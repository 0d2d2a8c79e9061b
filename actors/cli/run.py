"""`executor-pods run` after its arguments are parsed: start the fleet, show its events, stop it.

One `ExitStack` owns everything that is started, and closes it in reverse order however the run ends.
"""

from __future__ import annotations

import logging
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from queue import Empty
from typing import TYPE_CHECKING

from actors.cli.driver import Plan
from actors.cli.events import to_json, to_line
from actors.cli.main_loop import EXIT_INTERRUPTED, EXIT_OK, REDRAW_SECONDS, Happened, Inbox, Key, MainLoop
from actors.cli.output import Lines, Output, OutputFormat
from actors.cli.streams import discard, has_no_reader
from actors.fleet.fleet import Fleet
from actors.runtime import Clock, Entropy, SystemClock

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from actors.cli.logs import LogFormat, LogLevel
    from actors.local.cluster import LocalCluster
    from actors.metrics.counts import Metrics
    from actors.page.plan import PagePlan
    from actors.settings.model import Settings

__all__ = ["Request", "run_fleet", "run_local"]


@dataclass(frozen=True, slots=True)
class Request:
    """A run, from its arguments."""

    settings: Settings
    output: OutputFormat = "live"
    cluster: LocalCluster | None = None
    """The embedded cluster of a local run, which the fleet starts and stops."""
    kubeconfig: Path | None = None
    context: str | None = None
    run_for: timedelta | None = None
    kill_every: timedelta | None = None
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
    with ExitStack() as stack:
        _take_records(inbox, request.log_level, stack)
        metrics, metrics_url = _serve_metrics(request, stack)
        cluster, clock = request.cluster, SystemClock()
        fleet = Fleet(
            request.settings,
            local=cluster or False,
            kubeconfig=request.kubeconfig,
            context=request.context,
            on_event=lambda event: inbox.put(Happened(clock.now(), event)),
            max_events=sys.maxsize,  # a line for each
            metrics=metrics,
            page=request.page,
        )
        stack.callback(fleet.abandon)
        fleet.start(wait=False)
        plan = Plan(run_for=request.run_for)
        if cluster is not None:
            plan = replace(
                plan,
                kill_every=request.kill_every,
                kill=cluster.kill,
                kubeconfig=cluster.kubeconfig_path,
                force=partial(cluster.store.delete_collection, "pods", cluster.namespace, grace_period_seconds=0),
            )
        output = choose_output(request, inbox, clock)
        stack.callback(output.close)
        loop = MainLoop(inbox, output, fleet, plan, clock=clock, entropy=Entropy(), log_format=request.log_format)
        if metrics_url is not None:
            loop.remark(f"metrics at {metrics_url}", stays=True)
        if fleet.page_url is not None:
            loop.remark(f"page at {fleet.page_url}", stays=True)
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


def run_local(cluster: LocalCluster, inbox: Inbox) -> int:
    """Run the embedded cluster alone until a signal comes; return the exit code.

    Raises:
        SettingsError: the port or the kubeconfig's path is in use.
    """
    with cluster:
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
