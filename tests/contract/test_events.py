"""Kubernetes Events as the EventRecorder writes them, through `PodApi`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from actors.errors import AlreadyExists, Invalid, NotFound
from actors.kube import EVENTS
from actors.recorder.book import EventBook, Series
from actors.recorder.event import event_name, first_event, next_event
from actors.recorder.occurrences import Occurrence

if TYPE_CHECKING:
    from tests.contract.asking import Asking

BEGIN = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
POD = {"apiVersion": "v1", "kind": "Pod", "name": "driver-0", "uid": "1234"}
NAME = event_name("driver-0", "a1")


def series(*texts: str) -> Series:
    book = EventBook()
    for number, text in enumerate(texts):
        book.note(Occurrence("ExecutorLost", text), BEGIN + timedelta(minutes=number))
    found = book.next()
    assert found is not None
    return found


def event(api: Asking, *texts: str, name: str = NAME) -> dict[str, Any]:
    made = first_event(series(*texts), POD, name=name, namespace=api.api.namespace, app_id="app", instance="driver-0_a")
    return dict(made)


def test_an_event_is_kept_as_it_was_sent(api: Asking) -> None:
    sent = event(api, "first")
    created = api.create_object(EVENTS, sent)
    assert {key: created[key] for key in sent if key != "metadata"} == {
        k: v for k, v in sent.items() if k != "metadata"
    }
    assert created["metadata"]["labels"] == sent["metadata"]["labels"]


def test_an_event_that_occurs_again_has_its_count_and_its_last_words(api: Asking) -> None:
    api.create_object(EVENTS, event(api, "first"))
    changed = api.patch_object(EVENTS, NAME, dict(next_event(series("first", "second", "third"))))
    assert (changed["count"], changed["message"]) == (3, "third")
    assert (changed["firstTimestamp"], changed["lastTimestamp"]) == ("2026-01-02T03:04:05Z", "2026-01-02T03:06:05Z")


def test_a_message_of_the_greatest_length_is_accepted(api: Asking) -> None:
    created = api.create_object(EVENTS, event(api, "é" * 5000))
    assert len(created["message"].encode()) in {1023, 1024}


def test_an_event_that_was_created_before_already_exists(api: Asking) -> None:
    api.create_object(EVENTS, event(api, "first"))
    assert type(api.create_object(EVENTS, event(api, "first"))) is AlreadyExists


def test_an_event_that_is_gone_is_not_found(api: Asking) -> None:
    assert type(api.patch_object(EVENTS, NAME, dict(next_event(series("first"))))) is NotFound


def test_an_event_about_an_object_of_another_namespace_is_invalid(api: Asking) -> None:
    wrong = event(api, "first")
    wrong["involvedObject"] = {**wrong["involvedObject"], "namespace": "elsewhere"}
    error = api.create_object(EVENTS, wrong)
    assert type(error) is Invalid
    assert [field for field, _ in error.causes] == ["involvedObject.namespace"]


def test_the_longest_name_of_a_pod_makes_a_valid_name(api: Asking) -> None:
    name = event_name("a" * 229 + "-" + "b" * 23, "c" * 16)
    assert api.create_object(EVENTS, event(api, "first", name=name))["metadata"]["name"] == name
