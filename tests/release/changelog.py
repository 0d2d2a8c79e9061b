"""What `CHANGELOG.md` says of a release.

python -m tests.release.changelog 0.2.0    # its text, for the release's page
"""

from __future__ import annotations

import re
import sys
from typing import Final

from tests.release.sbom import ROOT

__all__ = ["dates", "text_of", "waiting"]

CHANGELOG: Final = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def text_of(release: str, changelog: str = CHANGELOG) -> str:
    """All that stands below a release's heading; raises `ValueError` if it has none."""
    found = re.search(
        rf"^## \[?{re.escape(release)}\]?(?: - [^\n]*)?\n(.*?)(?=^## |^\[|\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    if found is None:
        known = ", ".join(dates(changelog))
        raise ValueError(f"CHANGELOG.md has no release {release}; it has {known}")
    return found[1].strip() + "\n"


def dates(changelog: str = CHANGELOG) -> dict[str, str]:
    """Release → its date, the newest first."""
    return dict(re.findall(r"^## \[?(\d[\w.]*)\]? - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE))


def waiting(changelog: str = CHANGELOG) -> list[str]:
    """The first line of each entry that belongs to no release yet."""
    return re.findall(r"^- (.+)$", text_of("Unreleased", changelog), re.MULTILINE)


if __name__ == "__main__":
    print(text_of(sys.argv[1].removeprefix("v")), end="")
