"""Label and field selectors, parsed once and matched many times. Errors have a real server's text.

Labels: `a=b`, `a==b`, `a!=b`, `a in (b,c)`, `a notin (b,c)`, `a`, `!a`, `a>1`, `a<1`, joined by commas. Fields: `=`,
`==` and `!=`, for the fields that a resource supports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors.kube.names import label_key_problem, label_value_problem
from actors.local.schema.nesting import value_at
from actors.local.schema.statuses import ApiStatus, bad_request

if TYPE_CHECKING:
    from actors.local.schema.resources import Resource

__all__ = ["Selector", "parse_selector"]

_Labels: TypeAlias = Mapping[str, str]
_Requirement: TypeAlias = Callable[[_Labels], bool]
_FieldRequirement: TypeAlias = tuple[tuple[str, ...], str, bool]
"""Path, value, and whether the field must equal it."""

_TOKEN: Final = re.compile(r"\s*(==|!=|[=<>!(),]|[^\s=<>!(),]+)")
_OPERATORS: Final = "in, notin, =, ==, !=, gt, lt"
_VALUE_ENDS: Final = ("", ",", ")")
"""A value is empty before these tokens."""
_CACHED_SELECTORS: Final = 1024
"""Selectors that name executor ids differ from call to call: keep a bounded number of parsed ones."""

_UNSCHEDULABLE: Final = ("spec", "unschedulable")
_HOST_NETWORK: Final = ("spec", "hostNetwork")
_BOOLEANS: Final = (_UNSCHEDULABLE, _HOST_NETWORK)
"""The boolean fields: false unless the object says otherwise."""

_EVERY_KIND: Final = {"metadata.name": ("metadata", "name"), "metadata.namespace": ("metadata", "namespace")}
_FIELDS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "pods": {
            "spec.hostNetwork": _HOST_NETWORK,
            "spec.nodeName": ("spec", "nodeName"),
            "spec.restartPolicy": ("spec", "restartPolicy"),
            "spec.schedulerName": ("spec", "schedulerName"),
            "spec.serviceAccountName": ("spec", "serviceAccountName"),
            "status.nominatedNodeName": ("status", "nominatedNodeName"),
            "status.phase": ("status", "phase"),
            "status.podIP": ("status", "podIP"),
        },
        "namespaces": {"status.phase": ("status", "phase")},
        "nodes": {"spec.unschedulable": _UNSCHEDULABLE},
        "secrets": {"type": ("type",)},
        "events": {
            **{
                f"involvedObject.{name}": ("involvedObject", name)
                for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
            },
            "reason": ("reason",),
            "reportingComponent": ("reportingComponent",),
            "source": ("source", "component"),
            "type": ("type",),
        },
    }
)


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector and a field selector; an empty one matches everything."""

    labels: tuple[_Requirement, ...] = ()
    fields: tuple[_FieldRequirement, ...] = ()

    @property
    def everything(self) -> bool:
        """Both selectors are empty."""
        return not self.labels and not self.fields

    def matches(self, obj: Mapping[str, Any]) -> bool:
        """Return whether the object matches both selectors."""
        if self.labels:
            labels = obj["metadata"].get("labels") or {}
            if not all(requirement(labels) for requirement in self.labels):
                return False
        return all((_field(obj, path) == value) is equal for path, value, equal in self.fields)


def _field(obj: Mapping[str, Any], path: tuple[str, ...]) -> str:
    value = value_at(obj, *path)
    if path in _BOOLEANS:
        return "true" if value is True else "false"
    return value if isinstance(value, str) else ""


@lru_cache(maxsize=_CACHED_SELECTORS)
def parse_selector(resource: Resource, label_selector: str = "", field_selector: str = "") -> Selector:
    """Parse both selectors of a request. Raises a real server's 400 for a malformed one."""
    return Selector(tuple(_LabelParser(label_selector).parse()), tuple(_parse_fields(resource, field_selector)))


class _LabelParser:
    """Recursive descent over the tokens of one label selector, like `labels.Parse` of apimachinery."""

    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def parse(self) -> list[_Requirement]:
        if not self._tokens:
            return []
        requirements: list[_Requirement] = []
        expected = "!, identifier, or 'end of string'"
        while True:
            if not _identifier(self._peek()) and self._peek() != "!":
                raise bad_request(f"found '{self._peek()}', expected: {expected}")
            requirements.append(self._requirement())
            match self._next():
                case "":
                    return requirements
                case ",":
                    expected = "identifier after ','"
                case other:
                    raise bad_request(f"found '{other}', expected: ',' or 'end of string'")

    def _requirement(self) -> _Requirement:
        if self._peek() == "!":
            self._next()
            key = self._key()
            return lambda labels: key not in labels
        key = self._key()
        if self._peek() in ("", ","):
            return lambda labels: key in labels
        match self._next():
            case "=" | "==":
                value = self._value(key)
                return lambda labels: labels.get(key) == value
            case "!=":
                value = self._value(key)
                return lambda labels: labels.get(key) != value
            case "in":
                among = self._values(key)
                return lambda labels: labels.get(key) in among
            case "notin":
                among = self._values(key)
                return lambda labels: labels.get(key) not in among
            case (">" | "<") as operator:
                bound = self._number(key)
                return lambda labels: _compares(labels.get(key), operator, bound)
            case other:
                raise bad_request(f"unable to parse requirement: found '{other}', expected: {_OPERATORS}")

    def _key(self) -> str:
        return self._identifier("<nil>", label_key_problem)

    def _value(self, key: str) -> str:
        if self._peek() in _VALUE_ENDS:
            return ""
        return self._identifier(f"values[0][{key}]", label_value_problem)

    def _identifier(self, where: str, check: Callable[[str], str | None]) -> str:
        found = self._next()
        if not _identifier(found):
            raise bad_request(f"unable to parse requirement: found '{found}', expected: identifier")
        if problem := check(found):
            raise _unparsable(where, found, problem)
        return found

    def _number(self, key: str) -> int:
        value = self._value(key)
        try:
            return int(value)
        except ValueError:
            raise _unparsable("values[0]", value, "for 'Gt', 'Lt' operators, the value must be an integer") from None

    def _values(self, key: str) -> frozenset[str]:
        if (found := self._next()) != "(":
            raise bad_request(f"unable to parse requirement: found '{found}' expected: '('")
        values: set[str] = set()
        while True:
            values.add(self._value(key))
            match self._next():
                case ")":
                    return frozenset(values)
                case "," if self._peek():
                    pass
                case ",":
                    raise bad_request("unable to parse requirement: found '', expected: ',', or identifier")
                case other:
                    raise bad_request(f"unable to parse requirement: found '{other}', expected: ',' or ')'")


def _identifier(token: str) -> bool:
    return token != "" and token not in ("=", "==", "!=", "<", ">", "!", "(", ")", ",")


def _unparsable(field: str, value: str, problem: str) -> ApiStatus:
    return bad_request(f'unable to parse requirement: {field}: Invalid value: "{value}": {problem}')


def _compares(value: str | None, operator: str, bound: int) -> bool:
    try:
        number = int(value) if value is not None else None
    except ValueError:
        return False
    return number is not None and (number > bound if operator == ">" else number < bound)


def _parse_fields(resource: Resource, text: str) -> list[_FieldRequirement]:
    supported = _EVERY_KIND | dict(_FIELDS.get(resource.plural, {}))
    requirements: list[_FieldRequirement] = []
    for term in filter(None, text.split(",")):
        name, operator, value = _split_field(term)
        if not operator:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        if "=" in value:
            raise bad_request(f"invalid field selector: unescaped character in value: {ord('=')}")
        path = supported.get(name)
        if path is None:
            raise bad_request(_unsupported_field(resource, name))
        requirements.append((path, value, operator != "!="))
    return requirements


def _split_field(term: str) -> tuple[str, str, str]:
    for position, character in enumerate(term):
        for operator in ("!=", "==", "="):
            if character in "!=" and term.startswith(operator, position):
                return term[:position], operator, term[position + len(operator) :]
    return term, "", ""


def _unsupported_field(resource: Resource, name: str) -> str:
    if resource.plural in _FIELDS:
        return f"field label not supported: {name}"
    return f'"{name}" is not a known field selector: only "metadata.name", "metadata.namespace"'
