"""The services of docs/how-to/web-service.md, each as a process: scaled and read by HTTP, ended by SIGTERM."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import pytest

from actors.local.cluster import LocalCluster
from tests.docs.pages import ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

PAGE: Final = "docs/how-to/web-service.md"
SAFETY_SECONDS: Final = 60.0

COMMANDS: Final = {
    "service.py": [sys.executable, "service.py"],
    "api.py": [sys.executable, "-m", "uvicorn", "api:app", "--port", "0"],
}


def call(url: str, data: bytes | None = None) -> Any:
    request = urllib.request.Request(
        url, data, {"Content-Type": "application/json"}, method="GET" if data is None else "PUT"
    )
    with urllib.request.urlopen(request, timeout=SAFETY_SECONDS) as answer:
        return json.load(answer)


def without_fastapi(file: str) -> bool:
    return file == "api.py" and any(importlib.util.find_spec(name) is None for name in ("fastapi", "uvicorn"))


@pytest.mark.parametrize("file", COMMANDS)
def test_the_service_scales_and_shows_its_fleet_and_stops_it_at_sigterm(file: str, tmp_path: Path) -> None:
    if without_fastapi(file):
        pytest.skip("fastapi and uvicorn are not installed; the library does not need them")
    (text,) = (block.text for block in blocks(PAGE) if block.file == file)
    (tmp_path / file).write_text(text, encoding="utf-8")
    with LocalCluster() as cluster:
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "KUBECONFIG": str(cluster.kubeconfig_path),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "PORT": "0",
        }
        with subprocess.Popen(
            COMMANDS[file],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as service:
            safety = threading.Timer(SAFETY_SECONDS, service.kill)
            safety.start()
            try:
                assert service.stdout is not None
                lines = iter(service.stdout)
                port = next(found[1] for line in lines if (found := re.search(r"unning on http://\S+:(\d+)", line)))
                url = f"http://127.0.0.1:{port}"
                assert call(f"{url}/scale", b"3") == {"ended": []}
                while [each["state"] for each in call(f"{url}/executors")] != ["running"] * 3:
                    pass
                ended = call(f"{url}/scale", b"1")["ended"]
                assert len(set(ended) & {1, 2, 3}) == len(ended) == 2, "those that began to run last"
                service.send_signal(signal.SIGTERM)
                rest = "".join(lines)
                assert service.wait() in {0, -signal.SIGTERM}, rest
            finally:
                safety.cancel()
                service.kill()
        assert cluster.store.list("pods", "default").items == []
