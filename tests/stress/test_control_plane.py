"""The command against a whole control plane: a fleet made once, kept through deletions and deaths of the API server.

What is counted is counted by others: the API server's audit log, and an observer with its own watch.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import subprocess
import threading
import urllib.error
import urllib.parse
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tests.contract.control_plane import TOKEN
from tests.stress.fleet import Fleet
from tests.stress.nobody import Nobody
from tests.stress.observer import Observer
from tests.stress.plane import PROGRAMS, WholePlane, missing_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.stress.plane import Asked

ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS") or os.devnull)
MISSING = [*missing_in(ASSETS), *(["kubectl"] if shutil.which("kubectl") is None else [])]

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(
        bool(MISSING),
        reason=f"a whole control plane needs a folder, named by KUBEBUILDER_ASSETS, with {', '.join(PROGRAMS)} and the "
        f"stages of kwok, and kubectl on the path; there is no {', '.join(MISSING)}",
    ),
]

EXECUTORS: Final = int(os.environ.get("STRESS_EXECUTORS", "1000"))
SEED: Final = int(os.environ.get("STRESS_SEED", "1"))
DEATHS: Final = 10
DELETED_AROUND_A_DEATH: Final = 5
SMALL_FLEET: Final = 20
GROWING_FLEET: Final = 1000
LARGE_FLEET: Final = 3500
"""More than the server deletes by one call before the call reaches its limit, or by all that fit into a stop."""
DEATHS_WHILE_GROWING: Final = 3
OUTAGE_MINUTES: Final = 2
REQUESTS_A_MINUTE: Final = 10
"""That may be tried in an outage, after its first minute."""
COMPLAINTS: Final = 20
"""Lines: an operator is to see that the server is away, once for each that waits for it, not for each pod and try."""
SHUTDOWN: Final = timedelta(seconds=35)
"""`backend.shutdown_timeout`, and a little for the interpreter."""
REPLACED_WITHIN: Final = timedelta(milliseconds=500)
"""From a deletion to the next POST: the watch tells at once, and an end brings a round at once. The median, for the
machine may be busy with others."""

TRIES: Final = 100
"""Of asking a server that may be starting, each a tenth of a second apart."""


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[WholePlane]:
    plane = WholePlane(ASSETS, tmp_path)
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


def kubectl(plane: WholePlane, *arguments: str) -> None:
    subprocess.run(["kubectl", "--kubeconfig", plane.kubeconfig, *arguments], check=True, capture_output=True)


def delete_by_force(plane: WholePlane, pods: list[str]) -> None:
    kubectl(plane, "delete", "pod", "--grace-period=0", "--force", *pods)


def delete(plane: WholePlane, pods: list[str]) -> None:
    kubectl(plane, "delete", "pod", *pods)


def evict(plane: WholePlane, pods: list[str]) -> None:
    for pod in pods:
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": "default"}}
        plane.request("POST", f"/api/v1/namespaces/default/pods/{pod}/eviction", body)


ENDS: Final[list[tuple[int, Callable[[WholePlane, list[str]], None], str]]] = [
    # its DELETED event still says Running and names no end of a container: somebody deleted it
    (7, delete_by_force, "DELETED"),
    # terminating, then gone by its kubelet's word; kwok's kubelet writes no exit code before that
    (7, delete, "DELETED"),
    # the API server writes the condition DisruptionTarget, reason EvictionByEvictionAPI, before it deletes
    (6, evict, "EVICTED"),
]


def test_a_thousand_executors_are_made_once_and_kept_whatever_happens_to_pods_and_server(
    plane: WholePlane, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    expected: dict[int, str] = {}
    with Fleet(tmp_path, plane.kubeconfig, EXECUTORS) as fleet, observe(plane, fleet) as observer:
        fleet.until_whole()
        assert codes(plane) == {201: EXECUTORS}
        report_growth(plane, fleet)
        for count, end, reason in ENDS:
            victims, since = choose(chance, fleet, count), datetime.now(UTC)
            end(plane, list(victims.values()))
            fleet.until_whole(without=victims)
            expected |= dict.fromkeys(victims, reason)
            report_replacements(plane, end.__name__, since)
            print(fleet.removed[min(victims)]["message"])
        assert codes(plane) == {201: EXECUTORS + len(expected)}
        for _ in range(DEATHS):
            victims = survive_a_death(plane, fleet, chance)
            expected |= dict.fromkeys(victims, "DELETED")
        report_usage(fleet)
        # who was told to be gone is who was ended by somebody, for the right reason; all others are there
        assert {executor_id: event["reason"] for executor_id, event in fleet.removed.items()} == expected
        assert not any(event["caused_by_app"] for event in fleet.removed.values())
        assert pods_of(plane, fleet) == sorted(fleet.running.values())
        began = datetime.now(UTC)
        assert fleet.interrupt() == 130
        print(f"all gone {seconds(datetime.now(UTC) - began)} s after Ctrl-C")
        assert pods_of(plane, fleet) == []
        print(f"in the command's own words:\n{fleet.stderr.read_text()}")
    assert observer.most <= EXECUTORS
    check_accounts(plane, observer, made=EXECUTORS + len(expected))


def test_a_fleet_of_thousands_is_gone_when_its_stop_has_ended(plane: WholePlane, tmp_path: Path) -> None:
    with Fleet(tmp_path, plane.kubeconfig, LARGE_FLEET) as fleet:
        fleet.until_whole()
        began = datetime.now(UTC)
        assert fleet.interrupt() == 130
        print(f"{LARGE_FLEET} gone {seconds(datetime.now(UTC) - began)} s after Ctrl-C")
        assert pods_of(plane, fleet) == []
        assert fleet.events[-1]["left_behind"] == [], "nobody is named who is gone"


def test_a_server_that_goes_away_while_the_fleet_grows_is_asked_seldom_and_then_for_the_rest(
    plane: WholePlane, tmp_path: Path
) -> None:
    with Fleet(tmp_path, plane.kubeconfig, GROWING_FLEET) as fleet:
        for death in range(DEATHS_WHILE_GROWING):
            grow(plane, enough=GROWING_FLEET * (death + 1) // (DEATHS_WHILE_GROWING + 2))
            plane.kill("kube-apiserver")
            plane.start_again("kube-apiserver")
        grow(plane, enough=GROWING_FLEET * (DEATHS_WHILE_GROWING + 1) // (DEATHS_WHILE_GROWING + 2))
        calls = be_away(plane, OUTAGE_MINUTES)
        complaints = fleet.stderr.read_text()
        print(f"\nrequests tried in each minute of an outage: {calls}; in the command's own words:\n{complaints}")
        since = datetime.now(UTC)
        fleet.until_whole()
        print(f"whole {seconds(datetime.now(UTC) - since)} s after the outage")
        with observe(plane, fleet) as observer:
            observer.wait_for(GROWING_FLEET)
        check_accounts(plane, observer, made=GROWING_FLEET)
        assert fleet.removed == {}
        assert fleet.interrupt() == 130
        assert pods_of(plane, fleet) == []
    assert max(calls[1:]) <= REQUESTS_A_MINUTE
    assert all(line.startswith("executor-pods: ") for line in complaints.splitlines())
    assert len(complaints.splitlines()) <= COMPLAINTS


def test_ctrl_c_without_a_server_ends_in_time_and_names_what_may_be_left(plane: WholePlane, tmp_path: Path) -> None:
    with Fleet(tmp_path, plane.kubeconfig, SMALL_FLEET) as fleet:
        fleet.until_whole()
        pods = sorted(fleet.running.values())
        plane.kill("kube-apiserver")
        began = datetime.now(UTC)
        assert fleet.interrupt() == 130
        took = datetime.now(UTC) - began
        print(f"\nstopped {seconds(took)} s after Ctrl-C: {fleet.events[-1]}\n{fleet.stderr.read_text()}")
        assert took <= SHUTDOWN
        assert sorted(fleet.events[-1]["left_behind"]) == pods


def test_ctrl_c_while_the_server_is_away_leaves_no_pod_if_it_comes_back_in_time(
    plane: WholePlane, tmp_path: Path
) -> None:
    with Fleet(tmp_path, plane.kubeconfig, SMALL_FLEET) as fleet:
        fleet.until_whole()
        plane.kill("kube-apiserver")
        fleet.press_ctrl_c()
        plane.start_again("kube-apiserver")
        assert fleet.end() == 130
        assert fleet.events[-1]["left_behind"] == []
        assert pods_of(plane, fleet) == []


def choose(chance: random.Random, fleet: Fleet, count: int) -> dict[int, str]:
    """Running executors, and their pods."""
    return {victim: fleet.running[victim] for victim in chance.sample(sorted(fleet.running), count)}


def survive_a_death(plane: WholePlane, fleet: Fleet, chance: random.Random) -> dict[int, str]:
    """Delete some, kill the API server while the fleet is at work on that, delete the rest as soon as it is back.

    How many before and how many events later it dies is drawn: so it dies with deletions unseen, POSTs on the wire,
    pods unscheduled or all at rest.
    """
    victims = choose(chance, fleet, DELETED_AROUND_A_DEATH)
    before = chance.randint(0, DELETED_AROUND_A_DEATH)
    pods = list(victims.values())
    for pod in pods[:before]:
        remove(plane, pod, by_force=chance.random() < 0.5)
    for _ in range(chance.randint(0, before)):
        fleet.next()
    plane.kill("kube-apiserver")
    plane.start_again("kube-apiserver")
    since = datetime.now(UTC)
    for pod in pods[before:]:
        remove(plane, pod, by_force=chance.random() < 0.5)
    fleet.until_whole(without=victims)
    print(f"whole {seconds(datetime.now(UTC) - since)} s after the API server was back")
    for program in plane.ended():
        print(f"{program} had ended, being without it, and is started again")
        plane.start_again(program)
    return victims


def observe(plane: WholePlane, fleet: Fleet) -> Observer:
    return Observer(plane.server, plane.authority, TOKEN, fleet.selector)


def remove(plane: WholePlane, pod: str, *, by_force: bool) -> None:
    """Delete; a server that has just started may not take it at once."""
    grace = {"gracePeriodSeconds": 0} if by_force else {}
    for _ in range(TRIES):
        try:
            plane.request("DELETE", f"/api/v1/namespaces/default/pods/{pod}", grace)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return
            threading.Event().wait(0.1)
        else:
            return
    raise AssertionError(f"{pod} could not be deleted")


def pods_of(plane: WholePlane, fleet: Fleet) -> list[str]:
    """All that there are, also those about to go."""
    query = urllib.parse.urlencode({"labelSelector": fleet.selector})
    found = plane.request("GET", f"/api/v1/namespaces/default/pods?{query}")
    return sorted(pod["metadata"]["name"] for pod in found["items"])


def grow(plane: WholePlane, enough: int) -> None:
    """To about this size: the next POSTs are on the wire, and more are queued."""
    for _ in range(10 * TRIES):
        if codes(plane).get(201, 0) >= enough:
            return
        threading.Event().wait(0.1)
    raise AssertionError(f"the fleet does not grow to {enough}")


def be_away(plane: WholePlane, minutes: int) -> list[int]:
    """Nothing is there but the port, where somebody hangs up; how often he had to in each minute."""
    for program in PROGRAMS[1:]:
        plane.kill(program)
    with Nobody(plane.port) as nobody:
        calls = nobody.stay(minutes)
    for program in PROGRAMS[1:]:
        plane.start_again(program)
    return calls


# ── accounts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def posts(plane: WholePlane) -> list[Asked]:
    """Every stage of every POST of a pod."""
    return [asked for asked in plane.audit() if asked.verb == "create" and asked.subresource is None]


def answered(plane: WholePlane) -> list[Asked]:
    return [post for post in posts(plane) if post.stage == "ResponseComplete"]


def codes(plane: WholePlane) -> dict[int, int]:
    """How POSTs were answered."""
    return dict(Counter(post.code for post in answered(plane)))


def check_accounts(plane: WholePlane, observer: Observer, made: int) -> None:
    """Every executor's pod was made once, by a POST that the log has, or by one on the wire when the server was killed.

    Such a POST has come in, as the log has it too, but has no end there. Its pod exists, so it is not POSTed again
    (the watch has shown it), or is and finds its own: 409.
    """
    names = Counter(observer.seen.values())
    assert max(names.values()) == 1, "a name was used again"
    assert len(names) == made
    succeeded = Counter(str(post.name) for post in answered(plane) if post.code == 201)
    assert max(succeeded.values()) == 1
    unfinished = {post.id for post in posts(plane)} - {post.id for post in answered(plane)}
    unlogged = names.keys() - succeeded.keys()
    assert succeeded.keys() <= names.keys()
    assert len(unlogged) <= len(unfinished)
    found_its_own = {str(post.name) for post in answered(plane) if post.code == 409}
    assert found_its_own <= names.keys()
    print(
        f"POSTs by code: {codes(plane)}, cut off by a death of the server: {len(unfinished)}, of these had made their "
        f"pod: {len(unlogged)}, found by a 409: {len(found_its_own)}; pods: {made}; most alive: {observer.most}"
    )


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────────


def report_growth(plane: WholePlane, fleet: Fleet) -> None:
    made = answered(plane)
    first = min(post.received for post in made)
    running = max(datetime.fromisoformat(e["time"]) for e in fleet.events if e["event"] == "running")
    took = sorted((post.at - post.received).total_seconds() * 1000 for post in made)
    print(
        f"\n{len(made)} POSTs in {seconds(max(post.at for post in made) - first)} s, all running after "
        f"{seconds(running - first)} s; a POST took p50 {statistics.median(took):.0f} ms, "
        f"p99 {took[len(took) * 99 // 100]:.0f} ms"
    )
    report_usage(fleet)


def report_usage(fleet: Fleet) -> None:
    usage = fleet.usage()
    print(f"the command took {usage.cpu_seconds:.1f} s of CPU and at most {usage.peak_mebibytes:.0f} MiB")


def report_replacements(plane: WholePlane, how: str, since: datetime) -> None:
    """The n-th end goes with the n-th POST after it: each is replaced at once."""
    ended = sorted(asked.received for asked in plane.audit() if asked.received >= since and is_end(asked))
    made = sorted(post.received for post in answered(plane) if post.received >= since)
    waits = [after - before for before, after in zip(ended, made, strict=True)]
    print(
        f"{how}: the replacements' POSTs came {seconds(min(waits))} to {seconds(max(waits))} s after it was asked for"
    )
    assert statistics.median(wait.total_seconds() for wait in waits) <= REPLACED_WITHIN.total_seconds()


def is_end(asked: Asked) -> bool:
    """A person's deletion, or an eviction: not a kubelet's."""
    ours = not asked.agent.startswith("kwok")
    return ours and (asked.verb == "delete" or (asked.verb == "create" and asked.subresource == "eviction"))


def seconds(duration: timedelta) -> float:
    return round(duration.total_seconds(), 3)
