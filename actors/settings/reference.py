"""Generates `config/reference.toml`: every setting with its docstring and its default.

    python -m actors.settings.reference > config/reference.toml

The file is never edited by hand; a test compares it with this module's output.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Mapping
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel

from actors.settings import ProfileSettings, Settings
from actors.settings.durations import format_duration
from actors.settings.loading import ENV_PREFIX
from actors.settings.types import Group

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

__all__ = ["render_reference"]

_WIDTH: Final = 110

_PROFILE: Final = "large"
"""The name of the example profile."""

_HEAD: Final = f"""\
Every setting of executor-pods with its default. Copy the lines that you want to change: a file may hold any part of
this. A commented-out line shows an example; "Without it" in its comment says what holds otherwise.

The environment overrides the file: {ENV_PREFIX}EXECUTOR__INSTANCES=4 sets `instances` of the table `executor`,
{ENV_PREFIX}NAMESPACE=batch sets `namespace`. Arguments of the program override both.

Durations are numbers with units (ms, s, m, h, d), such as "1h30m", and longer than zero.
"""


def render_reference() -> str:
    """Return the whole file. Read as settings, it gives the defaults."""
    blocks = [_comment(_HEAD), *_settings(Settings)]
    for name, field in Settings.model_fields.items():
        if _is_group(field):
            group = type(field.default)
            blocks.append(f"\n{_comment(ast.get_docstring(_definition(group)) or '')}\n[{name}]")
            blocks.extend(_settings(group))
    blocks.append(_profile())
    return "\n\n".join(blocks) + "\n"


def _profile() -> str:
    """Return an example of a profile, all of it commented out: no profile exists by default."""
    lines = [f"[profiles.{_PROFILE}]"]
    lines += [f"{name} = {_toml(_shown(field))}" for name, field in ProfileSettings.model_fields.items()]
    return f"\n{_comment(attribute_docstrings(Settings)['profiles'])}\n" + "\n".join(f"# {line}" for line in lines)


def _is_group(field: FieldInfo) -> bool:
    return isinstance(field.default, BaseModel)


def _settings(model: type[BaseModel]) -> Iterator[str]:
    docstrings = attribute_docstrings(model)
    for name, field in model.model_fields.items():
        if not _is_group(field) and name != "profiles":
            line = f"{name} = {_toml(_shown(field))}"
            yield f"{_comment(docstrings[name])}\n{'# ' if field.examples else ''}{line}"


def _shown(field: FieldInfo) -> object:
    return field.examples[0] if field.examples else field.default


def attribute_docstrings(model: type[Any]) -> dict[str, str]:
    """Return the docstring under each field, including those of base classes.

    Python keeps them only in the source, which pydantic would read at every import.
    """
    base = model.__base__
    docstrings = (
        attribute_docstrings(base) if base is not None and base is not Group and issubclass(base, Group) else {}
    )
    return docstrings | {
        field.target.id: inspect.cleandoc(text)
        for field, below in pairwise(_definition(model).body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(text := below.value.value, str)
    }


def _definition(model: type[Any]) -> ast.ClassDef:
    """Return the class as it stands in the source, which has its docstring also where Python was told to drop it."""
    return next(node for node in ast.parse(inspect.getsource(model)).body if isinstance(node, ast.ClassDef))


def _comment(text: str) -> str:
    """Return `text` as comment lines, each paragraph filled, without blank lines between paragraphs."""
    paragraphs = re.split(r"\n\s*\n", text.strip())
    return "\n".join(
        textwrap.fill(" ".join(part.split()), _WIDTH, initial_indent="# ", subsequent_indent="# ")
        for part in paragraphs
    )


def _toml(value: object) -> str:
    """Return a value as TOML, on one line. A JSON scalar is also TOML."""
    match value:
        case Mapping():
            return f"{{ {', '.join(f'{_key(key)} = {_toml(item)}' for key, item in value.items())} }}"
        case list() | tuple():
            return f"[{', '.join(_toml(item) for item in value)}]"
        case timedelta():
            return json.dumps(format_duration(value))
        case _:
            return json.dumps(value)


def _key(key: str) -> str:
    return key if re.fullmatch(r"[-\w]+", key) else json.dumps(key)


if __name__ == "__main__":
    sys.stdout.write(render_reference())
