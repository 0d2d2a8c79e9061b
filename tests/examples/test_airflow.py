"""docs/examples/airflow: the DAG runs to its end, though a worker of its fleet is killed."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

from tests.examples.programs import Example, need

if TYPE_CHECKING:
    from pathlib import Path


def test_the_dag_succeeds_though_a_worker_is_killed(tmp_path: Path) -> None:
    need("airflow", "distributed")
    with Example("airflow", tmp_path) as program:
        process = program.wait_for("the workers are the processes").split()[-1]
        os.kill(int(process), signal.SIGKILL)
        program.wait_for("was lost, and replaced")
        program.finish(ours="the ")
