"""`PodDeduplicator`: keeps equal parts of pods once, and drops events that change nothing.

Each pod is decoded into structs and strings of its own. Most of them equal those of another pod, such as owner,
containers and status, and nearly all pods of a poll are in memory already. Without sharing, a fleet of tens of
thousands would take most of the driver's memory, and each poll as much again. And what each pod has of its own is in no
CPU cache when the next event of the pod comes, which costs more than what is done with it.

Most events of a running pod change only fields that a `Pod` does not have, such as annotations, probe times and managed
fields. Such no-op events are dropped right after decoding.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, final

import msgspec
from msgspec.structs import force_setattr

from actors.kube.resource_version import is_later, is_old
from actors.pods.api_pod import ApiPod, has_several_containers
from actors.pods.ids import INFIX
from actors.pods.pod import (
    EXECUTOR_ID_LABEL,
    IN_NAME,
    RELEVANT_CONDITIONS,
    Condition,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodEvent,
    PodSpec,
    PodStatus,
    Time,
    is_telling,
)
from actors.pods.state import is_urgent

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.pods.api_pod import ApiEvent, ApiStatus

__all__ = ["Connection", "Kept", "MadeContainerOf", "PodDeduplicator", "PodHeader", "SharedParts", "Watched"]

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


_NO_POD: Final = Pod()

MadeContainerOf: TypeAlias = Callable[[ApiPod], str | None]
"""Returns `Pod.made_container` of a pod of several containers. It reads the JSON once more, so it is asked only at the
first observation of such a pod: containers come and go with their pod, and so do their variables."""


def _as_decoded(pod: ApiPod) -> str | None:
    """The `MadeContainerOf` pods that were made from plain JSON."""
    return pod.made_container


class Connection(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One watch connection: it delivers every change after version `since`."""

    since: str | None


class _Frame(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Metadata and spec without the identity: the same for nearly all running pods of a profile."""

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
    urgent: bool
    """One of them is, see `is_urgent`."""


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
            id(metadata.shared_labels),
            id(metadata.owner_references),
            metadata.deletion_timestamp,
            metadata.deletion_grace_period_seconds,
            id(metadata.finalizers),
        )  # the frame keeps the parts, so that no other has their ids
        found: _Frame | None = self._shared.get(key)
        if found is None:
            found = self._shared[key] = _Frame(
                of,
                metadata.shared_labels,
                metadata.owner_references,
                metadata.deletion_timestamp,
                metadata.deletion_grace_period_seconds,
                metadata.finalizers,
            )
        return found

    def share(self, pod: Pod, last: Pod | None) -> None:
        """Replace parts of a new `Pod` by equal parts of its last observation, or else of other pods.

        Comparing costs less than looking up.
        """
        self.make_room()
        share, last = self._shared.setdefault, last or _NO_POD
        if pod.metadata == last.metadata:
            force_setattr(pod, "metadata", last.metadata)
        else:
            _share_metadata(pod.metadata, last.metadata, share)
        if (spec := pod.spec) is not None:
            force_setattr(pod, "spec", last.spec if spec == last.spec else share(spec, spec))
        force_setattr(pod, "status", self.status(pod.status))
        if pod.ip == last.ip:
            force_setattr(pod, "ip", last.ip)
        if pod.start_time == last.start_time:
            force_setattr(pod, "start_time", last.start_time)

    def status(self, status: PodStatus | None) -> PodStatus | None:
        """Return the equal status that is kept: this one if there was none."""
        found: PodStatus | None = self._shared.get(status)
        if found is None and status is not None:
            found, share = status, self._shared.setdefault
            for part in ("phase", "container_statuses", "init_container_statuses"):
                if (value := getattr(status, part)) is not None:
                    force_setattr(status, part, share(value, value))
            self._shared[status] = status
        return found

    def make_room(self) -> None:
        """Drop all values if there are too many."""
        if len(self._shared) >= MAX_SHARED:
            self._shared.clear()


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
        self._urgent = False
        """Whether one of the events that are being handled is."""
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

    def listed(self, page: Iterable[ApiPod], version: str, made_of: MadeContainerOf = _as_decoded) -> Kept:
        """Return the pods of a new page, known objects for unchanged ones. Takes over the pods given.

        Remember them too, except pods that a watch has observed since the LIST began.
        """
        kept = Kept([], [])
        with self._lock:
            for found in page:
                known = self._known(found.metadata.uid)
                if known is not None and self._is_unchanged(known, found):
                    self._pods[known.pod.metadata.uid] = known
                    kept.pods.append(known.pod)
                else:
                    pod = self._shared(_tidied(found), known, found, made_of)
                    if pod.uid not in self._pods:
                        self._remember(pod, version)
                    kept.pods.append(pod)
                kept.versions.append(found.metadata.resource_version)
        return kept

    def watched(
        self, events: Iterable[ApiEvent], connection: Connection, made_of: MadeContainerOf = _as_decoded
    ) -> Watched:
        """Return the events without the no-op ones. Takes over the events given.

        An event is a no-op if the observation before it shows the same running pod and no event can be missing between
        the two: both came over one connection, or the first from the LIST that the connection started from. Until a pod
        runs, each version counts, because an excess pod is deleted only at its known version.
        """
        with self._lock:
            self._urgent = False
            self._parts.make_room()
            changes = [change for event in events if (change := self._change(event, connection, made_of)) is not None]
            return Watched(changes, self._urgent)

    def _change(self, event: ApiEvent, connection: Connection, made_of: MadeContainerOf) -> PodEvent | None:
        """Return the event, None for a no-op one."""
        found, kind = event.pod, event.type
        metadata, told = found.metadata, found.status
        version = metadata.resource_version
        status, phase, ip, start_time = _status(told), None, None, None
        if told is not None:
            phase, ip, start_time = told.phase, told.pod_ip or None, told.start_time
        _tidy(metadata)
        known = self._pods.get(metadata.uid) or self._taken_over(metadata.uid)
        last = None if known is None else known.pod
        if known is None or not _is_framed(found, known.frame):
            pod = self._shared(found.with_status(status), known, found, made_of)
            if kind != "DELETED":
                self._remember(pod, connection)
        else:
            pod, before = known.pod, known.status
            status = before if status == before else self._parts.status(status)
            ip = pod.ip if ip == pod.ip else ip
            start_time = pod.start_time if start_time == pod.start_time else start_time
            is_same = status is before and ip is pod.ip and start_time is pod.start_time
            follows = known.origin is connection or known.origin == connection.since
            if is_same and follows and phase == "Running" and kind != "DELETED":
                known.version, known.origin = version, connection
                return None
            if not is_same or version != pod.resource_version:
                pod = Pod(pod.metadata, pod.spec, status, version, ip, start_time, pod.named_id, pod.made_container)
            known.pod, known.status, known.version, known.origin = pod, pod.status, version, connection
        self._urgent = self._urgent or is_urgent(last, pod, deleted=kind == "DELETED")
        if kind == "DELETED" or not version:  # its last event, or one that cannot be identified
            self._pods.pop(metadata.uid, None)
        return PodEvent(kind, pod)

    def _taken_over(self, uid: str) -> _Known | None:
        """Return the last observation of a pod that was observed before the last LIST only, from now on a newer one."""
        known = self._before.pop(uid, None)
        if known is not None:
            self._pods[known.pod.metadata.uid] = known
        return known

    def _known(self, uid: str) -> _Known | None:
        """Return the last observation of a pod, removed from the older ones: the caller has a newer one."""
        return self._pods.get(uid) or self._before.pop(uid, None)

    def _is_unchanged(self, known: _Known, listed: ApiPod | PodHeader) -> bool:
        """Whether the pod of a LIST is the known one.

        The version alone is not enough: a cluster restored from a backup uses versions again.
        """
        last = known.pod
        return (
            (listed.metadata.resource_version == known.version or self._is_overtaken(known, listed))
            and listed.metadata.deletion_timestamp == last.metadata.deletion_timestamp
            and (listed.status and listed.status.phase) == (last.status and last.status.phase)
        )

    def _is_overtaken(self, known: _Known, listed: ApiPod | PodHeader) -> bool:
        """Whether the LIST shows the pod before no-op events that came while the LIST was on its way.

        All of the pod is compared: in a cluster restored from a backup, versions between may be of other changes.
        """
        metadata, last = listed.metadata, known.pod
        if (
            isinstance(listed, PodHeader)
            or metadata.uid not in self._pods
            or not is_old(last.resource_version, metadata.resource_version)
            or not is_later(known.version, metadata.resource_version)
        ):
            return False
        pod = _tidied(listed)
        return _is_framed(listed, known.frame) and (pod.status, pod.ip, pod.start_time) == (
            last.status,
            last.ip,
            last.start_time,
        )

    def _shared(self, pod: Pod, known: _Known | None, found: ApiPod, made_of: MadeContainerOf) -> Pod:
        """Return a new observation, now made of shared parts. `found` is the pod as decoded."""
        self._parts.share(pod, None if known is None else known.pod)
        if has_several_containers(found):
            force_setattr(pod, "made_container", made_of(found) if known is None else known.pod.made_container)
        return pod

    def _remember(self, pod: Pod, origin: Connection | str) -> None:
        """Remember an observation."""
        uid, version = pod.metadata.uid, pod.resource_version
        if uid and version:
            self._pods[uid] = _Known(pod, pod.status, self._parts.frame(pod), version, origin)
        else:  # it cannot be identified: the last one is unknown
            self._pods.pop(uid, None)


def _share_metadata(new: ObjectMeta, old: ObjectMeta, share: Callable[[Any, Any], Any]) -> None:
    if new.uid == old.uid:
        force_setattr(new, "uid", old.uid)
    if new.name == old.name:
        force_setattr(new, "name", old.name)
    if (labels := new.shared_labels) is not None:
        same = labels == old.shared_labels
        force_setattr(new, "shared_labels", old.shared_labels if same else share((dict, *labels.items()), labels))
    if owners := new.owner_references:
        same = owners == old.owner_references
        force_setattr(new, "owner_references", old.owner_references if same else share(owners, owners))
    if finalizers := new.finalizers:
        same = finalizers == old.finalizers
        force_setattr(new, "finalizers", old.finalizers if same else share(finalizers, finalizers))


def _is_framed(pod: ApiPod, frame: _Frame) -> bool:
    """Whether a pod differs from its last observation, which has this frame, in nothing else than version and status.

    A UID belongs to one name, so that is not compared.
    """
    metadata = pod.metadata
    return (
        pod.spec == frame.spec
        and metadata.shared_labels == frame.labels
        and metadata.owner_references == frame.owner_references
        and metadata.deletion_timestamp == frame.deletion_timestamp
        and metadata.deletion_grace_period_seconds == frame.deletion_grace_period_seconds
        and metadata.finalizers == frame.finalizers
    )


def _tidied(found: ApiPod) -> Pod:
    """Return a pod as lists and watches deliver it."""
    _tidy(found.metadata)
    return found.with_status(_status(found.status))


def _tidy(metadata: ObjectMeta) -> None:
    """Drop the executor id from labels if the name has it."""
    labels = metadata.shared_labels
    if isinstance(labels, dict) and labels.get(EXECUTOR_ID_LABEL) == metadata.name.rpartition(INFIX)[2]:
        labels[EXECUTOR_ID_LABEL] = IN_NAME


def _status(found: ApiStatus | None) -> PodStatus | None:
    """Return the status without the conditions that no decision depends on."""
    if found is None:
        return None
    telling: tuple[Condition, ...] | None = None
    for each in found.conditions or ():  # nearly always none is
        if each.type in RELEVANT_CONDITIONS and is_telling(each):
            telling = (*(telling or ()), each)
    return found.with_conditions(telling)
