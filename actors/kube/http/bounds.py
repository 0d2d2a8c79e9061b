"""How much of an answer is accepted from the API server, or from what stands between it and us.

A server decides how much it sends, and a small compressed answer may be a very large one. Whatever exceeds a
bound is an error that names the bound and its setting, and its connection is closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MIB", "AnswerBounds"]

MIB: Final = 1024 * 1024


@dataclass(frozen=True)
class AnswerBounds:
    """The bounds of one answer, in bytes after decompression."""

    answer: int = 64 * MIB
    """`api.max_answer_size`: a LIST's page. One of 500 pods has about 3 MiB."""
    one_object: int = 16 * MIB
    """`api.max_object_size`: one object, or one event of a watch. By default etcd accepts objects up to 1.5 MiB and an
    API server requests up to 3 MiB."""
    headers: int = 64 * 1024
    """`api.max_header_size`: the status line and all headers."""
