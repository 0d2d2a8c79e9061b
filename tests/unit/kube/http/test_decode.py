"""Splitting and decoding random input."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.kube.deduplication import PodDeduplicator
from actors.kube.http import decode
from actors.kube.http.decode import Complaints
from actors.kube.http.watch_lines import LineSplitter, WatchDecoder
from tests.unit.kube.http.test_pod_api import page, pod

LINES = st.lists(st.binary().map(lambda line: line.replace(b"\n", b"")), max_size=8)


@given(LINES, st.binary(max_size=5).map(lambda rest: rest.replace(b"\n", b"")), st.data())
def test_lines_do_not_depend_on_where_they_were_cut(lines: list[bytes], rest: bytes, data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines) + rest
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=10)))
    splitter = LineSplitter()
    found = [block for start, end in pairwise([0, *cuts, len(whole)]) for block in splitter.feed(whole[start:end])]
    assert all(bytes(block).endswith(b"\n") for block in found), "only whole lines"
    assert b"".join(found) == b"".join(line + b"\n" for line in lines)
    assert b"".join(splitter.rest()) == rest


@given(st.lists(st.sampled_from(["good", "bad", "mark"]), max_size=10), st.integers(1, 4))
def test_the_last_version_and_every_good_event_are_kept(kinds: list[str], portion: int) -> None:
    lines = []
    for number, kind in enumerate(kinds, 10):
        obj = pod(kind, number, **({"uid": 3} if kind == "bad" else {}))
        lines.append(json.dumps({"type": "BOOKMARK" if kind == "mark" else "ADDED", "object": obj}).encode())
    decoder = WatchDecoder("9", Complaints(), PodDeduplicator())
    events, malformed, version = 0, 0, "9"
    for at in range(0, len(lines), portion):
        [found], error = decoder.decode(b"\n".join(lines[at : at + portion]))
        assert error is None
        events, malformed, version = events + len(found.events), malformed + found.malformed, found.resource_version
    assert (events, malformed, version) == (kinds.count("good"), kinds.count("bad"), str(9 + len(kinds)))


@pytest.mark.parametrize("garbage", [b"{", b"[" * 5000, b'"x"', b"{}"])
def test_what_came_before_a_line_that_is_no_event_is_not_lost_with_it(garbage: bytes) -> None:
    good = json.dumps({"type": "ADDED", "object": pod("a", 5)}).encode()
    [found], error = WatchDecoder("4", Complaints(), PodDeduplicator()).decode(b"\n".join((good, garbage, good)))
    assert ([event.pod.name for event in found.events], found.resource_version) == (["a"], "5")
    assert isinstance(error, ValueError | RecursionError)


def test_what_comes_after_the_end_of_the_initial_events_is_told_apart_from_them() -> None:
    """One read may have both: pods deleted before the mark never existed, those deleted after it did."""
    annotated = {"metadata": {"resourceVersion": "20", "annotations": {"k8s.io/initial-events-end": "true"}}}
    changes = [("ADDED", pod("a", 7)), ("BOOKMARK", annotated), ("DELETED", pod("a", 21)), ("ADDED", pod("b", 22))]
    lines = [json.dumps({"type": kind, "object": obj}).encode() for kind, obj in changes]
    (initial, later), error = WatchDecoder("", Complaints(), PodDeduplicator()).decode(b"\n".join(lines))
    assert error is None
    assert ([e.type for e in initial.events], initial.resource_version) == (["ADDED"], "20")
    assert ([e.type for e in later.events], later.resource_version) == (["DELETED", "ADDED"], "22")
    assert (initial.initial_events_end, later.initial_events_end) == (True, False)


@given(
    st.binary() | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(lambda v: json.dumps(v).encode())
)
def test_no_bytes_make_anything_but_a_value_error(body: bytes) -> None:
    for read in (decode.pod, lambda data: decode.pod_page(data, Complaints(), PodDeduplicator())):
        with pytest.raises(ValueError):  # noqa: PT011 - any of them: none of these bytes is a pod
            read(body)
    assert decode.status(body) == {}


def test_the_names_of_bad_pods_do_not_pile_up(caplog: pytest.LogCaptureFixture) -> None:
    complaints = Complaints()
    for batch in range(3):
        bad = [pod(f"bad-{batch}-{i}", uid=3) for i in range(decode.MAX_COMPLAINTS)]
        assert (
            decode.pod_page(json.dumps(page(*bad)).encode(), complaints, PodDeduplicator()).malformed
            == decode.MAX_COMPLAINTS
        )
    assert len(complaints._logged) <= decode.MAX_COMPLAINTS
    assert len(caplog.records) == 3 * decode.MAX_COMPLAINTS


def test_null_lists_and_fields_are_as_good_as_none() -> None:
    body = b'{"metadata":{"resourceVersion":"3","continue":null},"items":null}'
    assert decode.pod_page(body, Complaints(), PodDeduplicator()).pods == ()
    nulls = {"metadata": {"name": "a", "labels": None, "ownerReferences": None}, "spec": None, "status": None}
    assert decode.pod(json.dumps(nulls).encode()).labels == {}
