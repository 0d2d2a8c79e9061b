"""`executor-pods run`, once its arguments are understood: start, show what happens, stop, say how it ended.

Everything that this starts is owned by one `ExitStack`, and given back in reverse order however the run ends. The main
thread reads one inbox: events of the driver, warnings of the library, signals of the user.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from actors import kube
from actors.backend.backend import Backend
from actors.cli.driver import FleetDriver, Plan, StopFleet, UseBackend
from actors.cli.events import Event
from actors.cli.output import Output, OutputFormat, choose_output
from actors.manifests import executor_pod
from actors.runtime import ActorSystem, Address, Clock, Moment, SystemClock, later

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from actors.metrics.counts import Metrics
    from actors.settings.model import Settings

__all__ = ["EXIT_FAILED", "EXIT_INTERRUPTED", "EXIT_OK", "Inbox", "MainLoop", "Request", "run_fleet", "run_local"]

EXIT_OK: Final = 0
"""Ended as asked: the duration is over, SIGTERM, or whoever read the output has gone."""
EXIT_FAILED: Final = 1
"""The fleet failed, or could not be started."""
EXIT_INTERRUPTED: Final = 130
"""Ctrl-C: 128 + SIGINT, as shells have it."""

REDRAW_SECONDS: Final = 0.5
"""Ages are shown in seconds: twice that often, none is seen to stand still."""

LOCAL_STOP: Final = timedelta(seconds=7)
"""How long an orderly stop may take on the embedded cluster, which ends with the command, and all it ran with it: there
is nothing to leave behind. Enough for the default grace period of 5 s, and Ctrl-C is done within 10 s."""

Inbox = SimpleQueue[Event | logging.LogRecord | signal.Signals]
"""What the main thread reads. Putting is safe in a signal handler, which is why it is a SimpleQueue."""


@dataclass(frozen=True, slots=True)
class Request:
    """A run, as the arguments have it."""

    settings: Settings
    output: OutputFormat = "live"
    local: bool = False
    kubeconfig: Path | None = None
    context: str | None = None
    run_for: timedelta | None = None
    kill_every: timedelta | None = None
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"


class _Handler(logging.Handler):
    """Brings warnings, whoever's they are, to the thread that writes: on stderr they would tear the table."""

    def __init__(self, inbox: Inbox) -> None:
        super().__init__(logging.WARNING)
        self._inbox = inbox

    def emit(self, record: logging.LogRecord) -> None:
        """Hand it over as it is."""
        self._inbox.put(record)


def run_fleet(request: Request, inbox: Inbox) -> int:
    """Keep the fleet until its time is up or a signal comes; the exit code.

    Raises:
        SettingsError: something that the user gave is wrong; nothing runs.
    """
    executor_pod.check_template(request.settings)
    with ExitStack() as stack:
        root, handler = logging.getLogger(), _Handler(inbox)
        root.addHandler(handler)
        stack.callback(root.removeHandler, handler)
        metrics, page = _serve_metrics(request, stack)
        plan = Plan(run_for=request.run_for)
        kubeconfig, context = request.kubeconfig, request.context
        if request.local:
            from actors.local.cluster import LocalCluster  # noqa: PLC0415 - only this needs the HTTP server

            cluster = stack.enter_context(LocalCluster(namespace=request.settings.namespace or "default"))
            kubeconfig, context = cluster.kubeconfig_path, None
            plan = replace(plan, kill_every=request.kill_every, kill=cluster.kill, kubeconfig=kubeconfig)
        api = kube.connect(
            kubeconfig=kubeconfig,
            context=context,
            namespace=request.settings.namespace,
            request_timeout=request.settings.backend.request_timeout,
            max_connections=request.settings.allocation.connections,
        )
        stack.callback(api.close)
        system = ActorSystem()
        stack.callback(system.close)
        driver = system.spawn(
            lambda context: FleetDriver(context, plan=plan, tell=inbox.put), name="driver", owner=None
        )
        stack.callback(driver.stop)
        driver.tell(UseBackend(Backend.start(request.settings, driver, api, system=system, metrics=metrics)))
        clock = SystemClock()
        output = choose_output(request.output, target=request.settings.executor.instances, now=clock.now)
        stack.callback(output.close)
        patience = LOCAL_STOP if request.local else None
        loop = MainLoop(inbox, output, driver=driver, patience=patience, clock=clock)
        if page is not None:
            loop.note(f"metrics at {page}")
        return loop.to_the_end()


def _serve_metrics(request: Request, stack: ExitStack) -> tuple[Metrics | None, str | None]:
    """The page is the first to be there and the last to go: it shows the stop, too."""
    if request.metrics_port is None:
        return None, None
    from actors.cli.metrics_page import serve_metrics  # noqa: PLC0415 - only this needs the Prometheus client

    return stack.enter_context(serve_metrics(request.metrics_address, request.metrics_port))


def run_local(port: int, kubeconfig: Path | None, inbox: Inbox) -> int:
    """The embedded cluster alone, until a signal comes; the exit code.

    Raises:
        SettingsError: the port is taken, or the kubeconfig's path is.
    """
    from actors.local.cluster import LocalCluster  # noqa: PLC0415 - as above

    with LocalCluster(port=port, kubeconfig=kubeconfig) as cluster:
        path = cluster.kubeconfig_path
        with suppress(BrokenPipeError):
            print(f"cluster ready; its pods are processes of this machine\nexport KUBECONFIG={path}", flush=True)
        return EXIT_INTERRUPTED if inbox.get() is signal.SIGINT else EXIT_OK


class MainLoop:
    """The main thread's loop: shows what comes, turns signals into stops, knows how it ended."""

    def __init__(
        self,
        inbox: Inbox,
        output: Output,
        *,
        driver: Address,
        patience: timedelta | None,
        clock: Clock,
    ) -> None:
        self._inbox = inbox
        self._output = output
        self._driver = driver
        self._patience = patience
        self._clock = clock
        self._exit_code: int | None = None
        self._deadline: Moment | None = None

    def to_the_end(self) -> int:
        """Until the fleet has stopped, its stop has taken longer than `patience`, or a second Ctrl-C hurries it."""
        while not self._is_late():
            match self._next():
                case None if not self._driver.is_alive():
                    return EXIT_FAILED  # it crashed, and what it died of was shown as a warning
                case None:
                    self._write(self._output.refresh)
                case Event() as event:
                    self._write(partial(self._output.show, event))
                    if event.event == "failed":
                        self._end(EXIT_FAILED, "the fleet failed")
                    elif event.event == "stopped":
                        return self._how_it_ended(left_behind=bool(event.details.get("left_behind")))
                case logging.LogRecord() as record:
                    self.note(_words(record))
                case signal.Signals() as number:
                    if not self._heed(number):
                        break
        return self._how_it_ended(left_behind=self._patience is None)

    def note(self, text: str) -> None:
        """Show a word of our own, or a warning."""
        self._write(partial(self._output.note, text))

    def _next(self) -> Event | logging.LogRecord | signal.Signals | None:
        try:
            return self._inbox.get(timeout=REDRAW_SECONDS)
        except Empty:
            return None

    def _heed(self, number: signal.Signals) -> bool:
        """Begin to stop; False when there is no time left even for that."""
        if number is not signal.Signals.SIGINT:
            self._end(EXIT_OK, f"{number.name} received")
        elif self._exit_code == EXIT_INTERRUPTED:
            self.note("leaving at once")
            return False
        else:
            self.note("stopping the fleet; Ctrl-C again leaves at once")
            self._end(EXIT_INTERRUPTED, "interrupted")
        return True

    def _end(self, exit_code: int, why: str) -> None:
        """Begin an orderly stop. What came first decides how it ended, except that Ctrl-C always counts."""
        if self._exit_code is None or exit_code == EXIT_INTERRUPTED:
            self._exit_code = exit_code
        if self._deadline is None and self._patience is not None:
            self._deadline = later(self._clock.monotonic(), self._patience)
        self._driver.tell(StopFleet(why))

    def _is_late(self) -> bool:
        return self._deadline is not None and self._clock.monotonic() > self._deadline

    def _how_it_ended(self, *, left_behind: bool) -> int:
        if self._exit_code is None or self._exit_code == EXIT_OK:
            return EXIT_FAILED if left_behind else EXIT_OK
        return self._exit_code

    def _write(self, write: Callable[[], None]) -> None:
        """Write, unless there is nobody to read it any more: then the fleet ends too."""
        try:
            write()
        except OSError:
            self._output = Output()
            _discard_stdout()
            self._end(EXIT_OK, "nobody reads the output")


def _words(record: logging.LogRecord) -> str:
    """A warning in one line; of an exception only what it says, for the user has no use for its traceback."""
    error = record.exc_info[1] if record.exc_info else None
    return f"{record.getMessage()}: {error!r}" if error else record.getMessage()


def _discard_stdout() -> None:
    """So that the interpreter's last flush does not fail as well."""
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123 - a device, not a path
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
