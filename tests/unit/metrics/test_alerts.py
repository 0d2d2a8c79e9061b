"""The shipped alerts and the dashboard, as Prometheus' own `promtool` sees them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

import actors

ALERTS = Path(actors.__file__).parents[1] / "config/prometheus/alerts.yaml"
DASHBOARD = ALERTS.with_name("dashboard.json")
CASES = Path(__file__).parent / "alerts.yaml"

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed (Debian: package prometheus)"
)


def promtool(folder: Path, *arguments: str | Path) -> str:
    environ = {**os.environ, "TMPDIR": str(folder)}  # it keeps a data base there
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=60, check=False, env=environ
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_every_alert_has_a_case_in_which_it_fires() -> None:
    alerts = [rule["alert"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]
    said = CASES.read_text()
    assert [alert for alert in alerts if f'alertname="{alert}"' not in said] == []


@needs_promtool
def test_prometheus_accepts_the_alerts(tmp_path: Path) -> None:
    assert "SUCCESS" in promtool(tmp_path, "check", "rules", ALERTS)


@needs_promtool
def test_the_alerts_fire_when_they_should_and_only_then(tmp_path: Path) -> None:
    promtool(tmp_path, "test", "rules", CASES)


@needs_promtool
def test_prometheus_accepts_the_queries_of_the_dashboard(tmp_path: Path) -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    rules = [
        {"record": f"query:{number}", "expr": re.sub(r"\$__\w+", "5m", query)} for number, query in enumerate(queries)
    ]
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"{len(queries)} rules found" in promtool(tmp_path, "check", "rules", path)
