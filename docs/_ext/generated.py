"""Fills pages with what only the code knows: a line `<!-- generated: settings -->` becomes every setting.

The text is made from the package at each build, so no page holds a copy that could be out of date. It also
translates docstrings from Google's style for autodoc.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, get_args

from sphinx.ext.napoleon import Config, GoogleDocstring

import actors
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
    from sphinx.application import Sphinx

MARKER = re.compile(r"^<!-- generated: (.+) -->$", re.MULTILINE)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("source-read", _fill)
    app.connect("autodoc-process-docstring", _read_google_style)
    return {"parallel_read_safe": True}


def _fill(_app: Sphinx, _page: str, source: list[str]) -> None:
    source[0] = fill(source[0])


def _read_google_style(_app: Sphinx, what: str, _name: str, _obj: object, _options: object, lines: list[str]) -> None:
    """As the extension napoleon does it, which also takes any colon in an attribute's text for the end of a type."""
    if what != "attribute":
        lines[:] = GoogleDocstring(lines, Config(napoleon_use_ivar=True)).lines()


def fill(source: str) -> str:
    """A page's source with the text of each of its markers.

    Raises:
        KeyError: nothing is generated under that name.
    """
    return MARKER.sub(lambda found: PARTS[found[1]](), source)


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _settings() -> str:
    top = [(name, field) for name, field in Settings.model_fields.items() if not _is_group(field)]
    groups = [(name, type(field.default)) for name, field in Settings.model_fields.items() if _is_group(field)]
    lines = ["## The fleet", "", *_each(Settings, top)]
    for group, model in groups:
        lines += [
            f"## `[{group}]`",
            "",
            model.__doc__ or "",
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
        yield from (f"({_anchor(whole)})=", f"### `{whole}`", "", " · ".join(facts), "", docstrings[name], "")


def _anchor(name: str) -> str:
    return "setting-" + re.sub(r"[._]", "-", name)


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
    return "\n\n".join(_autodoc(kind) for kind in kinds)


def _autodoc(kind: type) -> str:
    assert kind.__name__ in actors.__all__, f"{kind.__name__} is not public"
    foreign = "object, str, Enum"  # what they give to their subclasses is not of the protocol
    options = f"   :members:\n   :inherited-members: {foreign}\n"
    return f"```{{eval-rst}}\n.. autoclass:: actors.{kind.__name__}\n{options}```"


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
