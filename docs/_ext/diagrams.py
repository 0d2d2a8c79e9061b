"""Shows each block of Mermaid as the drawing of it in `images/diagrams`: no page loads a script from the network.

`python docs/images/diagrams.py` draws them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DRAWINGS = Path(__file__).parents[1] / "images/diagrams"


def drawing_of(text: str) -> str:
    """Return the name of a block's drawing."""
    return f"{hashlib.sha256(text.strip().encode()).hexdigest()[:12]}.svg"


class Mermaid(SphinxDirective):
    """A block of Mermaid."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return its drawing."""
        text = "\n".join(self.content)
        name = drawing_of(text)
        if not (DRAWINGS / name).is_file():
            raise self.error("this diagram has no drawing: run docs/images/diagrams.py")
        return [nodes.container("", nodes.image(uri=f"/images/diagrams/{name}", alt=text), classes=["diagram"])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True}
