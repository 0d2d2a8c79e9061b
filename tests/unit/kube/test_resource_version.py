"""Resource versions: which of two is later, for any string that a server may send."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from actors.kube.resource_version import LONGEST, is_later, is_old, number_of

TEXTS = st.text("19٣_+", max_size=2) | st.text("09", min_size=LONGEST - 1, max_size=LONGEST + 1)


@given(TEXTS, TEXTS)
@example("٣", "1")
@example("a", "1")
@example("9" * (LONGEST + 1), "1" * (LONGEST + 1))
@example("10", "9")
def test_a_version_is_later_than_another_when_both_are_numbers_and_it_is_the_higher(a: str, b: str) -> None:
    one, other = number_of(a), number_of(b)
    assert is_later(a, b) == (one is not None and other is not None and one > other)


@given(TEXTS, TEXTS)
@example("٣", "1")
@example("2", "1")
@example("10", "9")
def test_a_version_is_old_when_it_is_the_known_one_or_the_known_one_is_later(version: str, known: str) -> None:
    assert is_old(version, known) == (version == known or is_later(known, version))


@given(TEXTS)
def test_a_version_is_no_number_if_int_alone_would_take_it_for_one(text: str) -> None:
    number = number_of(text)
    assert (number is not None) == (0 < len(text) <= LONGEST and set(text) <= set("0123456789"))
    assert number is None or number == int(text)


def test_nothing_is_later_than_no_version_nor_no_version_than_anything() -> None:
    assert not is_later("5", None)
    assert not is_later(None, "5")
