"""A Dask cluster whose account lacks a right, on a real server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from actors.backend.rbac import Right
from actors.errors import Forbidden
from tests.contract.accounts import open_account
from tests.contract.clusters import Cluster

if TYPE_CHECKING:
    from tests.contract.clusters import RealCluster
    from tests.contract.control_plane import ControlPlane

LACKS = r'the account may not delete pods in namespace "contract-.*": grant verb "delete" on resource "pods"'


def test_a_dask_cluster_does_not_start_without_a_right_and_says_which(plane: ControlPlane, real: RealCluster) -> None:
    dask = pytest.importorskip("actors.dask", exc_type=ImportError)
    namespace = Cluster.new_namespace(real)
    values: dict[str, Any] = {"image": "any", "host": "127.0.0.1", "dashboard_address": None, "namespace": namespace}
    values["kubeconfig"] = open_account(plane, namespace, without=Right("delete"))
    with pytest.raises(Forbidden, match=LACKS):
        dask.PodCluster(2, **values)

    async def program() -> None:
        async with dask.PodCluster(2, asynchronous=True, **values):
            raise AssertionError("it has started")

    with pytest.raises(Forbidden, match=LACKS):
        asyncio.run(program())
