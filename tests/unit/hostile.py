"""Text as a hostile pod, webhook or lease may have it."""

from __future__ import annotations

from typing import Final

ACTS: Final = (
    *"\x00\x07\x08\t\n\x0b\x0c\r\x1b\x7f\x85\x9b\x9d",
    *"\u00ad\u061c\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069\ufeff\U000e0041",
    "\x1b[2J",
    "\x1b]0;owned\x07",
    "[/]",
    "[bold red]",
    "[/bin/sh -c foo]",
    "\\n",
    "%s",
    "{0}",
)
"""Control characters of both sets, bidi marks, line separators, invisible letters; what terminals obey; markup
of rich, and what formatting would obey."""

HOSTILE: Final = "failed to run [/bin/sh -c foo]: " + "".join(ACTS) + "\nERROR root: forged " + "x" * 400_000
