"""`PodDeduplicator`: keeps equal parts of pods once, and drops events that change nothing.

Each pod is decoded into structs and strings of its own. Two thirds of them equal those of another pod, such as owner
and containers, and nearly all pods of a poll are in memory already. Without sharing, a fleet of tens of thousands would
take most of the driver's memory, and each poll as much again.

Most events of a running pod change only fields that a `Pod` does not have, such as annotations, probe times and managed
fields. Such no-op events are dropped right after decoding.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import msgspec
from msgspec.structs import force_setattr, replace

from actors.kube.resource_version import is_later, is_old
from actors.pods.ids import INFIX
from actors.pods.pod import (
    EXECUTOR_ID_LABEL,
    IN_NAME,
    RELEVANT_CONDITIONS,
    Condition,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodSpec,
    PodStatus,
    Time,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.pods.pod import PodEvent

__all__ = ["Connection", "Kept", "PodDeduplicator", "PodHeader", "SharedParts", "Watched"]

MAX_SHARED: Final = 4096
"""The number of values kept for sharing; then all are dropped. Common values come back with the next pod, and values
that no two pods have in common do not pile up."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: Time | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = None


class PodHeader(msgspec.Struct, frozen=True, gc=False):
    """The fields that tell whether a pod is unchanged. Decoding them takes half as long as decoding the pod."""

    metadata: _Metadata = _Metadata()
    status: _Status | None = None


_FINAL_PHASES: Final = frozenset({"Failed", "Succeeded"})

_NO_POD: Final = Pod()
_NO_STATUS: Final = PodStatus()


class Connection(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One watch connection: it delivers every change after version `since`."""

    since: str | None


class _Frame(msgspec.Struct, frozen=True, gc=False, eq=False):
    """What a pod is beside its identity and its status: the same for nearly all running pods of a profile."""

    spec: PodSpec | None
    labels: Mapping[str, str] | None
    owner_references: tuple[OwnerReference, ...] | None
    deletion_timestamp: datetime | None
    deletion_grace_period_seconds: int | None
    finalizers: tuple[str, ...] | None


class _Known(msgspec.Struct, gc=False):
    """The last observation of a pod.

    Its status and frame stand beside the pod, because an event is compared with nothing else: in a large fleet each
    object that is read is in no CPU cache, and costs as much as ten comparisons.
    """

    pod: Pod
    status: PodStatus | None
    frame: _Frame
    version: str
    """The latest version at which it looked like `pod`, whose own version is the first one."""
    origin: Connection | str
    """The connection that delivered it last, or the version of the LIST that contained it."""


class Watched(NamedTuple):
    """The events that change something."""

    events: list[PodEvent]
    ends_some: bool
    """A pod ends, or begins to, that was not known to have ended."""


class Kept(NamedTuple):
    """The pods of a page, and at which versions they were listed; see `PodPage`."""

    pods: list[Pod]
    versions: list[str]


@final
class SharedParts:
    """Values that many pods have in common, each kept once. Not thread-safe."""

    def __init__(self) -> None:
        self._shared: dict[Any, Any] = {}

    def frame(self, pod: Pod) -> _Frame:
        """Return the frame of a pod whose parts are shared."""
        of, metadata = pod.spec, pod.metadata
        key = (
            id(of),
            id(metadata.labels),
            id(metadata.owner_references),
            metadata.deletion_timestamp,
            metadata.deletion_grace_period_seconds,
            id(metadata.finalizers),
        )  # the frame keeps the parts, so that no other has their ids
        found: _Frame | None = self._shared.get(key)
        if found is None:
            found = self._shared[key] = _Frame(
                of,
                metadata.labels,
                metadata.owner_references,
                metadata.deletion_timestamp,
                metadata.deletion_grace_period_seconds,
                metadata.finalizers,
            )
        return found

    def share(self, pod: Pod, last: Pod | None) -> None:
        """Replace parts of a pod by equal parts of its last observation, or else of other pods.

        Comparing costs less than looking up.
        """
        self.make_room()
        share = self._shared.setdefault
        if last is None:
            last = _NO_POD
        else:
            force_setattr(pod.metadata, "uid", last.metadata.uid)
            if pod.metadata.name == last.metadata.name:
                force_setattr(pod.metadata, "name", last.metadata.name)
        _share_metadata(pod.metadata, last.metadata, share)
        if (spec := pod.spec) is not None:
            force_setattr(pod, "spec", last.spec if spec == last.spec else share(spec, spec))
        if pod.status is not None and pod.status == last.status:
            force_setattr(pod, "status", last.status)
        elif pod.status is not None:
            self._share_status(pod.status, last.status or _NO_STATUS)

    def next_in_frame(self, known: _Known, status: PodStatus | None, version: str) -> Pod:
        """Return a pod that differs from its last observation only in version and status, made of that one's parts."""
        last, before = known.pod, known.status
        metadata = last.metadata
        if status is before:
            if version == metadata.resource_version:
                return last
        elif status is not None:
            self._share_status(status, before or _NO_STATUS)
        return replace(last, metadata=replace(metadata, resource_version=version), status=status)

    def make_room(self) -> None:
        """Drop all values if there are too many."""
        if len(self._shared) >= MAX_SHARED:
            self._shared.clear()

    def _share_status(self, new: PodStatus, old: PodStatus) -> None:
        """Share the parts of a status that many pods have in common.

        The status differs from the old one, nearly always in its containers, so these are not compared.
        """
        share = self._shared.setdefault
        if (phase := new.phase) is not None:
            force_setattr(new, "phase", old.phase if phase == old.phase else share(phase, phase))
        if (statuses := new.container_statuses) is not None:
            force_setattr(new, "container_statuses", share(statuses, statuses))
        if (statuses := new.init_container_statuses) is not None:
            before = old.init_container_statuses
            force_setattr(new, "init_container_statuses", before if statuses == before else share(statuses, statuses))


@final
class PodDeduplicator:
    """Remembers shared values and the last observation of each pod. Thread-safe.

    Whether an event is a no-op depends on the observation before it, so reads and pages are handled one at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts = SharedParts()
        self._pods: dict[str, _Known] = {}
        """The pods observed since the last LIST began, by UID."""
        self._ends_some = False
        """Of the events that are being handled."""
        self._before: dict[str, _Known] = {}
        """The pods observed only before that. The next LIST drops them: they are gone, unless it contains them."""

    @property
    def knows_pods(self) -> bool:
        """Whether a LIST could contain an unchanged pod."""
        return bool(self._before or self._pods)

    def begin_list(self) -> None:
        """Start a LIST: its first page is being requested."""
        with self._lock:
            self._before, self._pods = self._pods, {}

    def unchanged(self, page: Iterable[PodHeader]) -> list[Pod | None]:
        """Return the known pod for each pod of a page that is unchanged, None for each that changed or is unknown."""
        kept: list[Pod | None] = []
        with self._lock:
            for header in page:
                uid = header.metadata.uid
                known = self._pods.get(uid) or self._before.get(uid)  # `listed` needs that of a changed one
                if known is not None and self._is_unchanged(known, header):
                    self._before.pop(uid, None)
                    self._pods[known.pod.metadata.uid] = known
                    kept.append(known.pod)
                else:
                    kept.append(None)
        return kept

    def listed(self, page: Iterable[Pod], version: str) -> Kept:
        """Return the pods of a new page, known objects in place of unchanged ones. Takes over the pods given.

        Remember them too, except pods that a watch has observed since the LIST began.
        """
        kept = Kept([], [])
        with self._lock:
            for pod in page:
                known = self._known(pod.metadata.uid)
                if known is not None and self._is_unchanged(known, pod):
                    self._pods[known.pod.metadata.uid] = known
                    kept.pods.append(known.pod)
                else:
                    _tidy(pod)
                    self._parts.share(pod, None if known is None else known.pod)
                    if pod.metadata.uid not in self._pods:
                        self._remember(pod, version)
                    kept.pods.append(pod)
                kept.versions.append(pod.metadata.resource_version)
        return kept

    def watched(self, events: Iterable[PodEvent], connection: Connection) -> Watched:
        """Return the events without the no-op ones. Takes over the events given.

        An event is a no-op if the observation before it shows the same running pod and no event can be missing between
        the two: both came over one connection, or the first from the LIST that the connection started from. Until a pod
        runs, each version counts, because an excess pod is deleted only at its known version.
        """
        with self._lock:
            self._ends_some = False
            self._parts.make_room()
            changes = [event for event in events if self._is_change(event, connection)]
            return Watched(changes, self._ends_some)

    def _is_change(self, event: PodEvent, connection: Connection) -> bool:
        pod, kind = event.pod, event.type
        metadata, status = pod.metadata, pod.status
        version, phase = metadata.resource_version, None if status is None else status.phase
        known = self._pods.get(metadata.uid) or self._taken_over(metadata.uid)
        _tidy(pod)
        before = None if known is None else known.status
        framed = known if known is not None and _is_framed(pod, known.frame) else None
        if framed is not None and status == before:
            follows = framed.origin is connection or framed.origin == connection.since
            if follows and phase == "Running" and kind != "DELETED":
                framed.version = version
                framed.origin = connection
                return False
            status = before
        ends = kind == "DELETED" or metadata.deletion_timestamp is not None or phase in _FINAL_PHASES
        if ends and not _is_over(before):
            self._ends_some = True
        if framed is None or metadata.name != framed.pod.metadata.name:
            self._parts.share(pod, None if known is None else known.pod)
            if kind != "DELETED":
                self._remember(pod, connection)
        else:
            pod = self._parts.next_in_frame(framed, status, version)
            force_setattr(event, "pod", pod)
            framed.pod = pod
            framed.status = status
            framed.version = version
            framed.origin = connection
        if kind == "DELETED" or not version:  # its last event, or one that cannot be identified
            self._pods.pop(metadata.uid, None)
        return True

    def _taken_over(self, uid: str) -> _Known | None:
        """Return the last observation of a pod that was observed before the last LIST only, from now on a newer one."""
        known = self._before.pop(uid, None)
        if known is not None:
            self._pods[known.pod.metadata.uid] = known
        return known

    def _known(self, uid: str) -> _Known | None:
        """Return the last observation of a pod, removed from the older ones: the caller has a newer one."""
        return self._pods.get(uid) or self._before.pop(uid, None)

    def _is_unchanged(self, known: _Known, listed: Pod | PodHeader) -> bool:
        """Whether the pod of a LIST is the known one.

        The version alone is not enough: a cluster restored from a backup uses versions again.
        """
        last = known.pod
        return (
            (listed.metadata.resource_version == known.version or self._is_overtaken(known, listed))
            and listed.metadata.deletion_timestamp == last.metadata.deletion_timestamp
            and (listed.status and listed.status.phase) == (last.status and last.status.phase)
        )

    def _is_overtaken(self, known: _Known, listed: Pod | PodHeader) -> bool:
        """Whether the LIST shows the pod before no-op events that came while the LIST was on its way.

        All of the pod is compared: in a cluster restored from a backup, versions between may be of other changes.
        """
        metadata = listed.metadata
        if (
            isinstance(listed, PodHeader)
            or metadata.uid not in self._pods
            or not is_old(known.pod.metadata.resource_version, metadata.resource_version)
            or not is_later(known.version, metadata.resource_version)
        ):
            return False
        _tidy(listed)
        return _is_framed(listed, known.frame) and listed.status == known.status

    def _remember(self, pod: Pod, origin: Connection | str) -> None:
        """Remember an observation."""
        metadata = pod.metadata
        if metadata.uid and metadata.resource_version:
            version = metadata.resource_version
            self._pods[metadata.uid] = _Known(pod, pod.status, self._parts.frame(pod), version, origin)
        else:  # it cannot be identified: the last one is unknown
            self._pods.pop(metadata.uid, None)


def _share_metadata(new: ObjectMeta, old: ObjectMeta, share: Callable[[Any, Any], Any]) -> None:
    if (labels := new.labels) is not None:
        same = labels == old.labels
        force_setattr(new, "labels", old.labels if same else share((dict, *labels.items()), labels))
    if owners := new.owner_references:
        same = owners == old.owner_references
        force_setattr(new, "owner_references", old.owner_references if same else share(owners, owners))
    if finalizers := new.finalizers:
        same = finalizers == old.finalizers
        force_setattr(new, "finalizers", old.finalizers if same else share(finalizers, finalizers))


def _is_framed(pod: Pod, frame: _Frame) -> bool:
    """Whether a pod differs from its last observation, which has this frame, at most in its version and its status."""
    metadata = pod.metadata
    return (
        pod.spec == frame.spec
        and metadata.labels == frame.labels
        and metadata.owner_references == frame.owner_references
        and metadata.deletion_timestamp == frame.deletion_timestamp
        and metadata.deletion_grace_period_seconds == frame.deletion_grace_period_seconds
        and metadata.finalizers == frame.finalizers
    )


def _is_over(status: PodStatus | None) -> bool:
    return status is not None and status.phase in _FINAL_PHASES


def _tidy(pod: Pod) -> None:
    """Drop the conditions that no decision depends on, and the executor id from labels if the name has it."""
    metadata, status = pod.metadata, pod.status
    if status is not None and (conditions := status.conditions):
        telling: tuple[Condition, ...] | None = None
        for each in conditions:  # nearly always none is
            if (kind := each.type) in RELEVANT_CONDITIONS and RELEVANT_CONDITIONS[kind] != each.status:
                telling = (*(telling or ()), each)
        force_setattr(status, "conditions", telling)
    labels = metadata.labels
    if isinstance(labels, dict) and labels.get(EXECUTOR_ID_LABEL) == metadata.name.rpartition(INFIX)[2]:
        labels[EXECUTOR_ID_LABEL] = IN_NAME
