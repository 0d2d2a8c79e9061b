"""`cleanup`: deletes the pods and claims of a fleet that nobody drives.

It takes the Lease first, as a driver would, so that no driver writes meanwhile; and it deletes each object by its UID,
so that nothing is deleted that was not shown. What has the fleet's labels but no name of its own is named, and stays.
"""

from __future__ import annotations

import socket
import sys
from collections import Counter
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from actors import kube
from actors.cli.main_loop import EXIT_FAILED, EXIT_OK
from actors.cli.operate.target import run, show, warn
from actors.cli.streams import say
from actors.errors import ApiError, Conflict, Refused, TooManyRequests, Unavailable
from actors.inspection.cleanup import HOLD, is_executors_claim, must_watch, refusal, release_lease, take_lease
from actors.inspection.leases import observe_lease
from actors.kube.api import CLAIMS, LEASES, DeleteOptions
from actors.lease.record import lease_name
from actors.runtime import elapsed
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from actors.cli.operate.cluster import Cluster
    from actors.cli.operate.target import Target
    from actors.inspection.fleets import ObservedFleet
    from actors.inspection.leases import ObservedLease
    from actors.kube.api import Manifest, Request
    from actors.runtime import Moment

__all__ = ["Consent", "Hold", "clean_up", "delete", "deletions"]

POD: Final = "pod"
CLAIM: Final = "persistentvolumeclaim"
_WHOSE: Final = {POD: "executors", CLAIM: "executors' claims"}

_LOOKS: Final = 5
"""How often a Lease is read that must stay unchanged for its duration."""

PAUSE: Final = 1.0
"""Seconds before deletions that an API server in need refused are sent again."""

_ROUNDS: Final = 5
"""How often they are sent."""


@dataclass(frozen=True, slots=True)
class Consent:
    """What the user agreed to."""

    yes: bool = False
    dry_run: bool = False
    without_lease: bool = False
    keep_claims: bool = False


@dataclass(frozen=True, slots=True)
class _Deletion:
    """One object to delete."""

    kind: str
    name: str
    request: Request[None]


def clean_up(target: Target, app_id: str, consent: Consent) -> int:
    """Delete an orphaned fleet, unless a driver is alive, or the user does not agree."""

    def work(cluster: Cluster) -> int:
        reader = cluster.reader()
        fleet, warnings = reader.one(app_id)
        warn(warnings)
        if (why := refusal(fleet, without_lease=consent.without_lease)) is not None:
            raise Refused(why)
        claims: Sequence[Manifest] = ()
        if not consent.keep_claims:
            try:
                claims = reader.claims(app_id)
            except ApiError as error:
                warn([f"claims cannot be listed, so they stay: {error.message}"])
        planned = list(deletions(fleet, claims))
        for kind, name in strangers(fleet, claims):
            say(
                one_line(
                    f'{kind} "{name}" has the labels of {app_id} but not the name of its {_WHOSE[kind]}, and stays'
                )
            )
        if not planned:
            is_empty = not fleet.executors and not claims
            what = "no pod and no claim" if is_empty else "nothing of its own that is not being deleted already"
            say(f"nothing to delete: {app_id} has {what} in namespace {cluster.namespace}")
            return EXIT_OK
        if consent.dry_run:
            show(_line(each, "deleted (dry run)") for each in planned)
            return EXIT_OK
        if not consent.yes and not _agreed(fleet, planned):
            say("nothing was deleted")
            return EXIT_FAILED
        hold = Hold(cluster, fleet)
        try:
            return delete(cluster, planned, hold)
        finally:
            hold.release()

    return run(target, work)


def deletions(fleet: ObservedFleet, claims: Sequence[Manifest]) -> Iterator[_Deletion]:
    """Yield what is to delete: the fleet's executors and their claims, unless they are being deleted already."""
    for executor in fleet.executors:
        pod = executor.pod
        if executor.id is not None and not pod.terminating:
            yield _Deletion(POD, pod.name, kube.Delete(pod.name, DeleteOptions(uid=pod.uid)))
    for claim in claims:
        metadata = claim["metadata"]
        if is_executors_claim(claim) and metadata.get("deletionTimestamp") is None:
            name, uid = str(metadata["name"]), str(metadata["uid"])
            yield _Deletion(CLAIM, name, kube.DeleteObject(CLAIMS, name, uid))


def strangers(fleet: ObservedFleet, claims: Sequence[Manifest]) -> Iterator[tuple[str, str]]:
    """Yield kind and name of what has the fleet's labels and is not its own."""
    yield from ((POD, executor.pod.name) for executor in fleet.executors if executor.id is None)
    yield from ((CLAIM, str(claim["metadata"]["name"])) for claim in claims if not is_executors_claim(claim))


def _line(deletion: _Deletion, what: str) -> str:
    return one_line(f'{deletion.kind} "{deletion.name}" {what}')


def _agreed(fleet: ObservedFleet, deletions: Sequence[_Deletion]) -> bool:
    """Ask the user, with the name of each object. Without an answer, as of a script, the answer is no."""
    kinds = Counter(each.kind for each in deletions)
    pods, claims = kinds[POD], kinds[CLAIM]
    alive = sum(executor.alive for executor in fleet.executors if executor.id is not None)
    with_claims = f" and {claims} claims with their data" if claims else ""
    head = f"Fleet {fleet.app_id} in namespace {fleet.namespace} is {fleet.state}: {fleet.driver.why}."
    print(one_line(head), *(_line(each, "will be deleted") for each in deletions), sep="\n", file=sys.stderr)
    question = f"Delete its {pods} pods ({alive} alive){with_claims}? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
        say("no answer: give --yes in a script")
    return answer.strip().lower() in {"y", "yes"}


class Hold:
    """The fleet's Lease while it is deleted; nothing if it has none.

    Raises:
        ApiError: the Lease cannot be taken.
        Refused: a driver is alive after all.
    """

    def __init__(self, cluster: Cluster, fleet: ObservedFleet) -> None:
        self._cluster = cluster
        self._app_id = fleet.app_id
        self._identity = f"executor-pods-cleanup-{socket.gethostname()}"
        self._lease: ObservedLease | None = None
        self._renewed_at: Moment = 0.0
        if fleet.lease is not None:
            lease = self._watched(fleet.lease)
            self._take(lease)
            say(f"lease taken, so that no driver writes meanwhile: {lease_name(self._app_id)}")

    def keep(self) -> None:
        """Renew the Lease if it is time to.

        Raises:
            ApiError: it cannot be renewed.
            Refused: somebody took it from us.
        """
        if self._lease is not None and elapsed(self._renewed_at, self._cluster.clock.monotonic()) > HOLD / 3:
            self._take(self._lease)

    def release(self) -> None:
        """Release the Lease, if we have it. One that cannot be released runs out by itself."""
        if self._lease is not None:
            try:
                self._cluster.ask(release_lease(self._app_id, self._lease, self._cluster.clock.now()))
            except ApiError as error:
                warn([f"the Lease is not released, it runs out in {HOLD.total_seconds():.0f} s: {error.message}"])

    def _take(self, lease: ObservedLease) -> None:
        began = self._cluster.clock.monotonic()
        try:
            answer = self._cluster.ask(take_lease(self._app_id, lease, self._identity, self._cluster.clock.now()))
        except Conflict as error:
            self._lease = None
            raise Refused(f"somebody else has just taken or renewed the Lease of {self._app_id!r}") from error
        self._lease, self._renewed_at = observe_lease(answer), began

    def _watched(self, lease: ObservedLease) -> ObservedLease:
        """Return the Lease after it has stayed unchanged for as long as it must."""
        duration = must_watch(lease, self._cluster.now())
        if duration is None:
            return lease
        seconds = duration.total_seconds()
        say(f"watching the Lease for {seconds:.0f} s: the clock of its holder may be wrong")
        pause = Event()
        for _ in range(_LOOKS):
            pause.wait(seconds / _LOOKS)
            found = observe_lease(self._cluster.ask(kube.GetObject(LEASES, lease_name(self._app_id))))
            if found is None or found.record != lease.record:
                holder = "nobody" if found is None else one_line(found.record.holder, 300) or "nobody"
                raise Refused(f"fleet {self._app_id!r} is alive: {holder} renews its Lease; nothing was deleted")
        return lease


def delete(cluster: Cluster, deletions: Sequence[_Deletion], hold: Hold) -> int:
    """Delete all of these. Return the exit code: 1 if any of them is left."""
    by_request = {id(each.request): each for each in deletions}
    left, failed, pause = [each.request for each in deletions], 0, Event()
    for attempt in range(_ROUNDS):
        again: list[Any] = []
        for request, answer in cluster.ask_each(left):
            deletion = by_request[id(request)]
            match answer:
                case TooManyRequests() | Unavailable() if attempt < _ROUNDS - 1:
                    again.append(request)
                case Conflict():
                    say(_line(deletion, "is another one by now, and stays"))
                case ApiError():
                    say(_line(deletion, f"not deleted: {answer.message}"))
                    failed += 1
                case _:
                    show([_line(deletion, "deleted")])
            hold.keep()
        left = again
        if not left:
            break
        pause.wait(PAUSE)
    return EXIT_FAILED if failed else EXIT_OK
