"""Reads settings from a TOML file, and finds the environment variables that are meant as settings.

pydantic-settings reads the variables, in `environment`. But it ignores one with our prefix that names no setting, which
must be an error.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from actors.errors import SettingsError
from actors.kube import files

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ENDPOINT",
    "ENV_PREFIX",
    "TOKEN_FILE",
    "has_variables",
    "is_given",
    "merged",
    "pod_ip",
    "read_file",
    "variables",
]

ENV_PREFIX: Final = "EXECUTOR_PODS_"

ENDPOINT: Final = f"{ENV_PREFIX}ENDPOINT"
TOKEN_FILE: Final = f"{ENV_PREFIX}TOKEN_FILE"
"""These two are options of commands for operators, and no settings: where a driver's page is, and its token's file."""

_SERVICE_LINK: Final = re.compile(r"(.*_)?(SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_\d+_(TCP|UDP|SCTP)(_.*)?)?)")
"""Kubernetes adds these variables to a pod for a Service named `executor-pods`: they are not settings."""


def variables() -> Iterator[tuple[str, str]]:
    """Yield `(dotted name, variable)` for each environment variable that is meant as a setting."""
    for variable in sorted(os.environ):
        name = variable.upper().removeprefix(ENV_PREFIX)
        if variable.upper() in {ENDPOINT, TOKEN_FILE} or _SERVICE_LINK.fullmatch(name):
            continue
        if name != variable.upper():
            yield name.lower().replace("__", "."), variable


def has_variables() -> bool:
    """Whether any variable has our prefix, also one that is no setting."""
    return any(variable.upper().startswith(ENV_PREFIX) for variable in os.environ)


def merged(over: Mapping[str, Any], under: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of both. Tables are merged; of another setting the value of `over` counts."""
    values = dict(under)
    for name, value in over.items():
        below = values.get(name)
        values[name] = merged(value, below) if isinstance(value, dict) and isinstance(below, dict) else value
    return values


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
    import tomllib  # noqa: PLC0415 - many settings are in no file

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
