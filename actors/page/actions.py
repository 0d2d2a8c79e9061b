"""What an operator may do through the page, if the driver gave it a token: requests as messages to the Backend. Pure.

Each request is a POST with a JSON object, whose fields are those of the message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from actors.messages import HoldFleet, KillExecutors, ResumeFleet, RetireExecutors, ScaleExecutors
from actors.settings.durations import parse_grace
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import timedelta

    from actors.messages import Question

__all__ = ["ACTIONS", "WrongActionError", "read_action"]


class WrongActionError(ValueError):
    """A request that is no action; the message says what is allowed."""


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON object of a request."""


class _Scale(_Body):
    targets: int | dict[str, int]
    victims: Literal["newest", "oldest", "idle"] = "newest"
    grace: str | None = None

    def message(self) -> Question[Any]:
        return ScaleExecutors(self.targets, self.victims, _duration("grace", self.grace))


class _Retire(_Body):
    ids: list[int]
    deadline: str | None = None
    adjust_target: bool = False

    def message(self) -> Question[Any]:
        return RetireExecutors(tuple(self.ids), _duration("deadline", self.deadline), self.adjust_target)


class _Kill(_Body):
    ids: list[int]
    grace: str | None = None
    adjust_target: bool = False

    def message(self) -> Question[Any]:
        return KillExecutors(tuple(self.ids), self.adjust_target, _duration("grace", self.grace))


class _Hold(_Body):
    deadline: str | None = None

    def message(self) -> Question[Any]:
        return HoldFleet(_duration("deadline", self.deadline))


class _Resume(_Body):
    def message(self) -> Question[Any]:
        return ResumeFleet()


ACTIONS: Final[Mapping[str, type[_Scale | _Retire | _Kill | _Hold | _Resume]]] = {
    "scale": _Scale,
    "retire": _Retire,
    "kill": _Kill,
    "hold": _Hold,
    "resume": _Resume,
}
"""By the last part of their path."""


def read_action(name: str, body: bytes) -> Question[Any]:
    """Return the message of a request. The Backend checks its values.

    Raises:
        WrongActionError: the body is no such JSON object.
    """
    try:
        return msgspec.json.decode(body or b"{}", type=ACTIONS[name]).message()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WrongActionError(f"{name}: {one_line(str(error))}") from None


def _duration(field: str, text: str | None) -> timedelta | None:
    if text is None:
        return None
    try:
        return parse_grace(text)
    except ValueError as error:
        raise WrongActionError(f"{field} = {one_line(text, 60)!r} {error}") from None
