"""The types of what settings are made from: they name every field, and type checkers find what is misspelled.

Each `type: ignore` here is a test of its own: `mypy --strict` reports one that hides no error.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors.errors import SettingsError
from actors.settings import (
    BackendSettings,
    ClaimSettings,
    ExecutorSettings,
    ExecutorValues,
    ProfileSettings,
    Settings,
    SettingsValues,
    pod_parts,
    values,
)
from actors.settings.model import setting_names
from actors.settings.types import Group

if TYPE_CHECKING:
    from collections.abc import Iterator


def models() -> Iterator[tuple[str, type[Group]]]:
    """Every group and part of the settings, by the name of its values."""
    below = list(Group.__subclasses__())
    while below:
        model = below.pop()
        below += model.__subclasses__()
        if model.__name__ != "ShapeSettings" and model.__module__.startswith("actors."):
            yield model.__name__.replace("Settings", "Values"), model


@pytest.mark.parametrize(("name", "model"), sorted(models()), ids=lambda each: each if isinstance(each, str) else "")
def test_the_values_of_a_group_are_its_fields(name: str, model: type[Group]) -> None:
    typed: Any = getattr(values, name, None) or getattr(pod_parts, name)

    assert typed.__optional_keys__ == set(model.model_fields)


def test_the_values_of_all_settings_are_their_fields() -> None:
    assert SettingsValues.__optional_keys__ == set(Settings.model_fields)
    assert {f"executor.{name}" for name in ExecutorValues.__optional_keys__} <= set(setting_names())


def test_what_people_write_passes_type_checkers() -> None:
    hour = timedelta(hours=1)
    everything: SettingsValues = {"app_id": "etl", "executor": {"instances": 3}}
    written = (
        Settings(**everything),
        Settings(app_id="etl", executor={"instances": 3, "image": "x", "kill_grace_period": "5s"}),
        Settings(executor=ExecutorSettings(instances=3, kill_grace_period="5s", stuck_timeout=hour)),
        Settings(profiles={"gpu": {"instances": 2}, "big": ProfileSettings(instances=2)}),
        Settings(executor={"command": ["work"], "resources": {"limits": {"memory": "4Gi", "nvidia.com/gpu": 1}}}),
        Settings(executor={"claims": [{"name": "a", "mount_path": "/a", "size": "1Gi"}]}),
        Settings(executor={"pod_template": {"spec": {"containers": [{"name": "executor"}]}}}),
        Settings(roll={"interval": "1h", "policy": "age"}, backend=BackendSettings(lease=False)),
        Settings.load(None, allocation={"pacing": "batch", "batch_delay": hour}),
    )
    assert [settings.executor.instances for settings in written][:3] == [3, 3, 3]


def test_what_is_misspelled_is_found_by_type_checkers_and_at_run_time() -> None:
    with pytest.raises(SettingsError, match="did you mean"):
        Settings(executer={"instances": 3})  # type: ignore[call-arg]
    with pytest.raises(SettingsError, match="did you mean"):
        Settings(executor={"instancs": 3})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="did you mean"):
        Settings(profiles={"gpu": {"imagee": "x"}})  # type: ignore[dict-item]
    with pytest.raises(SettingsError, match="did you mean"):
        ExecutorSettings(instancs=3)  # type: ignore[call-arg]
    with pytest.raises(SettingsError, match="did you mean"):
        Settings.load(None, namespase="batch")  # type: ignore[call-arg]
    with pytest.raises(SettingsError, match="did you mean"):
        Settings(executor={"resources": {"limit": {}}})  # type: ignore[arg-type]


def test_a_value_of_another_type_is_found_by_type_checkers_and_at_run_time() -> None:
    with pytest.raises(SettingsError, match="no unit"):
        Settings(executor={"kill_grace_period": 5})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="list of words"):
        Settings(executor={"command": "python -m worker"})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="'pipelined' or 'batch'"):
        Settings(allocation={"pacing": "fast"})  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match="size: must be set"):
        ClaimSettings(name="a", mount_path="/a")  # type: ignore[call-arg]
    with pytest.raises(SettingsError, match="cannot be read"):
        Settings(executor={"pod_template": Path("/nowhere")})
