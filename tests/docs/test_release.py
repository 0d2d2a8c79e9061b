"""A release: its files agree, its workflows check what is promised, and the rehearsal sees what is wrong."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tomllib
import zipfile
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from tests.contract.versions import VERSIONS
from tests.docs.pages import ROOT
from tests.release import archives, changelog
from tests.release.__main__ import disagreements

if TYPE_CHECKING:
    from pathlib import Path

WORKFLOWS: Final = sorted((ROOT / ".github/workflows").glob("*.yml"))
CHANGELOG: Final = """
## [Unreleased]

### Added

- A thing
  of two lines.

### Fixed


## [1.2.0] - 2026-02-01

Words.

### Fixed

- Another.

## 1.1.0 - 2026-01-01

- The first.

[Unreleased]: https://example.com
"""


PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OTHERWISE: Final = {"kubernetes": "python-kubernetes", "prometheus-client": "prometheus_client"}
"""What conda-forge calls otherwise."""


def conda(requirement: str) -> str:
    (found,) = re.findall(r"^([\w-]+)(\S+)$", requirement)
    name, bounds = found
    return f"{OTHERWISE.get(name, name)} {bounds}"


def workflow(name: str) -> dict[str | bool, Any]:
    found: dict[str | bool, Any] = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text(encoding="utf-8"))
    return found


def test_all_files_that_name_the_version_agree_with_each_other_and_the_sbom_is_new() -> None:
    assert disagreements(PROJECT["version"]) == []
    assert len(disagreements("0.0.1")) == 5, "each file is compared"


def test_the_conda_package_needs_what_the_distribution_and_its_command_need() -> None:
    recipe = yaml.safe_load((ROOT / "config/conda/recipe.yaml").read_text(encoding="utf-8"))
    run, constraints = (recipe["requirements"][name] for name in ("run", "run_constraints"))
    extras = PROJECT["optional-dependencies"]
    assert run[1:] == [conda(each) for each in (*PROJECT["dependencies"], *extras["cli"])]
    assert constraints == [conda(each) for name in ("local", "metrics", "otel", "dask") for each in extras[name]]
    scripts = [f"{name} = {function}" for name, function in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts
    assert recipe["context"]["python_min"] == PROJECT["requires-python"].removeprefix(">=")


def test_a_release_has_its_own_part_of_the_changelog_and_what_waits_is_named() -> None:
    assert changelog.dates(CHANGELOG) == {"1.2.0": "2026-02-01", "1.1.0": "2026-01-01"}
    assert changelog.text_of("1.2.0", CHANGELOG) == "Words.\n\n### Fixed\n\n- Another.\n"
    assert changelog.text_of("1.1.0", CHANGELOG) == "- The first.\n"
    assert changelog.waiting(CHANGELOG) == ["A thing"]
    with pytest.raises(ValueError, match=re.escape("CHANGELOG.md has no release 1.3.0; it has 1.2.0, 1.1.0")):
        changelog.text_of("1.3.0", CHANGELOG)


def test_what_an_archive_lacks_is_found(tmp_path: Path) -> None:
    paths = ["actors/a.py", "actors/b.js", "tests/t.py"]
    for path in paths:
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).touch()
    with tarfile.open(tmp_path / "x-1.tar.gz", "w:gz") as sdist:
        sdist.add(tmp_path / "actors", "x-1/actors")
    assert archives.lacking(tmp_path / "x-1.tar.gz", paths) == ["tests/t.py"]
    papers = ("METADATA", "entry_points.txt", "licenses/LICENSE", "sboms/executor-pods.cdx.json")
    with zipfile.ZipFile(tmp_path / "x-1.whl", "w") as wheel:
        for name in ("actors/a.py", *(f"x-1.dist-info/{paper}" for paper in papers[:-1])):
            wheel.writestr(name, "")
    assert archives.lacking(tmp_path / "x-1.whl", paths) == ["actors/b.js", f"x-1.dist-info/{papers[-1]}"]


def test_the_checks_run_on_each_python_and_kubernetes_that_ci_tests() -> None:
    jobs = workflow("checks")["jobs"]
    (listed,) = re.findall(r"^for version in (3\.[\d. ]+); do$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert jobs["python"]["strategy"]["matrix"]["python"] == listed.split()
    assert jobs["kubernetes"]["strategy"]["matrix"]["kubernetes"] == list(VERSIONS)
    assert [step["run"] for step in jobs["everything"]["steps"] if "run" in step] == ["./.ci/run"]


def test_only_the_job_that_publishes_shows_the_index_who_it_is_and_it_does_so_after_all_checks() -> None:
    release = workflow("release")
    assert release[True] == {"push": {"tags": ["v*"]}}, "`on` is true in YAML"
    assert [name for name, job in release["jobs"].items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert release["permissions"] == {"contents": "read"}
    assert set(release["jobs"]["publish"]["needs"]) == {"checks", "build"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_each_action_of_others_is_pinned_by_its_commit(path: Path) -> None:
    used = re.findall(r"uses: (\S+)(.*)", path.read_text(encoding="utf-8"))
    others = [(action, version) for action, version in used if not action.startswith("./")]
    assert others
    assert [each for each in others if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+", "".join(each))] == []


@pytest.mark.skipif(
    shutil.which("actionlint") is None, reason="actionlint is not installed: nobody checked the workflows"
)
def test_actionlint_finds_nothing_in_the_workflows() -> None:
    done = subprocess.run(["actionlint", *WORKFLOWS], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout + done.stderr == ""
