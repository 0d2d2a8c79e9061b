"""Draw the diagrams of the pages, `diagrams/HASH.svg` each, for those who read the built pages without a network.

    npm install --no-save mermaid && python docs/images/diagrams.py

Needs playwright and a Chromium, as the page's tests do. A repository's site draws the blocks itself. The build of the
pages (`_ext/diagrams.py`) fails if one has no drawing.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parents[1]
sys.path.insert(0, str(DOCS / "_ext"))

from diagrams import DRAWINGS, drawing_of  # noqa: E402 - the extension stands beside the pages

MERMAID = Path("node_modules/mermaid/dist/mermaid.min.js")
OPTIONS = {"startOnLoad": False, "theme": "neutral", "htmlLabels": False, "flowchart": {"htmlLabels": False}}
BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def main() -> None:
    """Draw what has no drawing, and delete what belongs to no block."""
    blocks = [text for page in DOCS.rglob("*.md") for text in BLOCK.findall(page.read_text(encoding="utf-8"))]
    wanted = {DRAWINGS / drawing_of(text): text for text in blocks}
    DRAWINGS.mkdir(exist_ok=True)
    for old in set(DRAWINGS.iterdir()) - wanted.keys():
        old.unlink()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.add_script_tag(path=MERMAID)
        page.evaluate("options => mermaid.initialize(options)", OPTIONS)
        for path, text in wanted.items():
            if not path.exists():
                drawn = page.evaluate("async text => (await mermaid.render('diagram', text)).svg", text)
                path.write_text(drawn + "\n", encoding="utf-8")
        browser.close()


if __name__ == "__main__":
    main()
