"""Draw `live-table.svg`: the table of `executor-pods run`, fed with the events of a real run.

    python docs/images/live_table.py > docs/images/live-table.svg

The command writes its events as JSON; this script hands them to the class that draws the table on a terminal.
The file is drawn by hand when the table changes: no test and no build runs this.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from datetime import datetime, timedelta

from rich.console import Console

from actors.cli.events import Event
from actors.cli.live.screen import LiveTable

ARGUMENTS = "run --local --executors 4 --kill-every 5s --for 15s"
KEYS = ("time", "event", "executor_id", "pod", "reason", "message")
WIDTH = 110
REMOVED = 2
"""The picture is taken when so many executors were lost and replaced."""
LATER = timedelta(seconds=2)
"""And so long after the last of them began to run."""


def events() -> list[Event]:
    """The events of one run, up to the moment of the picture."""
    seen: list[Event] = []
    removed = 0
    command = [sys.executable, "-m", "actors", *ARGUMENTS.split(), "--output", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own command
        assert process.stdout is not None
        for line in process.stdout:
            values = json.loads(line)
            details = {key: value for key, value in values.items() if key not in KEYS}
            known = {key: values[key] for key in KEYS} | {"time": datetime.fromisoformat(values["time"])}
            if removed < REMOVED or values["event"] in {"pending", "running"}:
                seen.append(Event(**known, details=details))
            removed += values["event"] == "removed"
            if removed > REMOVED:
                break
        process.terminate()
        process.stdout.read()
    return seen


def main() -> None:
    """Print the picture."""
    console = Console(
        record=True, width=WIDTH, height=22, force_terminal=True, file=io.StringIO(), legacy_windows=False
    )
    shown = events()
    table = LiveTable(console, targets={"default": 4}, now=lambda: shown[-1].time + LATER)
    for event in shown:
        table.show(event)
    picture = table.frame()
    table.close()
    console.export_text(clear=True)  # what was drawn on the way
    console.print(picture)
    svg = console.export_svg(title=f"executor-pods {ARGUMENTS}")
    sys.stdout.write(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))  # a picture loads nothing


if __name__ == "__main__":
    main()
