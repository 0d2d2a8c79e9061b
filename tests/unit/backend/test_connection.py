"""The client that a Backend makes from its settings."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from actors import Settings
from actors.backend.connection import connect
from actors.kube.http.pod_api import HttpPodApi
from actors.kube.observer.pod_api import ObserverPodApi
from actors.settings import SourceSettings
from tests.unit.kube.scripted import write_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(("process", "kind"), [(False, HttpPodApi), (True, ObserverPodApi)])
def test_the_client_is_as_the_settings_have_it(tmp_path: Path, process: bool, kind: type) -> None:
    settings = Settings(namespace="ns", source=SourceSettings(process=process))
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1", {})
    with closing(connect(settings, kubeconfig=path)) as api:
        assert (type(api), api.namespace) == (kind, "ns")
