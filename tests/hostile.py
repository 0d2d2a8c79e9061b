"""Hostile surroundings for any part of the suite: `pytest -p tests.hostile -n auto tests/unit/kube`.

- `HTTPS_PROXY` and `HTTP_PROXY` name a port at which nobody listens.
- `HOME` is no folder, and below none: whatever looks into it fails, for root, too.
- `TMPDIR` is a folder on a file system that is full, where this process may mount one; else no folder.
- A handler on the root logger raises at each record of the library and in its threads, at DEBUG.

Tests that make their own surroundings have those. Programs that tests start have all but the handler.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import subprocess
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_MARK: Final = "TESTS_HOSTILE"
"""Of processes that have the surroundings from their parent: what TMPDIR is."""

_NO_FOLDER: Final = "/dev/null/none"

_NO_MOUNT: Final = "no folder: this process may mount no file system that could be full"


class Raising(logging.Handler):
    """Fails as a handler of a program does whose disk is full, and that does not look after that.

    Not at what other packages log in threads of the program, here the tests: there it would end asyncio itself.
    """

    def emit(self, record: logging.LogRecord) -> None:
        if not (record.name.startswith("actors") or threading.current_thread().name.startswith("executor-pods/")):
            return
        raise OSError(errno.ENOSPC, f"No space left on device, for a line of {record.name}")


def pytest_configure(config: pytest.Config) -> None:
    """Change the environment before any test, and any worker, which inherits it."""
    if _MARK not in os.environ:
        _change_environment(config)
    logging.raiseExceptions = False  # thousands of tracebacks on stderr
    urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({})))  # of the tests


def _change_environment(config: pytest.Config) -> None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    full = _full_folder(config)
    os.environ[_MARK] = f"{full}, full" if full is not None else _NO_MOUNT
    os.environ["TMPDIR"] = str(full or _NO_FOLDER)
    os.environ["HOME"] = _NO_FOLDER
    proxy = f"http://127.0.0.1:{_dead_port()}"
    for name in ("HTTPS_PROXY", "HTTP_PROXY"):
        os.environ[name] = os.environ[name.lower()] = proxy
    for name in ("NO_PROXY", "no_proxy", "KUBECONFIG"):
        os.environ.pop(name, None)
    tempfile.tempdir = None  # found anew: Python goes on to the next folder, as in every program


def _dead_port() -> int:
    """Return a port that nobody listens at: it was just free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _full_folder(config: pytest.Config) -> Path | None:
    """Mount a file system of one page, and fill it. It is gone with the session."""
    folder = Path(tempfile.mkdtemp(prefix="full-"))
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, check=False, capture_output=True).returncode == 0
    except OSError:
        mounted = False
    if not mounted:
        folder.rmdir()
        return None
    config.add_cleanup(lambda: _unmount(folder))
    (folder / "all").write_bytes(b"x" * 4096)
    return folder


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)
    folder.rmdir()


def pytest_report_header() -> str:
    names = ("HTTPS_PROXY", "HOME")
    return f"surroundings: {', '.join(f'{name}={os.environ[name]}' for name in names)}, TMPDIR: {os.environ[_MARK]}"


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """Have each record meet a handler that raises, after those that keep it for the test, as many as ever."""
    root, handler = logging.getLogger(), Raising()
    level, keepers = root.level, [each for each in root.handlers if each.level == logging.NOTSET]
    for keeper in keepers:
        keeper.setLevel(level)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        root.setLevel(level)
        root.removeHandler(handler)
        for keeper in keepers:
            keeper.setLevel(logging.NOTSET)
