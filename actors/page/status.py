"""`status_of`: the Backend's answer and the history as the status of the page. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from actors.page.documents import VERSION, Held, Profile, Source, Status, line_of
from actors.text import one_line

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from actors.messages import FleetStatus, HeldPod, ProfileStatus, SourceStatus
    from actors.page.documents import Timestamp
    from actors.page.history import FleetHistory

__all__ = ["lasting", "status_of"]


def status_of(
    app_id: str, status: FleetStatus | None, history: FleetHistory, now: Timestamp, *, takes_actions: bool
) -> Status:
    """Return what is known of the whole fleet at `now`. Without a status of the Backend there are no profiles."""
    ended = history.stopped is not None
    if status is None:
        return Status(
            VERSION,
            now,
            history.seq,
            app_id=one_line(app_id),
            namespace=None,
            started=history.started is not None,
            failed=history.failure,
            stopping=ended,
            may_write=False,
            lease_held=False,
            on_hold=False,
            actions=takes_actions,
            sources={},
            profiles={},
            held=[],
            columns=history.columns(),
        )
    return Status(
        VERSION,
        now,
        history.seq,
        app_id=one_line(status.app_id),
        namespace=one_line(status.namespace),
        started=history.started is not None,
        failed=history.failure or line_of(status.failed),
        stopping=ended or status.stopping,
        may_write=status.may_write,
        lease_held=status.lease_held,
        on_hold=status.on_hold,
        actions=takes_actions,
        sources={name: _source(source) for name, source in status.sources.items()},
        profiles={one_line(name): _profile(name, profile, history, now) for name, profile in status.profiles.items()},
        held=[_held(pod) for pod in status.held],
        columns=history.columns(),
    )


def lasting(status: Status) -> Status:
    """Return a status without what always changes: an age becomes the second since when."""

    def second(age: float | None) -> float | None:
        return None if age is None else round(status.time - age)

    sources = {
        name: msgspec.structs.replace(
            source, since_full_sync=second(source.since_full_sync), since_heard=second(source.since_heard)
        )
        for name, source in status.sources.items()
    }
    return msgspec.structs.replace(status, time=0.0, seq=0, sources=sources)


def _source(source: SourceStatus) -> Source:
    full, heard = _seconds(source.since_full_sync), _seconds(source.since_heard)
    return Source(source.synced, full, heard, line_of(source.error))


def _profile(name: str, profile: ProfileStatus, history: FleetHistory, now: Timestamp) -> Profile:
    return Profile(
        target=profile.target,
        requested=profile.requested,
        pending=profile.pending,
        running=profile.running,
        terminating=profile.terminating,
        retiring=profile.retiring,
        registered=profile.registered,
        blocked=line_of(profile.blocked),
        blocked_by=profile.blocked_by,
        blocked_since=_timestamp(profile.blocked_since),
        start_failures=profile.start_failures,
        backoff_until=_timestamp(profile.backoff_until),
        more_memory=profile.more_memory,
        losses=history.losses(name, now),
    )


def _held(pod: HeldPod) -> Held:
    finalizers = [one_line(each) for each in pod.finalizers]
    return Held(pod.executor_id, one_line(pod.pod_name), finalizers, pod.since.timestamp())


def _seconds(age: timedelta | None) -> float | None:
    return None if age is None else round(age.total_seconds(), 3)


def _timestamp(moment: datetime | None) -> Timestamp | None:
    return None if moment is None else moment.timestamp()
