"""Each life of the table, on both worlds."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.node.embedded import embedded
from tests.node.life import Life, Story, live
from tests.node.lives import LIVES
from tests.node.real import RealWorld

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from tests.node.real import Machines
    from tests.node.world import World

AT_ONCE: Final = 12
"""Lives that are lived at a time: most of one is waiting."""

KUBELETS_MADE_UP_END = "the end that a kubelet makes up for a container that it lost is taken for the application's"
NEVER_RAN = "a pod that never ran counts as deleted"
SIDECAR_HIDES = "the end beside a native sidecar is told when the sidecar has ended"
WHOLE_PAUSE = "the whole pause is served after somebody else deleted the pod"
OWN_STORAGE = "an eviction for the pod's own limit counts as the cluster's"
NOT_YET: Final = {
    ("embedded", "wrong command"): "a container that cannot start ends as a shell's child would",
    ("embedded", "no program"): "a container that cannot start ends as a shell's child would",
    ("embedded", "init container cannot start"): "a container that cannot start ends as a shell's child would",
    ("embedded", "wrong image, deleted"): NEVER_RAN,
    ("embedded", "postStart fails"): "a container whose postStart hook fails is killed, not stopped",
    ("embedded", "sidecar goes on"): "the embedded cluster has no native sidecars",
    ("embedded", "sidecar goes on, exit 0"): "the embedded cluster has no native sidecars",
    ("embedded", "sidecar crashes"): "the embedded cluster has no native sidecars",
    ("embedded", "deleted, loses SIGTERM"): "a process of the embedded cluster is not process 1",
    ("embedded", "node rebooted"): KUBELETS_MADE_UP_END,
    ("embedded", "drained, file"): WHOLE_PAUSE,
    ("embedded", "drained, end"): WHOLE_PAUSE,
    ("real", "invalid image"): NEVER_RAN,
    ("real", "wrong image, deleted"): NEVER_RAN,
    ("real", "wrong image, killed"): NEVER_RAN,
    ("real", "missing secret"): NEVER_RAN,
    ("real", "missing config map"): NEVER_RAN,
    ("real", "wrong user"): NEVER_RAN,
    ("real", "node rebooted"): KUBELETS_MADE_UP_END,
    ("real", "sidecar goes on"): SIDECAR_HIDES,
    ("real", "sidecar goes on, exit 0"): SIDECAR_HIDES,
    ("real", "drained, file"): WHOLE_PAUSE,
    ("real", "container's storage"): OWN_STORAGE,
    ("real", "volume's storage"): OWN_STORAGE,
    ("real", "deadline"): "the end of a deadline counts as the application's",
}
"""Rows that are right, and do not hold yet. One that holds fails, so that it leaves this list."""

Stories = dict[str, "Future[Story]"]


def rows(world: str) -> list[Any]:
    """The lives of a world, as parameters."""
    lives = [life for life in LIVES if world == "real" or not life.not_embedded]
    return [pytest.param(life, id=life.name, marks=_marks(world, life)) for life in lives]


def _marks(world: str, life: Life) -> list[pytest.MarkDecorator]:
    why = NOT_YET.get((world, life.name))
    return [pytest.mark.xfail(strict=True, raises=AssertionError, reason=why)] if why else []


def begin(lives: list[Life], world: World, pool: ThreadPoolExecutor) -> Stories:
    return {life.name: pool.submit(live, world, life) for life in lives}


def chosen(request: pytest.FixtureRequest, test: Callable[..., None]) -> list[Life]:
    """The lives of this run, such as by `-k`."""
    items = (item for item in request.session.items if isinstance(item, pytest.Function) and item.function is test)
    params: list[Any] = [item.callspec.params["life"] for item in items]
    return params


@pytest.fixture(scope="module")
def embedded_stories(request: pytest.FixtureRequest) -> Iterator[Stories]:
    """Every life of the embedded cluster, at once; those that need a node of their own have a cluster of their own."""
    lives = chosen(request, test_the_driver_is_told_on_the_embedded_cluster)

    def live_alone(life: Life) -> Story:
        with embedded() as world:
            return live(world, life)

    with embedded() as shared, ThreadPoolExecutor(AT_ONCE) as pool:
        stories = {life.name: pool.submit(live_alone, life) for life in lives if life.alone}
        yield stories | begin([life for life in lives if not life.alone], shared, pool)


@pytest.mark.parametrize("life", rows("embedded"))
def test_the_driver_is_told_on_the_embedded_cluster(life: Life, embedded_stories: Stories) -> None:
    check(life, "embedded", embedded_stories[life.name].result())


def check(life: Life, world: str, story: Story) -> None:
    print(f"\n{life.name}: {story.took:.1f} s: {story.reason.message}")
    assert life.told_in(world).problems(story.reason) == [], story.reason.message
    assert life.stuck is None or any(life.stuck in reason for reason in story.stuck), story.stuck
    assert life.within is None or story.took < life.within
    assert story.left == set()


@pytest.fixture(scope="module")
def real_stories(request: pytest.FixtureRequest, machines: Machines) -> Iterator[Stories]:
    """Every life on node-1, at once; on node-2, one after the other, those that need a node of their own."""
    lives = chosen(request, test_the_driver_is_told_on_a_real_node)
    shared, own = RealWorld(machines, 1), RealWorld(machines, 2)
    with ThreadPoolExecutor(AT_ONCE) as pool, ThreadPoolExecutor(1) as one:
        alone = begin([life for life in lives if life.alone], own, one)
        yield alone | begin([life for life in lives if not life.alone], shared, pool)
    shared.close()
    own.close()


@pytest.mark.node
@pytest.mark.parametrize("life", rows("real"))
def test_the_driver_is_told_on_a_real_node(life: Life, real_stories: Stories) -> None:
    check(life, "real", real_stories[life.name].result())
