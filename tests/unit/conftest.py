"""What several rooms' tests may use."""

from __future__ import annotations

import os

import pytest


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable of the environment is a setting."""
    for name in list(os.environ):
        if name.upper().startswith("EXECUTOR_PODS_"):
            monkeypatch.delenv(name)
