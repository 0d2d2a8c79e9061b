"""`one_line`: a text from outside on one line, with every character that acts escaped, and of bounded length. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["CUT", "LONGEST_TEXT", "one_line"]

LONGEST_TEXT: Final = 2_000
"""Characters of one text from outside. A termination message has at most 4,096 bytes, a webhook's refusal no limit."""

CUT: Final = "..."
"""The end of a text that was shortened; ASCII, because a log file may be."""


def one_line(text: str, limit: int = LONGEST_TEXT) -> str:
    """Return the text with every character escaped that `repr` escapes, shortened to `limit` characters.

    These are control characters, bidi and other invisible marks, line separators, surrogates, and spaces other than
    the ordinary one. A text that is returned is not changed by a second call.
    """
    if text.isprintable() and len(text) <= limit:
        return text
    escaped = "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in text[: limit + 1]
    )
    return escaped if len(escaped) <= limit else escaped[: limit - len(CUT)] + CUT
