"""What is equal is kept once: what the pods of a fleet have in common, and a pod that a list shows just as it was.

Each pod is decoded on its own, with strings and structs of its own. Two thirds of them are equal to those of some other
pod, such as its owner, its containers, and how healthy ones are; and nearly all of a poll to what is there already. A
fleet of tens of thousands would be most of the driver's memory, and each poll as much again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
from msgspec.structs import force_setattr

from actors.pods import EXECUTOR_ID_LABEL, TELLING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from actors.pods import Pod, PodEvent

__all__ = ["Glance", "Labels", "Sharing"]

MOST_KEPT: Final = 4096
"""Values that are kept to be shared. Those of some use come back at once; a time that each pod has differently does
not."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel", gc=False):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: datetime | None = None


class _Status(msgspec.Struct, frozen=True, gc=False):
    phase: str | None = None


class Glance(msgspec.Struct, frozen=True, gc=False):
    """As much of a pod as tells whether it is as it was; to decode it takes half as long as the pod."""

    metadata: _Metadata = _Metadata()
    status: _Status | None = None


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


@final
class Sharing:
    """Remembers values, up to a number, and the newest of each pod that there is.

    Any thread may use it: at worst two of them keep what is equal.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, Any] = {}
        self._pods: dict[str, Pod] = {}
        """By UID, what has come since the last list began."""
        self._before: dict[str, Pod] = {}
        """What had come before, and not again since. Goes with the next list: one that does not show it ends it."""

    @property
    def knows_pods(self) -> bool:
        """There is something that a list could show unchanged."""
        return bool(self._before or self._pods)

    def begin_list(self) -> None:
        """The first page of a list is asked for."""
        self._before, self._pods = self._pods, {}

    def unchanged(self, page: Iterable[Glance]) -> tuple[Pod, ...] | None:
        """The pods of a page; None if one of them is not known as it stands there."""
        pods: list[Pod] = []
        for glance in page:
            last = self._last(glance)
            if last is None or not self._is_still(last, glance):
                return None
            pods.append(last)
        return tuple(pods)

    def listed(self, page: Iterable[Pod]) -> tuple[Pod, ...]:
        """The pods of a page, which nobody has seen yet: those that are known as they are, and the others."""
        pods: list[Pod] = []
        for pod in page:
            last = self._last(pod)
            if last is not None and self._is_still(last, pod):
                pods.append(last)
            else:
                self._keep(pod, last, is_newest=False)
                pods.append(pod)
        return tuple(pods)

    def watched(self, events: Iterable[PodEvent]) -> None:
        """These events have come, and nobody has seen them yet. A list may have shown what they bring."""
        for event in events:
            pod = event.pod
            last = self._last(pod)
            if event.type == "DELETED":  # its last word, whatever its version
                self._keep(pod, last, is_newest=True)
                self._pods.pop(pod.metadata.uid, None)
            elif last is not None and self._is_still(last, pod):
                force_setattr(event, "pod", last)
            else:
                self._keep(pod, last, is_newest=True)

    def _last(self, shown: Pod | Glance) -> Pod | None:
        """What was known last of the pod that is shown."""
        uid = shown.metadata.uid
        return self._pods.get(uid) or self._before.pop(uid, None)

    def _is_still(self, last: Pod, shown: Pod | Glance) -> bool:
        """Whether the pod is as it was, which is remembered then.

        The version alone would do, but for a cluster that was restored from a backup: it gives versions out again.
        """
        same = (
            shown.metadata.resource_version == last.metadata.resource_version
            and shown.metadata.deletion_timestamp == last.metadata.deletion_timestamp
            and (shown.status and shown.status.phase) == (last.status and last.status.phase)
        )
        if same:
            self._pods[last.metadata.uid] = last
        return same

    def _keep(self, pod: Pod, last: Pod | None, *, is_newest: bool) -> None:
        """Remember a pod; one of a list only if no watch has brought it since the list began."""
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        _settle(pod, last, self._kept.setdefault)
        uid = pod.metadata.uid
        can_be_told = uid and pod.metadata.resource_version  # from another
        if can_be_told and (is_newest or uid not in self._pods):
            self._pods[uid] = pod


def _settle(pod: Pod, last: Pod | None, share: Callable[[Any, Any], Any]) -> None:
    """Let go of what a pod need not have of its own; `last` is how it was known before, if it was.

    `share` gives what is kept in place of what is equal to it. In few pieces, and by builtins: this is done for every
    event, and each call would cost more than what it does. To compare costs less than to look up.
    """
    metadata, status = pod.metadata, pod.status
    if status is not None and (conditions := status.conditions):
        telling = [each for each in conditions if TELLING.get(each.type, each.status) != each.status]
        force_setattr(status, "conditions", tuple(telling) if telling else None)
    if isinstance(labels := metadata.labels, dict):
        before = last.metadata.labels if last is not None else None
        force_setattr(metadata, "labels", _labels(labels, before, share))
    if last is not None and _has_stayed(pod, last):
        return
    if owners := metadata.owner_references:
        force_setattr(metadata, "owner_references", share(owners, owners))
    if (spec := pod.spec) is not None:
        force_setattr(pod, "spec", share(spec, spec))
    if status is not None:
        phase = status.phase
        force_setattr(status, "phase", share(phase, phase))
        if containers := status.container_statuses:
            force_setattr(status, "container_statuses", share(containers, containers))
        if containers := status.init_container_statuses:
            force_setattr(status, "init_container_statuses", share(containers, containers))


def _labels(
    labels: dict[str, str], before: Mapping[str, str] | None, share: Callable[[Any, Any], Any]
) -> Mapping[str, str]:
    """The same labels, as they are kept."""
    executor_id = labels.pop(EXECUTOR_ID_LABEL, None)
    if isinstance(before, Labels) and before.executor_id == executor_id and before.common == labels:
        return before
    common: Mapping[str, str] = share(tuple(labels.items()), labels)
    return common if executor_id is None else Labels(common, executor_id)


def _has_stayed(pod: Pod, last: Pod) -> bool:
    """Whether nothing is new of a pod but what says so. What is not new is there once, while both are alive."""
    new, old = pod.metadata, last.metadata
    force_setattr(new, "uid", old.uid)
    if new.name == old.name:
        force_setattr(new, "name", old.name)
    if pod.spec != last.spec or pod.status != last.status or new.owner_references != old.owner_references:
        return False
    force_setattr(pod, "spec", last.spec)
    force_setattr(pod, "status", last.status)
    force_setattr(new, "owner_references", old.owner_references)
    return True
