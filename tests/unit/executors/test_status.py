"""How a source's words become a status. The rest of the door is seen through the Backend."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from actors.errors import Unavailable
from actors.executors.ledger import Ledger
from actors.executors.status import fleet_status, joined
from actors.messages import Freshness, Source, SourceStatus

AWAY = Unavailable("no route")


def status(*words: Freshness, now: float) -> SourceStatus:
    last: Freshness | None = None
    for word in words:
        last = joined(last, word)
    assert last is not None
    return fleet_status(
        "app", "default", ledger=Ledger(), profiles={}, sources={Source.WATCH: last}, now=now, stopping=False
    ).sources["watch"]


def word(synced_at: float | None, heard_at: float | None, error: Unavailable | None = None) -> Freshness:
    return Freshness(Source.WATCH, synced_at, error, heard_at)


def test_ages_are_as_of_the_answer() -> None:
    assert status(word(10.0, 14.0), now=20.0) == SourceStatus(
        synced=True, since_full_sync=timedelta(seconds=10), since_heard=timedelta(seconds=6), error=None
    )


def test_a_source_that_has_said_nothing_yet_is_shown_too() -> None:
    answer = fleet_status("app", "default", ledger=Ledger(), profiles={}, sources={}, now=20.0, stopping=False)
    nothing = SourceStatus(synced=False, since_full_sync=None, since_heard=None, error=None)
    assert dict(answer.sources) == {"watch": nothing, "poll": nothing}


def test_an_answer_cannot_be_changed() -> None:
    answer: Any = fleet_status("app", "default", ledger=Ledger(), profiles={}, sources={}, now=20.0, stopping=False)
    for mapping in (answer.profiles, answer.sources):
        with pytest.raises(TypeError):
            mapping["default"] = None


def test_before_anything_came_there_are_no_ages() -> None:
    assert status(word(None, None, AWAY), now=20.0) == SourceStatus(
        synced=False, since_full_sync=None, since_heard=None, error="no route"
    )


def test_a_source_without_touch_is_not_synced_however_fresh_its_last_sync() -> None:
    assert not status(word(20.0, 20.0, AWAY), now=20.0).synced


def test_what_a_source_had_before_it_crashed_still_counts_and_it_is_not_synced_until_it_lists() -> None:
    before, crashed, listing = word(10.0, 14.0), word(10.0, 14.0, AWAY), word(None, 19.0, AWAY)
    assert status(before, crashed, listing, now=20.0) == SourceStatus(
        synced=False, since_full_sync=timedelta(seconds=10), since_heard=timedelta(seconds=1), error="no route"
    )
    assert status(before, crashed, listing, word(18.0, 20.0), now=20.0).synced
