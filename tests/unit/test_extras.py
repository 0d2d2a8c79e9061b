"""A program without the packages of the extras: what it needs works, and the rest says what to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import ExecutorPodsError, MissingExtra, needs_extra
from tests.unit.kube.scripted import SAFETY, write_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

PACKAGES = {
    "cli": ("typer", "rich", "click"),
    "local": ("aiohttp", "cryptography"),
    "metrics": ("prometheus_client",),
    "otel": ("opentelemetry",),
}
"""What each extra brings, by the names that are imported."""

BASE = """
import json, sys
import actors, actors.testing, actors.local.inprocess, actors.page.history
from actors import Backend, Settings, kube
from actors.cli.main import main
from pathlib import Path

help(actors)
kube.connect(Path(sys.argv.pop())).close()
print(json.dumps(main()))
"""

LACKING = """
import json
from queue import SimpleQueue
from actors.cli.arguments import execute

def raised(name, module):
    try:
        getattr(__import__(module, fromlist=[name]), name)
    except ImportError as error:
        return str(error)

codes = [execute(SimpleQueue(), line.split()) for line in ("local", "run --local", "run --image i --metrics-port 0")]

def entered(**page):
    try:
        __import__("actors").Fleet(image="i", **page)
    except ImportError as error:
        return str(error)

errors = [
    raised("LocalCluster", "actors.local.cluster"),
    raised("PrometheusMetrics", "actors"),
    raised("OpenTelemetryTraces", "actors"),
    entered(page=8080),
]
print(json.dumps([codes, errors]))
"""


LATER = ("asyncio", "pydantic_settings", "ssl", "tomllib", "urllib3")
"""Packages that not every fleet needs, or none before it starts."""


def ran(program: str, *extras: str, arguments: tuple[str, ...] = ()) -> tuple[Any, str]:
    """The JSON in the last line of stdout, and stderr, of a program that cannot import what the extras bring."""
    lacking = [name for extra in extras for name in PACKAGES[extra]] + ["kubernetes"]
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\nsys.modules.update(dict.fromkeys({lacking}))\n{program}", *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=SAFETY,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_driver_and_its_tests_need_no_extra_and_the_command_names_its_own(tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path / "k", "https://one.example", {"token": "any"})
    code, said = ran(BASE, *PACKAGES, arguments=(str(kubeconfig),))
    assert code == 2
    assert said == "executor-pods: the command needs the package typer: pip install 'executor-pods[cli]'\n"


def test_a_fleet_is_imported_without_packages_that_it_may_never_need() -> None:
    names, _ = ran(
        "import json, sys\nfrom actors import Fleet, Settings\nSettings()\nprint(json.dumps([*sys.modules]))"
    )
    assert {"actors.fleet.fleet", "pydantic"} <= set(names)
    assert set(LATER) & set(names) == set()


def test_the_command_and_the_library_say_which_extra_lacks() -> None:
    (codes, errors), said = ran(LACKING, "local", "metrics", "otel")
    local = "the embedded cluster needs the package aiohttp: pip install 'executor-pods[local]'"
    page = "--metrics-port needs the package prometheus_client: pip install 'executor-pods[metrics]'"
    assert codes == [2, 2, 2]
    assert said.splitlines() == [f"executor-pods: {problem}" for problem in (local, local, page)]
    traces = "OpenTelemetryTraces needs the package opentelemetry: pip install 'executor-pods[otel]'"
    fleet = "the page needs the package aiohttp: pip install 'executor-pods[page]'"
    assert errors == [local, page.replace("--metrics-port", "PrometheusMetrics"), traces, fleet]


def test_a_dask_cluster_says_which_extra_lacks() -> None:
    program = (
        "import json\ntry:\n    import actors.dask\nexcept ImportError as error:\n    print(json.dumps(str(error)))"
    )
    said, _ = ran(
        program.replace("import json", "import json, sys\nsys.modules['dask'] = sys.modules['distributed'] = None")
    )
    assert said.startswith("actors.dask needs the package d")
    assert said.endswith(": pip install 'executor-pods[dask]'")


def test_what_lacks_is_an_import_error_and_one_of_ours() -> None:
    with pytest.raises(MissingExtra) as raised, needs_extra("gpu", "this"):
        import no_such_package.part  # type: ignore[import-not-found]  # noqa: F401, PLC0415 - nobody has it
    assert isinstance(raised.value, ImportError)
    assert isinstance(raised.value, ExecutorPodsError)
    assert raised.value.name == "no_such_package"
    assert str(raised.value) == "this needs the package no_such_package: pip install 'executor-pods[gpu]'"


def test_a_module_of_ours_that_lacks_is_no_matter_of_extras() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"actors\.no_such"), needs_extra("gpu", "this"):
        import actors.no_such  # type: ignore[import-not-found]  # noqa: F401, PLC0415 - there is none
