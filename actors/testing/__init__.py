"""Test-kit for actors: virtual time, one order of messages, probes. No test needs to sleep, retry or race.

    kit = Kit()
    driver = kit.probe("driver")
    store = kit.spawn(lambda context: SnapshotStore(context, ...), name="snapshot-store", owner=driver.address)
    store.tell(UpdatePods(...))
    kit.advance(timedelta(seconds=1))
    driver.take(SnapshotBatch)

With `actors.testing.plugin`, pytest tests get a `kit` as a fixture. Only the plugin needs pytest.
"""

from actors.testing.dispatcher import Runaway, SerialDispatcher
from actors.testing.kit import Kit
from actors.testing.manual import ManualClock, ManualTimers
from actors.testing.probe import Probe

__all__ = ["Kit", "ManualClock", "ManualTimers", "Probe", "Runaway", "SerialDispatcher"]
