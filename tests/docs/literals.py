"""The texts that the library can print, and the names that it defines, read from its source."""

from __future__ import annotations

import ast
import re
from functools import cache
from typing import TYPE_CHECKING

from tests.docs.pages import ROOT
from tests.import_graph import tree

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOLE = "…"
_LEVELS = frozenset({"DEBUG", "INFO", "WARNING", "ERROR"})
_PERCENT = re.compile(r"%[-.\d]*[sdrgfx]")


class Literals:
    """All of `actors/`, docstrings left out."""

    def __init__(self) -> None:
        nodes = [node for path in (ROOT / "actors").rglob("*.py") for node in ast.walk(tree(path))]
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        self._texts = {text for node in nodes if node not in docstrings and (text := _text(node)) is not None}
        self._logged = [line for node in nodes if isinstance(node, ast.FunctionDef) for line in _log_lines(node)]
        self._joined = "\0".join(self._texts)
        self._names = {
            node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        }

    def would_print(self, line: str) -> bool:
        """Return whether the library can print this line, in which `…` stands for anything."""
        return all(map(self._has, line.split(_HOLE))) or any(_fits(text, line) for text in self._texts)

    def _has(self, piece: str) -> bool:
        """Return whether the piece is in one text, or put together of two."""
        words = piece.split()
        halves = [(" ".join(words[:at]), " ".join(words[at:])) for at in range(len(words) or 1)]
        return any(all(half.strip(" :,") in self._joined for half in both) for both in halves)

    def would_log(self, levels: set[str], beginning: str) -> bool:
        """Return whether a line of the log begins so, and can have each of these levels and no other."""
        return any(line.startswith(beginning) and found == levels for found, line in self._logged)

    def defines(self, name: str) -> bool:
        """Return whether there is a class or function of this name."""
        return name in self._names


def _fits(text: str, line: str) -> bool:
    """Return whether the line is the text with its holes filled, most of it not being holes."""
    pieces = text.split(_HOLE)
    whole = re.fullmatch(".*".join(map(re.escape, pieces)), line)
    return whole is not None and sum(map(len, pieces)) >= len(line) / 2


def _log_lines(function: ast.FunctionDef) -> Iterator[tuple[set[str], str]]:
    """Yield the lines of the log that a function has, each with the levels that it may have."""
    nodes = list(ast.walk(function))
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)}
    for node in nodes:
        match node:
            case ast.Call(ast.Attribute(ast.Name("logger"), "log"), [_, ast.Constant(value=str(line)), *_]):
                yield named & _LEVELS, line
            case ast.Call(ast.Attribute(ast.Name("logger"), level), [ast.Constant(value=str(line)), *_]):
                yield {level.upper()}, line
            case _:
                pass


def _text(node: ast.AST) -> str | None:
    """Return a string with a hole for each variable part, None for anything else."""
    match node:
        case ast.Constant(value=str(text)):
            return _PERCENT.sub(_HOLE, text)
        case ast.JoinedStr(values=values):
            return "".join(_text(value) or _HOLE for value in values)
        case _:
            return None


@cache
def literals() -> Literals:
    """Return those of this checkout."""
    return Literals()
