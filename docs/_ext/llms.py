"""Writes `llms.txt` into the site, for programs that read it: each page as Markdown, with its first sentence.

The form is that of https://llmstxt.org.
"""

from __future__ import annotations

import re
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from docutils import nodes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sphinx.application import Sphinx

SECTIONS: Final = {
    "how-to": "How to",
    "examples": "Examples",
    "reference": "Reference",
    "explanation": "Explanation",
    ".": "Tutorial",
}
"""Folder → what its pages are."""


class Page(NamedTuple):
    """A page of the site."""

    name: str
    """Its path without a suffix."""
    title: str
    first: str
    """Its first paragraph."""


def llms_txt(index: Page, pages: Iterable[Page]) -> str:
    """Return the file: the first page's text, then the pages by sections, in their order."""
    parts = [f"# {index.title}", f"> {index.first}"]
    for folder, group in groupby(pages, lambda page: str(Path(page.name).parent)):
        parts += [f"## {SECTIONS[folder]}", "\n".join(map(_line, group))]
    return "\n\n".join(parts) + "\n"


def _line(page: Page) -> str:
    sentence = re.match(r".+?[.:](?=\s|$)", page.first)
    said = sentence[0].rstrip(".:") if sentence is not None else page.first
    return f"- [{page.title}](_sources/{page.name}.md.txt): {said}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True}


def _write(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        index, *pages = _pages(app)
        (Path(app.outdir) / "llms.txt").write_text(llms_txt(index, pages), encoding="utf-8")


def _pages(app: Sphinx) -> Iterator[Page]:
    """Yield the first page, then those of its tables of contents."""
    for name in ("index", *app.env.toctree_includes["index"]):
        paragraph = app.env.get_doctree(name).next_node(nodes.paragraph)
        first = "" if paragraph is None else " ".join(paragraph.astext().split())
        yield Page(name, app.env.titles[name].astext(), first)
