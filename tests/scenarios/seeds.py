"""Seeds for scenarios that draw what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.mark import ParameterSet

__all__ = ["seeds"]


def seeds(few: int, of: int) -> list[ParameterSet]:
    """The first few seeds for the default suite, and the others for stress runs."""
    return [pytest.param(seed, marks=[pytest.mark.stress] if seed >= few else []) for seed in range(of)]
