"""The service account of the pod that runs this program: a token that the kubelet rotates, a CA, a namespace."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from actors.errors import SettingsError
from actors.kube import files
from actors.kube.auth.connection import Connection
from actors.kube.auth.credentials import Credential

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["READ_TOKEN_EVERY", "namespace", "read"]

READ_TOKEN_EVERY: Final = timedelta(minutes=1)
"""client-go's period for token files. The kubelet renews a token after 80 % of its lifetime, at least ten minutes."""


def read(account: Path, environ: Mapping[str, str], now: datetime) -> Credential:
    """Read the current credential of the service account.

    Raises:
        SettingsError: a file or variable is missing.
    """
    host, port = (environ.get(f"KUBERNETES_SERVICE_{name}") for name in ("HOST", "PORT"))
    if not host or not port:
        raise SettingsError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are no server's address")
    ca = account / "ca.crt"
    try:
        token = files.read(account / "token").decode("utf-8").strip()
        files.check(ca)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"the pod's own account in {account} cannot be read: {reason}") from None
    if not token:
        raise SettingsError(f"the pod's own account in {account} cannot be used: its token is empty")
    return Credential(
        Connection(f"https://{f'[{host}]' if ':' in host else host}:{port}", ca=str(ca)),
        authorization=f"Bearer {token}",
        refresh_at=now + READ_TOKEN_EVERY,
        source=f"the pod's own account in {account}",
        authority=f"the CA in {ca}",
    )


def namespace(account: Path) -> str:
    """Return the namespace of the pod, or `default` if it cannot be read."""
    try:
        return files.read(account / "namespace").decode("ascii").strip() or "default"
    except (OSError, UnicodeDecodeError):
        return "default"
