"""`View`: which executors the table shows and in which order, as the keys chose. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, final

from actors.cli.live.fleet import STATES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from actors.cli.live.fleet import Row

__all__ = ["HELP", "Act", "View"]

Act = Literal["stop"]

_ORDERS: Final[dict[str, Callable[[Row], Any]]] = {
    "state": lambda row: (STATES.index(row.state), row.executor_id),
    "id": lambda row: row.executor_id,
    "for": lambda row: (row.since, row.executor_id),
    "profile": lambda row: (row.profile, row.executor_id),
    "node": lambda row: (row.node, row.executor_id),
    "restarts": lambda row: (-row.restarts, row.executor_id),
}
"""The columns to sort by; the first one shows what is wrong first."""

_LONGEST_FILTER: Final = 60

HELP: Final = (
    "s      sort by the next column; r reverses the order",
    "/      show only executors with these words in any column; Enter keeps the filter, Esc clears it",
    "↑ ↓    scroll, also j k, PgUp PgDn, Home End",
    "q      stop the fleet and delete its executors; Ctrl-C does so without asking",
    "       a standby driver stops alone: the executors are another driver's, and stay",
    "Ctrl-Z suspend; `fg` continues",
)


@final
class View:
    """What the keys chose."""

    def __init__(self) -> None:
        self.order = "state"
        self.reverse = False
        self.filter = ""
        self.typing = False
        """The keys write the filter."""
        self.asking = False
        """The next key says whether to stop the fleet."""
        self.help = False
        self.offset = 0
        """How many rows are scrolled away."""
        self.page = 10
        """How many rows the last screen had room for."""

    def press(self, key: str) -> Act | None:
        """Take in a key, by its name or character. Return what it asks for beyond the view."""
        if self.asking:
            self.asking = False
            return "stop" if key in {"q", "y", "enter"} else None
        if self.help:
            self.help = False
        elif self.typing:
            self._type(key)
        else:
            self._choose(key)
        return None

    def _type(self, key: str) -> None:
        self.offset = 0
        match key:
            case "enter":
                self.typing = False
            case "escape":
                self.typing, self.filter = False, ""
            case "backspace":
                self.filter = self.filter[:-1]
            case _ if len(key) == 1 and len(self.filter) < _LONGEST_FILTER:
                self.filter += key
            case _:
                pass

    def _choose(self, key: str) -> None:
        match key:
            case "s":
                orders = list(_ORDERS)
                self.order = orders[(orders.index(self.order) + 1) % len(orders)]
                self.offset = 0
            case "r":
                self.reverse = not self.reverse
            case "/":
                self.typing = True
            case "escape":
                self.filter = ""
            case "?" | "h":
                self.help = True
            case "q":
                self.asking = True
            case _:
                self.offset += {
                    "up": -1, "k": -1, "down": 1, "j": 1, "pageup": -self.page, "pagedown": self.page, " ": self.page,
                    "home": -self.offset, "end": 1_000_000,
                }.get(key, 0)  # fmt: skip

    def rows(self, rows: Iterable[Row]) -> list[Row]:
        """Return the executors that the filter lets through, in order."""
        words = self.filter.lower().split()
        found = [row for row in rows if not words or _has(row, words)]
        return sorted(found, key=_ORDERS[self.order], reverse=self.reverse)

    def scroll(self, count: int, room: int) -> int:
        """Return the first row to show of so many, and keep to that from now on."""
        self.page = max(1, room - 1)
        self.offset = max(0, min(self.offset, count - room))
        return self.offset


def _has(row: Row, words: list[str]) -> bool:
    text = f"{row.executor_id} {row.profile} {row.state} {row.pod} {row.node} {row.ip} {row.reason}".lower()
    return all(word in text for word in words)
