"""`LiveFleet`: what the live table shows: the fleet as it is, and what happened in the run. Pure."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final, NamedTuple, final

from actors.cli.events import Event, to_line
from actors.cli.tally import Tally, gist, stands_by
from actors.messages import ExecutorState
from actors.text import age

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from actors.cli.live.cells import Shown
    from actors.messages import Executor, FleetStatus, ProfileStatus

__all__ = ["STATES", "Alarm", "LiveFleet", "News", "Row"]

STATES: Final = ("stuck", "terminating", "pending", "running")
"""Of an executor, the one to look at first in front."""

NEWS_KEPT: Final = 12
"""Events and warnings at the bottom of the table; as many that are no executor's stay on the screen at the end."""

ADVICE: Final = {
    "Altered": "find the webhook that changes the pods' labels",
    "Ambiguous": "check the connection to the API server",
    "BadRequest": "correct the pod template or the settings, then start again",
    "Forbidden": "grant the right, or satisfy the policy, that the message names",
    "Invalid": "correct the pod template or the settings, then start again",
    "QuotaExceeded": "raise the namespace's quota, or want fewer executors",
    "TooLarge": "make the pod template smaller: put large texts into a ConfigMap or the image",
    "TooManyRequests": "wait; lower allocation.max_requests_per_second if it lasts",
    "Unauthorized": "renew the credential",
    "Unavailable": "check the connection to the API server",
    "Untrusted": "correct the certificate, or the CA in the kubeconfig",
    "cut_short": "find out who deletes or evicts the executors",
    "driver_pod": "see why the driver's pod is not ready: kubectl describe pod",
    "lease": "check that no other driver of this app_id runs, and that the API server is reached",
    "max_created": "raise allocation.max_created, then start again",
    "missing": "create what the message names",
    "namespace": "create the namespace",
    "policy": "change the pod template so that it keeps the rule that the message names",
    "quota_too_small": "raise the namespace's quota, or request less for each executor",
    "start_failures": "find out why the executors end early, then start again",
    "webhook": "satisfy the policy that the message names, or see why the webhook refuses",
}
"""What to do about a block, by its kind; nothing for those that end by themselves."""


class Row(NamedTuple):
    """One executor that is alive, in texts that the terminal shows."""

    executor_id: int
    profile: str
    state: str
    since: datetime
    pod: str
    node: str
    ip: str
    restarts: int
    reason: str


class News(NamedTuple):
    """A line about something that happened."""

    text: str
    kind: str
    """The event's name, or `warning`."""
    times: int = 1


class Alarm(NamedTuple):
    """Something that somebody has to look at. It stays as long as it lasts."""

    text: str
    advice: str = ""


@final
class LiveFleet:
    """The fleet as it is shown.

    Args:
        targets: the target of each profile, until the Backend says it.
        shown: makes texts into what the terminal shows.
    """

    def __init__(self, targets: Mapping[str, int], shown: Shown) -> None:
        self.shown = shown
        self.title = "starting"
        self.hints: list[str] = []
        """What is of use until the end: where the kubeconfig is, where pages are served."""
        self.began: datetime | None = None
        self.status: FleetStatus | None = None
        """None until the Backend says it."""
        self.rows: dict[int, Row] = {}
        """The executors, without those that are only requested."""
        self._executors: Mapping[int, Executor] = {}
        self.tally = Tally()
        self.news: deque[News] = deque(maxlen=NEWS_KEPT)
        self.kept: deque[News] = deque(maxlen=NEWS_KEPT)
        """Failures and warnings, for the end."""
        self.failed: str | None = None
        self.over: Event | None = None
        """The last event."""
        self._targets = targets

    # ── what happens ────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, event: Event) -> None:
        """Take in an event."""
        self.tally.apply(event)
        if event.event == "started":
            self.began = event.time
            self.title = self.shown(f"{event.details['app_id']} in namespace {event.details['namespace']}")
            kubeconfig = event.details.get("kubeconfig")
            if kubeconfig:
                self.hints.append(self.shown(f"export KUBECONFIG={kubeconfig}"))
        elif event.event == "failed":
            self.failed = self.shown(event.message)
        elif event.event == "stopped":
            self.over = event
        self._tell(News(self.shown(to_line(event)), event.event), keep=event.event == "failed")

    def note(self, text: str, at: datetime, times: int = 1) -> None:
        """Take in a warning, which came so often by now: only the latest is kept."""
        news = News(f"{at.astimezone():%H:%M:%S}  {self.shown(text)}", "warning", times)
        if times > 1:
            for said in (self.news, self.kept):
                for earlier in [each for each in said if gist(each.text) == gist(news.text)]:
                    said.remove(earlier)
        self._tell(news, keep=True)

    def remark(self, text: str, at: datetime, *, stays: bool) -> None:
        """Take in what the command itself has to say."""
        if stays:
            self.hints.append(self.shown(text))
        else:
            self._tell(News(f"{at.astimezone():%H:%M:%S}  {self.shown(text)}", "remark"), keep=False)

    def _tell(self, news: News, *, keep: bool) -> None:
        self.news.append(news)
        if keep:
            self.kept.append(news)

    def look(self, executors: Mapping[int, Executor], status: FleetStatus | None) -> None:
        """Take in the fleet as it is now. Only executors that changed get another row."""
        before, rows = self._executors, self.rows
        self.rows = {
            executor_id: rows[executor_id] if before.get(executor_id) is each else self._row(each)
            for executor_id, each in executors.items()
            if each.state is not ExecutorState.REQUESTED
        }
        self._executors, self.status = executors, status

    def _row(self, executor: Executor) -> Row:
        shown = self.shown
        return Row(
            executor.id,
            shown(executor.profile),
            executor.state.value if executor.stuck is None else "stuck",
            executor.since,
            shown(executor.pod),
            shown(executor.node),
            shown(executor.ip),
            executor.restarts,
            shown(executor.reason),
        )

    # ── what is shown ───────────────────────────────────────────────────────────────────────────────────────────

    def profiles(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Yield each profile with its target, its requested executors, those in each state, and its lost ones."""
        alive = Counter((row.profile, row.state) for row in self.rows.values())
        told = self._profiles()
        losses = self.tally.lost_by_profile
        for name in dict.fromkeys((*self._targets, *told, *(row.profile for row in self.rows.values()))):
            status = told.get(name)
            target = self._targets.get(name, 0) if status is None else status.target
            requested = 0 if status is None else status.requested
            states = (alive[name, state] for state in reversed(STATES))
            yield self.shown(name), (target, requested, *states, losses[name])

    def alarms(self, now: datetime) -> Iterator[Alarm]:
        """Yield what stands in the way now, the most urgent first."""
        if self.failed is not None:
            yield Alarm(f"FAILED: {self.failed}")
        blocks: dict[str, list[tuple[str, str, str, datetime]]] = {}
        for block in self._blocks():
            blocks.setdefault(gist(block[1]), []).append(block)
        for same in blocks.values():
            names = ", ".join(self.shown(name) for name, *_ in same)
            since = min(since for *_, since in same)
            _, cause, kind, _ = same[0]
            text = f"BLOCKED {names} since {since.astimezone():%H:%M:%S} ({age(now - since)}): {self.shown(cause)}"
            yield Alarm(text, ADVICE.get(kind, ""))
        if self.status is not None and self.tally.stopping is None:
            yield from self._others(self.status, now)

    @property
    def stands_by(self) -> bool:
        """Whether another driver may hold the lease: the executors may be its own."""
        return stands_by(self._profiles())

    def _profiles(self) -> Mapping[str, ProfileStatus]:
        return {} if self.status is None else self.status.profiles

    def _blocks(self) -> Iterator[tuple[str, str, str, datetime]]:
        """Yield profile, cause, kind and begin of each block."""
        for name, status in self._profiles().items():
            if status.blocked is not None and status.blocked_since is not None:
                yield name, status.blocked, str(status.blocked_by), status.blocked_since

    def _others(self, status: FleetStatus, now: datetime) -> Iterator[Alarm]:
        if status.on_hold:
            yield Alarm("ON HOLD: all executors retire and none is created", "resume the fleet")
        errors: dict[str, list[str]] = {}
        for name, source in status.sources.items():
            if source.error is not None and not source.synced:
                errors.setdefault(source.error, []).append(name)
        for error, names in errors.items():
            yield Alarm(f"NOT SYNCED {', '.join(names)}: {self.shown(error)}", ADVICE["Unavailable"])
        for held in status.held[:1]:
            more = f" and {len(status.held) - 1} more" if len(status.held) > 1 else ""
            text = f"HELD for {age(now - held.since)}: pod {self.shown(held.pod_name)}{more}, by the finalizers "
            yield Alarm(text + self.shown(", ".join(held.finalizers)), "remove the finalizers if nobody else will")
