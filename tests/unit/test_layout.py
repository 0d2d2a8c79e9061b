"""Rules of the layout that import-linter does not hold: locks, clocks, circles of modules, the size of a room."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final, get_args

import pytest

import actors
from actors.messages import FromDriver, ToDriver
from actors.settings.model import setting_names
from tests.import_graph import Graph, circles, layers, module_graph, room_graph, tree, upward

PACKAGE: Final = Path(actors.__file__).parent
ROOT: Final = Path(__file__).parents[2]
MODULES: Final = sorted(path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py"))

MAY_LOCK: Final = {"runtime", "kube", "local", "testing", "fleet", "page", "cli", "examples", "registration"}
"""Invariant 8: no lock outside these; the first three, the door and the page, are where threads meet."""

BETWEEN_PROCESSES: Final = "backend/process/"
"""The connection to the fleet's process is read and written by threads."""

ALONE: Final = {"dask/on_sigterm.py", "text/logger.py"}
"""The first runs in another process, without an actor; the other has no lock: it asks which thread it is in."""

MAY_READ_TIME: Final = {
    "registration/executor.py",  # runs in the executor, without the library
    "runtime/clock.py",
    "runtime/entropy.py",
    "runtime/timer_thread.py",
    "testing/dispatcher.py",
    "testing/hosting.py",
}

FILES: Final = {"__init__.py", "__main__.py", "errors.py", "py.typed"}
"""All that may lie directly in `actors`."""

ROOM: Final = 12
"""Modules of a room besides its `__init__`; a room in a room is counted on its own."""


@cache
def imported(path: Path) -> set[str]:
    """The top-level names of everything that a module imports."""
    names: set[str] = set()
    for node in ast.walk(tree(PACKAGE / path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names.add(node.module.partition(".")[0])
    return names


@pytest.fixture(scope="module")
def graph() -> Graph:
    return module_graph(ROOT)


def importers(*names: str) -> list[str]:
    """The modules that import one of these, by path."""
    return [str(path) for path in MODULES if imported(path) & set(names)]


def test_actors_share_no_lock_and_no_thread() -> None:
    found = importers("threading", "queue", "multiprocessing", "concurrent", "_thread")
    others = [path for path in found if Path(path).parts[0] not in MAY_LOCK and path not in ALONE]
    assert [path for path in others if not path.startswith(BETWEEN_PROCESSES)] == []


def test_time_and_chance_come_from_the_clock_and_from_entropy() -> None:
    found = importers("time", "random")
    assert [path for path in found if path not in MAY_READ_TIME and not path.startswith("examples/")] == []


def test_importing_the_package_does_not_import_the_kubernetes_client() -> None:
    assert [path for path in importers("kubernetes") if not path.startswith("kube/")] == []


def test_nothing_depends_on_what_python_drops_if_it_is_told_to() -> None:
    """With -OO there are neither docstrings nor assertions. One that only tells mypy a type calls nothing else."""
    for path in MODULES:
        for node in ast.walk(tree(PACKAGE / path)):
            assert not (isinstance(node, ast.Attribute) and node.attr == "__doc__"), path
            if isinstance(node, ast.Assert):
                parts = list(ast.walk(node.test))
                assert {ast.unparse(part.func) for part in parts if isinstance(part, ast.Call)} <= {"isinstance"}, path
                assert not [part for part in parts if isinstance(part, ast.NamedExpr | ast.Await)], path


def test_no_module_imports_itself_through_others(graph: Graph) -> None:
    assert circles(graph) == []


def test_rooms_import_downward_only(graph: Graph) -> None:
    assert upward(room_graph(graph), layers(ROOT)) == []


def test_every_room_has_a_layer() -> None:
    listed = {room for layer in layers(ROOT) for room in layer}
    assert {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()} - listed == set()


def test_the_package_holds_rooms_and_hardly_a_file() -> None:
    assert {path.name for path in PACKAGE.iterdir() if path.is_file()} - FILES == set()


def test_a_room_holds_about_a_dozen_modules() -> None:
    sizes = {folder: sum(path.parent == folder for path in MODULES) - 1 for folder in {path.parent for path in MODULES}}
    assert {str(folder): size for folder, size in sizes.items() if size > ROOM} == {}


def test_each_room_says_in_two_sentences_what_it_is() -> None:
    inits = [path for path in MODULES if path.name == "__init__.py"]
    trees = {str(path): tree(PACKAGE / path) for path in inits}
    assert [path for path, tree in trees.items() if sentences(ast.get_docstring(tree) or "") < 2] == []


def sentences(text: str) -> int:
    """How many there are, counted by their full stops."""
    return len(re.findall(r"[.](?=\s|$)", text))


def test_whatever_a_driver_sends_or_receives_is_a_public_name() -> None:
    messages = {message.__name__ for message in (*get_args(FromDriver), *get_args(ToDriver))}
    assert messages - set(actors.__all__) == set()


def test_whatever_can_be_set_is_read() -> None:
    nodes = (node for path in MODULES for node in ast.walk(tree(PACKAGE / path)))
    read = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)}
    assert {name for name in setting_names() if name.rpartition(".")[2] not in read} == set()
