"""Python sorts."""

import random
from itertools import pairwise

import pytest


@pytest.mark.parametrize("seed", range(5))
def test_a_sorted_list_has_no_descent(seed: int) -> None:
    numbers = sorted(random.Random(seed).random() for _ in range(50_000))
    assert all(left <= right for left, right in pairwise(numbers))
