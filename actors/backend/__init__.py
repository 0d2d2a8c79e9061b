"""The Backend actor: the facade that a driver starts, talks to and stops.

It owns the other actors, the ledger and the driver's target. It receives the driver's messages (`FromDriver`) and its
children's (`FromInside`); it sends the driver what happens to the fleet (`ToDriver`), and the children the ledger, the
target and kills. It never creates, deletes or changes a pod itself.
"""

from actors.backend.backend import Backend

__all__ = ["Backend"]
