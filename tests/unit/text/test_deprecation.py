"""A deprecation names what replaces it and the release that removes it, and is gone by that release."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

import actors
from actors.text.deprecation import removed_in, warn_deprecated
from tests.docs.pages import ROOT, read

PACKAGE: Final = Path(actors.__file__).parent
VERSION: Final[str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

MESSAGE: Final = "^`old` is deprecated since executor-pods 0.2 and removed in 0.5: use `new`$"

LIBRARY: Final = """
def old():
    warn_deprecated("`old`", since="0.2", instead="`new`")

def calls_old():
    old()
"""


def outlived(source: str, version: str) -> list[str]:
    """What this source still warns of, although this version is to be without it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "warn_deprecated":
            (name,) = map(ast.literal_eval, node.args)
            since = {each.arg: ast.literal_eval(each.value) for each in node.keywords}["since"]
            if _numbers(removed_in(since)) <= _numbers(version):
                found.append(name)
    return found


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:2]))


def test_the_warning_says_what_to_use_and_until_when_and_points_at_the_programs_line() -> None:
    library: dict[str, Any] = {"__name__": "actors.made_up", "warn_deprecated": warn_deprecated}
    exec(LIBRARY, library)
    for name in ("old", "calls_old"):
        with pytest.warns(DeprecationWarning, match=MESSAGE) as caught:
            library[name]()
        (warning,) = caught
        assert warning.filename == __file__


def test_what_is_deprecated_works_for_as_long_as_the_page_promises() -> None:
    page = " ".join(read("docs/reference/compatibility.md").split())
    assert f"deprecated in 1.4 works in 1.5 and 1.6, and may be gone in {removed_in('1.4')}" in page


def test_a_deprecation_that_outlived_its_release_is_found() -> None:
    assert [outlived(LIBRARY, version) for version in ("0.2.0", "0.4.3", "0.5.0", "1.0.0")] == [
        [],
        [],
        ["`old`"],
        ["`old`"],
    ]


def test_no_deprecation_of_the_library_has_outlived_its_release() -> None:
    found = {str(path): outlived(path.read_text(encoding="utf-8"), VERSION) for path in PACKAGE.rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}
