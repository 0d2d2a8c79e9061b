from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.kube.observer.pod_api import ObserverPodApi

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.unit.kube.conftest import Client


@pytest.fixture
def api(client: Client) -> Iterator[ObserverPodApi]:
    made = ObserverPodApi(client.connect())
    yield made
    made.close()
    assert made.pid is None
