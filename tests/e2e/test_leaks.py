"""Ten backends that end, in order or in an outage, leave nothing in their process: neither thread, file nor object.

A hundred each, in all the ways there are, with their memory: tests/stress/test_leaks.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stress.lives import WAYS, nothing_left

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("way", ["in order", "while the API refuses"])
def test_backends_that_end_leave_the_process_as_it_was(way: str, tmp_path: Path) -> None:
    nothing_left(tmp_path, WAYS[way])
