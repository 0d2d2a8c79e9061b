"""One measurement: `python -m tests.benchmarks.worker MODULE WHO VALUES`. Its last line on stdout is the figures."""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys


def main() -> None:
    """Measure, print, and exit at once: some peers have threads that never end."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    module, who, values = sys.argv[1:]
    figures = importlib.import_module(f"tests.benchmarks.{module}").measure(who, **json.loads(values))
    print(json.dumps(figures), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
