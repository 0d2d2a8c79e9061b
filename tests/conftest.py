"""What every test may use, and how the tests are shared out among processes (`pytest -n auto`)."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from actors.text import LONGEST_LINE
from tests.contract.control_plane import ASSETS, WITHOUT_ASSETS, ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

    from xdist.remote import Producer

    from actors.testing import Kit

pytest_plugins = ["actors.testing.plugin"]

TESTS = Path(__file__).parent

settings.register_profile(
    "suite", max_examples=30, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)  # no wall clock, and every run the same
settings.load_profile("suite")

WAIT_MOST = ("tests/e2e/", "tests/docs/test_snippets.py")
"""Tests that wait for other processes: begun first, they wait while others compute."""

READ_SOURCE = ("tests/docs/test_pages.py", "tests/unit/test_layout.py")
"""Tests that parse the whole library: one worker runs them all."""

REAL_SERVER = (
    "[real",
    "[docs/how-to/in-a-cluster.md]",
    "tests/contract/test_rights.py",
    "tests/contract/test_dask_rights.py",
    "tests/contract/test_manifests.py",
    "tests/e2e/test_events.py",
    "test_on_a_real_server",
    "test_what_a_user_may_not_do_is_forbidden_in_the_servers_words",
    "test_an_account_learns_what_it_may_not_do",
    "test_no_token_is_403_as_anonymous",
    "test_the_rights_in_config_are_enough_for_every_command",
    "test_without_the_right_to_leases_the_command_says_so",
)
"""Parts of the names of tests that use the real API server. One worker runs them all: the server takes seconds to
start."""


class _Ear(logging.Handler):
    """Keeps the log records of the library that are not one line of text."""

    def __init__(self) -> None:
        super().__init__()
        self.bad: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not message.isprintable() or len(message) > LONGEST_LINE:
            self.bad.append(f"{record.name}: {message[:500]!r}")


_EAR = _Ear()
logging.getLogger("actors").addHandler(_EAR)


@pytest.fixture(autouse=True)
def _every_log_line_is_text() -> Iterator[None]:
    """Whatever a test's pods, servers and files say, no line of the log has a character that acts."""
    yield
    bad, _EAR.bad = _EAR.bad, []
    assert bad == []


@pytest.fixture
def expect_crashes(kit: Kit) -> Iterator[None]:
    """Actors of the test may crash: it looks at what becomes of that."""
    yield
    kit.crashes.clear()


def pytest_configure() -> None:
    """Keep compiled modules, even where the environment says not to, and collect no garbage while tests are collected.

    Each worker and each program that a test starts would compile the package anew.
    """
    gc.disable()
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_sessionstart(session: pytest.Session) -> None:
    """In each worker of the whole suite, compile a share of the test modules first: the others find them compiled."""
    worker, count = os.environ.get("PYTEST_XDIST_WORKER"), int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if worker is None or [Path(argument).resolve() for argument in session.config.args] != [TESTS]:
        return
    for path in sorted(TESTS.rglob("test_*.py"))[int(worker.removeprefix("gw")) :: count]:
        with suppress(Exception, pytest.skip.Exception):  # the collection reports what is wrong with it
            importlib.import_module(".".join(path.relative_to(TESTS.parent).with_suffix("").parts))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _rank(item.nodeid))


def pytest_collection_finish() -> None:
    """Exempt thousands of collected tests from each garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are processors: a third of the tests' time is waiting."""
    return (os.cpu_count() or 1) + 2


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return Scheduling(config, log)  # without `log` it prints how many tests are left, at each test


class Scheduling(LoadScopeScheduling):  # type: ignore[misc] # xdist has no annotations
    """Hands a worker one test at a time, but unit tests by module, and together what shares something that is dear."""

    def _split_scope(self, nodeid: str) -> str:
        if _rank(nodeid) == 0:
            return "real"
        if nodeid.startswith(READ_SOURCE):
            return "source"
        return nodeid.partition("::")[0] if nodeid.startswith(("tests/unit/", "tests/node/")) else nodeid


def _rank(nodeid: str) -> int:
    """The place of a test in the order of the suite."""
    if any(part in nodeid for part in REAL_SERVER):
        return 0
    return 1 if nodeid.startswith(WAIT_MOST) else 2


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server, started when the first test asks for it."""
    if ASSETS is None:
        pytest.skip(WITHOUT_ASSETS)
    if "PYTEST_XDIST_WORKER" in os.environ:
        claim = tmp_path_factory.getbasetemp().parent / "control-plane"
        assert not claim.exists(), "another worker started a real API server: name this test in REAL_SERVER"
        claim.touch()
    plane = ControlPlane(ASSETS, tmp_path_factory.mktemp("control-plane"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()
