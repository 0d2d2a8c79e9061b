"""The shipped alerts, run by Prometheus' own `promtool`: each fires when it should, and none on a healthy fleet."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import actors

ALERTS = Path(actors.__file__).parents[1] / "config/prometheus/alerts.yaml"
CASES = Path(__file__).parent / "alerts.yaml"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: package prometheus)"
)


def promtool(*arguments: str | Path) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    alerts = [rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    said = CASES.read_text()
    assert [alert for alert in alerts if f'alertname="{alert}"' not in said] == []


@needs_promtool
def test_prometheus_accepts_the_alerts() -> None:
    assert "SUCCESS" in promtool("check", "rules", ALERTS)


@needs_promtool
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    promtool("test", "rules", CASES)
