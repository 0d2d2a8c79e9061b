from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.node.real import MISSING, Machines, RealWorld, inside
from tests.realcluster import images

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """A cluster of two nodes: that in the folder `REALNODE`, or one from nothing, which ends with the tests.

    The tests, and what they start, are in its network.
    """
    if MISSING:
        pytest.skip(MISSING)
    if existing := os.environ.get("REALNODE"):
        machines = Machines(Path(existing))
        with inside(machines.process(1)):
            yield machines
        return
    folder = tmp_path_factory.mktemp("cluster")
    machines = Machines(folder)
    archive = images.write(folder / "images")
    try:
        for node in (1, 2):
            machines.up(node, IMAGES=str(archive), CONTROLLER_FLAGS="--node-monitor-grace-period=10s")
        with inside(machines.process(1)):
            yield machines
    finally:
        machines.down()
        shutil.rmtree(archive.parent)  # what is left are logs


@pytest.fixture(scope="session")
def node_1(machines: Machines) -> Iterator[RealWorld]:
    """The node where the control plane is, too."""
    found = RealWorld(machines, 1)
    yield found
    found.close()
