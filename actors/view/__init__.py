"""The view of a fleet: what whoever follows it knows, folded from the values that the Backend publishes.

The room owns one class, `FleetView`. Each reader (a door, a page) folds each `FleetChanged` into a view of its
own, in its own thread; the values are shared. It works nothing out, and asks the Backend only if something was missed.
"""

from actors.view.fleet_view import FleetView

__all__ = ["FleetView"]
