"""Draws which room imports which, from the code: `python -m tests.import_graph [CHECKOUT]`.

Prints the rooms as a Mermaid flowchart, layer by layer as the contract in `pyproject.toml` has them, then every import
that runs upward or sideways and every circle of modules. Exits with 1 if there is one. Imports that only type checkers
see count as well: whoever reads a module needs them.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import TypeAlias

Graph: TypeAlias = "dict[str, set[str]]"
"""Importer → imported."""


@cache
def tree(path: Path) -> ast.Module:
    """A module's code."""
    return ast.parse(path.read_text(encoding="utf-8"))


def module_graph(root: Path) -> Graph:
    """The modules of `actors` in a checkout, by dotted name without the package's own, and what each imports."""
    paths = {_name(path.relative_to(root / "actors")): path for path in (root / "actors").rglob("*.py")}
    graph: Graph = {name: set() for name in paths}
    for name, path in paths.items():
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "actors":
                package = (node.module or "").partition(".")[2]
                targets = {f"{package}.{alias.name}".lstrip(".") for alias in node.names}
                graph[name] |= {target if target in paths else package for target in targets}
        graph[name] -= {name, ""}
    return graph


def room_graph(modules: Graph) -> Graph:
    """The same for the rooms, which are the packages and modules directly in `actors`."""
    rooms: Graph = defaultdict(set)
    for module, imported in modules.items():
        room = module.partition(".")[0]
        rooms[room] |= {other.partition(".")[0] for other in imported} - {room}
    rooms.pop("", None)
    return dict(rooms)


def layers(root: Path) -> list[list[str]]:
    """The rooms of each layer, top first, as import-linter holds them."""
    contracts = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    contract = next(contract for contract in contracts if contract.get("containers") == ["actors"])
    return [[room.strip() for room in line.replace(":", "|").split("|")] for line in contract["layers"]]


def upward(rooms: Graph, lines: list[list[str]]) -> list[tuple[str, str]]:
    """Imports that do not run down: to a layer above, or to another room of the same one."""
    depth = {room: number for number, line in enumerate(lines) for room in line}
    return sorted(
        (room, other)
        for room, others in rooms.items()
        for other in others
        if room in depth and other in depth and depth[other] <= depth[room]
    )


def circles(graph: Graph) -> list[list[str]]:
    """Modules that import each other, directly or through others: every one of them reaches itself."""
    reach = {name: set(imported) for name, imported in graph.items()}
    for middle in graph:
        for name in graph:
            if middle in reach[name]:
                reach[name] |= reach[middle]
    rings = {frozenset({other for other in reach[name] if name in reach.get(other, ())}) for name in graph}
    return sorted(sorted(ring) for ring in rings if ring)


def mermaid(rooms: Graph, lines: list[list[str]]) -> str:
    """The rooms, a box a layer. What `errors` and `runtime` give to all is not drawn: it would hide the rest."""
    drawn = ["flowchart TD"]
    for number, line in enumerate(lines):
        drawn.append(f"  subgraph layer{number}[ ]")
        drawn += [f"    {room}" for room in line]
        drawn.append("  end")
    common = {"errors", "runtime"}
    drawn += [f"  {room} --> {other}" for room in sorted(rooms) for other in sorted(rooms[room] - common)]
    return "\n".join(drawn)


def _name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def main(root: Path) -> int:
    """Draw it; 1 if something is wrong with it."""
    modules = module_graph(root)
    rooms, lines = room_graph(modules), layers(root)
    print(mermaid(rooms, lines))
    wrong, rings = upward(rooms, lines), circles(modules)
    print(f"\n{len(rooms)} rooms in {len(lines)} layers, {len(modules)} modules")
    print(
        f"imports that run upward or sideways: {len(wrong)}",
        *(f"  {room} -> {other}" for room, other in wrong),
        sep="\n",
    )
    print(f"circles of modules: {len(rings)}", *(f"  {' <-> '.join(ring)}" for ring in rings), sep="\n")
    return 1 if wrong or rings else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[1]))
