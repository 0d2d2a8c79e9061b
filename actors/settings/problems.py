"""Turns what pydantic finds wrong with settings into one line a problem, in words for the one who wrote them.

A line names the setting, the value, what is allowed, and where the value came from if that was the environment; a
setting that does not exist is answered with the nearest one that does.
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
"""Characters of a value that are repeated in an error: enough to recognise it, too few to fill a screen."""

_WORDS: Final[Mapping[str, str]] = {
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
"""Our sentence for each of pydantic's error types that the settings can meet; its own words serve for any other."""


class GroupError(SettingsError, ValueError):
    """What a group of settings raises. A ValueError too, so that pydantic can collect it into its owner's errors."""

    def __init__(self, problems: Collection[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


def from_validation(
    error: ValidationError, known: Collection[str], *, variables: Mapping[str, str] | None = None
) -> GroupError:
    """One line for each problem, in the order of the fields.

    Args:
        error: what pydantic raised.
        known: the dotted names of all settings, for suggestions.
        variables: the settings whose value comes from the environment, with the variable that holds it.
    """
    lines: list[str] = []
    for problem in error.errors(include_url=False):
        name = ".".join(str(part) for part in problem["loc"])
        cause = problem.get("ctx", {}).get("error")
        if isinstance(cause, GroupError):
            lines.extend(f"{name}.{line}" if name else line for line in cause.problems)
        elif problem["loc"][-1:] == ("[key]",):
            owner = ".".join(str(part) for part in problem["loc"][:-2])
            lines.append(f"{owner} has {_shown(problem['input'])}: {cause or _words(problem)}")
        elif problem["type"] == "missing":
            lines.append(f"{name}: must be set")
        elif problem["type"] == "extra_forbidden":
            lines.append(unknown(name, known))
        else:
            lines.append(f"{name} = {_shown(problem['input'])}: {cause or _words(problem)}")
    return GroupError([line + _origin(line, variables or {}) for line in lines])


def unknown(name: str, known: Collection[str]) -> str:
    """The line for a setting that does not exist. Spark's spelling (`apiPollingInterval`) finds ours."""
    whole = {_plain(candidate): candidate for candidate in known}
    last = {_plain(candidate.rpartition(".")[2]): candidate for candidate in known}
    for candidates, wanted in ((whole, name), (last, name.rpartition(".")[2])):
        if near := difflib.get_close_matches(_plain(wanted), candidates, n=1, cutoff=0.75):
            return f"{name}: there is no such setting; did you mean {candidates[near[0]]}?"
    return f"{name}: there is no such setting; config/reference.toml lists them all"


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _words(problem: ErrorDetails) -> str:
    words = _WORDS.get(problem["type"])
    return words.format(**problem.get("ctx", {})) if words else problem["msg"]


def _origin(line: str, variables: Mapping[str, str]) -> str:
    """Where the value came from, when that is not plain to see: a variable of the environment, be it with more."""
    name = re.split(r"[ :]", line, maxsplit=1)[0]
    while name and name not in variables:
        name = name.rpartition(".")[0]
    return f" (from the environment: {variables[name]})" if name else ""


def _shown(value: object) -> str:
    text = "{…}" if isinstance(value, Mapping) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
