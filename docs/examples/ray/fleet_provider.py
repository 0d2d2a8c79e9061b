"""Ray's own autoscaler over a fleet. It decides how many nodes of which type there are; each node is an executor."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from ray._raylet import GcsClient
from ray.autoscaler.v2.autoscaler import Autoscaler
from ray.autoscaler.v2.instance_manager.config import AutoscalingConfig, IConfigReader
from ray.autoscaler.v2.instance_manager.node_provider import CloudInstance, ICloudInstanceProvider
from ray.core.generated.instance_manager_pb2 import NodeKind

from actors import Executor, ExecutorState, Fleet

HEAD = "head"
"""The head's node type, and its cloud instance: it is the driver's own."""

NO_SETUP = ("setup_commands", "head_setup_commands", "worker_setup_commands", "cluster_synced_files")
"""Lists of the configuration that must be there: the image has all that a node needs."""

ENDED = {ExecutorState.TERMINATING, ExecutorState.ENDED}


class FleetProvider(ICloudInstanceProvider):
    """A node type is a profile of the fleet; a cloud instance is an executor, named by its pod.

    The fleet's profiles have `replace="never"`: whether a lost node is replaced is the autoscaler's decision.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._done: set[str] = set()

    def get_non_terminated(self) -> dict[str, CloudInstance]:
        """Return the head and the executors that have a pod. The autoscaler waits for those that have none yet."""
        nodes = {HEAD: CloudInstance(HEAD, HEAD, NodeKind.HEAD, is_running=True)}
        for executor in self._alive():
            running = executor.state is ExecutorState.RUNNING
            nodes[executor.pod] = CloudInstance(executor.pod, executor.profile, NodeKind.WORKER, is_running=running)
        return nodes

    def launch(self, shape: Mapping[str, int], request_id: str) -> None:
        """Raise the targets."""
        if request_id not in self._done:
            self._done.add(request_id)
            profiles = self._fleet.status().profiles
            self._fleet.scale({node_type: profiles[node_type].target + more for node_type, more in shape.items()})

    def terminate(self, ids: Iterable[str], request_id: str) -> None:  # noqa: ARG002 - Ray's signature
        """End executors whose nodes have drained, and lower the targets. To end one twice is to end it once."""
        self._fleet.kill([each.id for each in self._alive() if each.pod in set(ids)], replace=False)

    def poll_errors(self) -> list:
        """Return nothing: the fleet repeats what fails, and says what holds it up in its log and its events."""
        return []

    def _alive(self) -> Iterator[Executor]:
        return (each for each in self._fleet.executors.values() if each.pod and each.state not in ENDED)


class Config(IConfigReader):
    """The autoscaler's configuration, which does not change."""

    def __init__(self, node_types: Mapping[str, Mapping], idle_seconds: float) -> None:
        self._config = AutoscalingConfig(
            {
                "cluster_name": "fleet",
                "provider": {"type": "external", "module": __name__, "disable_node_updaters": True},
                "max_workers": sum(each["max_workers"] for each in node_types.values()),
                "idle_timeout_minutes": idle_seconds / 60,
                "head_node_type": HEAD,
                "available_node_types": {HEAD: {"resources": {"CPU": 0}, "node_config": {}}, **node_types},
                **{name: [] for name in NO_SETUP},
            },
            skip_content_hash=True,
        )

    def get_cached_autoscaling_config(self) -> AutoscalingConfig:
        """Return it."""
        return self._config

    def refresh_cached_autoscaling_config(self) -> None:
        """Do nothing."""


class FleetAutoscaler(Autoscaler):
    """Ray's autoscaler, with a fleet for its cloud."""

    def __init__(self, fleet: Fleet, config: Config, gcs_client: GcsClient) -> None:
        self._fleet = fleet
        super().__init__("fleet", config, gcs_client)

    def _init_cloud_instance_provider(self, *_: object) -> None:
        self._cloud_instance_provider = FleetProvider(self._fleet)


@contextmanager
def autoscaled(fleet: Fleet, gcs_address: str, config: Config) -> Iterator[None]:
    """Let Ray's autoscaler look at the demand and change the fleet, once a second, in a thread."""
    gcs_client = GcsClient(address=gcs_address)
    autoscaler = FleetAutoscaler(fleet, config, gcs_client)
    end = threading.Event()

    def run() -> None:
        while not end.wait(1):
            state = autoscaler.update_autoscaling_state()
            if state is not None:
                gcs_client.report_autoscaling_state(state.SerializeToString())

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
