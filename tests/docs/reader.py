"""A reader who does what a page says, block by block."""

from __future__ import annotations

import io
import json
import logging
import re
import shutil
from contextlib import ExitStack, chdir, redirect_stdout
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Self

import yaml

import actors
from actors import GetFleetStatus, Settings
from actors.local.cluster import LocalCluster
from actors.local.store.object_store import ObjectStore
from actors.manifests.executor_pod import check_template
from actors.runtime import Entropy, SystemClock
from tests.contract.control_plane import ASSETS, WITHOUT_ASSETS
from tests.docs.fleet import SAFETY_SECONDS, Fleet
from tests.docs.literals import literals
from tests.docs.pages import ROOT, Block, blocks
from tests.docs.shell import Shell, matches

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import pytest

    from tests.contract.control_plane import ControlPlane

SPHINX: Final = frozenset({"toctree", "eval-rst"})
"""Directives: `sphinx-build -W` fails if one of them names what is not there (.ci/run)."""

REAL_CLUSTER: Final = "docs/how-to/in-a-cluster.md"
"""Its commands make roles and deployments, which the embedded cluster does not have."""


class Reader:
    """Has a shell, a Python prompt, and a clone of the repository; where a page needs a cluster, an embedded one."""

    def __init__(self, page: str, home: Path, request: pytest.FixtureRequest, elsewhere: Mapping[str, str]) -> None:
        self.page = page
        self.blocks = blocks(page)
        self.left_out: list[str] = []
        """What cannot be done on this machine, and why."""
        self._stack = ExitStack()
        self._shell = self._stack.enter_context(Shell(home))
        self._home = home
        self._request = request
        self._caplog: pytest.LogCaptureFixture = request.getfixturevalue("caplog")
        self._elsewhere = elsewhere
        self._names: dict[str, Any] = {"__name__": "__main__"}
        self._printed: str | None = None
        """By the block before, None if it was not run."""
        for block in self.blocks:
            if block.file is not None:
                (self._shell.folder / block.file).write_text(block.text, encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def take(self, block: Block) -> None:
        """Do what one block says."""
        printed, self._printed = self._printed, None
        if self._is_run_elsewhere(block):
            return
        match block.kind.strip("{}"):
            case "python" if block.file is None:
                self._printed = self._run_python(block)
            case "python":
                compile(block.text, str(block), "exec")
                if not self._is_used(block):
                    self._printed = self._run_commands(block, f"python {block.file}")
            case "sh":
                self._printed = self._run_commands(block, block.text)
            case "output" if printed is not None:
                assert matches(printed, block.text), f"above {block}, this is printed:\n{printed}"
            case "output":
                before = self.blocks[self.blocks.index(block) - 1]
                assert self.left_out or self._is_run_elsewhere(before), f"{block}: nothing above it prints"
            case "toml":
                check_template(self._settings(block))
            case "yaml":
                for document in yaml.safe_load_all(block.text):
                    self._check_manifest(block, document)
            case "json":
                for line in block.text.splitlines():
                    json.loads(line)
            case "text":
                for line in block.text.splitlines():
                    assert literals().would_print(line), f"{block}: the library has no such message: {line}"
            case "mermaid":
                names = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", block.text))
                assert {name for name in names if not literals().defines(name)} == set(), block
            case directive:
                assert directive in SPHINX, f"{block}: it is not known how to check {block.kind!r}"

    def _is_run_elsewhere(self, block: Block) -> bool:
        return any(block.text.startswith(beginning) for beginning in self._elsewhere)

    def _is_used(self, block: Block) -> bool:
        """A command runs this file, or another file imports it."""
        assert block.file is not None
        name = block.file.removesuffix(".py")
        others = [other.text for other in self.blocks if other is not block]
        return any(re.search(rf"\b{name}\.py\b|^from {name} import", text, re.MULTILINE) for text in others)

    # ── programs ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _run_python(self, block: Block) -> str:
        if re.search(r"\bbackend\b", block.text) and "backend" not in self._names:
            self._names["backend"] = self._stack.enter_context(Fleet(self._fleet_settings())).backend
        if re.search(r"\bfleet\.", block.text) and "fleet" not in self._names:
            settings = self._fleet_settings()
            fleet = self._names["fleet"] = self._stack.enter_context(actors.Fleet(settings, local=True))
            running = sum(settings.initial_totals.values())
            fleet.wait_for(running=running, timeout=timedelta(seconds=SAFETY_SECONDS))
        self._caplog.clear()
        out = io.StringIO()
        with chdir(self._shell.folder), redirect_stdout(out):
            exec(compile("\n" * block.line + block.text, ROOT / block.page, "exec"), self._names)
        if "StopBackend(" in block.text:
            del self._names["backend"]
        elif "backend" in self._names:  # it answers after it has handled everything before
            self._names["backend"].ask(GetFleetStatus(), timedelta(seconds=SAFETY_SECONDS))
        warnings = [record.getMessage() for record in self._caplog.records if record.levelno >= logging.WARNING]
        assert warnings == [] or "99" in block.text, warnings  # no fleet has an executor 99: that is logged
        return out.getvalue()

    def _fleet_settings(self) -> Settings:
        first = next((block for block in self.blocks if block.kind == "toml"), None)
        return Settings(executor={"instances": 4, "image": "any"}) if first is None else self._settings(first)

    def _run_commands(self, block: Block, commands: str) -> str | None:
        if "kubectl " in commands and shutil.which("kubectl") is None:
            self.left_out.append(f"{block}: kubectl is not installed (Debian: package kubernetes-client)")
            return None
        if "KUBECONFIG" not in self._shell.env and not any("KUBECONFIG=" in other.text for other in self.blocks):
            path = self._a_cluster()
            if path is None:
                self.left_out = [f"commands of {self.page}: {WITHOUT_ASSETS}"]
                return None
            self._shell.env["KUBECONFIG"] = str(path)
        following = self.blocks[self.blocks.index(block) + 1 :][:1]
        expected = next((other.text for other in following if other.kind == "output"), None)
        return self._shell.run(commands, expected)

    def _a_cluster(self) -> Path | None:
        """The kubeconfig of the page's cluster; None if the page needs a real one and there is none."""
        if self.page != REAL_CLUSTER:
            return self._stack.enter_context(LocalCluster()).kubeconfig_path
        if ASSETS is None:
            return None
        plane: ControlPlane = self._request.getfixturevalue("plane")
        return plane.kubeconfig

    # ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _settings(self, block: Block) -> Settings:
        path = self._shell.folder / (block.file or f"{block.line}.toml")
        path.write_text(block.text, encoding="utf-8")
        return Settings.load(path)

    def _check_manifest(self, block: Block, manifest: dict[str, Any]) -> None:
        """Pods, also those of templates, are made on the embedded cluster; of others it has none."""
        assert {"apiVersion", "kind"} <= manifest.keys(), block
        pod = manifest if manifest["kind"] == "Pod" else manifest.get("spec", {}).get("template")
        if pod is not None:
            store = ObjectStore(SystemClock(), Entropy(0))
            store.create("pods", "default", {"metadata": {}, **pod} | {"metadata": {"name": "a"}})
            return
        assert manifest["metadata"]["name"], block
        if self.page == REAL_CLUSTER:
            path = self._home / f"{block.line}.yaml"
            path.write_text(yaml.safe_dump(manifest), encoding="utf-8")
            self._run_commands(block, f"kubectl create --validate=strict -f {path}")
