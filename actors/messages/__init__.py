"""The public protocol: every message that crosses from one actor to another, grouped by its receiver.

Commands are imperative, events are past tense; all are frozen. A union alias per actor (`ToSnapshotStore`, …) says what
that actor accepts, so that its `match` can be checked for exhaustiveness. Messages that never leave one module are
private to it and start with an underscore.

Times in messages: a `datetime` in UTC is the API's or the wall clock's; a `Moment` is the process's own clock's.
"""

from actors.messages.backend import *
from actors.messages.driver import *
from actors.messages.executors import *
from actors.messages.lease import *
from actors.messages.ledger import *
from actors.messages.observation import *
from actors.messages.requests import *
