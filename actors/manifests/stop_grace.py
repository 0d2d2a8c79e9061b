"""How long executors have to end when their fleet is stopped, by profile. Pure.

A stop does not wait for the default grace period of Kubernetes. A container's command is process 1: it ignores SIGTERM
unless it handles it, and one that is deleted while its interpreter starts loses the SIGTERM. Both would use all of it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from actors.manifests.pod_template import patched
from actors.messages.internal import NO_PAUSE, GracePeriods
from actors.pods.pod import DEFAULT_PROFILE

if TYPE_CHECKING:
    from actors.settings import Settings

__all__ = ["longest_pause", "longest_stop_grace", "stop_graces"]

STOP_GRACE: Final = timedelta(seconds=4)
"""Time to close files and connections. Whoever needs more, as to write a checkpoint, says so in the pod template, or by
`executor.stop_grace_period`."""


def stop_graces(settings: Settings) -> GracePeriods:
    """Return the grace periods with which a stop deletes pods. Unknown profiles have that of the default profile.

    The templates of the settings must have passed `check_template`.
    """
    named = {name: _stop_grace(settings, name) for name in settings.profile_names}
    return GracePeriods(named, named[DEFAULT_PROFILE])


def longest_stop_grace(settings: Settings) -> timedelta:
    """Return how long the executors of a stopped fleet may take to end at the most."""
    graces = stop_graces(settings)
    return max(
        timedelta(seconds=_template_grace(settings, name) or 0) if grace is None else grace
        for name, grace in graces.named.items()
    )


def longest_pause(settings: Settings) -> timedelta:
    """Return for how long the executors of a stopped fleet may pause at the most.

    A stop begins no pause that is longer than its grace period, but a kubelet does not end one that has begun.
    """
    pauses = (settings.drain_timeout(name) for name in settings.profile_names)
    return max((pause for pause in pauses if pause is not None), default=timedelta())


def _stop_grace(settings: Settings, name: str) -> timedelta | None:
    profile = settings.profile(name)
    if profile.stop_grace_period is not None:
        return profile.stop_grace_period
    if profile.drain_timeout is not None:
        return NO_PAUSE
    return STOP_GRACE if _template_grace(settings, name) is None else None


def _template_grace(settings: Settings, name: str) -> int | None:
    spec = patched(settings.profile(name), settings.executor.container).get("spec") or {}
    seconds: int | None = spec.get("terminationGracePeriodSeconds")
    return seconds
