"""The table in README.md names tests that exist, and at least one of the whole tree for each line."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest

FOLDER: Final = Path(__file__).parent
README: Final = (FOLDER / "README.md").read_text(encoding="utf-8")
ROWS: Final = re.findall(r"^\| (\d+) [^|]+ \| \[[^]]+\]\(([^)]+)\) \| (.+) \|$", README, re.MULTILINE)
"""Line, file, and what of the file: `name` of a test, a section, or all."""

LINES: Final = range(1, 17)


@cache
def names_in(path: Path) -> frozenset[str]:
    """The tests of a file."""
    module = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(
        node.name for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )


def has_tests(file: str, what: str) -> bool:
    path = FOLDER / file
    if not path.is_file():
        return False
    if what == "all":
        return bool(names_in(path))
    if section := re.fullmatch("section “(.+)”", what):
        _, begin, body = path.read_text(encoding="utf-8").partition(f"\n# ── {section[1]} ─")
        body, *_ = body.partition("\n# ── ")
        return bool(begin) and "\ndef test_" in body
    return what.strip("`") in names_in(path)


def held_by_sections() -> list[tuple[int, str, str]]:
    """Line, file and test of what stands in a scenario under a line's number: `# ── 7: start failures`."""
    held = []
    for path in sorted(FOLDER.glob("test_*.py")):
        for section in path.read_text(encoding="utf-8").split("\n# ── ")[1:]:
            if number := re.match(r"(\d+): ", section):
                held += [
                    (int(number[1]), path.name, test) for test in re.findall(r"^def (test_\w+)", section, re.MULTILINE)
                ]
    return held


def test_every_row_is_read() -> None:
    rows = [line for line in README.splitlines() if line.startswith("| ") and not line.startswith(("| line", "| ---"))]
    assert len(ROWS) == len(rows) == len(set(rows))


def test_what_the_table_names_is_there() -> None:
    assert [row for row in ROWS if not has_tests(*row[1:])] == []


def test_what_a_scenario_says_it_holds_stands_in_the_table() -> None:
    named = {(int(line), file, what.strip("`")) for line, file, what in ROWS}
    assert [held for held in held_by_sections() if held not in named] == []


@pytest.mark.parametrize("line", LINES)
def test_each_line_is_held_by_a_test_of_the_whole_tree(line: int) -> None:
    assert [what for number, file, what in ROWS if int(number) == line and "/" not in file]


def test_the_table_has_no_other_lines() -> None:
    assert {int(number) for number, _, _ in ROWS} == set(LINES)


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("test_nothing.py", "all"),
        ("world.py", "all"),
        ("test_table.py", "`test_of_nothing`"),
        ("test_table.py", "section “nothing”"),
    ],
)
def test_what_is_not_there_is_not_found(file: str, what: str) -> None:
    assert not has_tests(file, what)


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert [link for link in links if not (FOLDER / link).exists()] == []
