"""Dask clusters whose workers are executors of a fleet.

The room owns `PodCluster`, a `distributed.deploy.Cluster`: a scheduler in the driver's process and an `AsyncFleet` in
its event loop, each told what the other one knows. It uses the fleet as any program does, and sends no other message.
"""

from actors.errors import needs_extra

with needs_extra("dask", "actors.dask"):
    from actors.dask.pod_cluster import PodCluster

__all__ = ["PodCluster"]
