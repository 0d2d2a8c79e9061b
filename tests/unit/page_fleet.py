"""A fleet with a page that takes actions, on the embedded cluster in process."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from actors import Fleet
from actors.local.inprocess import InProcessPodApi
from actors.local.kubelet.scripted_kubelet import ScriptedKubelet
from actors.local.store.object_store import ObjectStore
from actors.runtime import ActorSystem

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TOKEN", "page_fleet"]

TOKEN = "a-token-of-24-characters"


@contextmanager
def page_fleet() -> Iterator[Fleet]:
    """Two executors; the page's token is `TOKEN`."""
    with ExitStack() as stack:
        system = ActorSystem()
        stack.callback(system.close)
        store = ObjectStore(system.clock, system.entropy)
        stack.callback(ScriptedKubelet(store, system.clock, system.timers).close)
        api = InProcessPodApi(store, "default", system.timers)
        soon = {"batch_delay": "20ms"}
        made = Fleet(image="any", instances=2, allocation=soon, pod_api=api, system=system, page=0, page_token=TOKEN)  # type: ignore[arg-type]  # text is read
        yield stack.enter_context(made)
