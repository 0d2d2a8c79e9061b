"""The type of pod templates: a v1 Pod as a mapping, as JSON in the environment, or as the path of a YAML file.

Only its form is checked here: that it is JSON of a reasonable size. `actors.manifests` checks what it says.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import BeforeValidator

from actors.kube import files
from actors.kube.http.bounds import MIB
from actors.settings.types import FromText, from_json, is_unicode

__all__ = ["Template"]

_LARGEST_TEMPLATE: Final = 4 * MIB
"""Bytes of a pod template as JSON. An API server accepts 3 MiB."""

_DEEPEST_TEMPLATE: Final = 64
"""A v1 Pod has no recursive field: it is less than 20 levels deep."""


def _template(value: object) -> object:
    """Read a pod template: a mapping, JSON in the environment, or the path of a YAML file."""
    match from_json(value):
        case str() | Path() as path:
            try:
                template = files.read_yaml(Path(path))
            except OSError as error:
                raise ValueError(f"cannot be read: {error.strerror or error}") from None
            except (ValueError, RecursionError, yaml.YAMLError) as error:
                raise ValueError(f"is not one YAML document: {_what_is_wrong(error)}") from None
        case template:
            pass
    if not isinstance(template, Mapping):
        raise ValueError("must be a v1 Pod as a mapping, or the path of a YAML file with one")  # noqa: TRY004 - as above
    if problem := _not_json(template):
        raise ValueError(problem)
    return dict(template)


def _what_is_wrong(error: Exception) -> str:
    """Describe the error and its line number, but never quote the line: it may hold a secret."""
    match error:
        case yaml.MarkedYAMLError(problem=str(problem), problem_mark=yaml.Mark(line=line)):
            return f"{problem} (line {line + 1})"
        case RecursionError():
            return "it is nested too deeply"
        case yaml.YAMLError():
            return "it has characters that YAML does not allow"
        case _:
            return "it is not text, or has an impossible number or date"


def _is_json_number(number: float) -> bool:
    return math.isfinite(number) if isinstance(number, float) else -(2**63) <= number < 2**63


def _not_json(template: Mapping[object, object]) -> str:
    """Return why no API server would accept it, or "". YAML aliases may expand to more than fits into memory."""
    if files.expands_beyond(template, _LARGEST_TEMPLATE):
        return "is too large for a pod"
    left: list[tuple[object, int]] = [(template, 0)]
    while left:
        value, depth = left.pop()
        match value:
            case Mapping():
                if (odd := next((key for key in value if not isinstance(key, str)), None)) is not None:
                    return f"has the key {odd!r}, which must be text; put it in quotes"
                inner = [*value, *value.values()]
            case list() | tuple():
                inner = list(value)
            case str() if not is_unicode(value):
                return "has text that is not Unicode"
            case None | bool() | str():
                continue
            case int() | float() if _is_json_number(value):
                continue
            case _:
                return f"has a value that JSON cannot hold ({type(value).__name__}); put it in quotes"
        if depth >= _DEEPEST_TEMPLATE:
            return "is nested too deeply"
        left.extend((item, depth + 1) for item in reversed(inner))
    return ""


Template = Annotated[dict[str, Any], BeforeValidator(_template), FromText]
