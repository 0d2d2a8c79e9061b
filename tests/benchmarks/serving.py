"""The server from the outside: a process, a kubeconfig, and commands."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.pods import NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from typing import Self

__all__ = ["Serving"]


class Serving:
    """A server of `pods` pods, until the end of the `with`."""

    def __init__(
        self,
        pods: int,
        *,
        latency: float = 0.0,
        gzipped: bool = False,
        starts: bool = False,
        joined: bool = False,
        changed: bool = False,
        shuffled: bool = False,
    ) -> None:
        wanted = {
            "--gzip": gzipped,
            "--starts": starts,
            "--joined": joined,
            "--changed": changed,
            "--shuffled": shuffled,
        }
        flags = [flag for flag, is_wanted in wanted.items() if is_wanted]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.server", "--pods", str(pods), "--latency", str(latency), *flags],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._folder = tempfile.TemporaryDirectory()

    def __enter__(self) -> Self:
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"
        self.kubeconfig = Path(self._folder.name) / "kubeconfig"
        self.kubeconfig.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "bench",
                    "clusters": [{"name": "bench", "cluster": {"server": self.url}}],
                    "users": [{"name": "bench", "user": {"token": "bench"}}],
                    "contexts": [
                        {"name": "bench", "context": {"cluster": "bench", "user": "bench", "namespace": NAMESPACE}}
                    ],
                }
            )
        )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._folder.cleanup()

    def stopped(self) -> AbstractContextManager[None]:
        """Let it stand still meanwhile, and with it all clients that wait for it."""
        return self._between(signal.SIGSTOP, signal.SIGCONT)

    def resumed(self) -> AbstractContextManager[None]:
        """Let it go on meanwhile, though it is stopped."""
        return self._between(signal.SIGCONT, signal.SIGSTOP)

    @contextmanager
    def _between(self, first: signal.Signals, last: signal.Signals) -> Iterator[None]:
        self._process.send_signal(first)
        try:
            yield
        finally:
            self._process.send_signal(last)

    def ask(self, do: str, **values: Any) -> Any:
        """Send a command and wait for its answer."""
        self.order(do, **values)
        return self.answer()

    def order(self, do: str, **values: Any) -> None:
        """Send a command."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **values}) + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """Return the answer to the oldest open command."""
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())
