"""How the `Freshness` of the sources becomes a status."""

from __future__ import annotations

import dataclasses
import pickle
from datetime import timedelta
from typing import Any

from actors.errors import Unavailable
from actors.executors.ledger import Ledger
from actors.executors.status import fleet_status, joined
from actors.messages import ProfileStatus, SourceStatus
from actors.messages.internal import Freshness, Source

AWAY = Unavailable("no route")


def status(*reports: Freshness, now: float) -> SourceStatus:
    last: Freshness | None = None
    for report in reports:
        last = joined(last, report)
    assert last is not None
    return fleet_status(
        "app", "default", ledger=Ledger(), profiles={}, totals={}, sources={Source.WATCH: last}, now=now, stopping=False
    ).sources["watch"]


def freshness(synced_at: float | None, heard_at: float | None, error: Unavailable | None = None) -> Freshness:
    return Freshness(Source.WATCH, synced_at, error, heard_at)


def test_ages_are_as_of_the_answer() -> None:
    assert status(freshness(10.0, 14.0), now=20.0) == SourceStatus(
        synced=True, since_full_sync=timedelta(seconds=10), since_heard=timedelta(seconds=6), error=None
    )


def test_a_source_that_has_reported_nothing_yet_is_in_the_status() -> None:
    answer = fleet_status(
        "app", "default", ledger=Ledger(), profiles={}, totals={}, sources={}, now=20.0, stopping=False
    )
    nothing = SourceStatus(synced=False, since_full_sync=None, since_heard=None, error=None)
    assert dict(answer.sources) == {"watch": nothing, "poll": nothing}


def test_an_answer_is_plain_data_and_the_askers_own() -> None:
    profiles = {"default": ProfileStatus(target=3)}
    answer: Any = fleet_status(
        "app",
        "default",
        ledger=Ledger(),
        profiles=profiles,
        totals={"default": 4},
        sources={},
        now=20.0,
        stopping=False,
    )
    plain = dataclasses.asdict(answer)
    assert plain["profiles"]["default"]["target"] == 4  # as of now, not as of the last round
    assert plain["sources"]["watch"]["synced"] is False
    assert pickle.loads(pickle.dumps(answer)) == answer
    answer.profiles.clear()
    assert profiles == {"default": ProfileStatus(target=3)}


def test_before_anything_came_there_are_no_ages() -> None:
    assert status(freshness(None, None, AWAY), now=20.0) == SourceStatus(
        synced=False, since_full_sync=None, since_heard=None, error="no route"
    )


def test_a_failing_source_is_not_synced_however_fresh_its_last_sync() -> None:
    assert not status(freshness(20.0, 20.0, AWAY), now=20.0).synced


def test_a_restarted_source_keeps_its_times_and_is_not_synced_until_it_lists() -> None:
    before, crashed, listing = freshness(10.0, 14.0), freshness(10.0, 14.0, AWAY), freshness(None, 19.0, AWAY)
    assert status(before, crashed, listing, now=20.0) == SourceStatus(
        synced=False, since_full_sync=timedelta(seconds=10), since_heard=timedelta(seconds=1), error="no route"
    )
    assert status(before, crashed, listing, freshness(18.0, 20.0), now=20.0).synced
