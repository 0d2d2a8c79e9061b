"""What is equal is kept once: what the pods of a fleet have in common, and a pod that a list shows just as it was.

Each pod is decoded on its own, with strings and structs of its own. Two thirds of them are equal to those of some other
pod, such as its owner, its containers, and how healthy ones are; and nearly all of a poll to what is there already. A
fleet of tens of thousands would be most of the driver's memory, and each poll as much again.

And what brings nothing is not told: most changes of a pod that runs are of what nobody here looks at, such as an
annotation, a probe's moment, or who manages which field.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import msgspec
from msgspec.structs import force_setattr

from actors.pods.pod import EXECUTOR_ID_LABEL, RELEVANT_CONDITIONS, ObjectMeta, Pod, PodStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from actors.pods.pod import PodEvent

__all__ = ["Connection", "Kept", "Labels", "PodDeduplicator", "PodHeader"]

MAX_SHARED: Final = 4096
"""Values that are kept to be shared. Those of some use come back at once; a time that each pod has differently does
not."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = None


class PodHeader(msgspec.Struct, frozen=True, gc=False):
    """As much of a pod as tells whether it is as it was; to decode it takes half as long as the pod."""

    metadata: _Metadata = _Metadata()
    status: _Status | None = None


_NO_POD: Final = Pod()
_NO_STATUS: Final = PodStatus()


@final
class Labels(Mapping[str, str]):
    """A pod's labels: those that it has in common with others, and the executor id, which is its own."""

    __slots__ = ("common", "executor_id")

    def __init__(self, common: Mapping[str, str], executor_id: str) -> None:
        self.common = common
        self.executor_id = executor_id

    def __getitem__(self, key: str) -> str:
        return self.executor_id if key == EXECUTOR_ID_LABEL else self.common[key]

    def __iter__(self) -> Iterator[str]:
        yield from self.common
        yield EXECUTOR_ID_LABEL

    def __len__(self) -> int:
        return len(self.common) + 1

    def __repr__(self) -> str:
        return repr(dict(self))


class Connection(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One watch: of what there was at version `since` it brings what becomes of it, word by word."""

    since: str | None


class _Known(msgspec.Struct, gc=False):
    """A pod as it was shown last."""

    pod: Pod
    version: str
    """At which it was seen to look like this; the pod's own is that at which it began to."""
    origin: Connection | str
    """The watch that brought it last, or the version of the list that showed it."""


class Kept(NamedTuple):
    """What is kept of a page; see `PodPage`."""

    pods: list[Pod]
    moved: dict[str, str]


@final
class PodDeduplicator:
    """Remembers values, up to a number, and the newest of each pod that there is. Any thread may use it.

    What a watch leaves out hangs on what was remembered last, so that one read or page is taken after another.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[Any, Any] = {}
        self._pods: dict[str, _Known] = {}
        """By UID, what has come since the last list began."""
        self._before: dict[str, _Known] = {}
        """What had come before, and not again since. Goes with the next list: one that does not show it ends it."""

    @property
    def knows_pods(self) -> bool:
        """There is something that a list could show unchanged."""
        return bool(self._before or self._pods)

    def begin_list(self) -> None:
        """The first page of a list is asked for."""
        with self._lock:
            self._before, self._pods = self._pods, {}

    def unchanged(self, page: Iterable[PodHeader]) -> Kept | None:
        """The pods of a page; None if one of them is not known as it stands there."""
        kept = Kept([], {})
        with self._lock:
            for header in page:
                known = self._known(header.metadata.uid)
                if known is None or not _is_unchanged(known, header):
                    return None
                self._keep(known, kept)
        return kept

    def listed(self, page: Iterable[Pod], version: str) -> Kept:
        """The pods of a page, which nobody has seen yet: those that are known as they are, and the others.

        They are remembered, but for those of which a watch has brought a word since the list began.
        """
        kept = Kept([], {})
        with self._lock:
            for pod in page:
                known = self._known(pod.metadata.uid)
                if known is not None and _is_unchanged(known, pod):
                    self._keep(known, kept)
                    continue
                _drop_conditions(pod)
                self._share_parts(pod, known)
                if pod.metadata.uid not in self._pods:
                    self._remember(pod, version)
                kept.pods.append(pod)
        return kept

    def watched(self, events: Iterable[PodEvent], connection: Connection) -> list[PodEvent]:
        """Those of these events, which nobody has seen yet, that bring something. A list may have shown what they do.

        One brings nothing if the word before it on its pod, over the same connection or in a list of the version from
        which that goes on, showed a pod that runs and looks just so: what there was in between would have come, too.
        Before a pod runs, its version counts: one that is too many is deleted only if it has not changed.
        """
        with self._lock:
            return [event for event in events if self._is_change(event, connection)]

    def _is_change(self, event: PodEvent, connection: Connection) -> bool:
        pod = event.pod
        metadata = pod.metadata
        known = self._known(metadata.uid)
        _drop_conditions(pod)
        if known is not None and _looks_same(pod, last := known.pod):
            follows = known.origin is connection or known.origin == connection.since
            if follows and _is_running(last) and event.type != "DELETED":
                known.version, known.origin = metadata.resource_version, connection
                self._pods[last.metadata.uid] = known
                return False
            if metadata.resource_version == last.metadata.resource_version:
                force_setattr(event, "pod", last)
        self._share_parts(pod, known)
        if event.type == "DELETED":  # its last word, whatever its version
            self._pods.pop(metadata.uid, None)
        else:
            self._remember(event.pod, connection)
        return True

    def _known(self, uid: str) -> _Known | None:
        """What came last of a pod. What came before the last list began is let go: something comes now."""
        return self._pods.get(uid) or self._before.pop(uid, None)

    def _keep(self, known: _Known, kept: Kept) -> None:
        """A list shows this pod as it was."""
        uid = known.pod.metadata.uid
        self._pods[uid] = known
        kept.pods.append(known.pod)
        if known.version != known.pod.metadata.resource_version:
            kept.moved[uid] = known.version

    def _remember(self, pod: Pod, origin: Connection | str) -> None:
        metadata = pod.metadata
        if metadata.uid and metadata.resource_version:
            self._pods[metadata.uid] = _Known(pod, metadata.resource_version, origin)
        else:  # it cannot be told from another, and what came before it was not the last
            self._pods.pop(metadata.uid, None)

    def _share_parts(self, pod: Pod, known: _Known | None) -> None:
        """Let go of what a pod need not have of its own, but has in common with itself as it was, or with others.

        To compare costs less than to look up.
        """
        if len(self._shared) >= MAX_SHARED:
            self._shared.clear()
        share = self._shared.setdefault
        last = _NO_POD
        if known is not None:
            last = known.pod
            force_setattr(pod.metadata, "uid", last.metadata.uid)
            if pod.metadata.name == last.metadata.name:
                force_setattr(pod.metadata, "name", last.metadata.name)
        _share_metadata(pod.metadata, last.metadata, share)
        if (spec := pod.spec) is not None:
            force_setattr(pod, "spec", last.spec if spec == last.spec else share(spec, spec))
        if pod.status is not None and pod.status == last.status:
            force_setattr(pod, "status", last.status)
        elif pod.status is not None:
            _share_status(pod.status, last.status or _NO_STATUS, share)


def _share_metadata(new: ObjectMeta, old: ObjectMeta, share: Callable[[Any, Any], Any]) -> None:
    if (labels := new.labels) is not None:
        same = _same_labels(labels, old.labels)
        force_setattr(new, "labels", old.labels if same else _shared_labels(dict(labels), share))
    if owners := new.owner_references:
        same = owners == old.owner_references
        force_setattr(new, "owner_references", old.owner_references if same else share(owners, owners))


def _share_status(new: PodStatus, old: PodStatus, share: Callable[[Any, Any], Any]) -> None:
    for field in ("phase", "container_statuses", "init_container_statuses"):  # the rest is each pod's own
        if (value := getattr(new, field)) is not None:
            before = getattr(old, field)
            force_setattr(new, field, before if value == before else share(value, value))


def _is_unchanged(known: _Known, listed: Pod | PodHeader) -> bool:
    """Whether the pod that a list shows is as it was.

    The version alone would do, but for a cluster that was restored from a backup: it gives versions out again.
    """
    last = known.pod
    return (
        listed.metadata.resource_version == known.version
        and listed.metadata.deletion_timestamp == last.metadata.deletion_timestamp
        and (listed.status and listed.status.phase) == (last.status and last.status.phase)
    )


def _looks_same(pod: Pod, last: Pod) -> bool:
    """Whether nothing is new of a pod but its version. Asked of every event: to compare costs less than to look up."""
    new, old = pod.metadata, last.metadata
    return (
        pod.status == last.status
        and pod.spec == last.spec
        and _same_labels(new.labels, old.labels)
        and new.owner_references == old.owner_references
        and new.deletion_timestamp == old.deletion_timestamp
        and new.deletion_grace_period_seconds == old.deletion_grace_period_seconds
    )


def _is_running(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase == "Running"


def _drop_conditions(pod: Pod) -> None:
    """Let go of what nobody looks at."""
    status = pod.status
    if status is not None and (conditions := status.conditions):
        telling = [each for each in conditions if RELEVANT_CONDITIONS.get(each.type, each.status) != each.status]
        force_setattr(status, "conditions", tuple(telling) if telling else None)


def _same_labels(new: Mapping[str, str] | None, old: Mapping[str, str] | None) -> bool:
    """Whether labels, as they come, are those that are kept."""
    if new is None or not isinstance(old, Labels):
        return new == old
    common = old.common
    return (
        len(new) == len(common) + 1 and new.get(EXECUTOR_ID_LABEL) == old.executor_id and common.items() <= new.items()
    )


def _shared_labels(labels: dict[str, str], share: Callable[[Any, Any], Any]) -> Mapping[str, str]:
    """The same labels, as they are kept."""
    executor_id = labels.pop(EXECUTOR_ID_LABEL, None)
    common: Mapping[str, str] = share(tuple(labels.items()), labels)
    return common if executor_id is None else Labels(common, executor_id)
