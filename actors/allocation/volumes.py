"""Volumes: the PersistentVolumeClaims that executors get, and what the Allocator knows of those in other hands.

Claims that the driver's pod owns outlive executors: they are made before the pod, and taken over from those that ended.
The other ones are generic ephemeral volumes, which the cluster makes and removes with the pod: nothing is to be done
for them here. A plain value in the Allocator's hands: it reads what a LIST showed and never asks for one.

One claim is never handed out twice. Those of executors that no snapshot shows yet are kept here, those of the others
stand in their pods; a list serves one round only, the one in which it came.
"""

from __future__ import annotations

import logging
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

    from actors.allocation.profile import Profile
    from actors.kube.api import Manifest
    from actors.manifests.executor_pod import ExecutorManifests
    from actors.messages import SnapshotBatch
    from actors.pods.pod import Pod
    from actors.pods.snapshot import PodsSnapshot
    from actors.settings import ClaimSettings, Settings

__all__ = ["Mounts", "Volumes"]

logger = logging.getLogger(__name__)

LOOK_EVERY: Final = timedelta(seconds=5)
"""How often claims are listed while executors wait for one, though no executor has ended: they come of age, and others
may make some."""


@dataclass(frozen=True, slots=True)
class Mounts:
    """The claims of one executor."""

    names: Mapping[str, str]
    """By the name of the setting, the PersistentVolumeClaim to mount."""
    made: tuple[Manifest, ...]
    """Those of them that are to be made before the pod."""


_NOTHING: Final = Mounts(MappingProxyType({}), ())


@dataclass(slots=True)
class _Given:
    """What an executor was given that no snapshot shows yet."""

    profile: str
    names: Mapping[str, str]
    unused: Mapping[str, Manifest]
    """Those of them that no executor has had, by the name of the setting."""


@dataclass(slots=True)
class _Stock:
    """What there is to be had for one of a profile's `claims`."""

    spare: deque[Manifest]
    free: deque[Claim]
    made: AbstractSet[str]
    """Names of those that exist."""
    room: int | None
    """How many may be made, None without a limit."""

    def is_empty(self) -> bool:
        return not self.spare and not self.free and self.room == 0


class Volumes:
    """Without an owner of the fleet's pods, executors own their volumes."""

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
        """What there is, in the round that it was listed for."""
        self._listed_at: datetime | None = None
        self._are_listed = True
        """Whether the last LIST was answered by one, and not refused."""
        self._is_asked = False
        self._look_at: Moment = 0.0
        """When to look again while executors wait, unless something ends before."""
        self._given: dict[int, _Given] = {}
        self._spare: dict[tuple[str, str], deque[Manifest]] = {}
        """By profile and setting: claims that were asked for, and may have been made, for pods that were refused."""

    # ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────

    def is_ready(self, profile: str) -> bool:
        """Whether executors of this profile can be equipped: there is a list, or none is needed."""
        return self._listed is not None or not self._reuses or profile not in self._claims

    def should_ask(self, profile: Profile, now: Moment) -> bool:
        """Whether a list is to be asked for now, for a profile that is not ready. Who is told so asks."""
        if self._is_asked or (profile.awaited_claim is not None and now < self._look_at):
            return False
        self._is_asked, self._look_at = True, later(now, LOOK_EVERY)
        return True

    def listed(self, answer: Sequence[Manifest] | ApiError, at: datetime) -> int:
        """The list has come, for one round. Answers the next free id: claims may be named after executors of before."""
        self._is_asked, self._listed_at = False, at
        if isinstance(answer, ApiError):
            if self._are_listed:
                logger.warning("claims cannot be listed, executors get new ones: error=%s", answer)
            self._are_listed, self._listed = False, ()
            return 1
        self._are_listed = True
        self._listed = tuple(claim for each in answer if (claim := read(each)) is not None)
        return max((self._manifests.claimant(claim.name) for claim in self._listed), default=0) + 1

    def used_up(self) -> None:
        """The round is over: what the next one sees may be another thing."""
        self._listed = None

    # ── keeping in step ──────────────────────────────────────────────────────────────────────────────────────────

    def follow(self, batch: SnapshotBatch, is_unseen: Callable[[int], bool]) -> None:
        """What the snapshot shows is not kept here."""
        for executor_id in [executor_id for executor_id in self._given if not is_unseen(executor_id)]:
            del self._given[executor_id]
        if batch.ended:
            self._look_at = 0.0

    def refused(self, executor_id: int, *, taken: bool) -> None:
        """There is no such pod. The claims made for it are the next one's, unless the names were `taken` by others."""
        given = self._given.pop(executor_id, None)
        if given is None or taken:
            return
        for setting, manifest in given.unused.items():
            self._spare.setdefault((given.profile, setting), deque()).append(manifest)

    # ── handing out ──────────────────────────────────────────────────────────────────────────────────────────────

    def equip(self, profile: Profile, ids: Sequence[int], snapshot: PodsSnapshot) -> list[Mounts]:
        """What each of these executors gets; fewer than asked for if the others have to wait for a claim."""
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
            logger.info(
                "executors take over claims: profile=%s executors=%d claims=%d", profile.name, len(mounts), reused
            )
        return mounts

    def _take(self, executor_id: int, profile: str, stocks: Mapping[str, _Stock]) -> Mounts:
        """From each stock one. Of what no executor has had, that is made which the list does not show."""
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
        self._given[executor_id] = _Given(profile, names, unused)
        to_make = (manifest for setting, manifest in unused.items() if names[setting] not in stocks[setting].made)
        return Mounts(names, tuple(to_make))

    def _stocks(self, profile: Profile, claims: Iterable[ClaimSettings], snapshot: PodsSnapshot) -> dict[str, _Stock]:
        """For each of the profile's `claims`, in their order."""
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
        """What a pod mounts until all of its containers have ended, or is to mount: never two at a time."""
        mounted = {name for state in snapshot.states.values() if not _ended(state.pod) for name in claims_of(state.pod)}
        given = (name for each in self._given.values() for name in each.names.values())
        spare = (_name(manifest) for each in self._spare.values() for manifest in each)
        return mounted.union(given, spare)

    def _promised(self, profile: str, setting: str) -> set[str]:
        """Claims that exist already or will soon, though a list may not show them yet."""
        given = {each.names[setting] for each in self._given.values() if each.profile == profile}
        return given | {_name(manifest) for manifest in self._spare.get((profile, setting), ())}


def _ended(pod: Pod) -> bool:
    """By its phase: one whose executor has ended and whose sidecar runs on is final to us, and writes all the same.

    Or it has no time left: its kubelet has seen its containers end, or somebody deletes it by force. A deletion by
    force is seen twice, so; waiting for the second event would only leave the claim to nobody.
    """
    if pod.terminating and pod.metadata.deletion_grace_period_seconds == 0:
        return True
    return pod.status is not None and pod.status.phase in {"Failed", "Succeeded"}


def _name(manifest: Manifest) -> str:
    return str(manifest["metadata"]["name"])
