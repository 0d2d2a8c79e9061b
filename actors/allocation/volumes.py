"""Assigns PersistentVolumeClaims to executors, and knows which ones are in use.

Claims with the owner of the fleet outlive executors: they are created before the executor's pod, and reused after its
end. Their owner is the driver's pod, or with `executor.owned_by = "controller"` what controls that pod. All others are
generic ephemeral volumes, which the cluster creates and deletes with the executor's pod. This module sends no message:
the Allocator requests the lists.

A claim is never assigned twice. The claims of executors that are not in a snapshot yet are kept here; the others are
named in their pods. A list is used in one round only, the one in which it arrives.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from actors.allocation.claims import Claim, fitting, free, read
from actors.errors import ApiError
from actors.manifests.executor_pod import CLAIM_LABEL
from actors.pods.pod import claims_of
from actors.runtime import Moment, later
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from actors.allocation.profile import Profile
    from actors.kube.api import Manifest
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.messages.internal import SnapshotBatch
    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot
    from actors.settings import ClaimSettings, Settings

__all__ = ["Mounts", "Volumes"]

logger = get_logger(__name__)

LIST_EVERY: Final = timedelta(seconds=5)
"""How often claims are listed while executors wait for one, even if no executor has ended: claims become old enough,
and people may create some."""


@dataclass(frozen=True, slots=True)
class Mounts:
    """The claims of one executor."""

    names: Mapping[str, str]
    """The PersistentVolumeClaim to mount, by the name of the setting."""
    made: tuple[Manifest, ...]
    """Those that are to be created before the pod."""


_NOTHING: Final = Mounts(MappingProxyType({}), ())


@dataclass(slots=True)
class _Assignment:
    """The claims of an executor that is not in a snapshot yet."""

    profile: str
    names: Mapping[str, str]
    unused: Mapping[str, Manifest]
    """Those that no executor has had, by the name of the setting."""


@dataclass(slots=True)
class _Stock:
    """The claims that are available for one of a profile's `claims`."""

    spare: deque[Manifest]
    free: deque[Claim]
    made: AbstractSet[str]
    """The names of those that exist."""
    room: int | None
    """How many may be created, None without a limit."""

    def is_empty(self) -> bool:
        return not self.spare and not self.free and self.room == 0


class Volumes:
    """The claims of one fleet. If the fleet has no owner, executors own their volumes."""

    def __init__(self, settings: Settings, manifests: ExecutorManifests) -> None:
        executor = settings.executor
        self._manifests = manifests
        self._owner = manifests.owner_uid if executor.own_claims else None
        names = settings.profile_names if self._owner is not None else ()
        self._claims = {name: claims for name in names if (claims := settings.profile(name).claims)}
        self._reuses = executor.reuse_claims
        self._waits = executor.wait_to_reuse_claim
        self._age = settings.allocation.unseen_timeout
        self._listed: tuple[Claim, ...] | None = None
        """The claims of the list, in the round in which it arrived."""
        self._listed_at: datetime | None = None
        self._are_listed = True
        """Whether the last LIST succeeded."""
        self._is_listing = False
        self._list_again_at: Moment = 0.0
        """When to list again while executors wait, unless an executor ends before."""
        self._assigned: dict[int, _Assignment] = {}
        self._spare: dict[tuple[str, str], deque[Manifest]] = {}
        """Claims that were requested for pods that were refused, and may exist, by profile and setting."""

    # ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────

    def is_ready(self, profile: str) -> bool:
        """Whether claims can be assigned in this profile: there is a list, or none is needed."""
        return self._listed is not None or not self._reuses or profile not in self._claims

    def should_list(self, profile: Profile, now: Moment) -> bool:
        """Whether the caller must request a list now, for a profile that is not ready."""
        if self._is_listing or (profile.awaited_claim is not None and now < self._list_again_at):
            return False
        self._is_listing, self._list_again_at = True, later(now, LIST_EVERY)
        return True

    def listed(self, answer: Sequence[Manifest] | ApiError, at: datetime) -> int:
        """Take the list for one round. Return the next free id: claims may have names with ids of a previous driver."""
        self._is_listing, self._listed_at = False, at
        if isinstance(answer, ApiError):
            if self._are_listed:
                logger.warning("claims not listed, executors get new ones: error=%s", answer)
            self._are_listed, self._listed = False, ()
            return 1
        self._are_listed = True
        self._listed = tuple(claim for each in answer if (claim := read(each)) is not None)
        return max((self._manifests.claimant(claim.name) for claim in self._listed), default=0) + 1

    def drop_list(self) -> None:
        """Forget the list after its round: the claims may change before the next one."""
        self._listed = None

    # ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, batch: SnapshotBatch, may_appear: Callable[[int], bool]) -> None:
        """Forget the claims of executors whose pods are in the snapshot, or will never be."""
        for executor_id in [executor_id for executor_id in self._assigned if not may_appear(executor_id)]:
            del self._assigned[executor_id]
        if batch.ended:
            self._list_again_at = 0.0

    def refused(self, executor_id: int, *, taken: bool) -> None:
        """Keep the claims of a pod that was refused for the next one, unless others have `taken` their names."""
        assigned = self._assigned.pop(executor_id, None)
        if assigned is None or taken:
            return
        for setting, manifest in assigned.unused.items():
            self._spare.setdefault((assigned.profile, setting), deque()).append(manifest)

    # ── assignment ───────────────────────────────────────────────────────────────────────────────────────────────

    def assign(self, profile: Profile, ids: Sequence[int], snapshot: PodsSnapshot) -> list[Mounts]:
        """Return what each of these executors mounts; fewer than `ids` if the others have to wait for a claim."""
        profile.claim_wait = None
        claims = self._claims.get(profile.name, ())
        if not claims:
            return [_NOTHING] * len(ids)
        stocks = self._stocks(profile, claims, snapshot)
        mounts: list[Mounts] = []
        for executor_id in ids:
            lacking = next((claim.name for claim in claims if stocks[claim.name].is_empty()), None)
            if lacking is not None:
                profile.claim_wait = (profile.target, lacking)
                break
            mounts.append(self._take(executor_id, profile.name, stocks))
        if reused := sum(len(each.names) - len(each.made) for each in mounts):
            logger.info("claims reused: profile=%s executors=%d claims=%d", profile.name, len(mounts), reused)
        return mounts

    def _take(self, executor_id: int, profile: str, stocks: Mapping[str, _Stock]) -> Mounts:
        """Take one claim from each stock. Those that no executor has had are created, unless the list has them."""
        names: dict[str, str] = {}
        unused: dict[str, Manifest] = {}
        for setting, stock in stocks.items():
            if stock.spare:
                unused[setting] = stock.spare.popleft()
                names[setting] = _name(unused[setting])
            elif stock.free:
                names[setting] = stock.free.popleft().name
            elif stock.room is not None:
                stock.room -= 1
        for manifest in self._manifests.claims(executor_id, profile, reused=names):
            setting = str(manifest["metadata"]["labels"][CLAIM_LABEL])
            names[setting], unused[setting] = _name(manifest), manifest
        self._assigned[executor_id] = _Assignment(profile, names, unused)
        to_make = (manifest for setting, manifest in unused.items() if names[setting] not in stocks[setting].made)
        return Mounts(names, tuple(to_make))

    def _stocks(self, profile: Profile, claims: Iterable[ClaimSettings], snapshot: PodsSnapshot) -> dict[str, _Stock]:
        """Return the stock of each of the profile's `claims`, in their order."""
        stocks = {
            claim.name: _Stock(self._spare.setdefault((profile.name, claim.name), deque()), deque(), frozenset(), None)
            for claim in claims
        }
        if self._listed is None or self._listed_at is None or self._owner is None or not self._are_listed:
            return stocks
        in_use = self._in_use(snapshot)
        for claim in claims:
            stock, fit = stocks[claim.name], fitting(self._listed, claim, profile.name, self._owner)
            stock.made = {each.name for each in fit}
            stock.free.extend(free(fit, in_use, now=self._listed_at, older_than=self._age))
            if self._waits:
                stock.room = max(0, profile.target - len(stock.made | self._promised(profile.name, claim.name)))
        return stocks

    def _in_use(self, snapshot: PodsSnapshot) -> set[str]:
        """Return the claims that a pod mounts, until all its containers have ended, or will mount."""
        mounted = {name for state in snapshot.states.values() if not _ended(state.pod) for name in claims_of(state.pod)}
        assigned = (name for each in self._assigned.values() for name in each.names.values())
        spare = (_name(manifest) for each in self._spare.values() for manifest in each)
        return mounted.union(assigned, spare)

    def _promised(self, profile: str, setting: str) -> set[str]:
        """Return the claims that exist or soon will, but may be missing in a list."""
        assigned = {each.names[setting] for each in self._assigned.values() if each.profile == profile}
        return assigned | {_name(manifest) for manifest in self._spare.get((profile, setting), ())}


def _ended(pod: Pod) -> bool:
    """Whether all containers of a pod have ended, by its phase: a sidecar may still write when the executor has ended.

    A grace period of 0 also counts: the kubelet has seen the containers end, or somebody deletes the pod by force. A
    forced deletion sends a second event, but waiting for it would only leave the claim unused.
    """
    if pod.terminating and pod.metadata.deletion_grace_period_seconds == 0:
        return True
    return pod.status is not None and pod.status.phase in {"Failed", "Succeeded"}


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])
