"""`FleetProcess`: where the children run that observe the fleet and write to it, with `source.process`.

The process is started with its first child, and again after it has ended: its children are lost then, and restarted by
the Backend's supervisor, in order. One that does not answer, or in which a child hangs, is killed. When too many in a
row never were ready, the Backend's process runs these children itself from then on. Each is an `Incarnation`, which has
a picture of its stages.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, final

from actors.backend.process.frames import Setup
from actors.backend.process.incarnation import Incarnation
from actors.backend.process.remote_actor import RemoteActor
from actors.backend.process.watchdog import Stage
from actors.kube.http.pod_api import HttpPodApi
from actors.metrics.counts import ProcessCounts
from actors.runtime import Lost
from actors.text import get_logger
from actors.text.version import package_version

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from actors.backend.children import Maker
    from actors.kube.api import Manifest, PodApi
    from actors.metrics.counts import FleetCounts
    from actors.runtime import Actor, Address, Context, TimerService
    from actors.settings import Settings

__all__ = ["FleetProcess", "process_for"]

logger = get_logger(__name__)

MOST_FAILED_STARTS: Final = 5
"""After so many processes in a row that were never ready, which takes ten seconds or more, no more is started: another
version of this package may have been installed since. If the first one cannot be started at all, none can."""


def process_for(
    settings: Settings, api: PodApi, *, backend: Address, counts: FleetCounts, timers: TimerService
) -> FleetProcess | None:
    """Return the process of a fleet; None if only this process can reach its cluster, which is one for tests."""
    if not isinstance(api, HttpPodApi):
        return None
    return FleetProcess(settings, api, backend=backend, counts=counts, timers=timers)


@final
class FleetProcess:
    """The process of one Backend, through all its incarnations. Used by the Backend's thread.

    Args:
        settings: of the fleet.
        api: a client of the Backend's process. That of the fleet's process is made like it, and gets its credentials
            from it, so that a login program runs once.
        backend: receives what the children tell the Backend.
        counts: receive the counters of the process.
        timers: call its watchdog.
    """

    def __init__(
        self, settings: Settings, api: HttpPodApi, *, backend: Address, counts: FleetCounts, timers: TimerService
    ) -> None:
        self._settings = settings
        self._api = api
        self._backend = backend
        self._counts = counts
        self._timers = timers
        self._owners: tuple[Manifest, ...] = ()
        self._patience = settings.backend.hang_timeout
        self._process: Incarnation | None = None
        self._version = package_version()
        self._was_ready = False
        """One was ready."""
        self._failed_starts = 0
        """Since that one."""
        self._runs_here = False

    @property
    def pid(self) -> int | None:
        """The process id; None while there is none."""
        process = self._process
        return None if process is None or process.stage is Stage.ENDED else process.pid

    def place(self, makers: Mapping[str, Maker], owners: tuple[Manifest, ...]) -> Mapping[str, Maker]:
        """Return what makes these children where they are to run. `owners` are those of the executors."""
        self._owners = owners
        return {name: partial(self._make_child, make) for name, make in makers.items()}

    def hurry(self, patience: timedelta) -> None:
        """Kill the process if a child is busy with one message for longer than `patience`, from now on."""
        self._patience = min(self._patience, patience)
        if self._process is not None:
            self._process.check_sooner()

    def close(self) -> None:
        """Kill the process, so that nothing more is sent."""
        if self._process is not None:
            self._process.close()

    def _make_child(self, make: Maker, context: Context) -> Actor:
        process = self._running_process()
        return make(context) if process is None else RemoteActor(context, process)

    def _running_process(self) -> Incarnation | None:
        """Return the process, a new one if the last has ended; None if none can be had."""
        if self._process is not None and self._process.stage is Stage.ENDED:
            self._note_end(self._process)
            self._process = None
        if self._process is None and not self._runs_here:
            self._process = self._started_process()
        return self._process

    def _started_process(self) -> Incarnation | None:
        """Return a new process; None if none can be had.

        Raises:
            Lost: this one cannot be had.
        """
        try:
            return Incarnation(
                self._setup,
                self._api,
                version=self._version,
                app_id=self._settings.app_id,
                backend=self._backend,
                counts=self._counts,
                timers=self._timers,
                patience=lambda: self._patience,
            )
        except (OSError, RuntimeError) as error:  # no descriptor, no thread
            self._note_failed_start(is_hopeless=not self._was_ready)
            if self._runs_here:
                return None
            raise Lost(f"no process of the fleet can be started: {error}") from error

    def _note_end(self, ended: Incarnation) -> None:
        """Decide whether another process can be expected to work."""
        logger.warning("process of the fleet ended: pid=%s reason=%s", ended.pid, ended.why)
        if ended.was_ready:
            self._was_ready, self._failed_starts = True, 0
        else:
            self._note_failed_start(is_hopeless=ended.pid is None and not self._was_ready)

    def _note_failed_start(self, *, is_hopeless: bool) -> None:
        self._failed_starts += 1
        if is_hopeless or self._failed_starts >= MOST_FAILED_STARTS:
            logger.warning("no process for the fleet can be had, this process observes and writes itself")
            self._runs_here = True

    def _setup(self) -> Setup:
        """Return the first frame. A login program may run for it."""
        api = self._api
        return Setup(
            self._settings,
            self._owners,
            api.namespace,
            api.access.namespace,
            api.access.credentials.current(),
            api.request_timeout,
            api.max_connections,
            api.bounds,
            self._counts.process or ProcessCounts(),
            get_logger("actors").getEffectiveLevel(),
        )
