"""The shapes that `on_oom` gives a profile's executors, each with more memory than the one before. Pure.

Spark's answer to the same problem (SPARK-55639) keeps the memory and gives the next executors a single task at a time:
it knows the tasks, a fleet does not.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_CEILING, Decimal
from typing import TYPE_CHECKING, Any, Final

from actors.kube.quantities import format_quantity, parse_quantity
from actors.manifests.pod_template import executor_of, shape_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actors.manifests.pod_template import Shape
    from actors.settings import OomSettings, Settings

__all__ = ["memory_of", "on_oom_problems", "shapes_of"]

_MEBIBYTE: Final = 1 << 20


def shapes_of(settings: Settings, name: str) -> tuple[Shape, ...]:
    """Return a profile's shapes by memory step: its own, then one for each time that memory can be raised."""
    shapes, given = [shape_of(settings, name)], name
    while (rule := settings.profile(given).on_oom) is not None:
        if rule.profile is None:
            shapes.extend(_raised(shapes[-1], rule))
            break
        given = rule.profile
        shapes.append(replace(shape_of(settings, given), claims=shapes[0].claims))
    return tuple(shapes)


def memory_of(shape: Shape) -> str | None:
    """Return the memory limit of the executor's container, else its request, None without both."""
    resources = _resources(shape.pod, shape)
    return next((found for part in ("limits", "requests") if (found := _memory(resources, part)) is not None), None)


def on_oom_problems(settings: Settings, name: str) -> Iterator[str]:
    """Yield why `on_oom` of a profile cannot work with its pods. An inherited `factor` need not."""
    profile = settings.profile(name)
    rule = profile.on_oom
    if rule is None or (name in settings.profiles and not settings.profiles[name].sets("on_oom")):
        return
    if rule.profile is not None:
        if settings.profile(rule.profile).claims != profile.claims:
            yield f"profile = {rule.profile!r}: must have the same claims as {name!r}"
        return
    memory = memory_of(shape_of(settings, name))
    if memory is None:
        yield "factor: needs a memory request or limit of the executor's container, in resources or in the template"
    elif (parse_quantity(memory) or 0) >= _most(rule):
        yield f"max = {rule.max!r}: must be more than the memory of the executor's container ({memory!r})"


def _raised(shape: Shape, rule: OomSettings) -> Iterator[Shape]:
    """Yield the shape with its memory times `factor`, again and again, until all of it has reached `max`."""
    while True:
        pod = shape.copy()
        resources = _resources(pod, shape)
        has_grown = False
        for part in ("requests", "limits"):
            before = parse_quantity(_memory(resources, part))
            if before is not None and 0 < before < _most(rule):
                resources[part]["memory"] = format_quantity(_grown(before, rule))
                has_grown = True
        if not has_grown:
            return
        shape = replace(shape, pod=pod)
        yield shape


def _grown(memory: Decimal, rule: OomSettings) -> Decimal:
    """Return `factor` times the memory, rounded up to mebibytes, at most `max`."""
    grown = memory * Decimal(str(rule.factor))
    return min((grown / _MEBIBYTE).to_integral_value(ROUND_CEILING) * _MEBIBYTE, _most(rule))


def _most(rule: OomSettings) -> Decimal:
    return parse_quantity(rule.max) or Decimal(0)


def _resources(pod: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    resources: dict[str, Any] = executor_of(pod["spec"]["containers"], shape.container).get("resources") or {}
    return resources


def _memory(resources: Mapping[str, Any], part: str) -> str | None:
    found = (resources.get(part) or {}).get("memory")
    return None if found is None else str(found)
