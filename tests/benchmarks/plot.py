"""The cost of an event by fleet size, as an SVG: both axes logarithmic, one line for each contestant.

The picture has its own background and colours for dark pages, so a README can show it. Each line is labelled at
its end.
"""

from __future__ import annotations

import math
from html import escape
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.benchmarks.table import Result

__all__ = ["cost_per_event"]

FIGURE: Final = "cpu µs/event"
WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 74, 190, 52, 62
LABEL: Final = 17
"""Height of a label, and so the least distance of two."""
COLOURS: Final = 6

STYLE: Final = """\
svg { font: 13px system-ui, sans-serif }
.ground { fill: #ffffff } text { fill: #1f2328 } .title { font-size: 16px; font-weight: 600 }
.grid { stroke: #d8dee4 } .lead { stroke: #8c959f; stroke-width: 1 }
polyline { fill: none; stroke-width: 1.8 } .ours polyline { stroke-width: 3.5 } .ours text { font-weight: 700 }
.c0 { --c: #0550ae } .c1 { --c: #bc4c00 } .c2 { --c: #1a7f37 }
.c3 { --c: #8250df } .c4 { --c: #bf3989 } .c5 { --c: #6e7781 }
g polyline { stroke: var(--c) } g circle, g text { fill: var(--c) }
@media (prefers-color-scheme: dark) {
.ground { fill: #0d1117 } text { fill: #e6edf3 } .grid { stroke: #30363d } .lead { stroke: #6e7681 }
.c0 { --c: #79c0ff } .c1 { --c: #ffa657 } .c2 { --c: #56d364 }
.c3 { --c: #d2a8ff } .c4 { --c: #ff9bce } .c5 { --c: #8b949e }
}"""

Line = dict[int, float]
"""Pods → µs."""


def cost_per_event(results: Sequence[Result]) -> str:
    """Return the picture; an empty one if nothing was measured."""
    lines: dict[str, Line] = {}
    for result in results:
        if result.figures:
            lines.setdefault(result.who, {})[int(result.values["pods"])] = result.median(FIGURE)
    if not lines:
        return _svg([])
    costs = [cost for line in lines.values() for cost in line.values()]
    sizes = sorted({size for line in lines.values() for size in line})
    lowest, highest = 10 ** math.floor(math.log10(min(costs))), 10 ** math.ceil(math.log10(max(costs)))

    def x(size: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * _share(size, sizes[0], sizes[-1])

    def y(cost: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * _share(cost, lowest, highest)

    drawn = [_text(LEFT, 26, "Processor time for one watch event, by the size of the fleet", name="title")]
    for decade in range(round(math.log10(highest / lowest)) + 1):
        cost = lowest * 10**decade
        drawn.append(_line(LEFT, y(cost), WIDTH - RIGHT, y(cost), "grid"))
        drawn.append(_text(LEFT - 8, y(cost) + 4, f"{cost:g} µs", anchor="end"))
    for size in sizes:
        drawn.append(_line(x(size), TOP, x(size), HEIGHT - BOTTOM, "grid"))
        drawn.append(_text(x(size), HEIGHT - BOTTOM + 20, f"{size:,}", anchor="middle"))
    drawn.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 14, "pods in the fleet that is watched", anchor="middle"))
    labels = _spread({who: y(line[max(line)]) for who, line in lines.items()}, HEIGHT - BOTTOM)
    for number, (who, line) in enumerate(lines.items()):
        path = [(x(size), y(cost)) for size, cost in sorted(line.items())]
        end, height = path[-1], labels[who]
        drawn.append(f'<g class="c{number % COLOURS}{" ours" if who == "ours" else ""}">')
        drawn.append(_line(end[0], end[1], WIDTH - RIGHT + 12, height, "lead"))
        drawn.append(f'<polyline points="{" ".join(f"{across:.1f},{down:.1f}" for across, down in path)}"/>')
        drawn += [f'<circle cx="{across:.1f}" cy="{down:.1f}" r="3.5"/>' for across, down in path]
        drawn.append(_text(WIDTH - RIGHT + 16, height + 4, f"{who}: {line[max(line)]:.3g} µs"))
        drawn.append("</g>")
    return _svg(drawn)


def _spread(heights: Mapping[str, float], lowest: float) -> dict[str, float]:
    """Return the labels' heights, each as near to its line as the next one allows, none below `lowest`."""
    spread: dict[str, float] = {}
    for who, height in sorted(heights.items(), key=lambda item: -item[1]):
        lowest = spread[who] = min(height, lowest)
        lowest -= LABEL
    return spread


def _share(value: float, lowest: float, highest: float) -> float:
    return math.log(value / lowest) / math.log(highest / lowest) if highest > lowest else 0.5


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> str:
    return f'<line class="{name}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def _text(x: float, y: float, words: str, *, anchor: str = "start", name: str = "") -> str:
    named = f' class="{name}"' if name else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'


def _svg(drawn: Sequence[str]) -> str:
    inner = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">\n'
        f"<style>\n{STYLE}\n</style>\n"
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="6"/>\n{inner}\n</svg>\n'
    )
