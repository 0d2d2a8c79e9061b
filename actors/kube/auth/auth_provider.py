"""Gets a token from a user's `auth-provider`: OIDC, or the old one of Google. kubectl's newer way is an exec plugin.

Only this module loads the `kubernetes` package, which renews an expired token; it does so by the package's documented
functions.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import yaml

from actors.kube import files

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ProviderFailed", "authorization"]


class ProviderFailed(Exception):  # noqa: N818 - private to this package, says what happened
    """There is no token. The message repeats nothing of the user's entry."""


def authorization(provider: dict[str, Any], file: Path, user: str) -> str:
    """Return the `Authorization` header.

    A renewed token is saved in the file, as kubectl does: the old refresh token works only once.

    Raises:
        ProviderFailed: the provider is not supported, gives no token, or its new one cannot be saved.
    """
    from kubernetes.client import Configuration  # noqa: PLC0415 - up to 1.5 s and 80 MiB, for few
    from kubernetes.config import load_kube_config_from_dict  # noqa: PLC0415 - as above

    renewed = copy.deepcopy(provider)  # the package writes the new tokens into it
    configuration = Configuration()
    try:
        load_kube_config_from_dict(_config(renewed), context="one", client_configuration=configuration)
        found = configuration.auth_settings().get("BearerToken", {}).get("value")
    except Exception as error:  # noqa: BLE001 - the package raises anything for an invalid entry, and may quote it
        raise ProviderFailed(type(error).__name__) from None
    if not found:
        raise ProviderFailed("it is not supported, or its id-token is not valid and cannot be renewed")
    if renewed != provider:
        _save(renewed, file, user)
    return str(found)


def _config(provider: dict[str, Any]) -> dict[str, Any]:
    return {
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
        "clusters": [{"name": "one", "cluster": {"server": "http://localhost"}}],
        "users": [{"name": "one", "user": {"auth-provider": provider}}],
        "current-context": "one",
    }


def _save(provider: dict[str, Any], file: Path, user: str) -> None:
    try:
        config = files.read_yaml(file)
        entry = next(each for each in config["users"] if each["name"] == user)
        entry["user"]["auth-provider"] = provider
        text = yaml.safe_dump(config, default_flow_style=False)
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ProviderFailed(f"its new token cannot be saved in {file}: {error.strerror}") from None
    except (yaml.YAMLError, LookupError, TypeError, ValueError, StopIteration):
        raise ProviderFailed(f"its new token cannot be saved in {file}: the file has changed") from None
