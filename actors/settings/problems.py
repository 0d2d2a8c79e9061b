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
    from collections.abc import Collection, Iterable

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

__all__ = ["GroupError", "UnquotedError", "from_validation", "unknown"]

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


_TABLES_OF_TABLES: Final = frozenset({"profiles"})
"""Their tables have names of the user's."""

_POD_FIELDS: Final = frozenset(
    re.findall(
        r"\w+",
        # of its spec
        "activedeadlineseconds affinity automountserviceaccounttoken containers dnsconfig dnspolicy "
        "enableservicelinks ephemeralcontainers hostaliases hostipc hostnetwork hostpid hostusers hostname "
        "hostnameoverride initcontainers nodename os overhead preemptionpolicy priority readinessgates "
        "resourceclaims runtimeclassname schedulername schedulinggates securitycontext sethostnameasfqdn "
        "shareprocessnamespace subdomain terminationgraceperiodseconds topologyspreadconstraints volumes "
        # of a container
        "imagepullpolicy lifecycle livenessprobe ports readinessprobe resizepolicy startupprobe stdin stdinonce "
        "terminationmessagepath terminationmessagepolicy tty volumedevices volumemounts "
        # of its metadata
        "finalizers ownerreferences",
    )
)
"""The fields of a v1 Pod, without case and underscores, that only a template can set."""


class GroupError(SettingsError):
    """Raised by a group of settings. It is a ValueError, so pydantic collects it into the errors of `Settings`."""

    def __init__(self, problems: Collection[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class UnquotedError(ValueError):
    """Raised for a value that may be a secret: the line does not quote it."""


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
        elif isinstance(cause, UnquotedError):
            lines.append(f"{name}: {cause}")
        elif problem["type"] == "missing":
            lines.append(f"{name}: must be set")
        elif problem["type"] == "extra_forbidden":
            lines.append(unknown(name, known))
        else:
            lines.append(f"{name} = {_shown(problem['input'])}: {cause or _allowed(problem)}")
    return GroupError([line + _origin(line, variables or {}) for line in lines])


def unknown(name: str, known: Collection[str]) -> str:
    """Return the line for a setting or table that does not exist, with the nearest of those that do.

    The spellings of Spark (`apiPollingInterval`) and of Kubernetes (`serviceAccountName`) find ours.
    """
    if "pod_template" in known and _plain(name) in _POD_FIELDS:
        remedy = "a pod's other fields are set in pod_template or template_patch"
    else:
        near = _near_table(name, known) or _nearest(name, known) or _near_last(name, known)
        remedy = f"did you mean {near}?" if near else "`executor-pods config --reference` lists them all"
    return f"{name}: there is no such setting; {remedy}"


def _near_table(name: str, known: Collection[str]) -> str | None:
    """Return the name with its table put right, or the table alone if it has no such setting."""
    tables = {table for table, dot, _ in (each.partition(".") for each in known) if dot}
    tables |= _TABLES_OF_TABLES.intersection(known)
    table, dot, rest = name.partition(".")
    near = None if table in {*tables, *known} else _nearest(table, tables)
    if near is None or not dot:
        return near and f"the table [{near}]"
    if near in _TABLES_OF_TABLES:
        return f"{near}.{rest}"
    inner = _nearest(rest, [each.removeprefix(f"{near}.") for each in known if each.startswith(f"{near}.")])
    return f"{near}.{inner}" if inner else f"the table [{near}]"


def _near_last(name: str, known: Collection[str]) -> str | None:
    """Return the setting of any table whose own name is near."""
    last = {each.rpartition(".")[2]: each for each in known}
    near = _nearest(name.rpartition(".")[2], last)
    return near and last[near]


def _nearest(name: str, known: Iterable[str]) -> str | None:
    plain = {_plain(candidate): candidate for candidate in known}
    near = difflib.get_close_matches(_plain(name), plain, n=1, cutoff=0.75)
    return plain[near[0]] if near else None


def _plain(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _allowed(problem: ErrorDetails) -> str:
    message = _ALLOWED.get(problem["type"])
    return message.format(**problem.get("ctx", {})) if message else problem["msg"]


def _origin(line: str, variables: Mapping[str, str]) -> str:
    """Return which environment variable the value came from, or "". The variable may hold a whole group."""
    name = re.split(r"[ :]", line, maxsplit=1)[0].lower()  # as `variables` has it; names of variables have a case
    while name and name not in variables:
        name = name.rpartition(".")[0]
    return f" (from the environment: {variables[name]})" if name else ""


def _shown(value: object) -> str:
    text = "{…}" if isinstance(value, Mapping) else repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"
