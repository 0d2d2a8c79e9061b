"""What the README says is so: its driver runs as it stands, its options exist, its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import actors
from actors.cli.arguments import execute
from actors.local.cluster import LocalCluster
from actors.manifests.executor_pod import check_template
from actors.pods.loss import CAUSED_BY_APP, LossKind
from actors.settings.model import Settings, setting_names

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.DOTALL | re.MULTILINE)


def test_the_driver_runs_as_it_stands_and_hears_of_a_kill_and_of_the_replacement(tmp_path: Path) -> None:
    (program,) = blocks("python")
    file = tmp_path / "driver.py"
    file.write_text(program, encoding="utf-8")
    with LocalCluster() as cluster:
        env = os.environ | {
            "KUBECONFIG": str(cluster.kubeconfig_path),
            "PYTHONPATH": str(Path(actors.__file__).parents[1]),
        }
        with subprocess.Popen(
            [sys.executable, str(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        ) as driver:
            safety = threading.Timer(60, driver.kill)
            safety.start()
            assert driver.stdin is not None
            assert driver.stdout is not None
            told: list[str] = []

            def until(words: str) -> str:
                assert driver.stdout is not None
                for line in driver.stdout:
                    told.append(line)
                    if words in line:
                        return line
                raise AssertionError(f"{words!r} never came: {told}")

            name = until("executor 3 runs in pod ").split()[-1]
            cluster.kill(name, signal.SIGKILL)
            assert "137" in until("executor 3 is gone")
            until("executor 4 runs")
            driver.stdin.write("\n")
            driver.stdin.close()
            assert driver.wait() == 0
            safety.cancel()


def test_the_two_commands_are_one_line_each_and_the_first_one_names_real_options() -> None:
    first, second = blocks("sh")[:2]
    assert (first.count("\n"), second.count("\n")) == (1, 1)
    assert second.strip().endswith("&& .venv/bin/pytest -n auto")
    words = shlex.split(first)
    arguments = words[words.index(".venv/bin/executor-pods") + 1 :]
    assert arguments[:2] == ["run", "--local"]


@pytest.mark.parametrize("command", ["run", "local"])
def test_every_option_of_the_command_is_described(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(None, [command, "--help"]) == 0  # type: ignore[arg-type]  # help needs no inbox
    options = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out)) - {"--help"}
    assert options
    assert not {option for option in options if option not in README}


def test_no_option_is_described_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "local"):
        execute(None, [command, "--help"])  # type: ignore[arg-type]  # help needs no inbox
    known = set(re.findall(r"--[a-z][a-z-]*", capsys.readouterr().out))
    table = "\n".join(line for line in README.splitlines() if line.startswith("| `-"))
    assert set(re.findall(r"--[a-z][a-z-]*", table)) <= known


def test_the_settings_that_are_shown_are_valid(tmp_path: Path) -> None:
    (example,) = blocks("toml")
    file = tmp_path / "settings.toml"
    file.write_text(example, encoding="utf-8")
    settings = Settings.load(file)
    check_template(settings)
    assert settings.initial_totals == {"default": 8, "gpu": 1}


def test_every_kind_of_loss_is_explained_and_whether_it_is_the_applications_doing() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| .+ \| (yes|no) \|$", README, re.MULTILINE)
    assert rows == [(kind.name, "yes" if kind in CAUSED_BY_APP else "no") for kind in LossKind]


def test_the_settings_and_messages_that_are_named_exist() -> None:
    names = set(setting_names())
    groups = {name.partition(".")[0] for name in names if "." in name}
    named = {name for name in re.findall(r"`([a-z_]+\.[a-z_]+)(?:`| =)", README) if name.partition(".")[0] in groups}
    assert named
    assert named - names == set()
    messages = set(re.findall(r"`([A-Z][a-z]+[A-Z][A-Za-z]+)\b", README))
    assert messages
    assert messages - set(actors.__all__) == set()


def test_links_into_the_checkout_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []
