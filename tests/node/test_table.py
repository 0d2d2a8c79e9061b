from __future__ import annotations

from collections import Counter

from tests.node.lives import LIVES
from tests.node.table import README, with_table


def test_the_page_shows_the_table() -> None:
    text = README.read_text(encoding="utf-8")
    assert with_table(text) == text, "run python -m tests.node.table"


def test_each_life_has_a_name_of_its_own() -> None:
    assert [name for name, count in Counter(life.name for life in LIVES).items() if count > 1] == []


def test_a_difference_is_between_two_worlds() -> None:
    assert [life.name for life in LIVES if life.not_embedded and "embedded" in life.differs] == []
