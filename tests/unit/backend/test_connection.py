"""The client that a Backend makes from its settings."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from actors import Settings
from actors.backend.connection import connect
from actors.kube.http.pod_api import HttpPodApi
from tests.unit.kube.scripted import write_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path


def test_the_client_is_as_the_settings_have_it(tmp_path: Path) -> None:
    settings = Settings(namespace="ns")
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", {})
    with closing(connect(settings, kubeconfig=path)) as api:
        assert (type(api), api.namespace) == (HttpPodApi, "ns")
