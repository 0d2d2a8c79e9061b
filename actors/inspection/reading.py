"""Reads fleets: which requests to ask, and how their answers become fleets. The caller sends them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeAlias, TypeVar

from msgspec.structs import replace

from actors import kube
from actors.errors import ApiError, Gone, NotFound
from actors.inspection.events import observe_event
from actors.inspection.executors import is_executor, observe
from actors.inspection.fields import text
from actors.inspection.fleets import ObservedFleet, judge, owners_of, pod_lives
from actors.inspection.leases import app_id_of, observe_lease
from actors.kube.api import CLAIMS, EVENTS, LEASES, PODS
from actors.lease.record import lease_name
from actors.pods.pod import APP_ID_LABEL, EXECUTOR_ID_LABEL, ROLE_EXECUTOR, ROLE_LABEL, fleet_selector
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from actors.inspection.events import ObservedEvent
    from actors.inspection.executors import ObservedExecutor
    from actors.inspection.leases import ObservedLease
    from actors.kube.api import Manifest, Request, Resource
    from actors.pods.pod import OwnerReference

__all__ = ["Ask", "FleetReader", "FleetsRead", "everything"]

A = TypeVar("A")

_RESTARTS: Final = 3
"""How often a list whose continue token expired is begun again: a page takes a second, a token is valid for minutes."""

_MOST_NAMES: Final = 20
"""Fleets that an error names."""

_ANY_FLEET: Final = APP_ID_LABEL
_ANY_EXECUTOR: Final = f"{APP_ID_LABEL},{ROLE_LABEL}={ROLE_EXECUTOR}"


class Ask(Protocol):
    """Sends a request and returns its answer."""

    def __call__(self, request: Request[A], /) -> A:
        """Wait for the answer.

        Raises:
            ApiError: instead of an answer.
        """


AskIn: TypeAlias = Callable[[str], Ask]
"""Returns what asks in a namespace."""


@dataclass(frozen=True, slots=True)
class FleetsRead:
    """All fleets that were found, by namespace and `app_id`."""

    fleets: tuple[ObservedFleet, ...]
    warnings: tuple[str, ...] = ()
    """What could not be read, for people."""


def everything(
    ask: Ask,
    resource: Resource,
    read: Callable[[Manifest], A],
    *,
    selector: str = "",
    field_selector: str = "",
    everywhere: bool = False,
) -> list[A]:
    """Return what `read` makes of each object of a kind: read page by page, so that all of them are never held as JSON.

    Raises:
        ApiError: they cannot be listed.
    """
    for _ in range(_RESTARTS):
        with suppress(Gone):
            return _pages(ask, kube.ListPage(resource, selector, field_selector, everywhere=everywhere), read)
    return _pages(ask, kube.ListPage(resource, selector, field_selector, everywhere=everywhere), read)


def _pages(ask: Ask, request: kube.ListPage, read: Callable[[Manifest], A]) -> list[A]:
    found: list[A] = []
    while True:
        page = ask(request)
        found += map(read, page.items)
        if not page.continue_token:
            return found
        request = replace(request, continue_token=page.continue_token)


class FleetReader:
    """Reads the fleets of one namespace, or of all.

    Args:
        ask_in: see `AskIn`.
        namespace: where the fleets are.
        now: returns the current time, best the server's.
    """

    def __init__(self, ask_in: AskIn, namespace: str, now: Callable[[], datetime]) -> None:
        self.namespace = namespace
        self.ask = ask_in(namespace)
        self._ask_in = ask_in
        self._now = now

    def all(self, *, everywhere: bool = False) -> FleetsRead:
        """Read all fleets that have a pod or a Lease.

        Raises:
            ApiError: pods cannot be listed.
        """
        now = self._now()
        pods = everything(self.ask, PODS, partial(_pod, now=now), selector=_ANY_EXECUTOR, everywhere=everywhere)
        leases: list[_OfFleet[ObservedLease]] = []
        problem: str | None = None
        warnings: tuple[str, ...] = ()
        try:
            leases = everything(self.ask, LEASES, _lease, selector=_ANY_FLEET, everywhere=everywhere)
        except ApiError as error:
            problem = error.message
            warnings = (f"Leases cannot be listed, so holders and targets are unknown: {problem}",)
        by_fleet: dict[tuple[str, str], tuple[list[ObservedExecutor | None], list[ObservedLease | None]]]
        by_fleet = defaultdict(lambda: ([], []))
        for pod in pods:
            if pod.app_id is not None:
                by_fleet[pod.namespace or self.namespace, pod.app_id][0].append(pod.seen)
        for lease in leases:
            if lease.app_id is not None:
                by_fleet[lease.namespace or self.namespace, lease.app_id][1].append(lease.seen)
        fleets = [
            self._fleet(app_id, namespace, executors, next(filter(None, seen), None), problem)
            for (namespace, app_id), (executors, seen) in sorted(by_fleet.items())
        ]
        return FleetsRead(tuple(fleets), tuple(warnings))

    def one(self, app_id: str) -> tuple[ObservedFleet, tuple[str, ...]]:
        """Read one fleet; return it, and what could not be read of it.

        Raises:
            ApiError: pods cannot be listed, or there is none and the Lease cannot be read.
            NotFound: nothing has this `app_id`; the message names the fleets that there are.
        """
        return self._with_lease(app_id, self._pods(app_id))

    def executor(self, app_id: str, executor_id: int) -> tuple[ObservedFleet, ObservedExecutor | None, tuple[str, ...]]:
        """Read one executor; return its fleet, the executor, and what could not be read.

        The fleet has only this executor; if that has no pod, which is None, it has all.

        Raises:
            ApiError: see `one`.
            NotFound: see `one`.
        """
        pods = self._pods(app_id, f",{EXECUTOR_ID_LABEL}={executor_id}")
        fleet, warnings = self._with_lease(app_id, pods) if pods else self.one(app_id)
        return fleet, fleet.find(executor_id), warnings

    def _pods(self, app_id: str, more: str = "") -> list[ObservedExecutor | None]:
        selector = fleet_selector(app_id, active_only=False) + more
        read = everything(self.ask, PODS, partial(_pod, now=self._now()), selector=selector)
        return [pod.seen for pod in read if pod.app_id == app_id]

    def _with_lease(
        self, app_id: str, pods: Sequence[ObservedExecutor | None]
    ) -> tuple[ObservedFleet, tuple[str, ...]]:
        """Return the fleet with these pods."""
        lease: ObservedLease | None = None
        problem: str | None = None
        warnings: tuple[str, ...] = ()
        try:
            lease = observe_lease(self.ask(kube.GetObject(resource=LEASES, name=lease_name(app_id))))
        except NotFound:
            if not pods:
                raise self._no_such(app_id) from None
        except ApiError as error:
            if not pods:
                raise
            problem = error.message
            warnings = (f"the Lease {lease_name(app_id)} cannot be read, so holder and targets are unknown: {problem}",)
        return self._fleet(app_id, self.namespace, pods, lease, problem), warnings

    def claims(self, app_id: str) -> list[Manifest]:
        """Return the claims that were made for this fleet.

        Raises:
            ApiError: they cannot be listed.
        """
        found = everything(self.ask, CLAIMS, dict, selector=fleet_selector(app_id, active_only=False))
        return [claim for claim in found if app_id_of(claim) == app_id]

    def events(self, name: str | None = None) -> list[ObservedEvent]:
        """Return the Events about the object of this name, or all of the namespace.

        Raises:
            ApiError: they cannot be listed.
        """
        return everything(
            self.ask, EVENTS, observe_event, field_selector=f"involvedObject.name={name}" if name is not None else ""
        )

    def _fleet(
        self,
        app_id: str,
        namespace: str,
        pods: Sequence[ObservedExecutor | None],
        lease: ObservedLease | None,
        problem: str | None,
    ) -> ObservedFleet:
        now = self._now()
        executors = tuple(filter(None, pods))
        owners = {} if lease is not None else self._owners(owners_of(executors), namespace)
        return ObservedFleet(
            app_id=app_id,
            namespace=namespace,
            executors=tuple(sorted(executors, key=_order)),
            lease=lease,
            driver=judge(lease, owners, now, problem),
            at=now,
            unreadable=len(pods) - len(executors),
        )

    def _owners(self, owners: Iterable[OwnerReference], namespace: str) -> dict[str, bool | None]:
        """Return whether the pods of the driver live, by name; None where that cannot be read."""
        found: dict[str, bool | None] = {}
        for owner in owners:
            try:
                pod: Manifest | None = self._ask_in(namespace)(kube.GetObject(resource=PODS, name=owner.name))
            except NotFound:
                pod = None
            except ApiError:
                found[owner.name] = None
                continue
            found[owner.name] = pod_lives(pod, owner.uid)
        return found

    def _no_such(self, app_id: str) -> NotFound:
        try:
            names = [fleet.app_id for fleet in self.all().fleets]
        except ApiError:
            names = []
        shown = ", ".join(one_line(name, 63) for name in names[:_MOST_NAMES])
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        there = f"those there are: {shown}{more}" if names else "there is none"
        return NotFound(f"no fleet {app_id!r} in namespace {self.namespace!r}; {there}", status=404)


@dataclass(frozen=True, slots=True)
class _OfFleet(Generic[A]):
    """An object, and which fleet it belongs to: none if it has no `app_id`, or is no executor's pod."""

    app_id: str | None
    namespace: str | None
    seen: A | None
    """None if the object is unusable."""


def _pod(manifest: Manifest, *, now: datetime) -> _OfFleet[ObservedExecutor]:
    app_id = app_id_of(manifest) if is_executor(manifest) else None
    return _OfFleet(app_id, text(manifest, "metadata", "namespace"), observe(manifest, now))


def _lease(manifest: Manifest) -> _OfFleet[ObservedLease]:
    return _OfFleet(app_id_of(manifest), text(manifest, "metadata", "namespace"), observe_lease(manifest))


def _order(executor: ObservedExecutor) -> tuple[bool, int, str]:
    return executor.id is None, executor.id or 0, executor.pod.name
