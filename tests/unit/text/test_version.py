"""The version that the package says it has."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError
from typing import TYPE_CHECKING

import actors

if TYPE_CHECKING:
    import pytest


def test_the_package_has_the_version_that_is_installed() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", actors.__version__)


def test_a_package_that_is_not_installed_has_no_known_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", missing)
    assert actors.__version__ == "unknown"
