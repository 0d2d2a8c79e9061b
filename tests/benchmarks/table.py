"""Tables of figures: median, range, and ratio to ours."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.cases import Case

__all__ = ["Result", "growth", "ratio", "shown"]


@dataclass(slots=True)
class Result:
    """The figures of all measurements of one run."""

    case: str
    who: str
    label: str
    values: dict[str, Any]
    figures: list[dict[str, float]]
    lacks: str = ""
    """Why the last failed measurement failed."""

    def all(self, figure: str) -> list[float]:
        """Return one figure of each measurement."""
        return [figures[figure] for figures in self.figures]

    def median(self, figure: str) -> float:
        """Return the median of a figure."""
        return median(self.all(figure))

    def as_json(self) -> dict[str, Any]:
        """Return the result with its medians."""
        names = self.figures[0] if self.figures else {}
        return asdict(self) | {"medians": {name: self.median(name) for name in names}}


def shown(case: Case, results: Sequence[Result]) -> Table:
    """Return a case as a table; the ratio says how many times better than a contestant we are."""
    measured = [result for result in results if result.figures]
    names = list(measured[0].figures[0]) if measured else []
    compares = bool(case.compares) and len({result.who for result in measured}) > 1
    grows = bool(case.grows) and any(growth(case, result, measured) is not None for result in measured)
    table = Table(title=case.title, title_justify="left")
    more = [*(["ours is"] if compares else []), *([f"{case.grows} grew"] if grows else [])]
    for heading in ("", "", *names, *more):
        table.add_column(heading, justify="right" if heading else "left")
    for result in results:
        if not result.figures:
            table.add_row(result.label, result.who, result.lacks)
            continue
        ratios = [_times(ratio(case, result, measured))] if compares else []
        growths = [_times(growth(case, result, measured))] if grows else []
        table.add_row(result.label, result.who, *(_range(result.all(name)) for name in names), *ratios, *growths)
    return table


def ratio(case: Case, result: Result, results: Sequence[Result]) -> float | None:
    """Return how many times better ours of the same label is; None without one, and for ours."""
    ours = next((other for other in results if (other.who, other.label) == ("ours", result.label)), None)
    if ours is None or result.who == "ours":
        return None
    quotient = ours.median(case.compares) / result.median(case.compares)
    return quotient if case.more_is_better else 1 / quotient


def growth(case: Case, result: Result, results: Sequence[Result]) -> float | None:
    """Return the ratio of the figure to that of the contestant's smallest fleet; None for the smallest."""
    rivals = [other for other in results if other.who == result.who]
    smallest = min(rivals, key=lambda other: int(other.values["pods"]))
    return None if smallest is result else result.median(case.grows) / smallest.median(case.grows)


def _times(quotient: float | None) -> str:
    return f"{quotient:.2f} ×" if quotient is not None else ""


def _range(values: list[float]) -> str:
    middle = _number(median(values))
    return middle if len(values) == 1 else f"{middle} ({_number(min(values))} to {_number(max(values))})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
