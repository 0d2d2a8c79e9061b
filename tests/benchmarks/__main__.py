"""`python -m tests.benchmarks [NAME …]`: run the cases, print the tables, write the figures and a plot.

Each measurement is a process of its own, with a server of its own. They take turns, because a shared machine changes
from minute to minute. So compare within a run, by ratios.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from tests.benchmarks.cases import CASES
from tests.benchmarks.must import summary
from tests.benchmarks.plot import cost_per_event
from tests.benchmarks.profiling import PROFILE, profile
from tests.benchmarks.table import Result, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.benchmarks.cases import Case, Run

SAFETY_SECONDS: Final = 900.0
"""After this long a measurement has failed; none takes half of it."""

WIDTH: Final = 170
"""Characters of a line: enough for the headings of the widest table."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of a case: {', '.join(CASES)}; by default all; or {PROFILE}"
    )
    parser.add_argument(
        "--must", action="store_true", help="only what the promises need: ten minutes a turn; five turns, or --repeats"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, once: shows that all of it works")
    parser.add_argument("--repeats", type=int, help="measurements of each, in place of the case's own number")
    parser.add_argument("--events", type=int, help="of the long stream of the case growth, in place of 10 million")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--plot", type=Path, help="write a plot (SVG) of the cost of an event by fleet size here")
    given = parser.parse_args(arguments)
    console = Console(width=WIDTH)
    if given.names == [PROFILE]:
        console.print(profile(quick=given.quick))
        return
    unknown = [name for name in given.names if name not in CASES]
    if unknown:
        parser.error(f"no case is named {', '.join(unknown)}")
    results = [
        Result(name, run.who, run.label, _values(name, run, given.events), [])
        for name in given.names or CASES
        for run in _runs(CASES[name], quick=given.quick, must=given.must)
    ]
    for _ in _turns(results, given.repeats or (1 if given.quick else None), console):
        if given.json is not None:
            given.json.write_text(json.dumps(_record(results, quick=given.quick), indent=1) + "\n")
    for name, group in groupby(results, key=lambda result: result.case):
        console.print(shown(CASES[name], list(group)))
    if not given.names:
        console.print(summary(results))
    if given.plot is not None:
        given.plot.write_text(cost_per_event([result for result in results if result.case == "events"]))


def _runs(case: Case, *, quick: bool, must: bool) -> Iterator[Run]:
    return (run for run in (case.quick if quick else case.runs) if run.must or not must)


def _values(name: str, run: Run, events: int | None) -> dict[str, Any]:
    return run.values | ({"events": events} if name == "growth" and events is not None else {})


def _turns(results: Sequence[Result], repeats: int | None, console: Console) -> Iterator[Result]:
    """Run the measurements in turns, and yield each result whenever it has one more."""
    repeated = {name: repeats or CASES[name].repeats for name in CASES}
    for turn in range(max((repeated[result.case] for result in results), default=0)):
        for result in results:
            if turn < repeated[result.case]:
                with console.status(f"{result.case}: {result.who}, {result.label} ({turn + 1})"):
                    _measure(result)
                yield result


def _measure(result: Result) -> None:
    """Measure in a process of its own."""
    module = CASES[result.case].module
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.worker", module, result.who, json.dumps(result.values)],
            capture_output=True,
            text=True,
            timeout=SAFETY_SECONDS,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        lines = error.stderr.strip().splitlines()
        result.lacks = lines[-1] if lines else str(error)
    except subprocess.TimeoutExpired:
        result.lacks = f"took more than {SAFETY_SECONDS:g} s"
    else:
        result.figures.append(json.loads(done.stdout.splitlines()[-1]))
        return
    print(f"{result.case}: {result.who}, {result.label}: {result.lacks}", file=sys.stderr)


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
