from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.contract.asking import Asking
from tests.contract.clusters import Cluster, EmbeddedCluster, RealCluster, StoreCluster
from tests.contract.control_plane import ASSETS
from tests.contract.raw import Raw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.contract.control_plane import ControlPlane


@pytest.fixture(scope="session")
def real(plane: ControlPlane) -> RealCluster:
    """The same, as what the contract is held against."""
    return RealCluster(plane)


@pytest.fixture(scope="session")
def in_process() -> Iterator[StoreCluster]:
    """The embedded cluster's store."""
    cluster = StoreCluster()
    yield cluster
    cluster.timers.close()


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """The embedded cluster's HTTP server."""
    cluster = EmbeddedCluster(tmp_path_factory.mktemp("embedded"))
    yield cluster
    cluster.server.stop()
    cluster.timers.close()


KINDS = ["in_process", "embedded", *(["real"] if ASSETS else [])]
"""One skipped test says that there is no real server, not each."""


@pytest.fixture(scope="session", params=KINDS)
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each kind of cluster that there is here, shared by all tests."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="session", params=[kind for kind in KINDS if kind != "in_process"])
def http_cluster(request: pytest.FixtureRequest) -> Cluster:
    """Those of them that speak HTTP."""
    found: Cluster = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def raw(cluster: Cluster) -> Raw:
    """A namespace of the test's own, asked past the `PodApi`, by an administrator."""
    return Raw(cluster.door(), Cluster.new_namespace(cluster))


@pytest.fixture
def http(http_cluster: Cluster) -> Raw:
    """The same, for what is only about HTTP."""
    return Raw(http_cluster.door(), Cluster.new_namespace(http_cluster))


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Asking]:
    """A client with every right, in a namespace of the test's own."""
    connected = cluster.connect_as_admin(Cluster.new_namespace(cluster))
    yield Asking(connected)
    connected.close()


@pytest.fixture
def api(cluster: Cluster) -> Iterator[Asking]:
    """A client in a namespace of the test's own."""
    connected = cluster.connect(cluster.new_namespace())
    yield Asking(connected)
    connected.close()
