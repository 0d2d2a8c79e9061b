"""The pages of the documentation, and the fenced blocks on them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")))
REPOSITORY = "https://github.com/executor-pods/executor-pods"

_FENCE = re.compile(r"^(?P<fence>`{3,}|~{3,})(?P<kind>[^\n]*)\n(?P<text>.*?)^(?P=fence)[ ]*$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w-]+\.(?:py|toml|yaml))\n")


@dataclass(frozen=True)
class Block:
    """One fenced block, as it is printed."""

    page: str
    line: int
    kind: str
    """What follows the fence: a language, or a directive in braces."""
    text: str

    @property
    def file(self) -> str | None:
        """The file to save it as, if the first line names one."""
        found = _FILE.match(self.text)
        return found[1] if found else None

    @property
    def first_line(self) -> str:
        return self.text.partition("\n")[0]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    source = read(page)
    return [
        Block(page, source.count("\n", 0, found.start()) + 1, found["kind"].strip(), found["text"])
        for found in _FENCE.finditer(source)
    ]


def fences(page: str) -> int:
    """Count the lines that look like the begin or end of a block: each must belong to one."""
    return len(re.findall(r"^\s*(?:`{3,}|~{3,})", read(page), re.MULTILINE))
