"""The connection of a Backend to the cluster, as its settings have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors import kube

if TYPE_CHECKING:
    from pathlib import Path

    from actors.kube.api import PodApi
    from actors.settings import Settings

__all__ = ["connect"]


def connect(settings: Settings, *, kubeconfig: Path | None = None, context: str | None = None) -> PodApi:
    """Return a client of the cluster for one Backend. Sends nothing yet.

    Args:
        settings: those of the Backend.
        kubeconfig: see `kube.connect`.
        context: see `kube.connect`.

    Raises:
        SettingsError: no kubeconfig, context or credential is usable.
    """
    return kube.connect(
        kubeconfig=kubeconfig,
        context=context,
        namespace=settings.namespace,
        request_timeout=settings.backend.request_timeout,
        max_connections=settings.allocation.connections,
        bounds=settings.api.bounds,
    )
