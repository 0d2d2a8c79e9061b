"""The test kit for actors: virtual time, one order of messages, and probes. No test sleeps, retries or races.

A test sends messages to the actor under test, and takes those it sends from probes in the place of other actors. The
kit knows no actor of the library, and never lets time pass by itself.

    kit = Kit()
    driver = kit.probe("driver")
    store = kit.spawn(lambda context: SnapshotStore(context, ...), name="snapshot-store", owner=driver.address)
    store.tell(UpdatePods(...))
    kit.advance(timedelta(seconds=1))
    driver.take(SnapshotBatch)

`actors.testing.plugin` provides a `kit` fixture. Only the plugin needs pytest.
"""

from actors.local.kubelet.scripted_kubelet import Run, StayUnscheduled, StayWaiting
from actors.testing.dispatcher import Crash, NotInVirtualTime, Runaway, SerialDispatcher
from actors.testing.fake_cluster import ApiRequest, FakeCluster
from actors.testing.kit import Kit
from actors.testing.manual import ManualClock, ManualTimers
from actors.testing.manual_api import ManualCall, ManualPodApi
from actors.testing.pods import pod
from actors.testing.probe import Probe

__all__ = [
    "ApiRequest",
    "Crash",
    "FakeCluster",
    "Kit",
    "ManualCall",
    "ManualClock",
    "ManualPodApi",
    "ManualTimers",
    "NotInVirtualTime",
    "Probe",
    "Run",
    "Runaway",
    "SerialDispatcher",
    "StayUnscheduled",
    "StayWaiting",
    "pod",
]
