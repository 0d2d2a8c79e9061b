"""Reads kubeconfigs with the `kubernetes` package, and raises errors that a user can act on.

The package's own errors may quote a whole user entry with its token, so none of them is repeated. The package also runs
exec plugins without a limit, and only logs their failures: this module runs the plugin itself, and gives the package
the result.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.kube_config import ConfigNode, KubeConfigLoader, KubeConfigMerger

from actors.errors import SettingsError
from actors.kube.auth import exec_plugin
from actors.kube.auth.credentials import Credential, refresh_time
from actors.kube.files import LARGEST, TooManyMerged, check, expands_beyond, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

__all__ = ["Chosen", "choose", "read"]

READ_FILES_EVERY: Final = timedelta(minutes=1)
"""client-go's period for a user's `tokenFile`. Certificate files are read as often, so that a new certificate is used
before the old one expires, and a CA that is no longer trusted soon ends its connections."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A context, fixed by name: the current context of a file may change while the program runs."""

    files: tuple[Path, ...]
    context: str
    namespace: str

    def __str__(self) -> str:
        return f"context {self.context!r} of {_names(self.files)}"


def choose(files: tuple[Path, ...], context: str | None) -> Chosen:
    """Return the named context, or the current one.

    Raises:
        SettingsError: the files cannot be read, or do not have the context.
    """
    config = _merged(files).config.value
    names = [entry["name"] for entry in _entries(config, "contexts")]
    listed = f"it has: {', '.join(names)}" if names else "it has no contexts"
    chosen = context or config.get("current-context")
    if not chosen:
        raise SettingsError(f"{_names(files)} has no current context, so one must be named; {listed}")
    if chosen not in names:
        which = "context" if context else "the current context"
        raise SettingsError(f"{which} {chosen!r} is not in {_names(files)}; {listed}")
    namespace = _find(config, "contexts", chosen, "context").get("namespace")
    return Chosen(files, str(chosen), str(namespace or "default"))


def read(chosen: Chosen, now: datetime, limit: timedelta) -> Credential:
    """Read the current credential of a context from its files, or from its exec plugin, which may take `limit`.

    Raises:
        SettingsError: the context, its cluster or its user is not usable.
    """
    merger = _merged(chosen.files)
    config = merger.config.value
    context = _find(config, "contexts", chosen.context, "context", where=chosen)
    cluster = _find(config, "clusters", context.get("cluster"), "cluster", where=chosen)
    if not isinstance(cluster.get("server"), str):
        raise SettingsError(f"{chosen}: cluster {context.get('cluster')!r} has no server")
    user = _find(config, "users", context["user"], "user", where=chosen) if context.get("user") else {}
    expires_at = None
    if "exec" in user and not user.keys() & {"auth-provider", "token", "tokenFile"}:
        expires_at = _run_plugin(merger.config, context, chosen, limit)
    configuration = Configuration()
    try:
        _check_files(merger.config, context)
        loader = KubeConfigLoader(
            merger.config,
            active_context=chosen.context,
            config_base_path=None,  # relative paths start at the file that has them
            config_persister=_persister(merger, user),
        )
        loader.load_and_set(configuration)
    except Exception as error:  # noqa: BLE001 - the package raises anything for an invalid user entry
        raise SettingsError(f"{chosen}: {_problem(error, user=context.get('user'))}") from None
    expires_at = expires_at or getattr(loader, "expiry", None)
    refresh_at = now + READ_FILES_EVERY if _has_files(user, cluster) else None
    return Credential(
        configuration,
        refresh_at=refresh_at if expires_at is None else refresh_time(now, expires_at),
        expires_at=expires_at,
        source=str(chosen),
        authority=_authority(configuration, cluster, chosen),
    )


def _has_files(user: Mapping[str, Any], cluster: Mapping[str, Any]) -> bool:
    """Whether the credential uses files that may change, and reading them again runs no program."""
    if user.keys() & {"exec", "auth-provider"}:
        return False
    files = {"tokenFile": "token"} | {key: f"{key}-data" for key in ("client-certificate", "client-key")}
    return any(user.get(file) and not user.get(data) for file, data in files.items()) or bool(
        cluster.get("certificate-authority") and not cluster.get("certificate-authority-data")
    )


def _authority(configuration: Configuration, cluster: Mapping[str, Any], chosen: Chosen) -> str:
    if not configuration.ssl_ca_cert:
        return "the system's CAs, for there is none in " + str(chosen)
    if "certificate-authority-data" in cluster:
        return f"the certificate-authority-data of {chosen}"
    return f"the CA in {configuration.ssl_ca_cert}"


def _merged(files: tuple[Path, ...]) -> KubeConfigMerger:
    names = _names(files)
    too_large = False
    try:
        too_large = any(expands_beyond(read_yaml(file), LARGEST) for file in files)
        merger = KubeConfigMerger(_SEPARATOR.join(map(str, () if too_large else files)))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        if isinstance(error, TooManyMerged):
            raise SettingsError(f"{names} {error.problem}{line}") from None
        raise SettingsError(f"{names} is not YAML{line}") from None
    except OSError as error:
        raise SettingsError(f"{error.filename or names} cannot be read: {error.strerror}") from None
    except Exception:  # noqa: BLE001 - as above
        raise SettingsError(f"{names} is not a kubeconfig") from None
    if too_large:
        raise SettingsError(f"{names} is too large for a kubeconfig")
    if merger.config is None or not isinstance(merger.config.value, dict):
        raise SettingsError(f"{names} is not a kubeconfig")
    return merger


def _persister(merger: KubeConfigMerger, user: Mapping[str, Any]) -> Any:
    """Return what saves a new OIDC refresh token in the file, as kubectl does: the old one works only once."""
    return merger.save_changes if "auth-provider" in user else None


def _check_files(config: ConfigNode, context: Mapping[str, Any]) -> None:
    """Check the files that cluster and user name, before the package reads them.

    Raises:
        OSError: one of them is no regular file, or too large.
    """
    for kind, key, names in _FILES:
        if context.get(key):
            entry = config[kind].get_with_name(context[key])
            for name in names:
                if isinstance(file := entry.value[key].get(name), str):
                    check(Path(_folder(entry), file))


def _run_plugin(config: ConfigNode, context: Mapping[str, Any], chosen: Chosen, limit: timedelta) -> datetime | None:
    """Run the user's exec plugin and replace it by its credential. Return when that expires."""
    user, cluster = (
        config[kind].get_with_name(context[key]) for kind, key in (("users", "user"), ("clusters", "cluster"))
    )
    try:
        plugin = user["user"]["exec"]
        found = exec_plugin.run(plugin, _folder(user), cluster["cluster"], limit)
    except exec_plugin.PluginFailed as error:
        command = plugin.safe_get("command")
        raise SettingsError(f"{chosen}: the exec plugin {command!r} gave no credential: {error}") from None
    except Exception as error:  # noqa: BLE001 - as above
        raise SettingsError(f"{chosen}: its exec plugin is not valid ({type(error).__name__})") from None
    credential = {"token": found.token} if found.token else {}
    if found.has_certificate:
        credential["client-certificate-data"] = base64.b64encode(found.client_certificate_data.encode()).decode()
        credential["client-key-data"] = base64.b64encode(found.client_key_data.encode()).decode()
    user.value["user"] = credential
    return found.expiration_timestamp


def _problem(error: Exception, *, user: object) -> str:
    match error:
        case ConfigException() if str(error).startswith("File does not exist: "):
            return f"a file that it names is missing: {str(error).removeprefix('File does not exist: ')}"
        case OSError():
            return f"a file that it names cannot be read: {error.filename}: {error.strerror}"
        case _:
            return f"cluster or user {user!r} is not valid ({type(error).__name__})"


def _find(config: Mapping[str, Any], kind: str, name: object, key: str, where: Chosen | None = None) -> dict[str, Any]:
    """Return the content of a named entry.

    Raises:
        SettingsError: there is no such entry.
    """
    for entry in _entries(config, kind):
        if entry["name"] == name and isinstance(entry.get(key), dict):
            return dict(entry[key])
    has = ", ".join(entry["name"] for entry in _entries(config, kind)) or "none"
    place = f"{where}: " if where else ""
    raise SettingsError(f"{place}there is no {key} {name!r}; the {kind} are: {has}")


def _entries(config: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    found = config.get(kind)
    values = (getattr(entry, "value", None) for entry in found) if isinstance(found, list) else ()
    return [value for value in values if isinstance(value, dict) and isinstance(value.get("name"), str)]


def _folder(node: ConfigNode) -> str:
    """Return the folder of the entry's file: relative paths start there."""
    return str(node.path).rpartition("/")[0] or "." if node.path else ""


def _names(files: Iterable[Path]) -> str:
    return ", ".join(map(str, files))


_FILES: Final = (
    ("clusters", "cluster", ("certificate-authority",)),
    ("users", "user", ("tokenFile", "client-certificate", "client-key")),
)
"""The files that a cluster and a user may name."""

_SEPARATOR: Final = ":"
"""The package's separator of file names on POSIX, the only platform of this library."""
