"""The service account of the pod that runs this program: a token that the kubelet rotates, a CA, a namespace."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from kubernetes.client import Configuration
from kubernetes.config import ConfigException
from kubernetes.config.incluster_config import InClusterConfigLoader

from actors.errors import SettingsError
from actors.kube import files
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
    configuration = Configuration()
    try:
        for name in ("token", "ca.crt"):
            files.check(account / name)
        InClusterConfigLoader(
            token_filename=str(account / "token"),
            cert_filename=str(account / "ca.crt"),
            try_refresh_token=False,
            environ=environ,
        ).load_and_set(configuration)
    except ConfigException as error:
        raise SettingsError(f"the pod's own account in {account} cannot be used: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SettingsError(f"the pod's own account in {account} cannot be read: {reason}") from None
    except ValueError:
        raise SettingsError("KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are no server's address") from None
    return Credential(
        configuration,
        refresh_at=now + READ_TOKEN_EVERY,
        source=f"the pod's own account in {account}",
        authority=f"the CA in {account / 'ca.crt'}",
    )


def namespace(account: Path) -> str:
    """Return the namespace of the pod, or `default` if it cannot be read."""
    try:
        return files.read(account / "namespace").decode("ascii").strip() or "default"
    except (OSError, UnicodeDecodeError):
        return "default"
