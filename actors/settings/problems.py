"""Turns pydantic's errors into one line for each problem, for the person who wrote the settings.

A line names the setting, its value, what is allowed, and the environment variable if the value came from one. For a
setting that does not exist it suggests the nearest one that does.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from actors.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Collection

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

__all__ = ["GroupError", "from_validation", "unknown"]

_LONGEST_VALUE: Final = 60
"""Characters of a value that an error quotes: enough to recognise it, too few to fill a screen."""

_ALLOWED: Final[Mapping[str, str]] = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a map of names to values",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than_equal": "must be at most {le}",
    "literal_error": "must be {expected}",
    "model_type": "must be a table of settings",
    "string_type": "must be text",
    "tuple_type": "must be a list",
}
"""Our message for each of pydantic's error types that settings can have; pydantic's own serves for others."""


class GroupError(SettingsError, ValueError):
    """Raised by a group of settings. It is a ValueError, so that pydantic collects it into the errors of `Settings`."""

    def __init__(self, problems: Collection[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def from_validation(
    error: ValidationError, known: Collection[str], *, variables: Mapping[str, str] | None = None
) -> GroupError:
    """Return one line for each problem, in the order of the fields.

    Args:
        error: pydantic's.
        known: the dotted names of all settings, for suggestions.
        variables: the environment variable of each setting whose value comes from one.
    """
    lines: list[str] = []
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"])
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, GroupError):
            lines.extend(f"{name}.{line}" if name else line for line in cause.problems)
        elif problem["loc"][-1:] == ("[key]",):
            owner = ".".join(str(part) for part in problem["loc"][:-2])
            lines.append(f"{owner} has {_shown(problem['input'])}: {cause or _allowed(problem)}")
        elif problem["type"] == "missing":
            lines.append(f"{name}: must be set")
        elif problem["type"] == "extra_forbidden":
            lines.append(unknown(name, known))
        else:
            lines.append(f"{name} = {_shown(problem['input'])}: {cause or _allowed(problem)}")
    return GroupError([line + _origin(line, variables or {}) for line in lines])


def unknown(name: str, known: Collection[str]) -> str:
    """Return the line for a setting that does not exist. Spark's spelling (`apiPollingInterval`) finds ours."""
    whole = {_plain(candidate): candidate for candidate in known}
    last = {_plain(candidate.rpartition(".")[2]): candidate for candidate in known}
    for candidates, spelling in ((whole, name), (last, name.rpartition(".")[2])):
        if near := difflib.get_close_matches(_plain(spelling), candidates, n=1, cutoff=0.75):
            return f"{name}: there is no such setting; did you mean {candidates[near[0]]}?"
    return f"{name}: there is no such setting; config/reference.toml lists them all"


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _allowed(problem: ErrorDetails) -> str:
    message = _ALLOWED.get(problem["type"])
    return message.format(**problem.get("ctx", {})) if message else problem["msg"]


def _origin(line: str, variables: Mapping[str, str]) -> str:
    """Return which environment variable the value came from, or "". The variable may hold a whole group."""
    name = re.split(r"[ :]", line, maxsplit=1)[0]
    while name and name not in variables:
        name = name.rpartition(".")[0]
    return f" (from the environment: {variables[name]})" if name else ""


def _shown(value: object) -> str:
    text = "{…}" if isinstance(value, Mapping) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
