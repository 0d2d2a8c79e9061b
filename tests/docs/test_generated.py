"""The reference pages say what the docstrings say: `python docs/_ext/generated.py` writes them."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import PAGES, ROOT, read

if TYPE_CHECKING:
    from types import ModuleType

GENERATED = [page for page in PAGES if "<!-- generated: " in read(page)]


@pytest.fixture(scope="module")
def generated() -> ModuleType:
    """The script, which stands beside the pages."""
    spec = importlib.util.spec_from_file_location("generated", ROOT / "docs/_ext/generated.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", GENERATED)
def test_a_page_is_current(page: str, generated: ModuleType) -> None:
    assert generated.fill(read(page)) == read(page), "run: python docs/_ext/generated.py"


@pytest.mark.parametrize("page", GENERATED)
def test_each_mark_has_its_end_and_something_between(page: str) -> None:
    marks = re.findall(r"^<!-- (generated|end)\b", read(page), re.MULTILINE)
    assert marks == ["generated", "end"] * (len(marks) // 2)
    assert "<!-- generated" not in re.sub(r"<!-- generated: [^\n]+ -->\n+[^<\n]", "", read(page))


def test_a_docstring_becomes_markdown(generated: ModuleType) -> None:
    docstring = """Does it.

        term
            What it
            means.

        Args:
            one: how
                many.

        Raises:
            ValueError: it is wrong.
    """
    assert [part for part in generated.markdown(docstring).splitlines() if part] == [
        "Does it.",
        "- **term**: What it means.",
        "**Args**",
        "- `one`: how many.",
        "**Raises**",
        "- `ValueError`: it is wrong.",
    ]
