"""docs/examples/prefect: the flow computes the same, though a worker is killed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.examples.programs import Example, need

if TYPE_CHECKING:
    from pathlib import Path


def test_the_flow_completes_though_a_worker_is_killed(tmp_path: Path) -> None:
    need("prefect", "prefect_dask")
    with Example("prefect", tmp_path) as program:
        process = program.wait_for("a worker is the process").split()[-1]
        os.kill(int(process), signal.SIGKILL)
        program.finish(ours="a worker|the sum")
