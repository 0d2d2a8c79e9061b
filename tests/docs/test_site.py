"""What the built site has beside its pages."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.docs.pages import PAGES, ROOT, blocks

pytest.importorskip("sphinx")


def extension(name: str) -> Any:
    """Import one of Sphinx's extensions of ours, which are no package."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/_ext/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_diagram_of_a_page_has_its_drawing_and_each_drawing_its_diagram() -> None:
    """Draw them with `python docs/images/diagrams.py`."""
    diagrams = extension("diagrams")
    texts = [block.text for page in PAGES for block in blocks(page) if block.kind == "mermaid"]
    assert {diagrams.drawing_of(text) for text in texts} == {path.name for path in diagrams.DRAWINGS.iterdir()}


def test_llms_txt_has_each_page_by_sections_with_its_first_sentence() -> None:
    llms = extension("llms")
    index = llms.Page("index", "executor-pods", "A library. It does much.")
    pages = [
        llms.Page("tutorial", "Tutorial", "It begins here: with a driver. And on."),
        llms.Page("how-to/oom", "Out of memory", "Memory of 1.5 GiB ends. So."),
        llms.Page("how-to/page", "A page", "No end"),
        llms.Page("examples/index", "Examples", "Whole programs."),
    ]
    assert llms.llms_txt(index, pages) == (
        "# executor-pods\n\n> A library. It does much.\n\n"
        "## Tutorial\n\n- [Tutorial](_sources/tutorial.md.txt): It begins here\n\n"
        "## How to\n\n- [Out of memory](_sources/how-to/oom.md.txt): Memory of 1.5 GiB ends\n"
        "- [A page](_sources/how-to/page.md.txt): No end\n\n"
        "## Examples\n\n- [Examples](_sources/examples/index.md.txt): Whole programs\n"
    )
