"""Text in cells of a terminal: a wide character takes two, a combining one none. Pure."""

from __future__ import annotations

from typing import Final

from actors.errors import needs_extra
from actors.text import LONGEST_LINE, one_line

with needs_extra("cli", "the command"):
    from rich.cells import cell_len


__all__ = ["Shown"]

_CHARACTERS: Final = 4
"""Characters a cell can take at most, so that a thousand accents do not climb over other lines."""


class Shown:
    """Makes text from outside into text that a terminal shows in as many cells as are counted.

    Args:
        encoding: of the terminal. A character that it lacks becomes its escape before it is measured.
    """

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self.cut = "…" if self("…") == "…" else "~"
        """The end of a text that does not fit."""

    def __call__(self, text: str | None, limit: int = LONGEST_LINE) -> str:
        """Return the text on one line. It is not changed by a second call."""
        line = one_line(text or "", limit)
        return line if line.isascii() else line.encode(self._encoding, "backslashreplace").decode(self._encoding)

    def fit(self, text: str, width: int, *, right: bool = False, tail: bool = False) -> str:
        """Return the text in exactly so many cells, cut or padded; of a pod's name, the `tail` tells most."""
        if cell_len(text) > width or len(text) > _CHARACTERS * width:
            text = self._shorten(text, width, tail=tail)
        padding = " " * (width - cell_len(text))
        return padding + text if right else text + padding

    def _shorten(self, text: str, width: int, *, tail: bool) -> str:
        if width < 1:
            return ""
        kept = text[-width:] if tail else text[:width]
        while cell_len(kept) > width - 1:
            kept = kept[1:] if tail else kept[:-1]
        return self.cut + kept if tail else kept + self.cut

    def wrap(self, text: str, width: int, lines: int) -> list[str]:
        """Return the text on at most so many lines, broken at spaces where there are some; the last one is cut."""
        found: list[str] = []
        width = max(width, 1)
        while text and len(found) < lines - 1 and cell_len(text) > width:
            piece = text[:width]
            while cell_len(piece) > width:
                piece = piece[:-1]
            space = piece.rfind(" ")
            if space > width // 2:
                piece = piece[:space]
            piece = piece or text[0]
            found.append(piece)
            text = text[len(piece) :].lstrip(" ")
        return [*found, self.fit(text, width).rstrip()] if text else found
