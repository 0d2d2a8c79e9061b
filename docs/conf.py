"""How Sphinx builds these pages: `sphinx-build -W -b html docs build/docs`, with the extra `docs` installed."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

project = "executor-pods"
author = "The executor-pods authors"
project_copyright = "The executor-pods authors"
version = release = installed("executor-pods")

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

extensions = ["myst_parser", "diagrams", "llms"]
exclude_patterns = ["_ext", "images/*.py"]
html_theme = "furo"
html_title = f"executor-pods {release}"
html_static_path = ["_static"]
html_css_files = ["wrap.css"]
html_use_index = False  # no page marks entries for one
html_theme_options = {
    "source_repository": "https://github.com/executor-pods/executor-pods/",
    "source_branch": "main",
    "source_directory": "docs/",
}

linkcheck_ignore = [r"https://(github|raw\.githubusercontent)\.com/executor-pods/"]  # tests/docs finds their files

myst_fence_as_directive = ["mermaid"]  # so that GitHub draws them too
myst_heading_anchors = 4
