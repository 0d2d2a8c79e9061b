"""Gets a token from a user's `auth-provider`: OIDC, or the old one of Google. kubectl's newer way is an exec plugin.

Only this module loads the `kubernetes` package, which renews an expired token; it does so by the package's documented
functions.
"""

from __future__ import annotations

import copy
import logging
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import yaml

from actors.errors import SettingsError
from actors.kube import files
from actors.kube.auth.proxies import environment_proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["ProviderFailed", "authorization"]


_LOG_OF_SECRETS: Final = "requests_oauthlib.oauth2_session"
"""By which the package asks for a token. It logs the client's secret and the tokens at DEBUG."""

_surroundings = threading.Lock()
"""Held while the environment is another one."""


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
        with _no_secrets_logged(), _reached_as_others(provider):
            load_kube_config_from_dict(_config(renewed), context="one", client_configuration=configuration)
        found = configuration.auth_settings().get("BearerToken", {}).get("value")
    except Exception as error:  # noqa: BLE001 - the package raises anything for an invalid entry, and may quote it
        raise ProviderFailed(type(error).__name__) from None
    if not found:
        raise ProviderFailed("it is not supported, or its id-token is not valid and cannot be renewed")
    if renewed != provider:
        _save(renewed, file, user)
    return str(found)


@contextmanager
def _no_secrets_logged() -> Iterator[None]:
    """Drop what this thread logs about its requests for a token."""
    thread, log = threading.get_ident(), logging.getLogger(_LOG_OF_SECRETS)  # noqa: TID251 - a filter, we log nothing there

    def is_harmless(_: logging.LogRecord) -> bool:
        return threading.get_ident() != thread

    log.addFilter(is_harmless)
    try:
        yield
    finally:
        log.removeFilter(is_harmless)


@contextmanager
def _reached_as_others(provider: dict[str, Any]) -> Iterator[None]:
    """Let the package reach the issuer as we reach a server: this machine, for example, through no proxy.

    It reads the environment alone, and in a way of its own, and takes `localhost` for the server that it asks.
    """
    config = provider.get("config")
    issuer = str(config.get("idp-issuer-url", "")) if isinstance(config, dict) else ""
    if not issuer or not getproxies_environment() or _proxy_of(issuer) is not None:
        yield
        return
    with _surroundings:
        before = os.environ.get("no_proxy")
        known = before or os.environ.get("NO_PROXY", "")
        os.environ["no_proxy"] = ",".join(filter(None, (known, "localhost", urlsplit(issuer).hostname)))
        try:
            yield
        finally:
            if before is None:
                del os.environ["no_proxy"]
            else:
                os.environ["no_proxy"] = before


def _proxy_of(issuer: str) -> str | None:
    try:
        return environment_proxy(issuer)
    except (SettingsError, ValueError):  # no proxy, or no URL: the package says so, too
        return None


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
