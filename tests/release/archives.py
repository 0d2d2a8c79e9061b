"""The sdist and the wheel: built twice from different copies of the checkout, and what must be in them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from typing import TYPE_CHECKING, Final

from tests.release.sbom import PATH, ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["build", "checked_in", "copy", "digests", "lacking", "members"]

LONG_AGO: Final = 1_000_000_000
"""The time of each file of a copy, in seconds since 1970: no file of another copy has it."""


def checked_in() -> list[str]:
    """The paths that git knows, or would take."""
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return sorted(path for path in listed.split("\0") if path and (ROOT / path).is_file())


def copy(paths: Iterable[str], folder: Path, *, private: bool = False) -> Path:
    """Copy these files. A private copy is as another person's: readable to its owner only, and old."""
    for path in paths:
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target, follow_symlinks=False)
        if private and not target.is_symlink():
            target.chmod(target.stat().st_mode & 0o700)
            os.utime(target, (LONG_AGO, LONG_AGO))
    return folder


def build(folder: Path, into: Path) -> list[Path]:
    """Build the sdist, and from it the wheel."""
    environment = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    command = [sys.executable, "-m", "build", "--outdir", str(into), str(folder)]
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    return sorted(into.iterdir())


def digests(archives: Iterable[Path]) -> dict[str, str]:
    """Name → SHA-256."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in archives}


def members(archive: Path) -> set[str]:
    """The files of a wheel, or of an sdist without its outer folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {name.partition("/")[2] for name in sdist.getnames()}


def lacking(archive: Path, paths: Iterable[str]) -> list[str]:
    """What should be in this archive and is not: in the sdist everything, in the wheel the package and its papers."""
    found = members(archive)
    if archive.suffix != ".whl":
        return sorted(set(paths) - found)
    (info,) = {name.partition("/")[0] for name in found if ".dist-info/" in name}
    papers = {f"{info}/{name}" for name in ("METADATA", "entry_points.txt", "licenses/LICENSE", f"sboms/{PATH.name}")}
    return sorted({path for path in paths if path.startswith("actors/")} - found | papers - found)
