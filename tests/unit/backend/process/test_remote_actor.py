"""The actor that stands for a child of another process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.backend.process.remote_actor import ChildEnded, RemoteActor
from actors.runtime import Address, Lost, Terminated

if TYPE_CHECKING:
    from actors.testing import Kit


class Elsewhere:
    """Writes down what it is to do."""

    def __init__(self) -> None:
        self.done: list[tuple[object, ...]] = []
        self.actor: Address | None = None

    def spawn(self, name: str, incarnation: int, reply_to: Address) -> None:
        self.done.append(("spawn", name, incarnation))
        self.actor = reply_to

    def tell(self, name: str, incarnation: int, message: object) -> None:
        self.done.append(("tell", name, incarnation, message))

    def stop(self, name: str, incarnation: int) -> None:
        self.done.append(("stop", name, incarnation))


class Rig:
    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self.elsewhere = Elsewhere()
        self.owner = kit.probe("owner")
        self.address = kit.spawn(
            lambda context: RemoteActor(context, self.elsewhere), name="child", owner=self.owner.address
        )
        kit.settle()

    def child_ends(self, cause: BaseException | None) -> None:
        assert self.elsewhere.actor is not None
        self.elsewhere.actor.tell(ChildEnded(cause))
        self.kit.settle()


@pytest.fixture
def rig(kit: Kit) -> Rig:
    return Rig(kit)


def test_it_starts_the_child_and_passes_on_what_it_is_sent(rig: Rig) -> None:
    rig.address.tell("one")
    rig.address.tell("two")
    rig.kit.settle()
    assert rig.elsewhere.done == [("spawn", "child", 1), ("tell", "child", 1, "one"), ("tell", "child", 1, "two")]


def test_it_ends_with_the_child_when_it_is_stopped(rig: Rig) -> None:
    rig.address.tell("one")
    rig.address.stop()
    rig.kit.settle()
    assert rig.elsewhere.done[1:] == [("tell", "child", 1, "one"), ("stop", "child", 1)]
    assert rig.address.is_alive(), "the child has not ended"
    rig.child_ends(None)
    assert rig.owner.take(Terminated) == Terminated("child", 1, None)


def test_it_ends_for_the_cause_for_which_the_child_has_ended(rig: Rig) -> None:
    cause = Lost("its process has ended")
    rig.child_ends(cause)
    assert rig.owner.take(Terminated) == Terminated("child", 1, cause)
    assert [crash.cause for crash in rig.kit.crashes] == [cause]
    rig.kit.crashes.clear()
