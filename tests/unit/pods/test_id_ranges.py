from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.pods.id_ranges import IdRanges

IDS = st.frozensets(st.integers(1, 30))


@given(IDS, IDS)
def test_the_union_has_the_ids_of_both_and_no_ranges_that_touch(some: frozenset[int], more: frozenset[int]) -> None:
    union = IdRanges.of(some).union(IdRanges.of(more))
    assert {executor_id for executor_id in range(32) if executor_id in union} == some | more
    assert union == IdRanges.of(some | more)
    assert all(last + 1 < first for (_, last), (first, _) in zip(union.spans, union.spans[1:], strict=False))


def test_ids_in_a_row_are_one_range() -> None:
    assert IdRanges.of(range(1, 1000)).union(IdRanges.of([1000])).spans == ((1, 1000),)
