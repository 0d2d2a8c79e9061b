"""Every fenced block of every page does what the page says: programs and commands run as they are printed.

The blocks of a page are taken in order, as a reader takes them. A block whose first line names a file (`# driver.py`)
is saved under that name, and run by the command that names it. Other Python blocks run in one namespace. There,
`fleet` is a Fleet and `backend` a Backend, each with four running executors, or with those of the page's first TOML
block. An `output` block is what the block above it prints. `ELSEWHERE` has what this module does not run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from tests.docs.pages import PAGES, ROOT, blocks, fences
from tests.docs.reader import Reader

if TYPE_CHECKING:
    from pathlib import Path

ELSEWHERE: Final = {
    "README.md": {
        "python3 -m venv .venv && .venv/bin/pip install '.[cli": "needs a network: tests/stress/test_install.py",
        "python3 -m venv .venv && .venv/bin/pip install '.[test]'": "needs a network: tests/stress/test_install.py",
        "from actors import ExecutorRemoved": "runs until Ctrl-C: tests/e2e/test_readme.py",
    },
    "docs/tutorial.md": {
        "python3 -m venv .venv": "needs a network: tests/stress/test_install.py",
        "docker build": "needs docker: tests/e2e/test_documented_drivers.py",
        "kubectl create namespace squares": "needs an image: tests/e2e/test_documented_drivers.py",
    },
    "docs/tutorial-actors.md": {
        "python3 -m venv .venv": "needs a network: tests/stress/test_install.py",
        "python -m actors.examples.pi": "takes seconds of a processor: tests/e2e/test_example.py",
    },
    "docs/how-to/monitoring.md": {
        "executor-pods run --local --metrics-port 9464": "has no end: tests/e2e/test_metrics.py",
    },
    "docs/how-to/web-service.md": {
        "# service.py": "ends at SIGTERM: tests/docs/test_web_service.py",
        "python service.py": "ends at SIGTERM: tests/docs/test_web_service.py",
        "curl ": "another terminal: tests/docs/test_web_service.py",
        "# api.py": "needs fastapi: tests/docs/test_web_service.py",
        "uvicorn ": "needs fastapi: tests/docs/test_web_service.py",
    },
    "docs/how-to/in-a-cluster.md": {
        "apiVersion: kustomize.config.k8s.io": "names a repository of the network: tests/docs/test_config.py",
    },
    "docs/how-to/operate.md": {
        "executor-pods list -A": "needs fleets: tests/contract/test_operate.py",
        "executor-pods cleanup nightly": "needs an orphan: tests/contract/test_operate.py",
    },
    "docs/how-to/queue-workers.md": {
        "python rq_workers.py": "needs rq and redis: tests/docs/test_queue_workers.py",
        "python celery_workers.py": "needs celery and redis: tests/docs/test_queue_workers.py",
    },
    "docs/how-to/dask.md": {
        "# dask_program.py": "needs distributed: tests/e2e/test_dask.py",
        "cluster = PodCluster(": "needs distributed and a cluster: tests/e2e/test_dask.py",
        "python -m actors.examples.dask_demo": "takes most of a minute: tests/e2e/test_dask_demo.py",
    },
    "docs/how-to/from-dask-kubernetes.md": {
        "# moved.py": "needs distributed: tests/e2e/test_dask.py",
    },
    "docs/how-to/spark-without-kubernetes.md": {
        "pip install 'executor-pods[local]' pyspark": "needs a network",
        "# job.py": "needs java and pyspark: tests/e2e/test_spark.py",
        "python job.py": "needs java and pyspark: tests/e2e/test_spark.py",
    },
}
"""Page → the beginning of a block → why it is not run by this module, and which test runs it instead."""

EXAMPLES: Final = "docs/examples/"
"""Their commands install engines; tests/examples runs them and compares what they print."""


@pytest.mark.parametrize("page", [page for page in PAGES if not page.startswith(EXAMPLES)])
def test_what_a_page_prints_works(page: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    with Reader(page, tmp_path, request, ELSEWHERE.get(page, {})) as reader:
        for block in reader.blocks:
            reader.take(block)
    if reader.left_out:
        pytest.skip("; ".join(reader.left_out))


@pytest.mark.parametrize("page", PAGES)
def test_every_fence_of_a_page_belongs_to_a_block(page: str) -> None:
    assert fences(page) == 2 * len(blocks(page))


def test_what_is_run_elsewhere_is_there_and_is_little() -> None:
    for page, beginnings in ELSEWHERE.items():
        for beginning, why in beginnings.items():
            found = [block for block in blocks(page) if block.text.startswith(beginning)]
            assert len(found) == 1, f"{beginning!r} begins {len(found)} blocks of {page}"
            _, _, test = why.partition(": ")
            assert not test or (ROOT / test).is_file(), test
    assert sum(map(len, ELSEWHERE.values())) < sum(len(blocks(page)) for page in PAGES) / 7
