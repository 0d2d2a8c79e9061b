"""The page "Compatibility" promises what CI tests, no more and no less."""

from __future__ import annotations

import re
import tomllib
from typing import Final

from tests.contract.versions import NEWEST, VERSIONS
from tests.docs.pages import ROOT, read

PAGE: Final = read("docs/reference/compatibility.md")
CI: Final = (ROOT / ".ci/run").read_text(encoding="utf-8")
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _first_cells(section: str) -> list[str]:
    """The first column of the table in this section."""
    _, _, after = PAGE.partition(f"## {section}\n")
    text, *_ = after.partition("\n## ")
    _, _, *cells = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)
    return cells


def _pythons() -> list[str]:
    found = (re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", each) for each in PROJECT["classifiers"])
    return [match[1] for match in found if match]


def test_the_page_has_each_kubernetes_version_of_the_contract() -> None:
    assert _first_cells("Kubernetes") == list(VERSIONS)
    assert f"The embedded cluster answers as {NEWEST}." in PAGE


def test_ci_tests_each_kubernetes_version_of_the_contract() -> None:
    assert "kubernetes=$(python3 tests/contract/versions.py)" in CI
    assert "KUBE_VERSION=${kubernetes##*$'\\n'}" in CI, "the newest in full"
    assert "for version in ${kubernetes%$'\\n'*}; do" in CI, "and the others"


def test_the_page_has_each_python_version_of_the_distribution() -> None:
    assert _first_cells("Python") == _pythons()
    assert PROJECT["requires-python"] == f">={_pythons()[0]}"


def test_ci_tests_each_python_version_of_the_distribution_and_those_that_the_page_names() -> None:
    (listed,) = re.findall(r"^for version in (3\.[\d. ]+); do$", CI, re.MULTILINE)
    tested = listed.split()
    assert tested[: len(_pythons())] == _pythons()
    assert [f"CI tests {version} too" in PAGE for version in tested if version not in _pythons()] == [True]


def test_ci_tests_the_lowest_versions_with_the_oldest_python() -> None:
    assert f'environment lowest "$(python_of {_pythons()[0]} ||' in CI


def test_the_page_names_each_page_of_the_reference_as_public() -> None:
    linked = set(re.findall(r"\]\(([\w-]+)\.md\)", PAGE))
    pages = {path.stem for path in (ROOT / "docs/reference").glob("*.md")}
    assert pages - linked == {"compatibility", "glossary"}
