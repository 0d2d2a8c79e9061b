"""docs/examples/dask: the notebook is executed; it loses a worker, and computes the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.examples.programs import Example, need

if TYPE_CHECKING:
    from pathlib import Path


def test_the_notebook_computes_the_same_though_it_loses_a_worker(tmp_path: Path) -> None:
    need("distributed", "nbclient", "ipykernel")
    with Example("dask", tmp_path) as notebook:
        notebook.finish()
        cells = json.loads((notebook.folder / "pi.ipynb").read_text(encoding="utf-8"))["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", ())]
    printed = "".join(line for output in outputs for line in output.get("text", ()))
    assert printed.count("π ≈ 3.1414") == 3, printed
    assert "exited with exit code 3" in printed
    tables = [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert any("3 running" in "".join(table) for table in tables), tables
