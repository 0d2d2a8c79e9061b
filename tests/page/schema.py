"""Writes the JSON Schema of the page into the docs: `python -m tests.page.schema`."""

from __future__ import annotations

import json

from actors.page.documents import schema
from tests.docs.pages import ROOT

if __name__ == "__main__":
    text = json.dumps(schema(), indent=2) + "\n"
    (ROOT / "docs/reference/page.schema.json").write_text(text, encoding="utf-8")
