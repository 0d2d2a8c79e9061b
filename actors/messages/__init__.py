"""The public protocol: every message between a driver and its Backend, and the values that answers carry.

A driver sends `FromDriver` to the Backend and receives `ToDriver`; whoever follows the fleet receives `FleetChanged`.
Commands are imperative, events are past tense, and all messages are frozen. What the library's own actors send each
other is in `actors.messages.internal`; a driver sends none of it. A `datetime` comes from the API or the wall clock and
is in UTC.
"""

from actors.messages.changes import *
from actors.messages.executor import *
from actors.messages.from_driver import *
from actors.messages.status import *
from actors.messages.to_driver import *
