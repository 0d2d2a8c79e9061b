"""docs/examples/ray: nodes come by demand, a killed one is replaced by Ray's decision, and idle ones leave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.examples.programs import Example, need

if TYPE_CHECKING:
    from pathlib import Path


def test_ray_scales_the_fleet_and_replaces_a_killed_node(tmp_path: Path) -> None:
    need("ray")
    with Example("ray", tmp_path) as program:
        node = int(program.wait_for(": small").split()[1])
        program.wait_for("tasks are left")
        program.kill(node)
        program.wait_for(f"node {node} is gone: EXITED")
        program.wait_for("node 4 runs: small")
        program.finish(ours=r"node \d|no node|\d+ tasks|the sum")
