"""The least that Pykka needs to carry a fleet.

Actors that die alone and are missed, addresses that outlive them, timers, a clock and chance that tests can hold, and
supervision. This package is the only one that imports Pykka, and it knows nothing of pods. Tell between actors; ask
only from outside, always with a timeout.
"""

from pykka import ActorDeadError, ActorRef, Timeout

from actors.runtime.actor import Actor, Context, Dispatcher
from actors.runtime.address import Address
from actors.runtime.backoff import Backoff
from actors.runtime.clock import Clock, Moment, SystemClock, elapsed, later
from actors.runtime.entropy import Entropy
from actors.runtime.handle import Hung, StoppedByHost, SupervisorMessage, Terminated
from actors.runtime.supervisor import ChildSpec, Supervisor
from actors.runtime.system import ActorSystem, ThreadDispatcher
from actors.runtime.timer_thread import TimerThread
from actors.runtime.timers import Scheduled, Timers, TimerService

__all__ = [
    "Actor",
    "ActorDeadError",
    "ActorRef",
    "ActorSystem",
    "Address",
    "Backoff",
    "ChildSpec",
    "Clock",
    "Context",
    "Dispatcher",
    "Entropy",
    "Hung",
    "Moment",
    "Scheduled",
    "StoppedByHost",
    "Supervisor",
    "SupervisorMessage",
    "SystemClock",
    "Terminated",
    "ThreadDispatcher",
    "Timeout",
    "TimerService",
    "TimerThread",
    "Timers",
    "elapsed",
    "later",
]
