"""The table in README.md names files with tests, and at least one of the whole tree for each line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent
README: Final = (FOLDER / "README.md").read_text(encoding="utf-8")
LINK: Final = re.compile(r"\]\((?!https?:)([^)#]+)\)")
ROWS: Final = {
    int(number): [LINK.findall(cell) for cell in cells]
    for number, *cells in re.findall(r"^\| (\d+) [^|]+\|([^|]+)\|([^|]+)\|$", README, re.MULTILINE)
}
"""Line → the files of its scenarios, and those of its unit tests."""

LINES: Final = range(1, 17)


def headings() -> set[tuple[int, str]]:
    """Line and file of each scenario's heading, such as `# ── 7: start failures`."""
    return {
        (int(number), path.name)
        for path in FOLDER.glob("test_*.py")
        for number in re.findall(r"^# ── (\d+): ", path.read_text(encoding="utf-8"), re.MULTILINE)
    }


def test_each_line_has_a_scenario_and_a_unit_test() -> None:
    assert list(ROWS) == list(LINES)
    assert [line for line, (scenarios, units) in ROWS.items() if not scenarios or not units] == []


def test_each_file_of_the_table_has_tests() -> None:
    files = {file for row in ROWS.values() for cell in row for file in cell}
    assert [file for file in sorted(files) if "\ndef test_" not in (FOLDER / file).read_text(encoding="utf-8")] == []


def test_a_scenario_under_the_heading_of_a_line_is_in_its_row() -> None:
    found = headings()
    assert found
    assert [(line, file) for line, file in sorted(found) if file not in ROWS[line][0]] == []


def test_links_lead_somewhere() -> None:
    links = LINK.findall(README)
    assert [link for link in links if not (FOLDER / link).exists()] == []
