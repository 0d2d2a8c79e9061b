"""Reads kubeconfigs as kubectl does, and raises errors that a user can act on.

No error repeats the content of a file. The files are read without the `kubernetes` package, whose import takes up to
1.5 s and 80 MiB; only a user with an `auth-provider` needs it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote

import msgspec
import yaml

from actors.errors import SettingsError
from actors.kube import files
from actors.kube.auth import auth_provider, exec_plugin
from actors.kube.auth.connection import Connection
from actors.kube.auth.credentials import Credential, refresh_time
from actors.kube.auth.data_files import file_with

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

__all__ = ["Chosen", "choose", "read"]

T = TypeVar("T")

READ_FILES_EVERY: Final = timedelta(minutes=1)
"""client-go's period for a user's `tokenFile`. Certificate files are read as often, so that a new certificate is used
before the old one expires, and a CA that is no longer trusted soon ends its connections."""


_LEGAL_IN_A_NAME: Final = "!#$&'*+-.^_`|~"
"""Characters of a header's name besides letters and digits (RFC 9110). client-go escapes all others, and `%`."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A context, fixed by name: the current context of a file may change while the program runs."""

    files: tuple[Path, ...]
    context: str
    namespace: str

    def __str__(self) -> str:
        return f"context {self.context!r} of {_names(self.files)}"


class _Context(msgspec.Struct):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _Cluster(msgspec.Struct, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(msgspec.Struct, rename="kebab"):
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    username: str | None = None
    password: str | None = None
    as_: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: tuple[str, ...] | None = None
    as_user_extra: dict[str, tuple[str, ...]] | None = None
    auth_provider: dict[str, Any] | None = None
    exec: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named context, cluster or user."""

    content: dict[str, Any]
    file: Path
    """The file that has it: relative paths start at its folder."""


@dataclass(frozen=True, slots=True)
class _Kubeconfig:
    """All files together. The first one that names an entry, or a current context, has it."""

    contexts: dict[str, _Entry]
    clusters: dict[str, _Entry]
    users: dict[str, _Entry]
    current_context: str | None


def choose(paths: tuple[Path, ...], context: str | None) -> Chosen:
    """Return the named context, or the current one.

    Raises:
        SettingsError: the files cannot be read, or do not have the context.
    """
    config = _merged(paths)
    listed = f"it has: {', '.join(config.contexts)}" if config.contexts else "it has no contexts"
    chosen = context or config.current_context
    if not chosen:
        raise SettingsError(f"{_names(paths)} has no current context, so one must be named; {listed}")
    if chosen not in config.contexts:
        which = "context" if context else "the current context"
        raise SettingsError(f"{which} {chosen!r} is not in {_names(paths)}; {listed}")
    found = _as(_Context, config.contexts[chosen], f"context {chosen!r} of {_names(paths)}")
    return Chosen(paths, chosen, found.namespace or "default")


def read(chosen: Chosen, now: datetime, limit: timedelta) -> Credential:
    """Read the current credential of a context from its files, or from its exec plugin, which may take `limit`.

    Raises:
        SettingsError: the context, its cluster or its user is not usable.
    """
    config = _merged(chosen.files)
    context = _as(_Context, _find(config.contexts, "context", chosen.context, chosen), str(chosen))
    cluster_entry = _find(config.clusters, "cluster", context.cluster, chosen)
    cluster = _as(_Cluster, cluster_entry, f"{chosen}: cluster {context.cluster!r}")
    if not cluster.server:
        raise SettingsError(f"{chosen}: cluster {context.cluster!r} has no server")
    user_entry = _find(config.users, "user", context.user, chosen) if context.user else _Entry({}, cluster_entry.file)
    user = _as(_User, user_entry, f"{chosen}: user {context.user!r}")
    impersonation = _impersonation(user, f"{chosen}: user {context.user!r}")
    expires_at = None
    if user.exec and not (user.auth_provider or user.token or user.token_file):
        user, expires_at = _by_plugin(user.exec, user_entry, cluster_entry, chosen, limit)
    try:
        authorization = _provided(user, user_entry, context.user, chosen) or _authorization(user, user_entry)
        connection = _connection(cluster, cluster_entry, user, user_entry)
    except SettingsError:
        raise
    except OSError as error:
        problem = f"a file that it names cannot be read: {error.filename}: {error.strerror}"
        raise SettingsError(f"{chosen}: {problem}") from None
    except ValueError as error:  # data that is not base64, or a token file that is not text
        raise SettingsError(
            f"{chosen}: cluster or user {context.user!r} is not valid ({type(error).__name__})"
        ) from None
    refresh_at = now + READ_FILES_EVERY if _has_files(user, cluster) else None
    return Credential(
        connection,
        authorization=authorization,
        impersonation=impersonation,
        refresh_at=refresh_at if expires_at is None else refresh_time(now, expires_at),
        expires_at=expires_at,
        source=str(chosen),
        authority=_authority(connection, cluster, chosen),
    )


def _provided(user: _User, entry: _Entry, name: str | None, chosen: Chosen) -> str | None:
    if not user.auth_provider:
        return None
    try:
        return auth_provider.authorization(user.auth_provider, entry.file, str(name))
    except auth_provider.ProviderFailed as error:
        raise SettingsError(f"{chosen}: the auth-provider of user {name!r} gave no token: {error}") from None


def _authorization(user: _User, entry: _Entry) -> str | None:
    """Return the header for a user's token or password."""
    token = (user.token or "").strip()
    if not token and user.token_file:
        token = files.read(_path(entry, user.token_file)).decode("utf-8").strip()
    if token:
        return f"Bearer {token}"
    if user.username is not None and user.password is not None:
        return f"Basic {base64.b64encode(f'{user.username}:{user.password}'.encode()).decode()}"
    return None


def _impersonation(user: _User, place: str) -> dict[str, str | tuple[str, ...]]:
    """Return the headers of a user that acts as another one, as client-go sends them.

    Raises:
        SettingsError: they say what else the other account has, but not its name; or no header can have them.
    """
    extra = {
        f"Impersonate-Extra-{quote(key.lower(), safe=_LEGAL_IN_A_NAME)}": tuple(_header(each, place) for each in values)
        for key, values in (user.as_user_extra or {}).items()
    }
    groups = tuple(_header(each, place) for each in user.as_groups or ())
    if user.as_:
        uid = {"Impersonate-Uid": _header(user.as_uid, place)} if user.as_uid else {}
        return {"Impersonate-User": _header(user.as_, place), **uid, "Impersonate-Group": groups, **extra}
    if user.as_uid or groups or extra:
        raise SettingsError(f"{place} has as-uid, as-groups or as-user-extra, but not `as`: whom to impersonate")
    return {}


def _header(value: str, place: str) -> str:
    """Return a value as a header has it: UTF-8, byte by byte.

    Raises:
        SettingsError: no header can have it.
    """
    if not value.isprintable():
        raise SettingsError(f"{place} has an `as…` field with characters that are not allowed in a header")
    return value.encode().decode("latin-1")


def _connection(cluster: _Cluster, cluster_entry: _Entry, user: _User, user_entry: _Entry) -> Connection:
    url = (cluster.server or "").rstrip("/")
    if not url.startswith("https"):
        return Connection(url, proxy=cluster.proxy_url)
    return Connection(
        url,
        ca=_file(cluster_entry, cluster.certificate_authority_data, cluster.certificate_authority),
        certificate=_file(user_entry, user.client_certificate_data, user.client_certificate),
        key=_file(user_entry, user.client_key_data, user.client_key),
        verify=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name,
        proxy=cluster.proxy_url,
    )


def _file(entry: _Entry, data: str | None, file: str | None) -> str | None:
    """Return the name of a file with the data, or of the file itself, if it can be read."""
    if data:
        return file_with(base64.b64decode(data))
    if file:
        path = _path(entry, file)
        files.check(path)
        return str(path)
    return None


def _path(entry: _Entry, file: str) -> Path:
    return entry.file.parent / file


def _has_files(user: _User, cluster: _Cluster) -> bool:
    """Whether the credential uses files that may change, and reading them again runs no program."""
    if user.exec or user.auth_provider:
        return False
    return bool(
        (user.token_file and not user.token)
        or (user.client_certificate and not user.client_certificate_data)
        or (user.client_key and not user.client_key_data)
        or (cluster.certificate_authority and not cluster.certificate_authority_data)
    )


def _authority(connection: Connection, cluster: _Cluster, chosen: Chosen) -> str:
    if not connection.ca:
        return "the system's CAs, for there is none in " + str(chosen)
    if cluster.certificate_authority_data:
        return f"the certificate-authority-data of {chosen}"
    return f"the CA in {connection.ca}"


def _by_plugin(
    plugin: dict[str, Any], user: _Entry, cluster: _Entry, chosen: Chosen, limit: timedelta
) -> tuple[_User, datetime | None]:
    """Run the user's exec plugin. Return a user with its credential, and when that expires."""
    try:
        found = exec_plugin.run(plugin, user.file.parent, cluster.content, limit)
    except exec_plugin.PluginFailed as error:
        raise SettingsError(
            f"{chosen}: the exec plugin {plugin.get('command')!r} gave no credential: {error}"
        ) from None
    made = _User(token=found.token, exec=plugin)
    if found.has_certificate:
        made.client_certificate_data = base64.b64encode(found.client_certificate_data.encode()).decode()
        made.client_key_data = base64.b64encode(found.client_key_data.encode()).decode()
    return made, found.expiration_timestamp


def _merged(paths: tuple[Path, ...]) -> _Kubeconfig:
    merged = _Kubeconfig({}, {}, {}, None)
    for path in paths:
        config = _read(path, _names(paths))
        current = config.get("current-context")
        merged = _Kubeconfig(
            merged.contexts | _new(config.get("contexts"), "context", merged.contexts, path),
            merged.clusters | _new(config.get("clusters"), "cluster", merged.clusters, path),
            merged.users | _new(config.get("users"), "user", merged.users, path),
            merged.current_context or (current if isinstance(current, str) else None),
        )
    return merged


def _new(found: object, key: str, known: dict[str, _Entry], path: Path) -> dict[str, _Entry]:
    """Return the entries of a file that none before it has."""
    new: dict[str, _Entry] = {}
    for each in found if isinstance(found, list) else ():
        match each:
            case {"name": str(name)} if name not in known and isinstance(content := each.get(key), dict):
                new.setdefault(name, _Entry(content, path))
            case {"name": str(name)} if name not in known and key == "user" and each.get(key) is None:
                new.setdefault(name, _Entry({}, path))  # it has nothing to show, like a client without an account
            case _:
                pass
    return new


def _read(path: Path, names: str) -> dict[str, Any]:
    try:
        config = files.read_yaml(path)
        too_large = files.expands_beyond(config, files.LARGEST)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" (line {mark.line + 1})" if mark else ""
        if isinstance(error, files.TooManyMerged):
            raise SettingsError(f"{names} {error.problem}{line}") from None
        if getattr(error, "problem", None) == files.ANOTHER:
            raise SettingsError(f"{names} is not one YAML document: {files.ANOTHER}{line}") from None
        raise SettingsError(f"{names} is not YAML{line}") from None
    except OSError as error:
        raise SettingsError(f"{error.filename or names} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):  # not text, an impossible date, or nested too deeply
        raise SettingsError(f"{names} is not a kubeconfig") from None
    if too_large:
        raise SettingsError(f"{names} is too large for a kubeconfig")
    if not isinstance(config, dict):
        raise SettingsError(f"{names} is not a kubeconfig")
    return config


def _find(entries: dict[str, _Entry], key: str, name: str | None, chosen: Chosen) -> _Entry:
    """Return the entry of this name.

    Raises:
        SettingsError: there is none.
    """
    if name in entries:
        return entries[name]
    raise SettingsError(f"{chosen}: there is no {key} {name!r}; the {key}s are: {', '.join(entries) or 'none'}")


def _as(kind: type[T], entry: _Entry, place: str) -> T:
    """Return an entry's content as a struct.

    Raises:
        SettingsError: a value in it has the wrong type.
    """
    try:
        return msgspec.convert(entry.content, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        problem = str(error) if isinstance(error, msgspec.ValidationError) else "nested too deeply"
        raise SettingsError(
            f"{place} is not valid: {problem}"
        ) from None  # msgspec names fields and types, never a value


def _names(paths: Iterable[Path]) -> str:
    return ", ".join(map(str, paths))
