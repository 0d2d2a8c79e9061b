"""`python -m tests.benchmarks [NAME …]`: runs the cases, shows the table, keeps the figures and a plot.

Each measurement is a process of its own, with a server of its own; who is compared with whom takes turns, because a
machine that others use is not the same from one minute to the next. So compare within a run, by ratios.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from tests.benchmarks.cases import CASES
from tests.benchmarks.plot import cost_per_event
from tests.benchmarks.table import Result, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.benchmarks.cases import Case, Run

SAFETY_SECONDS: Final = 900.0
"""Until a measurement that hangs is given up; none takes half of it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Take the arguments."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of a case: {', '.join(CASES)}; by default all")
    parser.add_argument("--quick", action="store_true", help="small sizes, once: shows that all of it works")
    parser.add_argument("--repeats", type=int, help="measurements of each, in place of the case's own number")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--plot", type=Path, help="write a plot (SVG) of the cost of an event by fleet size here")
    given = parser.parse_args(arguments)
    unknown = [name for name in given.names if name not in CASES]
    if unknown:
        parser.error(f"no case is named {', '.join(unknown)}")
    console, results = Console(width=150), []
    for name in given.names or CASES:
        case = CASES[name]
        found = measured(name, case, quick=given.quick, repeats=given.repeats, console=console)
        console.print(shown(case, found))
        results += found
        if given.json is not None:
            given.json.write_text(json.dumps(_record(results, quick=given.quick), indent=1) + "\n")
    if given.plot is not None:
        given.plot.write_text(cost_per_event([result for result in results if result.case == "events"]))


def measured(name: str, case: Case, *, quick: bool, repeats: int | None, console: Console) -> list[Result]:
    """All runs of a case, round by round."""
    runs = case.quick if quick else case.runs
    results = [Result(name, run.who, run.label, run.values, []) for run in runs]
    for turn in range(repeats or (1 if quick else case.repeats)):
        for run, result in zip(runs, results, strict=True):
            with console.status(f"{name}: {run.who}, {run.label} ({turn + 1})"):
                figures = _measure(case, run)
            if figures is not None:
                result.figures.append(figures)
    return results


def _measure(case: Case, run: Run) -> dict[str, float] | None:
    """In a process of its own; None if it failed, for which it has said why."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.worker", case.module, run.who, json.dumps(run.values)],
            capture_output=True,
            text=True,
            timeout=SAFETY_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        print(f"{case.title}: {run.who}, {run.label}: {lines[-1] if lines else error}", file=sys.stderr)
        return None
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _record(results: Sequence[Result], *, quick: bool) -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "quick": quick,
        "results": [result.as_json() for result in results],
    }


if __name__ == "__main__":
    main()
