"""Pages that cross together."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import Cancelled, Gone, TooManyRequests
from actors.kube.api import PodPage
from actors.kube.observer.joined_list import JOIN_WITHIN, MOST_NEWS, MOST_PAGES, JoinedList
from actors.testing import ManualClock
from tests.unit.builders import pod

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.errors import ApiError

FIRST = kube.List("a=b", 500, "", "0")


@dataclass
class Pages:
    """A server of pages: keeps what is asked, until the test answers."""

    asked: list[tuple[kube.List, Callable[[Any], None]]] = field(default_factory=list)
    cancelled: list[kube.List] = field(default_factory=list)

    def send(self, request: Any, reply: Callable[[Any], None]) -> Any:
        self.asked.append((request, reply))
        return _Call(self.cancelled, request)

    def answer(self, answer: PodPage | ApiError) -> None:
        _, reply = self.asked[-1]
        reply(answer)

    @property
    def tokens(self) -> list[str]:
        return [request.continue_token for request, _ in self.asked]


@dataclass
class _Call:
    cancelled: list[kube.List]
    request: kube.List

    def cancel(self) -> None:
        self.cancelled.append(self.request)


@dataclass
class World:
    pages: Pages = field(default_factory=Pages)
    clock: ManualClock = field(default_factory=ManualClock)
    answers: list[PodPage | ApiError] = field(default_factory=list)
    lacked: int = 0
    """Of each page."""

    def __post_init__(self) -> None:
        api: Any = self.pages
        self.joined = JoinedList(api, FIRST, self.answers.append, lacked=lambda _: self.lacked, clock=self.clock)
        self.joined.start()

    def names(self) -> list[str]:
        (page,) = self.answers
        assert isinstance(page, PodPage)
        return [each.name for each in page.pods]


@pytest.fixture
def world() -> World:
    return World()


def page(number: int, token: str = "", *, versions: list[str] | None = None) -> PodPage:
    return PodPage((pod(number),), "9", token, 1, versions)


def test_pages_without_news_are_answered_as_one(world: World) -> None:
    for each in (page(1, "t1", versions=["8"]), page(2, "t2"), page(3, versions=["7"])):
        assert world.answers == []
        world.pages.answer(each)
    assert world.names() == ["app-exec-1", "app-exec-2", "app-exec-3"]
    (answer,) = world.answers
    assert isinstance(answer, PodPage)
    assert (answer.resource_version, answer.continue_token, answer.malformed) == ("9", "", 3)
    assert answer.versions == ["8", pod(2).resource_version, "7"]
    assert world.pages.tokens == ["", "t1", "t2"]
    assert [request.resource_version for request, _ in world.pages.asked] == ["0", None, None]


def test_a_page_with_news_is_answered_at_once(world: World) -> None:
    world.lacked = MOST_NEWS + 1
    world.pages.answer(page(1, "t1"))
    (answer,) = world.answers
    assert isinstance(answer, PodPage)
    assert answer.continue_token == "t1"
    assert world.pages.tokens == [""]


def test_news_of_all_pages_count(world: World) -> None:
    world.lacked = MOST_NEWS // 2 + 1
    world.pages.answer(page(1, "t1"))
    world.pages.answer(page(2, "t2"))
    assert world.names() == ["app-exec-1", "app-exec-2"]


def test_not_too_many_pages_are_answered_as_one(world: World) -> None:
    for number in range(1, MOST_PAGES + 1):
        assert world.answers == []
        world.pages.answer(page(number, f"t{number}"))
    assert len(world.names()) == MOST_PAGES
    (answer,) = world.answers
    assert isinstance(answer, PodPage)
    assert answer.pages == MOST_PAGES


def test_a_slow_list_is_answered_page_by_page(world: World) -> None:
    world.clock.move_to(timedelta(seconds=JOIN_WITHIN))
    world.pages.answer(page(1, "t1"))
    assert world.names() == ["app-exec-1"]


@pytest.mark.parametrize("pages", [0, 1])
def test_the_error_of_any_page_is_the_answer(world: World, pages: int) -> None:
    for number in range(pages):
        world.pages.answer(page(number + 1, "t1"))
    world.pages.answer(TooManyRequests("slower", retry_after=timedelta(seconds=30)))
    assert [type(answer) for answer in world.answers] == [TooManyRequests]


def test_an_expired_token_is_the_answer_to_who_began_there(world: World) -> None:
    world.pages.answer(Gone("expired"))
    assert [type(answer) for answer in world.answers] == [Gone]


def test_a_token_that_expires_later_is_left_to_who_continues_there(world: World) -> None:
    world.pages.answer(page(1, "t1"))
    world.pages.answer(Gone("expired"))
    (answer,) = world.answers
    assert isinstance(answer, PodPage)
    assert answer.continue_token == "t1"


@pytest.mark.parametrize("last", [PodPage((), "9", "t2"), PodPage((pod(2),), "9", "t1")], ids=["empty", "itself"])
def test_a_list_that_may_not_end_is_left_to_who_continues(world: World, last: PodPage) -> None:
    world.pages.answer(page(1, "t1"))
    world.pages.answer(last)
    (answer,) = world.answers
    assert isinstance(answer, PodPage)
    assert answer.continue_token == last.continue_token


def test_a_cancelled_list_asks_for_no_more(world: World) -> None:
    world.pages.answer(page(1, "t1"))
    world.joined.cancel()
    assert [request.continue_token for request in world.pages.cancelled] == ["t1"]
    world.pages.answer(page(2, "t2"))
    assert [type(answer) for answer in world.answers] == [Cancelled]
    assert world.pages.tokens == ["", "t1"]


def test_a_page_that_is_answered_before_its_call_is_known_hides_no_later_call() -> None:
    """The answer may come while the request is being sent."""
    world = World()
    send = world.pages.send

    def answered(request: Any, reply: Callable[[Any], None]) -> Any:
        call = send(request, reply)
        if request.continue_token == "t1":
            reply(page(2, "t2"))
        return call

    world.pages.send = answered  # type: ignore[method-assign]  # answers at once
    world.pages.answer(page(1, "t1"))
    world.joined.cancel()
    assert [request.continue_token for request in world.pages.cancelled] == ["t2"]
