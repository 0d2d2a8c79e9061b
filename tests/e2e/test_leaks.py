"""Ten backends, ended in each of the ways there are, leave nothing in their process: neither thread, file nor object.

Line 3 (stop) of the issue "Survive everything". A hundred each, with their memory: tests/stress/test_leaks.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.stress.lives import WAYS, nothing_left

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("way", WAYS)
def test_backends_that_end_leave_the_process_as_it_was(way: str, tmp_path: Path) -> None:
    nothing_left(tmp_path, WAYS[way])
