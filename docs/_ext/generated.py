"""Writes into the reference pages what only the code knows. Run `python docs/_ext/generated.py` after a change.

The text stands between `<!-- generated: WHAT -->` and `<!-- end -->`, and is committed, so that a repository's site
shows it, too. `tests/docs/test_generated.py` fails if a page is not what the docstrings say. WHAT is a name of `PARTS`,
or `class`, `function` or `text` and a dotted name. Of a class, the names of some members may follow a colon, `-` for
none; `()` after its name says that readers do not make one.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from enum import Enum
from itertools import pairwise
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, get_args

from actors.messages import (
    Executor,
    ExecutorState,
    FleetChanged,
    FleetExecutors,
    FleetStatus,
    FromDriver,
    HeldPod,
    ProfileStatus,
    SourceStatus,
    ToDriver,
)
from actors.settings.durations import format_duration
from actors.settings.loading import ENV_PREFIX
from actors.settings.model import ProfileSettings, Settings
from actors.settings.reference import attribute_docstrings
from actors.settings.types import Group

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

DOCS = Path(__file__).parents[1]
MARKED = re.compile(r"^<!-- generated: ([^\n]+) -->\n.*?^<!-- end -->$", re.DOTALL | re.MULTILINE)
SECTION = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):\n", re.MULTILINE)
ENTRY = re.compile(r"^([\w*, ]+): ", re.MULTILINE)


def fill(page: str) -> str:
    """Return the page with the text of each of its markers.

    Raises:
        KeyError, AttributeError: nothing is generated under that name.
    """
    return MARKED.sub(lambda found: f"<!-- generated: {found[1]} -->\n\n{_part(found[1])}\n\n<!-- end -->", page)


def _part(what: str) -> str:
    if what in PARTS:
        return PARTS[what]().strip()
    kind, _, rest = what.partition(" ")
    name, _, members = rest.partition(": ")
    is_made_by_others, name = name.endswith("()"), name.removesuffix("()")
    found = resolve_name(name)
    if kind == "text":
        return markdown(found.__doc__)
    short = name.rpartition(".")[2]
    if kind == "function":
        return f"### `{short}`\n\n{_signature(short, found)}\n\n{markdown(found.__doc__)}"
    assert kind == "class", what
    paragraphs = _class(short, found, members.split(", ") if members else None, is_called=not is_made_by_others)
    return "\n\n".join(paragraphs)


# ── classes and functions ────────────────────────────────────────────────────────────────────────────────────────


def _class(name: str, cls: type, members: list[str] | None = None, *, is_called: bool = True) -> Iterator[str]:
    """Yield the paragraphs of a class: all its public members, or these; how it is called, if readers do that."""
    yield f"### `{name}`"
    if is_called and not issubclass(cls, Enum | Exception):
        yield _signature(name, cls)
    yield markdown(cls.__doc__ or "")
    docstrings = _field_docstrings(cls)
    fields = [
        f"- `{each}{_annotation(cls, each)}`{_after(text)}"
        for each, text in docstrings.items()
        if not each.startswith("_") and (members is None or each in members)
    ]
    described = [
        (each, member)
        for each, member in _members(cls)
        if each not in docstrings and (members is None or each in members)
    ]
    properties = {each: member for each, member in described if isinstance(member, property)}
    fields += [f"- `{each}`{_after(inspect.getdoc(member) or '')}" for each, member in properties.items()]
    if fields:
        yield "\n".join(fields)
    for each, member in described:
        if each not in properties:
            function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            yield f"#### `{name}.{each}`"
            yield _signature(each, function)
            yield markdown(inspect.getdoc(function) or "")


def _ours(cls: type) -> list[type]:
    return [each for each in reversed(cls.__mro__) if each.__module__.startswith("actors")]


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public functions and properties of a class and of its bases of ours, in the order of the source."""
    found = {name: value for each in _ours(cls) for name, value in vars(each).items()}
    for name, value in found.items():
        is_described = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)
        if is_described and not name.startswith("_") and inspect.getdoc(value):
            yield name, value


def _field_docstrings(cls: type) -> dict[str, str]:
    """Return the docstring under each field or value of an enumeration, "" if it has none."""
    found: dict[str, str] = {}
    for each in _ours(cls):
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(each))).body
        assert isinstance(definition, ast.ClassDef)
        for field, below in pairwise([*definition.body, ast.Pass()]):
            match field:
                case ast.AnnAssign(target=ast.Name(id=name)):
                    pass
                case ast.Assign(targets=[ast.Name(id=name)]) if issubclass(cls, Enum):
                    pass
                case _:
                    continue
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    found[name] = inspect.cleandoc(text)
                case _:
                    found[name] = ""
    return found


def _annotation(cls: type, field: str) -> str:
    hints = {name: hint for each in _ours(cls) for name, hint in vars(each).get("__annotations__", {}).items()}
    return f": {hints[field]}" if field in hints else ""


def _after(text: str) -> str:
    return f": {' '.join(markdown(text).split())}" if text else ""


def _signature(name: str, function: Any) -> str:
    """Return how it is called, as one line of code."""
    signature = inspect.signature(function)
    parts: list[str] = []
    kinds = inspect.Parameter
    before: Any = None
    for parameter in signature.parameters.values():
        if parameter.name in {"self", "cls"}:
            continue
        if before is kinds.POSITIONAL_ONLY and parameter.kind is not kinds.POSITIONAL_ONLY:
            parts.append("/")
        if parameter.kind is kinds.KEYWORD_ONLY and before not in {kinds.KEYWORD_ONLY, kinds.VAR_POSITIONAL}:
            parts.append("*")
        before = parameter.kind
        parts.append(_parameter(parameter))
    if before is kinds.POSITIONAL_ONLY:
        parts.append("/")
    answer = signature.return_annotation
    is_said = not inspect.isclass(function) and answer is not signature.empty
    return f"`{name}({', '.join(parts)}){f' -> {answer}' if is_said else ''}`"


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    annotation = "" if parameter.annotation is parameter.empty else f": {parameter.annotation}"
    return f"{stars}{parameter.name}{annotation}{_default_value(parameter.default)}"


def _default_value(value: object) -> str:
    match value:
        case inspect.Parameter.empty:
            return ""
        case timedelta():
            return f" = {format_duration(value)!r}" if value else " = timedelta(0)"
        case Enum():
            return f" = {value}"
        case None | bool() | int() | float() | str() | tuple():
            return f" = {value!r}"
        case _:  # what a program has, such as its environment
            return " = …"


# ── docstrings ───────────────────────────────────────────────────────────────────────────────────────────────────


def markdown(docstring: str) -> str:
    """Return a docstring in Google's style as Markdown."""
    text, *sections = SECTION.split(inspect.cleandoc(docstring))
    parts = [_prose(text)]
    for title, body in zip(sections[::2], sections[1::2], strict=True):
        entries, after = _indented(body)
        parts += [f"**{title}**", _entries(entries, named=title in {"Args", "Attributes", "Raises"})]
        parts += [_prose(after)] if after.strip() else []
    return "\n\n".join(part for part in parts if part.strip())


def _prose(text: str) -> str:
    """Return paragraphs: what `::` announces becomes a block of code, and terms with their definitions a list."""
    text = re.sub(r"^::$\n?", "", text, flags=re.MULTILINE).replace("::\n", ":\n")
    text = re.sub(r"^(\S.*)\n((?: {4}\S.*\n?)+)", _definition, text, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def _definition(found: re.Match[str]) -> str:
    return f"- **{found[1]}**: {' '.join(found[2].split())}\n"


def _indented(body: str) -> tuple[str, str]:
    """Divide a section's text from what follows it."""
    lines = body.splitlines()
    end = next((at for at, line in enumerate(lines) if line and not line.startswith(" ")), len(lines))
    return textwrap.dedent("\n".join(lines[:end])), "\n".join(lines[end:])


def _entries(text: str, *, named: bool) -> str:
    if not named:
        return " ".join(text.split())
    entries = re.split(r"\n(?=\S)", text.strip())
    return "\n".join(ENTRY.sub(r"- `\1`: ", " ".join(entry.split()), count=1) for entry in entries)


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _settings() -> str:
    top = [(name, field) for name, field in Settings.model_fields.items() if not _is_group(field)]
    groups = [(name, type(field.default)) for name, field in Settings.model_fields.items() if _is_group(field)]
    lines = ["## The fleet", "", *_each(Settings, top)]
    for group, model in groups:
        lines += [
            f"## `[{group}]`",
            "",
            markdown(model.__doc__ or ""),
            "",
            *_each(model, model.model_fields.items(), f"{group}."),
        ]
    lines += ["## `[profiles.<name>]`", "", "A profile may set these; every other setting is the whole fleet's.", ""]
    lines += [f"- `{name}`: {_link(name)}" for name in ProfileSettings.model_fields]
    return "\n".join(lines)


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.default, Group)


def _link(name: str) -> str:
    return f"as [`executor.{name}`](#{_anchor(f'executor.{name}')})" + ("; 0 unless set" if name == "instances" else "")


def _each(model: type[BaseModel], fields: Any, prefix: str = "") -> Iterator[str]:
    docstrings = attribute_docstrings(model)
    for name, field in fields:
        whole = f"{prefix}{name}"
        variable = f"{ENV_PREFIX}{whole.replace('.', '__').upper()}"
        facts = [_default(field), f"environment: `{variable}`"]
        yield from (f"### `{whole}`", "", " · ".join(facts), "", markdown(docstrings[name]), "")


def _anchor(name: str) -> str:
    """Return what a heading's address is, on a repository's site as in the built pages."""
    return name.replace(".", "")


def _default(field: FieldInfo) -> str:
    if field.examples:
        return f"No default; example: `{_toml(field.examples[0])}`"
    default = field.get_default(call_default_factory=True)
    return f"Default: `{_toml(default)}`"


def _toml(value: object) -> str:
    match value:
        case Mapping():
            return "{ " + ", ".join(f"{_key(key)} = {_toml(item)}" for key, item in value.items()) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case timedelta():
            return json.dumps(format_duration(value))
        case _:
            return json.dumps(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[-\w]+", key) else json.dumps(key)


# ── messages ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _messages(kinds: tuple[type, ...]) -> str:
    return "\n\n".join(part for kind in kinds for part in _class(kind.__name__, kind))


PARTS: Mapping[str, Callable[[], str]] = {
    "settings": _settings,
    "messages from the driver": lambda: _messages(get_args(FromDriver)),
    "messages to the driver": lambda: _messages(get_args(ToDriver)),
    "changes": lambda: _messages((FleetChanged,)),
    "answers": lambda: _messages(
        (FleetStatus, ProfileStatus, SourceStatus, HeldPod, FleetExecutors, Executor, ExecutorState)
    ),
}
"""What each marker becomes."""


def main() -> None:
    """Write every page that has markers."""
    for path in DOCS.rglob("*.md"):
        before = path.read_text(encoding="utf-8")
        after = fill(before)
        if after != before:
            path.write_text(after, encoding="utf-8")


if __name__ == "__main__":
    main()
