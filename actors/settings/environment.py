"""The environment variables that are settings, read by pydantic-settings, which takes long to import."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from pydantic.fields import FieldInfo
from pydantic_settings import EnvSettingsSource
from pydantic_settings.exceptions import SettingsError as UnreadableVariable

from actors.errors import SettingsError
from actors.settings.loading import ENV_PREFIX
from actors.settings.types import FromText

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic_settings import BaseSettings

__all__ = ["Environment"]


class Environment(EnvSettingsSource):
    """The environment as pydantic-settings reads it, but with the case and the text of the variables for executors.

    EXECUTOR_PODS_EXECUTOR__ENV__LOG_LEVEL sets LOG_LEVEL; names of settings have no case. pydantic-settings would read
    JSON in it.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        settings = cast("type[BaseSettings]", model)  # whose fields and configuration are all that is used
        super().__init__(settings, env_prefix=ENV_PREFIX, env_nested_delimiter="__")

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        """Decode JSON, unless the setting reads text itself."""
        if isinstance(field, FieldInfo) and FromText in field.metadata:
            return value
        return super().decode_complex_value(field_name, field, value)

    def values(self) -> dict[str, Any]:
        """Return the values by setting.

        Raises:
            SettingsError: a variable is not the JSON that its setting needs.
        """
        try:
            values = self()
        except UnreadableVariable as error:
            raise SettingsError(f"environment: {error}: it must be JSON") from None
        for variable in os.environ:
            parts = variable[len(ENV_PREFIX) :].split("__")
            if not variable.upper().startswith(ENV_PREFIX):
                continue
            match [part.lower() for part in parts]:
                case ["executor", "env", _, *rest]:
                    env = _at(values, "executor", "env")
                case ["profiles", profile, "env", _, *rest]:
                    env = _at(values, "profiles", profile, "env")
                case _:
                    continue
            name = parts[-1 - len(rest)]
            if name.lower() in env:
                value = env.pop(name.lower())
                env[name] = value if rest or _is_reference(value) else os.environ[variable]
        return values


def _at(values: Any, *path: str) -> dict[str, Any]:
    """Return the map at this path, an empty one if there is none."""
    for part in path:
        values = values.get(part) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


def _is_reference(value: object) -> bool:
    """Whether this names a key of an object. Any other JSON is the text of a variable, which an executor may read."""
    return isinstance(value, Mapping) and not value.keys().isdisjoint({"secret", "config_map"})
