"""What nobody sends by mistake: JSON of any shape, and good documents with some of their parts replaced by it."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, TypeVar

from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "s3cr3t-value-that-nobody-is-told"

A = TypeVar("A")

DEEP = b"[" * 20_000

_NASTY = (
    "",
    " ",
    "\0",
    "\n",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a/b",
    "%2e%2e%2f",
    "$(EXECUTOR_ID)",
    "$patch",
    "-1",
    "9" * 30,
    "1e99",
    "NaN",
    "null",
    "true",
    "é\u202e😀",
    "a\nERROR root: forged\x1b[2J\u2028[/]",
    "x" * 300,
    "2024-13-99T99:99:99Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59+14:00",
)

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from((0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308)),
    st.sampled_from(_NASTY),
    st.text(max_size=8),
)

values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_NASTY) | st.text(max_size=5), inner),
    max_leaves=6,
)


def strings(document: Any) -> list[str]:
    """Every text in a document, keys included."""
    if isinstance(document, dict):
        return [text for key, value in document.items() for text in (str(key), *strings(value))]
    if isinstance(document, list):
        return [text for value in document for text in strings(value)]
    return [document] if isinstance(document, str) else []


def places(document: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to each part of a document, the document itself first."""
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [place, *(each for key, value in inner for each in places(value, (*place, key)))]


@st.composite
def spoiled(draw: st.DrawFn, document: Any, most: int = 3) -> Any:
    """The document, with up to `most` of its parts replaced, left out, or followed by one more."""
    result = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, most))):
        *way, last = draw(st.sampled_from(places(result)[1:] or [("metadata",)]))
        owner = result
        for step in way:
            owner = owner[step]
        match draw(st.sampled_from(("replace", "leave out", "add"))):
            case "leave out":
                del owner[last]
            case "add" if isinstance(owner, dict):
                owner[draw(st.text(max_size=5))] = draw(values)
            case "add":
                owner.append(draw(values))
            case _:
                owner[last] = draw(values)
        if not isinstance(result, dict | list) or not result:
            return result
    return result


@st.composite
def spoiled_bytes(draw: st.DrawFn, document: Any) -> bytes:
    """The document as JSON, some of it spoiled before and some after it was written."""
    whole = json.dumps(draw(spoiled(document)), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    start = draw(st.integers(0, len(whole)))
    match draw(st.sampled_from(("whole", "whole", "cut", "put in"))):
        case "cut":
            return whole[:start]
        case "put in":
            return whole[:start] + draw(st.binary(max_size=4) | st.just(DEEP)) + whole[start:]
        case _:
            return whole


def tried(do: Callable[[], A], refusal: type[Exception]) -> A | None:
    """What it makes; None if it is refused as it may be: in words that tell no secret, and nothing behind them."""
    try:
        return do()
    except refusal as error:
        found = error
    assert SECRET not in str(found)
    assert found.__cause__ is None, "a traceback would show where it came from"
    return None
