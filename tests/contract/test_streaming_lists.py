"""`PodApi.watch` with initial events: a list and a watch in one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.errors import BadRequest, Cancelled, Gone
from tests.contract.asking import WATCH, Asking, manifest
from tests.contract.test_reading import aged

if TYPE_CHECKING:
    from tests.contract.clusters import Cluster


@pytest.mark.parametrize("version", ["", "0"])
def test_what_there_is_comes_first_as_added_then_the_mark_then_changes(api: Asking, version: str) -> None:
    made = [api.created(manifest(name)) for name in ("a", "b", "c")]
    caught_up = api.watch("", "", initial=True)  # waits for the server's cache; "0" takes it as it is
    caught_up.initial()
    caught_up.call.cancel()
    watching = api.watch("", version, initial=True)
    told, at = watching.initial()
    assert sorted(told, key=lambda each: each[1].name) == [("ADDED", pod) for pod in made]
    assert int(at) >= int(made[-1].resource_version)
    later = api.created(manifest("d"))
    assert watching.event() == ("ADDED", later)
    patched = api.patch("a", {"metadata": {"labels": {"x": "y"}}})
    assert watching.event() == ("MODIFIED", patched)
    watching.call.cancel()


def test_nothing_there_is_the_mark_alone(api: Asking) -> None:
    watching = api.watch("", "", initial=True)
    told, at = watching.initial()
    assert told == []
    assert int(at) > 0
    created = api.created(manifest("a"))
    assert watching.event() == ("ADDED", created)
    watching.call.cancel()


def test_a_selector_chooses_what_is_delivered(api: Asking) -> None:
    seen = api.created(manifest("a", {"app": "x"}))
    api.created(manifest("b", {"app": "y"}))
    watching = api.watch("app=x", "", initial=True)
    assert watching.initial()[0] == [("ADDED", seen)]
    api.created(manifest("c", {"app": "y"}))
    later = api.created(manifest("d", {"app": "x"}))
    assert watching.event() == ("ADDED", later)
    watching.call.cancel()


def test_no_version_shows_what_a_list_would_show(api: Asking) -> None:
    for name in ("a", "b"):
        api.created(manifest(name))
    api.patch("a", {"metadata": {"labels": {"x": "y"}}})
    api.delete("b")
    watching = api.watch("", "", initial=True)
    told, at = watching.initial()
    watching.call.cancel()
    page = api.listed()
    assert [pod for _, pod in told] == list(page.pods)
    assert int(at) <= int(page.resource_version)


def test_a_version_is_the_least_that_is_shown(api: Asking) -> None:
    old = api.created(manifest("a"))
    newest = api.created(manifest("b"))
    watching = api.watch("", old.resource_version, initial=True)
    told, at = watching.initial()
    watching.call.cancel()
    assert {pod.name for _, pod in told} == {"a", "b"}
    assert int(at) >= int(newest.resource_version)


def test_a_version_from_outside_of_the_window_is_no_trouble(cluster: Cluster, api: Asking) -> None:
    pod = api.created(manifest("a"))
    watching = api.watch("", cluster.version_outside_the_window(), initial=True)
    assert watching.initial()[0] == [("ADDED", pod)]
    watching.call.cancel()


def test_a_later_bookmark_does_not_carry_the_mark(cluster: Cluster, api: Asking) -> None:
    watching = api.watch("app=x", "", timeout=WATCH, initial=True)
    watching.initial()
    api.created(manifest("seen", {"app": "x"}))
    watching.event()
    api.created(manifest("unseen"))
    cluster.bookmark()
    assert not watching.marked()
    watching.call.cancel()


def test_a_watch_without_initial_events_has_no_mark(cluster: Cluster, api: Asking) -> None:
    watching = api.watch("app=x", api.listed().resource_version, timeout=WATCH)
    api.created(manifest("seen", {"app": "x"}))
    watching.event()
    api.created(manifest("unseen"))
    cluster.bookmark()
    assert not watching.marked()
    watching.call.cancel()


def test_a_stream_can_be_resumed_from_its_mark(api: Asking) -> None:
    api.created(manifest("a"))
    first = api.watch("", "", initial=True)
    _, at = first.initial()
    first.call.cancel()
    later = api.created(manifest("b"))
    second = api.watch("", at)
    assert second.event() == ("ADDED", later)
    second.call.cancel()


def test_a_broken_selector_ends_it_with_a_bad_request(api: Asking) -> None:
    assert type(api.watch("a in b", "", initial=True).end()) is BadRequest


def test_it_can_be_cancelled_before_its_mark_and_after_it(api: Asking) -> None:
    for wait in (False, True):
        watching = api.watch("", "", initial=True)
        if wait:
            watching.initial()
        watching.call.cancel()
        assert type(watching.end()) is Cancelled


def test_a_page_that_is_asked_for_too_late_is_gone(cluster: Cluster, api: Asking) -> None:
    for name in ("a", "b"):
        api.created(manifest(name))
    token = api.listed(limit=1).continue_token
    error = api.list(limit=1, continue_token=aged(token, cluster.version_outside_the_window()))
    assert type(error) is Gone
    assert (error.status, error.reason) == (410, "Expired")
