"""Reads settings from a TOML file, and finds the environment variables that are meant as settings.

pydantic-settings reads the variables. But it ignores one with our prefix that names no setting, which must be an error.
"""

from __future__ import annotations

import ipaddress
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pydantic_settings import EnvSettingsSource

from actors.errors import SettingsError
from actors.kube import files

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ENV_PREFIX", "Environment", "environment", "is_given", "pod_ip", "read_file"]

ENV_PREFIX: Final = "EXECUTOR_PODS_"

_SERVICE_LINK: Final = re.compile(r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)")
"""Kubernetes adds these variables to a pod for a Service named `executor-pods`: they are not settings."""


def environment() -> Iterator[tuple[str, str]]:
    """Yield `(dotted name, variable)` for each environment variable that is meant as a setting."""
    for variable in sorted(os.environ):
        name = variable.upper().removeprefix(ENV_PREFIX)
        if name != variable.upper() and not _SERVICE_LINK.fullmatch(name):
            yield name.lower().replace("__", "."), variable


class Environment(EnvSettingsSource):
    """The environment as pydantic-settings reads it, but with the case and the text of the variables for executors.

    EXECUTOR_PODS_EXECUTOR__ENV__LOG_LEVEL sets LOG_LEVEL; names of settings have no case. pydantic-settings would read
    JSON in it.
    """

    def __call__(self) -> dict[str, Any]:
        """Return the values by setting."""
        values = super().__call__()
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


def pod_ip() -> str | None:
    """Return the IP of the pod that this process runs in: POD_IP, which a pod has by the downward API, if it is one."""
    try:
        return str(ipaddress.ip_address(os.environ.get("POD_IP", "")))
    except ValueError:
        return None


def is_given(name: str, values: Mapping[str, Any]) -> bool:
    """Whether the constructor's `values` have this setting, or its whole group."""
    given: object = values
    for part in name.split("."):
        if not isinstance(given, Mapping):
            return True
        if part not in given:
            return False
        given = given[part]
    return True


def read_file(path: Path) -> dict[str, Any]:
    """Return the tables of a TOML file, with paths of pod templates and patches made relative to the file.

    Raises:
        SettingsError: the file cannot be read, or is not TOML.
    """
    try:
        values = tomllib.loads(files.read(path).decode("utf-8"))
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{path}: is not TOML: {error}") from None
    except (ValueError, RecursionError):
        raise SettingsError(f"{path}: is not TOML: a number is too large, or a value is nested too deeply") from None
    profiles = values.get("profiles")
    for shape in (values.get("executor"), *(profiles.values() if isinstance(profiles, dict) else ())):
        for name in ("pod_template", "template_patch"):
            if isinstance(shape, dict) and isinstance(given := shape.get(name), str):
                shape[name] = path.parent / given
    return values
