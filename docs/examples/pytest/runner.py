"""An executor: runs the tests of one module after the other, and answers each time with their reports."""

import os
import sys

import pytest

from actors.registration.executor import run


class Reports:
    """Keeps the reports of one run, as JSON."""

    def __init__(self) -> None:
        self.found: list[dict] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        """Remember whose hook makes JSON of a report."""
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report."""
        hook = self._config.hook.pytest_report_to_serializable
        self.found.append(hook(config=self._config, report=report))


def work(module: dict) -> list[dict]:
    """Run the tests of a module."""
    os.chdir(module["folder"])
    reports = Reports()
    pytest.main(["-p", "no:terminal", "-p", "no:cacheprovider", *module["tests"]], plugins=[reports])
    return reports.found


if __name__ == "__main__":
    sys.exit(run(work))
