"""Real Spark on the embedded cluster: the job of the page runs as it is printed, and prints what the page says."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.docs.pages import ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "docs/how-to/spark-without-kubernetes.md"
SAFETY_SECONDS = 300.0
"""A job that hangs is killed after this; it takes half a minute on two cores."""


@pytest.mark.spark
def test_spark_registers_its_executors_replaces_a_killed_one_and_leaves_no_pod(tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("java is not installed (Debian: package openjdk-17-jre-headless)")
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed: pip install '.[spark]'")
    for block in blocks(PAGE):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    (expected,) = [block.text for block in blocks(PAGE) if block.kind == "output"]
    path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    with (tmp_path / "stderr").open("w+", encoding="utf-8") as errors:
        done = subprocess.run(
            [sys.executable, "job.py"],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            timeout=SAFETY_SECONDS,
            check=False,
        )
        errors.seek(0)
        assert (done.returncode, done.stdout) == (0, expected), errors.read()[-4000:]
