"""What Pykka lacks to run a fleet: crash reports, addresses that outlive actors, timers, supervision, a test clock.

This room owns the actors' threads, mailboxes and timers. It sends `Terminated` to an actor's owner. It is the only
room that imports Pykka, and it never knows about pods. Actors `tell` each other; only code outside of actors may `ask`,
always with a timeout.
"""

from pykka import ActorDeadError, ActorRef, Future, Timeout

from actors.runtime.actor import Actor, Context, Dispatcher
from actors.runtime.address import Address
from actors.runtime.backoff import Backoff
from actors.runtime.clock import Clock, Deadline, Moment, SystemClock, elapsed, later
from actors.runtime.entropy import Entropy
from actors.runtime.handle import Hung, Lost, StoppedByHost, SupervisorMessage, Terminated
from actors.runtime.loop import at_rest
from actors.runtime.mailbox import DeadLetters
from actors.runtime.supervisor import ChildSpec, Supervisor
from actors.runtime.system import ActorSystem, installed, installed_system
from actors.runtime.threads import Courier, TookTooLong, in_words, start_thread
from actors.runtime.timers import Scheduled, Timers, TimerService, TimerThread
from actors.text import unmute

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
    "Courier",
    "DeadLetters",
    "Deadline",
    "Dispatcher",
    "Entropy",
    "Future",
    "Hung",
    "Lost",
    "Moment",
    "Scheduled",
    "StoppedByHost",
    "Supervisor",
    "SupervisorMessage",
    "SystemClock",
    "Terminated",
    "Timeout",
    "TimerService",
    "TimerThread",
    "Timers",
    "TookTooLong",
    "at_rest",
    "elapsed",
    "in_words",
    "installed",
    "installed_system",
    "later",
    "start_thread",
]

unmute("pykka")
"""Pykka logs what a driver's actor raises, and nobody else sees it: the actor ends, and its program with it."""
