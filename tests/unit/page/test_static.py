"""The page's files: none needs another host, and none makes markup of a text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from pathlib import Path

STATIC = ROOT / "actors/page/static"
OURS = sorted(path for path in STATIC.iterdir() if path.suffix in {".html", ".css", ".js", ".svg"})


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_nothing_comes_from_another_host(path: Path) -> None:
    hosts = re.findall(r"(?:https?:)?//([\w-]+\.[\w.-]+)", path.read_text(encoding="utf-8"))
    assert [host for host in hosts if host != "www.w3.org"] == []  # a namespace


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_text_never_becomes_markup_or_code(path: Path) -> None:
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|javascript:"
    assert re.findall(forbidden, path.read_text(encoding="utf-8")) == []


def test_the_page_has_no_script_or_style_of_its_own() -> None:
    page = (STATIC / "page.html").read_text(encoding="utf-8")
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page) == []
    addresses = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert [each for each in addresses if not (STATIC.parent / each).is_file()] == [], (
        "relative to wherever it is served"
    )


def test_the_vendored_library_is_the_one_that_is_named() -> None:
    said = (STATIC / "vendor/README.md").read_text(encoding="utf-8")
    library = (STATIC / "vendor/uPlot.iife.min.js").read_text(encoding="utf-8")
    version = re.search(r"\(v([\d.]+)\)", library)
    assert version is not None
    assert f"| {version[1]} | MIT" in said
    assert "MIT License" in (STATIC / "vendor/uPlot.LICENSE").read_text(encoding="utf-8")
