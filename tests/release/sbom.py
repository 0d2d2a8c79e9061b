"""The SBOM of the wheel (PEP 770), as CycloneDX: what is vendored in it, and what it needs beside it.

    python -m tests.release.sbom > config/executor-pods.cdx.json

It is made from `pyproject.toml` and the table of vendored files, and changes only with these: it names no moment.
"""

from __future__ import annotations

import hashlib
import json
import re
import tomllib
import uuid
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

__all__ = ["PATH", "ROOT", "sbom"]

ROOT: Final = Path(__file__).parents[2]
PATH: Final = ROOT / "config/executor-pods.cdx.json"
"""Where the wheel's build finds it."""

VENDORED: Final = ROOT / "actors/page/static/vendor"
FOR_DEVELOPMENT: Final = {"all", "test", "dev", "docs", "bench"}
"""Extras that no user installs, and the one that only sums up others."""


def sbom() -> str:
    """The SBOM of this checkout, as JSON."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    purl = f"pkg:pypi/{project['name']}@{project['version']}"
    vendored, needed = _vendored(), _needed(project)
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.7.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, purl)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": purl,
                "name": project["name"],
                "version": project["version"],
                "description": project["description"],
                "licenses": [{"expression": project["license"]}],
                "purl": purl,
            }
        },
        "components": vendored + needed,
        "dependencies": [{"ref": purl, "dependsOn": sorted(each["bom-ref"] for each in vendored + needed)}],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _vendored() -> list[dict[str, Any]]:
    """The packages whose files are in the wheel, with these files."""
    table = (VENDORED / "README.md").read_text(encoding="utf-8")
    found = []
    for files, name, version, licence in re.findall(
        r"^\| (.+?) \| npm package `(\S+)`.*? \| ([\d.]+) \| (\w+)", table, re.MULTILINE
    ):
        purl = f"pkg:npm/{name}@{version}"
        found.append(
            {
                "type": "library",
                "bom-ref": purl,
                "name": name,
                "version": version,
                "licenses": [{"license": {"id": licence}}],
                "purl": purl,
                "components": [_file(VENDORED / file) for file in re.findall(r"`(\S+)`", files)],
            }
        )
    return found


def _file(path: Path) -> dict[str, Any]:
    content = hashlib.sha256(path.read_bytes()).hexdigest()
    return {
        "type": "file",
        "name": str(path.relative_to(ROOT)),
        "hashes": [{"alg": "SHA-256", "content": content}],
    }


def _needed(project: dict[str, Any]) -> list[dict[str, Any]]:
    """The distributions that pip installs beside the wheel, in which versions."""
    extras = project["optional-dependencies"]
    optional = [text for name, texts in extras.items() if name not in FOR_DEVELOPMENT for text in texts]
    found: dict[str, dict[str, Any]] = {}
    for scope, texts in (("required", project["dependencies"]), ("optional", optional)):
        for distribution in map(Requirement, texts):
            name, purl = distribution.name, f"pkg:pypi/{distribution.name}"
            bounds = sorted(map(str, distribution.specifier), reverse=True)  # the lowest version first
            if name != project["name"] and name not in found:
                found[name] = {
                    "type": "library",
                    "bom-ref": purl,
                    "name": name,
                    "versionRange": f"vers:pypi/{'|'.join(bounds)}",
                    "isExternal": True,
                    "scope": scope,
                    "purl": purl,
                }
    return [found[name] for name in sorted(found)]


if __name__ == "__main__":
    print(sbom(), end="")
