"""Every complete driver of the pages, as a process: Ctrl-C stops its fleet, and without a cluster it says so.

Other modules do this for some: `test_registration` for find-the-driver, `test_readme`, `tests/docs/test_web_service`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest

from actors.local.cluster import LocalCluster
from tests.docs.pages import PAGES, ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SAFETY_SECONDS: Final = 60.0
"""What hangs ends the test after this; no test waits for it."""

ARGUMENTS: Final = {
    ("docs/tutorial.md", "driver.py"): ["worker.py"],
    ("docs/how-to/from-agent-sandboxes.md", "agent.py"): ["sandbox.py"],
    ("docs/how-to/from-pod-operators-and-jobs.md", "spread.py"): ["worker.py"],
}

ELSEWHERE: Final = {
    "docs/how-to/find-the-driver.md": "tests/e2e/test_registration.py",
    "docs/how-to/web-service.md": "tests/docs/test_web_service.py",
    "docs/how-to/queue-workers.md": "tests/docs/test_queue_workers.py",
    "docs/how-to/leases.md": "the page's own test, in virtual time",
}
"""These need more than an embedded cluster, or are no programs, and are stopped there."""

DRIVERS: Final = [
    (page, str(block.file))
    for page in PAGES
    if page not in ELSEWHERE
    for block in blocks(page)
    if block.file is not None and any(start in block.text for start in ("Fleet(", "Backend.start(", "square_all("))
    if not block.file.startswith("test_") and page != "docs/how-to/test-your-driver.md"
]


@contextmanager
def started(page: str, program: str, folder: Path, **env: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program of a page beside its other files."""
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text.replace("local=True", "local=False"), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "EXECUTOR_PODS_"))}
    with subprocess.Popen(
        [sys.executable, program, *ARGUMENTS.get((page, program), [])],
        cwd=folder,
        env=clean | {"HOME": str(folder), "PYTHONPATH": str(ROOT), "EXECUTOR_PODS_EXECUTOR__IMAGE": "any", **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        safety = threading.Timer(SAFETY_SECONDS, process.kill)
        safety.start()
        try:
            yield process
        finally:
            safety.cancel()
            process.kill()


@pytest.mark.parametrize(("page", "program"), DRIVERS)
def test_ctrl_c_stops_the_fleet_of_a_driver(page: str, program: str, tmp_path: Path) -> None:
    created = threading.Event()
    with LocalCluster(failing_pulls=("*",)) as cluster:  # no executor ever runs, so that no driver ends by itself
        cluster.store.watch("pods", "default", lambda _: created.set())
        env = {"KUBECONFIG": str(cluster.kubeconfig_path), "POD_IP": "127.0.0.1"}
        with started(page, program, tmp_path, **env) as driver:
            assert created.wait(SAFETY_SECONDS)
            driver.send_signal(signal.SIGINT)
            _, errors = driver.communicate()
        assert cluster.store.list("pods", "default").items == [], errors
    assert driver.returncode in {0, -signal.SIGINT}, errors


@pytest.mark.parametrize("page", ["docs/tutorial.md", "docs/tutorial-actors.md"])
def test_without_a_cluster_a_driver_says_how_to_have_one(page: str, tmp_path: Path) -> None:
    with started(page, "driver.py", tmp_path) as driver:
        _, errors = driver.communicate()
    assert "no kubeconfig was found" in errors
    assert "Fleet(local=True)" in errors
