"""The Backend's table: who handles which message."""

from __future__ import annotations

import sys
from enum import Enum
from inspect import signature
from typing import TYPE_CHECKING, Any, get_args

import pytest

from actors.backend import backend as backend_module
from actors.backend import driver_pod, shutdown, startup
from actors.backend.backend import Backend
from actors.backend.deletion.fleet_deletion import ListDue, LookedUp
from actors.executors import executors, kills, leasing, publication, scaling
from actors.lease.write_permission import LeaseOver
from actors.messages import FromDriver
from actors.messages.internal import FromInside
from actors.sources.listing import PageArrived
from actors.testing.manual_api import ManualPodApi
from tests.unit.views import settings

if TYPE_CHECKING:
    from actors.testing import Kit

PRIVATE = {
    kind
    for module in (backend_module, driver_pod, executors, kills, leasing, publication, scaling, shutdown, startup)
    for name, kind in vars(module).items()
    if isinstance(kind, type) and name.startswith("_") and kind.__module__ == module.__name__
    if not issubclass(kind, Enum | tuple)
}
"""The messages that the Backend and its parts send to themselves: timers and answers of the API."""


@pytest.fixture
def table(kit: Kit) -> dict[type, backend_module._Row]:
    Backend.start(settings(), kit.probe("driver").address, ManualPodApi(), system=kit.system)
    (subject,) = (actor for actor in kit.dispatcher.actors if isinstance(actor, Backend))
    return subject._table


def test_every_message_has_a_handler_and_there_is_none_for_anything_else(table: Any) -> None:
    others = {LeaseOver, ListDue, LookedUp, PageArrived}
    assert set(table) == {*get_args(FromInside), *get_args(FromDriver), *PRIVATE, *others}


def test_each_handler_and_each_listener_is_made_for_its_message(table: Any) -> None:
    for kind, row in table.items():
        for called in (row.handle, *row.listeners):
            (first, *_) = signature(called).parameters.values()
            module = sys.modules[called.__func__.__module__]
            taken = eval(first.annotation, vars(module))  # the module's own annotation
            fits = taken is object or kind in (taken, *get_args(taken))
            assert fits, f"{called.__qualname__} takes no {kind.__name__}"


def test_two_handlers_of_one_message_are_a_mistake() -> None:
    with pytest.raises(TypeError, match="two handlers for one message"):
        backend_module._table([{int: print, str: print}, {str: repr}], [])


def test_several_may_listen_to_a_message_that_has_a_handler() -> None:
    row = backend_module._table([{int: print}], [{int: repr}, {int: str}])[int]
    assert (row.handle, row.listeners) == (print, (repr, str))
    with pytest.raises(KeyError):
        backend_module._table([], [{int: repr}])
