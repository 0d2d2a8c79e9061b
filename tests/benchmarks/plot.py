"""The cost of an event by the fleet's size, as an SVG: both axes logarithmic, one line for each contestant."""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.table import Result

__all__ = ["cost_per_event"]

FIGURE: Final = "cpu µs/event"
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 150, 40, 50
COLOURS: Final = ("#1769aa", "#b3541e", "#5b7f2b", "#7a4b94", "#8a8a8a", "#444444")


def cost_per_event(results: Sequence[Result]) -> str:
    """The picture; an empty one if nothing was measured."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for result in results:
        if result.figures:
            lines.setdefault(result.who, []).append((result.values["pods"], result.median(FIGURE)))
    points = [point for line in lines.values() for point in line]
    if not points:
        return _svg([])
    sizes = sorted({size for size, _ in points})
    lowest = 10 ** math.floor(math.log10(min(cost for _, cost in points)))
    highest = 10 ** math.ceil(math.log10(max(cost for _, cost in points)))

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(size, sizes[0], sizes[-1])

    def y(cost: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(cost, lowest, highest)

    drawn = [_text(LEFT, 20, "Processor time for one watch event, by the number of pods watched", size=15)]
    decades = round(math.log10(highest / lowest))
    for cost in (lowest * 10**decade for decade in range(decades + 1)):
        drawn.append(_line(LEFT, y(cost), WIDTH - RIGHT, y(cost), "#dddddd"))
        drawn.append(_text(LEFT - 8, y(cost) + 4, f"{cost:g} µs", anchor="end"))
    for size in sizes:
        drawn.append(_line(x(size), TOP, x(size), HEIGHT - BOTTOM, "#eeeeee"))
        drawn.append(_text(x(size), HEIGHT - BOTTOM + 20, f"{size:,}", anchor="middle"))
    for (who, line), colour in zip(lines.items(), COLOURS * len(lines), strict=False):
        path = " ".join(f"{x(size):.1f},{y(cost):.1f}" for size, cost in sorted(line))
        width = 3 if who == "ours" else 1.5
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        drawn += [f'<circle cx="{x(size):.1f}" cy="{y(cost):.1f}" r="3" fill="{colour}"/>' for size, cost in line]
        size, cost = max(line)
        drawn.append(_text(x(size) + 8, y(cost) + 4, f"{who}: {cost:.3g} µs", colour=colour))
    return _svg(drawn)


def _share(value: float, lowest: float, highest: float) -> float:
    return math.log(value / lowest) / math.log(highest / lowest) if highest > lowest else 0.5


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", colour: str = "#222222", size: int = 12) -> str:
    style = f'text-anchor="{anchor}" fill="{colour}" font-size="{size}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'


def _svg(drawn: Sequence[str]) -> str:
    inner = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>\n{inner}\n</svg>\n'
    )
