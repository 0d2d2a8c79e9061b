"""`FleetPlan`: what a fleet is to be, from the arguments of `Fleet` and `AsyncFleet`.

It is checked once, before anything starts. The durations that their methods take are read here too.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, final, overload

from actors.errors import SettingsError
from actors.fleet.callbacks import is_coroutine_function
from actors.settings import ExecutorSettings, ExecutorValues, Settings, SettingsValues
from actors.settings.durations import LONGEST, parse_duration, parse_grace
from actors.settings.model import setting_names
from actors.settings.problems import unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from actors.executors.replacement import ReplaceRule
    from actors.kube.api import PodApi
    from actors.local.cluster import LocalCluster
    from actors.metrics.counts import Metrics, Traces
    from actors.page.plan import PagePlan
    from actors.runtime import ActorSystem

__all__ = ["Duration", "FleetPlan", "FleetValues", "duration", "fleet_settings", "grace_of"]

Duration = timedelta | str | float
"""A duration: a timedelta, a number of seconds, or text such as "30s", "5m" or "1h30m"."""


class FleetValues(SettingsValues, ExecutorValues, total=False):
    """The settings that `Fleet` takes by keyword: those of `Settings`, and those of `executor` without its name."""


@final
@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FleetPlan:
    """A fleet, as its user wants it. See `Fleet` for the meaning of each value.

    Raises:
        TypeError: a value is of a wrong kind, or contradicts another one.
        ValueError: a value is not allowed.
        SettingsError: the page's address or token is wrong.
        MissingExtra: the page needs a package that is not installed.
    """

    settings: Settings
    local: bool | LocalCluster
    kubeconfig: str | os.PathLike[str] | None
    context: str | None
    keep: bool | None
    replace_if: ReplaceRule | None
    max_events: int
    metrics: Metrics | None
    page: PagePlan | None
    traces: Traces | None
    pod_api: PodApi | None
    system: ActorSystem | None
    """None: the fleet makes its own, and closes it."""

    def __post_init__(self) -> None:
        most = self.max_events
        if not isinstance(most, int) or isinstance(most, bool) or most < 1:
            raise ValueError(f"max_events = {most!r}: must be a whole number, at least 1")
        if not isinstance(self.keep, bool | None):
            raise TypeError(f"keep = {self.keep!r}: must be True, False or None")
        rule = self.replace_if
        if rule is not None and (not callable(rule) or is_coroutine_function(rule)):
            raise TypeError(f"replace_if = {rule!r}: must be a plain function of an ExecutorRemoved")
        if not isinstance(self.kubeconfig, str | os.PathLike | None):
            raise TypeError(f"kubeconfig = {self.kubeconfig!r}: must be the path of a file")
        if not isinstance(self.context, str | None):
            raise TypeError(f"context = {self.context!r}: must be the name of a context")
        if not isinstance(self.local, bool):
            from actors.local.cluster import LocalCluster  # noqa: PLC0415 - whoever gives one has loaded it

            if not isinstance(self.local, LocalCluster):
                raise TypeError(f"local = {self.local!r}: must be True, False or a LocalCluster")
        self._check_together()

    def _check_together(self) -> None:
        names_a_cluster = self.kubeconfig is not None or self.context is not None
        if self.local and (names_a_cluster or self.pod_api is not None):
            raise TypeError("local=True starts a cluster of its own: it takes no kubeconfig, context or pod_api")
        if self.pod_api is not None and names_a_cluster:
            raise TypeError("pod_api has a cluster of its own: give either pod_api, or kubeconfig and context")
        is_virtual = self.system is not None and self.system.wait is not None
        if self.local and is_virtual:
            raise TypeError("local=True runs in real time: in a test with a Kit, use its FakeCluster")
        if self.page is not None:
            if is_virtual:
                raise TypeError("page is served in real time: a test with a Kit has none")
            self.page.check()


def fleet_settings(
    given: Settings | str | os.PathLike[str] | None,
    values: Mapping[str, Any],
    *,
    local: bool | LocalCluster,
    arguments: Iterable[str],
) -> Settings:
    """Return the settings of a fleet, from its first argument and its keywords.

    Args:
        given: the first argument.
        values: the keywords that are no arguments of `Fleet`.
        local: whether the fleet runs on an embedded cluster.
        arguments: the keywords that are arguments of `Fleet`, for suggestions.

    Raises:
        TypeError: a value is given twice.
        SettingsError: a setting is wrong.
    """
    if strangers := [name for name in values if name not in Settings.model_fields | ExecutorSettings.model_fields]:
        raise SettingsError("\n".join(unknown(name, [*arguments, *setting_names()]) for name in strangers))
    settings = _given_settings(given, values)
    if not local:
        return settings
    from actors.local.kubelet.processes.containers import NO_IMAGE  # noqa: PLC0415 - only a local fleet needs it

    return settings.with_default_image(NO_IMAGE)


def _given_settings(given: Settings | str | os.PathLike[str] | None, values: Mapping[str, Any]) -> Settings:
    if isinstance(given, Settings):
        if values:
            raise TypeError(f"{', '.join(values)}: put these into the Settings(...) that you give")
        return given
    known = dict(values)
    executor = dict(known.pop("executor", {}))
    for name in [name for name in known if name in ExecutorSettings.model_fields]:
        if name in executor:
            raise TypeError(f"{name} is given twice: alone, and in executor")
        executor[name] = known.pop(name)
    if executor:
        known["executor"] = executor
    return Settings.load(given, **known)


@overload
def duration(name: str, value: Duration) -> timedelta: ...
@overload
def duration(name: str, value: Duration | None) -> timedelta | None: ...
def duration(name: str, value: Duration | None) -> timedelta | None:
    """Return the duration that the user gave as argument `name`. A number is one of seconds.

    Raises:
        ValueError: it is none.
    """
    return None if value is None else _read(name, value, parse_duration)


def grace_of(name: str, value: Duration | None) -> timedelta | None:
    """Return how long executors may take to end, as `duration` does; zero means not at all.

    Raises:
        ValueError: it is no duration.
    """
    return None if value is None else _read(name, value, parse_grace)


def _read(name: str, value: Duration, parse: Callable[[object], timedelta]) -> timedelta:
    try:
        return parse(_of_seconds(value) if isinstance(value, int | float) else value)
    except ValueError as error:
        raise ValueError(f"{name} = {value!r}: {error}") from None


def _of_seconds(value: float) -> timedelta:
    seconds = min(max(value, -1), 2 * LONGEST.total_seconds())  # which a timedelta can be, and no duration is
    if isinstance(value, bool) or math.isnan(seconds):
        raise ValueError('is not a duration: give a number of seconds, a timedelta, or text such as "30s"')
    return timedelta(seconds=seconds)
