"""The programs of docs/how-to/queue-workers.md: real workers of RQ and Celery, their jobs in a Redis of the test."""

from __future__ import annotations

import importlib
import importlib.util
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors.local.cluster import LocalCluster
from tests.docs.pages import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = "docs/how-to/queue-workers.md"
SAFETY_SECONDS: Final = 60
"""Only a failure waits so long."""

JOBS: Final = """
import os
from redis import Redis

REDIS = Redis.from_url({url!r}, socket_timeout=None)

def work(name):
    REDIS.rpush("started", os.environ["EXECUTOR_ID"])
    REDIS.blpop(name)
    REDIS.rpush("done", name)
"""
CELERY_JOBS: Final = """
from celery import Celery

app = Celery()
app.conf.update(task_acks_late=True, worker_prefetch_multiplier=1, task_reject_on_worker_lost=True)
work = app.task(name="work")(work)
"""


@contextmanager
def redis_server(folder: Path) -> Iterator[Any]:
    """A client of a Redis, which listens on a socket in `folder`."""
    path = folder / "redis"
    command = ["redis-server", "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            assert any("ready to accept connections" in line for line in server.stdout)
            with importlib.import_module("redis").Redis(unix_socket_path=str(path), socket_timeout=None) as client:
                yield client
        finally:
            server.terminate()
            server.stdout.read()


def enqueue(library: str, url: str, client: Any, names: list[str]) -> None:
    module = importlib.import_module(library)
    for name in names:
        if library == "rq":
            module.Queue("jobs", connection=client).enqueue("jobs.work", name)
        else:
            with module.Celery(broker=url) as app:
                app.send_task("work", [name], ignore_result=True)


def next_of(client: Any, queue: str) -> str:
    key_and_value = client.blpop(queue, timeout=SAFETY_SECONDS)
    assert key_and_value is not None, f"nothing is {queue}"
    return str(key_and_value[1].decode())


@pytest.mark.parametrize(
    ("library", "scheme"), [("rq", "unix"), pytest.param("celery", "redis+socket", marks=pytest.mark.stress)]
)
def test_workers_follow_the_queue_and_busy_ones_outlive_the_driver(
    library: str, scheme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = ("redis", library)
    if shutil.which("redis-server") is None or any(importlib.util.find_spec(name) is None for name in needed):
        pytest.skip(f"redis-server, redis and {library} are not installed; the library does not need them")
    for block in blocks(PAGE):
        if block.file is not None:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
    socket = tmp_path / "redis"
    url = f"{scheme}://{socket}"
    jobs = JOBS.format(url=f"unix://{socket}") + (CELERY_JOBS if library == "celery" else "")
    (tmp_path / "jobs.py").write_text(jobs, encoding="utf-8")
    paths = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    for name, value in paths.items():  # the pods' processes inherit these
        monkeypatch.setenv(name, value)
    with redis_server(tmp_path) as client, LocalCluster() as cluster:
        enqueue(library, url, client, ["a", "b"])
        with subprocess.Popen(
            [sys.executable, f"{library}_workers.py"],
            cwd=tmp_path,
            env={
                **paths,
                "HOME": str(tmp_path),
                "KUBECONFIG": str(cluster.kubeconfig_path),
                "REDIS_URL": url,
                "EVERY": "0.2",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as driver:
            safety = threading.Timer(SAFETY_SECONDS, driver.kill)
            safety.start()
            try:
                assert driver.stdout is not None
                busy = {next_of(client, "started"), next_of(client, "started")}
                client.rpush("a", "go on")
                assert next_of(client, "done") == "a"
                line = next(line for line in driver.stdout if " target=1 ended=[" in line)
                idle = line.removesuffix("]\n").rpartition("[")[2]
                assert idle in busy, line
                driver.send_signal(signal.SIGTERM)
                rest = driver.stdout.read()
                assert driver.wait() == 128 + signal.SIGTERM, rest
            finally:
                safety.cancel()
                driver.kill()
        (executor_id,) = busy - {idle}
        pods = cluster.store.list("pods", "default").items
        (pod,) = (each for each in pods if "deletionTimestamp" not in each["metadata"])
        assert pod["metadata"]["labels"]["executor-pods/executor-id"] == executor_id
        cluster.store.delete("pods", "default", pod["metadata"]["name"])
        client.rpush("b", "go on")
        assert next_of(client, "done") == "b"
