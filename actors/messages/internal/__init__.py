"""The internal protocol: every message that one actor of the library sends to another, grouped by receiver.

Each actor has a union of the messages that it accepts (`ToSnapshotStore`, …), so that mypy can check its `match`. A
message that never leaves its module is private and starts with an underscore. A `Moment` can be compared within this
process only.
"""

from actors.messages.internal.backend import *
from actors.messages.internal.executors import *
from actors.messages.internal.lease import *
from actors.messages.internal.ledger import *
from actors.messages.internal.observation import *
from actors.messages.internal.recorder import *
from actors.messages.internal.requests import *
