"""Finds a cluster where kubectl does: a kubeconfig, else the service account of the pod that runs this program."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from actors.errors import SettingsError
from actors.kube.auth import kubeconfig as kubeconfigs
from actors.kube.auth import service_account as pod_account
from actors.kube.auth.credentials import Access, access_to
from actors.kube.auth.own_pod import SERVICE_ACCOUNT
from actors.runtime import Clock, SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping


__all__ = ["load"]


def load(
    kubeconfig: Path | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    account: Path = SERVICE_ACCOUNT,
    clock: Clock | None = None,
    limit: timedelta = timedelta(seconds=10),
) -> Access:
    """Return the access that the user means.

    The order is: `kubeconfig`, the files of `KUBECONFIG`, `~/.kube/config`, and, if no context is named, the service
    account of the pod that runs this program. `limit` bounds an exec plugin.

    Raises:
        SettingsError: there is no access, or it is not usable; the message names the file and the problem.
    """
    clock = clock or SystemClock()
    files = _kubeconfig_files(kubeconfig, environ)
    if files:
        chosen = kubeconfigs.choose(files, context)
        return access_to(lambda: kubeconfigs.read(chosen, clock.now(), limit), chosen.namespace, clock)
    if context is not None or "KUBERNETES_SERVICE_HOST" not in environ:
        searched = f"KUBECONFIG is not set, {_what_is_not_there(environ)}"
        if context is not None:
            raise SettingsError(f"context {context!r} is in no kubeconfig: {searched}")
        raise SettingsError(
            f"no kubeconfig was found: {searched}, and this program does not run in a pod. "
            "Without a cluster: Fleet(local=True), or `executor-pods run --local`"
        )
    return access_to(lambda: pod_account.read(account, environ, clock.now()), pod_account.namespace(account), clock)


def _kubeconfig_files(kubeconfig: Path | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    if kubeconfig is not None:
        if _is_absent(kubeconfig):
            raise SettingsError(f"kubeconfig {kubeconfig}: there is no such file")
        return (kubeconfig,)
    named = tuple(_expanded(Path(name)) for name in environ.get("KUBECONFIG", "").split(os.pathsep) if name)
    if named:
        there = tuple(path for path in named if not _is_absent(path))
        if not there:
            raise SettingsError(f"KUBECONFIG names {', '.join(map(str, named))}: there is no such file")
        return there
    default = _default_kubeconfig(environ)
    return (default,) if default is not None and _problem(default) is None else ()


def _default_kubeconfig(environ: Mapping[str, str]) -> Path | None:
    """Return where a user's own kubeconfig is; None if nobody knows a home, as for a UID without a passwd entry."""
    if home := environ.get("HOME"):
        return Path(home) / ".kube" / "config"
    try:
        return Path.home() / ".kube" / "config"
    except RuntimeError:
        return None


def _what_is_not_there(environ: Mapping[str, str]) -> str:
    default = _default_kubeconfig(environ)
    if default is None:
        return "this user has no home folder"
    if _is_absent(default):
        return f"{default} does not exist"
    problem = _problem(default)
    return f"{default} cannot be looked at ({(problem.strerror if isinstance(problem, OSError) else None) or problem})"


def _problem(path: Path) -> OSError | ValueError | None:
    """Return why a file cannot be looked at, None if it can.

    A container often runs as another user than its image's home belongs to. That home has no kubeconfig of this user.
    """
    try:
        path.stat()
    except (OSError, ValueError) as error:
        return error
    return None


def _is_absent(path: Path) -> bool:
    """Whether there is surely no such file: one that cannot be looked at is named by the error of its read."""
    # ValueError: no file has such a name
    return isinstance(_problem(path), FileNotFoundError | NotADirectoryError | ValueError)


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # nobody knows that home
        return path
