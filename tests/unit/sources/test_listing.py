"""PagedList: one LIST, page by page."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from actors.errors import Gone, Unavailable
from actors.kube.api import PodPage
from actors.messages.internal import ReplaceSnapshot
from actors.settings import ApiSettings
from actors.sources.listing import MAX_RESTARTS, PAGE_SIZE, PageArrived, PagedList
from actors.testing.manual_api import ManualPodApi
from tests.unit.builders import pod

if TYPE_CHECKING:
    from actors.testing import Kit, Probe

BOUNDS = ApiSettings(max_pages=5, max_pods=6)
EXPIRED = Gone("the continue token is too old", status=410)


class Owner:
    """Passes pages to the list, as the actors do."""

    def __init__(self, kit: Kit) -> None:
        self.api = ManualPodApi()
        self._kit = kit
        self._probe: Probe = kit.probe("owner")
        self.list = PagedList(self.api, "a=b", kit.clock, self._probe.address, bounds=BOUNDS)

    def hand_over(self) -> ReplaceSnapshot | object | None:
        self._kit.settle()
        return self.list.arrived(self._probe.take(PageArrived))

    def answer(self, page: object) -> object:
        self.api.take("list").answer(page)
        return self.hand_over()


@pytest.fixture
def owner(kit: Kit) -> Owner:
    return Owner(kit)


def test_a_list_of_one_page_is_one_call_with_the_selector_and_the_page_size(owner: Owner, kit: Kit) -> None:
    owner.list.start()
    [call] = owner.api.open()
    assert (call.request.selector, call.request.limit) == ("a=b", PAGE_SIZE)
    assert call.request.continue_token == ""
    assert call.request.resource_version is None
    listed = owner.answer(PodPage((pod(1),), "7"))
    assert listed == ReplaceSnapshot((pod(1),), "7", kit.clock.monotonic(), consistent=True)
    assert owner.api.open() == ()


def test_pages_are_put_together_in_order(owner: Owner) -> None:
    owner.list.start()
    assert owner.answer(PodPage((pod(1),), "7", "next")) is None
    assert owner.api.open()[0].request.continue_token == "next"
    listed = owner.answer(PodPage((pod(2),), "7"))
    assert isinstance(listed, ReplaceSnapshot)
    assert listed.pods == (pod(1), pod(2))


def test_a_list_is_dated_by_the_request_of_its_first_page(owner: Owner, kit: Kit) -> None:
    owner.list.start()
    asked_at = kit.clock.monotonic()
    kit.advance(timedelta(seconds=3))
    owner.answer(PodPage((), "7", "next"))
    kit.advance(timedelta(seconds=3))
    listed = owner.answer(PodPage((), "7"))
    assert isinstance(listed, ReplaceSnapshot)
    assert listed.requested_at == asked_at


def test_an_expired_continue_token_starts_the_list_over(owner: Owner, kit: Kit) -> None:
    owner.list.start()
    owner.answer(PodPage((pod(1),), "7", "next"))
    kit.advance(timedelta(seconds=3))
    assert owner.answer(EXPIRED) is None
    assert owner.api.open()[0].request.continue_token == ""
    listed = owner.answer(PodPage((pod(2),), "9"))
    assert listed == ReplaceSnapshot((pod(2),), "9", kit.clock.monotonic(), consistent=True)


def test_a_token_that_expires_after_a_page_without_pods_starts_the_list_over_too(owner: Owner) -> None:
    owner.list.start()
    owner.answer(PodPage((), "7", "next", malformed=500))
    assert owner.answer(EXPIRED) is None
    listed = owner.answer(PodPage((pod(1),), "9"))
    assert isinstance(listed, ReplaceSnapshot)
    assert listed.pods == (pod(1),)


def test_tokens_that_expire_again_and_again_are_reported(owner: Owner) -> None:
    owner.list.start()
    for _ in range(MAX_RESTARTS):
        owner.answer(PodPage((pod(1),), "7", "next"))
        assert owner.answer(EXPIRED) is None
    owner.answer(PodPage((pod(1),), "7", "next"))
    assert owner.answer(EXPIRED) is EXPIRED
    assert owner.api.open() == ()


def test_tokens_that_expired_in_one_list_do_not_count_in_the_next(owner: Owner) -> None:
    for _ in range(2):
        owner.list.start()
        for _ in range(MAX_RESTARTS):
            owner.answer(PodPage((pod(1),), "7", "next"))
            assert owner.answer(EXPIRED) is None
        assert isinstance(owner.answer(PodPage((), "9")), ReplaceSnapshot)


def test_a_first_page_that_is_gone_is_an_error(owner: Owner) -> None:
    owner.list.start()
    assert owner.answer(EXPIRED) is EXPIRED


def test_an_error_on_any_page_is_the_answer_and_the_next_list_starts_from_nothing(owner: Owner) -> None:
    owner.list.start()
    owner.answer(PodPage((pod(1),), "7", "next"))
    error = Unavailable("no answer")
    assert owner.answer(error) is error
    owner.list.start()
    listed = owner.answer(PodPage((pod(2),), "9"))
    assert isinstance(listed, ReplaceSnapshot)
    assert listed.pods == (pod(2),)


def test_starting_again_abandons_what_was_under_way(owner: Owner) -> None:
    owner.list.start()
    late = owner.api.take("list")
    owner.list.start()
    assert late.cancelled
    assert owner.hand_over() is None, "the cancelled page is no answer to the new list"
    assert isinstance(owner.answer(PodPage((), "9")), ReplaceSnapshot)


def test_a_page_that_was_answered_before_its_list_was_abandoned_is_dropped(owner: Owner) -> None:
    owner.list.start()
    owner.api.take("list").answer(PodPage((pod(1),), "7", "next"))
    owner.list.cancel()
    assert owner.hand_over() is None
    assert owner.api.open() == ()


# ── lists without an end ─────────────────────────────────────────────────────────────────────────────────────────────


def error_of(owner: Owner, *pages: PodPage) -> str:
    """How a list ends whose pages these are."""
    owner.list.start()
    for page in pages[:-1]:
        assert owner.answer(page) is None
    error = owner.answer(pages[-1])
    assert isinstance(error, Unavailable)
    assert owner.api.open() == ()
    return error.message


def test_a_list_of_endless_pages_ends_with_the_setting_that_bounds_it(owner: Owner) -> None:
    pages = [PodPage((pod(1),), "7", f"token-{number}") for number in range(BOUNDS.max_pages)]
    assert error_of(owner, *pages) == "the list of pods does not end: it has more than 5 pages (api.max_pages)"


def test_a_list_of_endless_pods_ends_with_the_setting_that_bounds_it(owner: Owner) -> None:
    few, many = tuple(map(pod, range(1, 7))), tuple(map(pod, range(1, 8)))
    owner.list.start()
    assert isinstance(owner.answer(PodPage(few, "7")), ReplaceSnapshot)
    assert "more than 6 pods (api.max_pods)" in error_of(owner, PodPage(many, "7"))
    assert "more than 6 pods (api.max_pods)" in error_of(owner, PodPage(few, "7", "next"), PodPage((pod(7),), "7", "x"))


def test_a_page_that_names_itself_as_the_next_one_ends_the_list(owner: Owner) -> None:
    assert "names itself" in error_of(owner, PodPage((), "7", "same"), PodPage((), "7", "same"))


def test_a_list_of_endless_empty_pages_ends(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.sources.listing.MAX_EMPTY", 3)
    empty = [PodPage((), "7", f"token-{number}") for number in range(3)]
    assert "3 pages in a row were empty" in error_of(owner, PodPage((pod(1),), "7", "a"), *empty)


def test_a_list_after_one_without_an_end_starts_from_nothing(owner: Owner) -> None:
    error_of(owner, *(PodPage((pod(1),), "7", f"token-{number}") for number in range(BOUNDS.max_pages)))
    owner.list.start()
    for number in range(BOUNDS.max_pages - 1):
        assert owner.answer(PodPage((pod(1),), "7", f"token-{number}")) is None
    listed = owner.answer(PodPage((), "7"))
    assert isinstance(listed, ReplaceSnapshot)
    assert len(listed.pods) == BOUNDS.max_pages - 1
