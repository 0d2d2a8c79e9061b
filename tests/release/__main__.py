"""Rehearse a release: build it, check it, and say what a person must still do.

    python -m tests.release [FOLDER]    # keeps sdist and wheel in FOLDER

Exit code 1 if something is wrong that the repository can mend.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any, Final

import yaml

from tests.release import archives, changelog
from tests.release.sbom import PATH, ROOT, sbom

REPOSITORY: Final = "https://github.com/executor-pods/executor-pods"

BY_HAND: Final = """
once:
  - on the package index, add a pending trusted publisher: project executor-pods, repository
    executor-pods/executor-pods, workflow release.yml, environment pypi
  - in the repository's settings: an environment pypi that a maintainer approves, a rule that only maintainers push
    tags v*, private vulnerability reports
  - read .github/SECURITY.md and CODE_OF_CONDUCT.md: they promise an answer within seven days
  - on Read the Docs, import the repository; .readthedocs.yaml has the rest
for this release:
  - git tag -s v{version} -m 'executor-pods {version}' && git push origin v{version}
  - approve the job `publish` of {repository}/actions/workflows/release.yml
  - offer config/conda/recipe.yaml to conda-forge, with this source:
      url: {repository}/releases/download/v{version}/{sdist}
      sha256: {digest}
"""


def disagreements(version: str) -> list[str]:
    """What the files of this checkout say of the release, where they do not agree with `pyproject.toml`."""
    newest, date = next(iter(changelog.dates().items()))
    citation, chart, recipe = map(_yaml, ("CITATION.cff", "config/chart/Chart.yaml", "config/conda/recipe.yaml"))
    said = {
        "CHANGELOG.md": newest,
        "CITATION.cff": citation["version"],
        "config/chart/Chart.yaml, version": chart["version"],
        "config/chart/Chart.yaml, appVersion": chart["appVersion"],
        "config/conda/recipe.yaml": recipe["context"]["version"],
    }
    found = [f"pyproject.toml has {version}, {place} {other}" for place, other in said.items() if other != version]
    if str(citation["date-released"]) != date:
        found.append(f"CHANGELOG.md dates {newest} {date}, CITATION.cff {citation['date-released']}")
    if PATH.read_text(encoding="utf-8") != sbom():
        found.append(f"{PATH.relative_to(ROOT)} is old: python -m tests.release.sbom > {PATH.relative_to(ROOT)}")
    return found


def _yaml(path: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))
    return found


def rehearse(folder: Path, version: str) -> list[str]:
    """Build and check the archives; what is wrong with them."""
    wrong = []
    paths = archives.checked_in()
    with tempfile.TemporaryDirectory() as scratch:
        copies = [archives.copy(paths, Path(scratch, name), private=name == "private") for name in ("here", "private")]
        built = archives.build(copies[0], folder)
        again = archives.digests(archives.build(copies[1], Path(scratch, "again")))
    for name, digest in archives.digests(built).items():
        print(f"{digest}  {name}")
        if f"-{version}" not in name:
            wrong.append(f"{name} is not of version {version}")
        if again.get(name) != digest:
            wrong.append(f"{name} differs when it is built again: {again.get(name)}")
    for archive in built:
        absent = archives.lacking(archive, paths)
        print(f"{archive.name}: {len(archives.members(archive))} files, {archive.stat().st_size:,} bytes")
        if absent:
            wrong.append(f"{archive.name} lacks {', '.join(absent[:5])}{' and others' * (len(absent) > 5)}")
    if subprocess.run([sys.executable, "-m", "twine", "check", "--strict", *built], check=False).returncode:
        wrong.append("twine does not accept the archives")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, help="where sdist and wheel stay; else they are deleted")
    given: Path | None = parser.parse_args().folder
    version: str = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    with tempfile.TemporaryDirectory() as scratch:
        folder = given or Path(scratch)
        if folder.is_dir() and any(folder.iterdir()):
            parser.error(f"{folder}: has files already; name an empty or a new folder")
        wrong = disagreements(version) + rehearse(folder, version)
        sdist, digest = next(each for each in archives.digests(folder.iterdir()).items() if each[0].endswith(".gz"))
    print(f"\nwhat a person must still do to release {version}")
    print(BY_HAND.format(version=version, repository=REPOSITORY, sdist=sdist, digest=digest).strip("\n"))
    for entry in changelog.waiting():
        print(f"  - CHANGELOG.md, Unreleased: move it to {version}, or let it wait: {entry}")
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
