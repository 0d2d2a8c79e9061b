"""How long executors have to end at a stop: by the setting, else by the template, else five seconds."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from actors.manifests.executor_pod import check_template
from actors.manifests.stop_grace import longest_stop_grace, stop_graces
from actors.settings.model import Settings

SECOND = timedelta(seconds=1)
TEN_MINUTES = {"spec": {"terminationGracePeriodSeconds": 600}}


def fleet(profiles: dict[str, Any] | None = None, **executor: Any) -> Settings:
    everywhere: Any = {"image": "worker:1", **executor}
    subject = Settings(app_id="app", executor=everywhere, profiles=profiles or {})
    check_template(subject)
    return subject


@pytest.mark.parametrize(
    ("executor", "grace", "longest"),
    [
        ({}, 4 * SECOND, 4),
        ({"template_patch": TEN_MINUTES}, None, 600),
        ({"template_patch": {"spec": {"terminationGracePeriodSeconds": 0}}}, None, 0),
        ({"template_patch": {"spec": {"terminationGracePeriodSeconds": None}}}, 4 * SECOND, 4),
        ({"template_patch": TEN_MINUTES, "stop_grace_period": "9s"}, 9 * SECOND, 9),
        ({"stop_grace_period": "90s"}, 90 * SECOND, 90),
        ({"drain_timeout": "60s"}, SECOND, 1),
        ({"drain_timeout": "60s", "template_patch": TEN_MINUTES}, SECOND, 1),
        ({"drain_timeout": "60s", "stop_grace_period": "9s"}, 9 * SECOND, 9),
    ],
)
def test_the_setting_comes_before_the_pause_and_that_before_the_template(
    executor: dict[str, Any], grace: timedelta | None, longest: float
) -> None:
    subject = fleet(**executor)
    assert stop_graces(subject).of("default") == grace
    assert longest_stop_grace(subject) == longest * SECOND


def test_each_profile_has_its_own_and_inherits_the_setting() -> None:
    patched = {"template_patch": TEN_MINUTES}
    graces = stop_graces(fleet({"big": patched, "small": {}}))
    assert [graces.of(name) for name in ("default", "big", "small")] == [4 * SECOND, None, 4 * SECOND]
    subject = fleet({"big": patched, "small": {"stop_grace_period": "1s"}}, stop_grace_period="20s")
    graces = stop_graces(subject)
    assert [graces.of(name) for name in ("default", "big", "small")] == [20 * SECOND, 20 * SECOND, SECOND]
    assert longest_stop_grace(subject) == 20 * SECOND


def test_a_profile_that_the_settings_lack_has_that_of_the_default_profile() -> None:
    assert stop_graces(fleet({"big": {"stop_grace_period": "1s"}}, stop_grace_period="7s")).of("gone") == 7 * SECOND
