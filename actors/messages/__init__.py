"""The protocol: every message that one actor sends to another, grouped by receiver.

A driver sends `FromDriver` to the Backend and receives `ToDriver`. Commands are imperative, events are past tense, and
all messages are frozen. Each actor has a union of the messages that it accepts (`ToSnapshotStore`, …), so that mypy can
check its `match`. A message that never leaves its module is private and starts with an underscore.

A `datetime` comes from the API or the wall clock and is in UTC. A `Moment` can be compared within this process only.
"""

from actors.messages.backend import *
from actors.messages.driver import *
from actors.messages.executors import *
from actors.messages.lease import *
from actors.messages.ledger import *
from actors.messages.observation import *
from actors.messages.requests import *
