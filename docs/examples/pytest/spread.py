"""A plugin of pytest that runs each test module on an executor of a fleet.

python -m pytest -p spread --executors 3
"""

import secrets
import socket
import sys
from collections import defaultdict
from pathlib import Path
from queue import SimpleQueue

import pytest

from actors import Attempts, BackendFailed, ExecutorRemoved, ExecutorTerminating, Fleet, FleetFailed, TaskQueue
from actors.registration.listener import Answered, Connected, Disconnected, Listener, ListenerThread

ATTEMPTS = Attempts(limit=2)
"""A module that ends its executor twice fails."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--executors`."""
    parser.addoption("--executors", type=int, default=0, help="run the modules on so many executors; 0: run them here")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run the tests on executors, if any are wanted; None: pytest runs them itself, or reports what it collected."""
    executors = session.config.getoption("executors")
    if executors == 0 or session.config.option.collectonly or session.testsfailed:
        return None
    modules: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in session.items:
        modules[item.location[0]].append(item)
    inbox: SimpleQueue = SimpleQueue()
    token = secrets.token_urlsafe()
    with (
        socket.create_server(("127.0.0.1", 0)) as sock,
        Fleet(
            local=True,
            instances=min(executors, len(modules)),
            command=[sys.executable, str(Path(__file__).with_name("runner.py"))],
            env={"DRIVER_TOKEN": token},
            driver_address=f"127.0.0.1:{sock.getsockname()[1]}",
            on_event=inbox.put,
        ) as fleet,
        ListenerThread(Listener(token, tell=inbox.put), fleet, sock),
    ):
        hand_out(session, modules, inbox)
    return True


def hand_out(session: pytest.Session, modules: dict[str, list[pytest.Item]], inbox: SimpleQueue) -> None:
    """Give each module to an executor that is free, and report what it answers."""
    folder = str(session.config.rootpath)
    names = list(modules)
    tasks = TaskQueue(range(len(names)), attempts=ATTEMPTS)
    terminal = session.config.pluginmanager.getplugin("terminalreporter")

    def say(line: str) -> None:
        terminal.ensure_newline()
        terminal.write_line(line)

    failed: set[int] = set()
    while not tasks.is_done:
        match inbox.get():
            case Connected(connection):
                tasks.connected(connection)
            case Answered(connection, number, reports):
                if tasks.answered(connection, number):
                    report(session, reports)
            case Disconnected(connection):
                tasks.disconnected(connection)
            case ExecutorTerminating(executor_id):
                for connection in tasks.terminating(executor_id):
                    connection.stop()
            case ExecutorRemoved(executor_id, reason):
                say(f"executor {executor_id} is gone: {reason.kind.name}")
                tasks.removed(executor_id, reason)
            case FleetFailed(cause) | BackendFailed(cause):
                raise session.Failed(str(cause))
        for number, attempts in tasks.failed.items():
            if number not in failed:
                failed.add(number)
                fail(session, modules[names[number]], attempts.refusal)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        for connection, number in tasks.assign():
            say(f"executor {connection.executor_id} runs {names[number]}")
            tests = [item.nodeid for item in modules[names[number]]]
            connection.send(number, {"folder": folder, "tests": tests})


def report(session: pytest.Session, reports: list[dict]) -> None:
    """Let pytest show and count what an executor found."""
    hook = session.config.hook
    for each in reports:
        hook.pytest_runtest_logreport(report=hook.pytest_report_from_serializable(config=session.config, data=each))


def fail(session: pytest.Session, items: list[pytest.Item], why: str) -> None:
    """Let all tests of a module fail."""
    for item in items:
        lost = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        session.config.hook.pytest_runtest_logreport(report=lost)
