"""What strangers do to a fleet: pods that look like its own, a stolen Lease, a quota, and a driver that sends nonsense.

`chaos` has one `Strangers` for each world, and asks it for what it found wrong.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Final

from actors.kube.api import EVENTS, LEASES, Delete
from actors.lease.record import lease_name
from actors.local.inprocess import InProcessPodApi
from actors.local.schema.statuses import ApiStatus
from actors.messages import (
    AllocationBlocked,
    DecommissionExecutors,
    ExecutorBusy,
    ExecutorDisconnected,
    ExecutorIdle,
    IsExecutorActive,
    IsExecutorExcluded,
    KillExecutors,
    RegisterExecutor,
    RequestTotalExecutors,
    ScaleExecutors,
)
from actors.pods.pod import APP_ID_LABEL, EXECUTOR_ID_LABEL, PROFILE_LABEL, ROLE_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.kube.api import Request, Resource
    from actors.local.store.object_store import ObjectStore
    from actors.messages import FromDriver
    from actors.runtime import Clock, TimerService

__all__ = ["COSTLY", "FAR", "NONSENSE", "STRAY", "STRAY_IDS", "STRAY_PROFILES", "Strangers", "WatchedDoor"]

COSTLY: Final = "costly"
"""The profile that asks for processors, and that only a quota of processors blocks."""

FAR_ID: Final = "999999999999999999"

FAR: Final = f"stray-exec-{FAR_ID}"
"""A pod that only its creator tells from one of the fleet's."""

STRAY_IDS: Final = ("x", "0", "01", "7", "1000000000", FAR_ID, "9999999999999999999", "1" * 60)
"""Executor ids on pods that others create: no number, too large, and one that the fleet reaches by itself."""

STRAY_PROFILES: Final = (None, "gated", "nobodys")
"""Profiles on pods that others create: none, one of the fleet's, and one that no settings have."""

NONSENSE: Final[tuple[FromDriver, ...]] = (
    RegisterExecutor([1]),  # type: ignore[arg-type] # nonsense on purpose, as all that follow
    RegisterExecutor(10**40),
    ExecutorDisconnected({}),  # type: ignore[arg-type]
    IsExecutorActive([1]),  # type: ignore[arg-type]
    IsExecutorExcluded([2]),  # type: ignore[arg-type]
    KillExecutors((True,)),
    KillExecutors(("1",)),  # type: ignore[arg-type]
    KillExecutors(1),  # type: ignore[arg-type]
    DecommissionExecutors((None,)),  # type: ignore[arg-type]
    RequestTotalExecutors({"nobody": 3}),
    RequestTotalExecutors({"default": -1}),
    RequestTotalExecutors({"default": float("nan")}),  # type: ignore[dict-item]
    RequestTotalExecutors([3]),  # type: ignore[arg-type]
    ScaleExecutors({"nobody": 3}),
    ScaleExecutors({"default": -1}),
    ScaleExecutors({"default": 0}, "fattest"),  # type: ignore[arg-type]
    ScaleExecutors({"default": 0}, ["idle"]),  # type: ignore[arg-type]
    ScaleExecutors({"default": 0}, "idle", 3),  # type: ignore[arg-type]
    ExecutorBusy([1]),  # type: ignore[arg-type]
    ExecutorIdle(10**40),
)
"""Messages that a driver may send by mistake: ids come to it over a network."""

THIEF: Final = "somebody-else"

HELD_FOR: Final = 45.0
"""Seconds that a thief renews the Lease for."""

RENEWED_EVERY: Final = timedelta(seconds=5)

STRAY: Final = "looks-like-one"
"""A pod's name."""

NEEDLESS: Final = 12
"""DELETEs of one pod that was terminating or gone when it was asked for. A delete whose answer was lost, a crash and a
snapshot that is late cost one each."""

QUOTA: Final = "shared"

WRITES: Final = frozenset({"create", "delete", "deletecollection", "patch"})


class WatchedDoor(InProcessPodApi):
    """Reports each write when it reaches the cluster."""

    arrived: Callable[[str], None]

    def right(self, verb: str, resource: Resource) -> None:
        """Every call comes by here when it reaches the cluster."""
        super().right(verb, resource)
        if verb in WRITES and resource not in {EVENTS, LEASES}:
            self.arrived(f"{verb} {resource.plural}")


class Strangers:
    """Others on the cluster, and what the fleet must not do because of them."""

    def __init__(
        self, store: ObjectStore, clock: Clock, timers: TimerService, app_id: str, lease_duration: float
    ) -> None:
        self.violations: list[str] = []
        self._store = store
        self._clock = clock
        self._timers = timers
        self._app_id = app_id
        self._lease_duration = lease_duration
        self._stolen_at: float | None = None
        self._needless: Counter[str] = Counter()

    # ── what they do ─────────────────────────────────────────────────────────────────────────────────────────────

    def create_pod(self, number: str, profile: str | None = None) -> None:
        """Create a pod with the fleet's labels and this executor id. There is one at most of each name."""
        name = FAR if number == FAR_ID else STRAY
        if self._get("pods", name) is not None:
            return
        labels = {APP_ID_LABEL: self._app_id, ROLE_LABEL: "executor", EXECUTOR_ID_LABEL: number}
        if profile is not None:
            labels[PROFILE_LABEL] = profile
        pod = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "a", "image": "x"}]}}
        with suppress(ApiStatus):  # a full quota
            self._store.create("pods", "default", pod)

    def steal_lease(self) -> None:
        """Take the Lease from its holder, renew it for a while, and then no more."""
        lease = self._get(LEASES.plural, lease_name(self._app_id))
        if lease is None or lease["spec"].get("holderIdentity") in {None, "", THIEF}:
            return
        spec = {"holderIdentity": THIEF, "leaseTransitions": lease["spec"]["leaseTransitions"] + 1}
        self._stolen_at = self._clock.monotonic()
        self._renew(spec, self._stolen_at)

    def _renew(self, spec: dict[str, Any], stolen_at: float) -> None:
        lease = self._get(LEASES.plural, lease_name(self._app_id))
        over = self._clock.monotonic() - stolen_at > HELD_FOR
        if over or lease is None or self._stolen_at != stolen_at:
            return
        now = self._clock.now().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        patch = {"spec": {**spec, "renewTime": now}}
        self._store.patch(LEASES.plural, "default", lease_name(self._app_id), patch, "merge")
        self._timers.schedule(RENEWED_EVERY, lambda: self._renew({"holderIdentity": THIEF}, stolen_at))

    def set_quota(self, hard: dict[str, str] | None) -> None:
        """Limit pods or processors of the namespace; None: no more."""
        if self._get("resourcequotas", QUOTA) is not None:
            self._store.delete("resourcequotas", "default", QUOTA)
        if hard is not None:
            self._store.create("resourcequotas", "default", {"metadata": {"name": QUOTA}, "spec": {"hard": hard}})

    # ── what the fleet must not do ───────────────────────────────────────────────────────────────────────────────

    def asked(self, request: Request[Any]) -> None:
        """Note a DELETE of a pod that is terminating, or that is gone."""
        if not isinstance(request, Delete):
            return
        pod = self._get("pods", request.name)
        if pod is not None and "deletionTimestamp" not in pod["metadata"]:
            return
        self._needless[request.name] += 1
        if self._needless[request.name] == NEEDLESS:
            state = "gone" if pod is None else "terminating"
            self._broken(f"pod {request.name}, which is {state}, was asked to be deleted {NEEDLESS} times")

    def arrived(self, write: str) -> None:
        """Check that no write arrives when the Lease has been another's for longer than ours can have lasted."""
        lease = self._get(LEASES.plural, lease_name(self._app_id))
        if self._stolen_at is None or lease is None or lease["spec"].get("holderIdentity") != THIEF:
            return
        held_for = self._clock.monotonic() - self._stolen_at
        if held_for > self._lease_duration:
            self._broken(f"{write} arrives {held_for:.1f} s after the lease was taken by another driver")

    def notified(self, blocked: AllocationBlocked) -> None:
        """Check that a quota of processors is the reason of the profile that asks for them alone."""
        if "requests.cpu" in blocked.cause and blocked.profile != COSTLY:
            self._broken(f"profile {blocked.profile} is blocked by what blocks {COSTLY}: {blocked.cause}")

    def _broken(self, words: str) -> None:
        self.violations.append(f"strangers at {self._clock.monotonic():.3f} s: {words}")

    def _get(self, resource: str, name: str) -> dict[str, Any] | None:
        try:
            return self._store.get(resource, "default", name)
        except ApiStatus:
            return None
