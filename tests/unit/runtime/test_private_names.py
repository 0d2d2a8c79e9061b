"""Which private names of Pykka are used, and that no minor version is accepted in which they may differ."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pykka

import actors

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGE: Final = Path(actors.__file__).parent
ROOT: Final = Path(__file__).parents[3]

USED: Final = {
    "_actor_loop": {"testing/dispatcher.py"},
    "_actor_loop_running": {"runtime/loop.py", "testing/dispatcher.py"},
    "_actor_loop_setup": {"testing/dispatcher.py"},
    "_create_actor_inbox": {"runtime/actor.py", "testing/hosting.py"},
    "_create_future": {"runtime/actor.py"},
    "_handle_failure": {"runtime/actor.py", "testing/hosting.py"},
    "_handle_receive": {"runtime/actor.py"},
    "_start_actor_loop": {"runtime/actor.py", "runtime/system.py", "testing/hosting.py"},
    "_stop": {"runtime/actor.py"},
    "pykka._actor.ActorInbox": {"testing/hosting.py"},
    "pykka._envelope.Envelope": {
        "runtime/actor.py",
        "runtime/address.py",
        "runtime/loop.py",
        "runtime/mailbox.py",
        "runtime/supervisor.py",
        "testing/dispatcher.py",
    },
    "pykka._types.OptExcInfo": {"runtime/mailbox.py"},
    "pykka.messages._ActorStop": {"runtime/actor.py", "runtime/mailbox.py"},
}
"""By name: the modules. A name less is a step towards any version of Pykka; one more needs a reason."""

CLASSES: Final = (pykka.Actor, pykka.ThreadingActor, pykka.ActorRef, pykka.ActorRegistry, pykka.ThreadingFuture)

OF_CLASSES: Final = {name for each in CLASSES for name in vars(each) if re.match("_[^_]", name)}


def private_names(module: ast.Module) -> Iterator[str]:
    """Yield the private names that a module imports from Pykka, and those of its classes that it calls or overrides."""
    for node in ast.walk(module):
        match node:
            case ast.ImportFrom(module=str(origin), names=imported) if origin.partition(".")[0] == "pykka":
                full = [f"{origin}.{each.name}" for each in imported]
                yield from (name for name in full if "._" in name)
            case ast.Attribute(attr=name) | ast.FunctionDef(name=name) | ast.Constant(value=str(name)):
                if name in OF_CLASSES:
                    yield name
            case _:
                pass


def test_the_private_names_of_pykka_that_are_used_are_these() -> None:
    found: dict[str, set[str]] = defaultdict(set)
    for path in (path for room in ("runtime", "testing") for path in (PACKAGE / room).rglob("*.py")):
        for name in private_names(ast.parse(path.read_text(encoding="utf-8"))):
            found[name].add(path.relative_to(PACKAGE).as_posix())
    assert found == USED


def test_while_private_names_are_used_the_next_minor_version_of_pykka_is_not_accepted() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = (each for each in project["dependencies"] if each.startswith("pykka"))
    bounds = re.fullmatch(r"pykka>=(\d+)\.(\d+),<(\d+)\.(\d+)", wanted)
    assert bounds is not None, wanted
    major, minor, *above = map(int, bounds.groups())
    assert above == [major, minor + 1]
