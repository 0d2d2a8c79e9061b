"""What the RequestPool sends: requests that each know what to send next, and how to judge an answer.

`judge` is where an answer of the API becomes "done" or "again". It never waits and never sends. The request that makes
a pod is in `create`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors import kube
from actors.errors import ApiError, Conflict, NotFound, TooManyRequests, Unavailable
from actors.kube.api import CLAIMS
from actors.messages import ClaimsListed, PodConfirmed, PodsDeleted
from actors.pods.pod import APP_ID_LABEL, EXECUTOR_ID_LABEL, ROLE_EXECUTOR, ROLE_LABEL, Pod, fleet_selector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.messages import AdoptPod, ConfirmPod, DeletePod, DeletePods, LabelPod, ListClaims

__all__ = [
    "CONFIRM_TRIES",
    "IDS_PER_CALL",
    "BulkDelete",
    "ClaimList",
    "Confirm",
    "Done",
    "Request",
    "Retry",
    "Verdict",
    "adopt",
    "delete",
    "label",
]

CONFIRM_TRIES: Final = 3
"""A GET that only refines a reason must not hold the report of an end up for long."""

IDS_PER_CALL: Final = 250
"""A selector travels in the URL, and many a proxy takes no line over 8 KiB. 250 ids of 18 digits fit."""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is final."""


@dataclass(frozen=True, slots=True)
class Retry:
    """To be sent again: after a backoff when `error` says what went wrong, at once when it is None."""

    error: ApiError | None = None


Verdict: TypeAlias = Done | Retry


@dataclass(eq=False)
class Request:
    """One thing to ask of the API until the answer is final."""

    kind: str
    """What sort of request it is, for the log."""
    name: str
    """What it is about, for the log."""
    key: object
    """Two requests of one key ask the same: the second is not sent while the first is open."""
    call: kube.Request[Any]
    """What to send next."""
    writes: bool = True
    """It changes something: not to be sent while another driver has the lease."""
    urgent: bool = True
    """It goes before POSTs."""
    repeated: bool = False
    """Who wants it asks again in every round, until it has its effect."""
    holds_posts: bool = False
    """No POST goes out before it is answered."""
    max_tries: int | None = None
    """After so many tries, any answer is final."""
    serial: int = 0
    """Its place in the order in which things were asked for."""
    tries: int = 0
    failures: int = 0
    """Of tries in a row, for reasons that may be its own: what its backoff grows with."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def judge(self, answer: object) -> Verdict:
        """Transient trouble is tried again, everything else is final."""
        tries_left = self.max_tries is None or self.tries < self.max_tries
        return Retry(answer) if tries_left and isinstance(answer, TooManyRequests | Unavailable) else Done()

    def settle(self, retry: Retry) -> Verdict:
        """What follows, if it was to be sent again, from what became known of it meanwhile."""
        return retry

    def refusal(self, answer: object) -> ApiError | None:
        """What an operator should see of the final answer, if anything."""
        unimportant = isinstance(answer, NotFound | Conflict | TooManyRequests | Unavailable)
        return answer if isinstance(answer, ApiError) and not unimportant else None

    def delayed(self, error: ApiError) -> None:
        """Tell who asked for it that a try failed, and that another comes."""

    def report(self, answer: object) -> None:
        """Tell who asked for it how it ended."""


def delete(message: DeletePod) -> Request:
    """DELETE one pod. Not found, or another UID or version by now, is an answer like success: it is looked at again."""
    return Request("delete", message.name, message, kube.Delete(message.name, message.options), repeated=True)


def label(message: LabelPod) -> Request:
    """PATCH labels and annotations of one pod, with its UID as precondition."""
    changes = {"labels": dict(message.labels), "annotations": dict(message.annotations)}
    key = [frozenset(change.items()) for change in changes.values()]
    return _patch("label", message.name, message.uid, {name: change for name, change in changes.items() if change}, key)


def adopt(message: AdoptPod) -> Request:
    """PATCH the owner of one pod, with its UID as precondition.

    The whole list is replaced: two owners that are controllers are refused, and the old one is gone. Pods that nobody
    owns may be collected any moment: they are adopted before any other is made.
    """
    changes = {"ownerReferences": [dict(message.owner)]}
    request = _patch("adopt", message.name, message.uid, changes, [str(message.owner["uid"])])
    request.holds_posts = True
    return request


def _patch(kind: str, name: str, uid: str, changes: dict[str, Any], key: Sequence[object]) -> Request:
    call = kube.Patch(name, {"metadata": {"uid": uid, **changes}})
    return Request(kind, name, (kind, name, uid, *key), call, repeated=True)


class BulkDelete(Request):
    """DELETE by label: some executors, or all of the application's; those set aside are left.

    Many ids take several calls, one after the other. A failure of one does not keep the others from being sent.
    """

    def __init__(self, message: DeletePods, app_id: str) -> None:
        everyone = fleet_selector(app_id, active_only=not message.include_inactive)
        selectors = _selectors(everyone, message.executor_ids)
        self._message = message
        self._calls = (kube.DeleteCollection(selector) for selector in selectors)
        self._error: ApiError | None = None
        how_many = "all" if message.executor_ids is None else len(message.executor_ids)
        super().__init__("delete pods", f"of {how_many} executors", message, next(self._calls))

    def judge(self, answer: object) -> Verdict:
        """Final when the last call is."""
        verdict = super().judge(answer)
        if isinstance(verdict, Retry):
            return verdict
        self._error = answer if isinstance(answer, ApiError) else self._error
        if (call := next(self._calls, None)) is None:
            return verdict
        self.call = call
        return Retry()

    def refusal(self, answer: object) -> ApiError | None:
        """Of any of the calls."""
        return super().refusal(self._error or answer)

    def report(self, answer: object) -> None:  # noqa: ARG002 - that of the last call only
        """Say how it went to whoever asked."""
        if self._message.reply_to is not None:
            self._message.reply_to.tell(PodsDeleted(self._message.executor_ids, self._error))


def _selectors(everyone: str, executor_ids: frozenset[int] | None) -> list[str]:
    if executor_ids is None:
        return [everyone]
    ids = sorted(executor_ids)
    parts = (ids[start : start + IDS_PER_CALL] for start in range(0, len(ids), IDS_PER_CALL))
    return [f"{everyone},{EXECUTOR_ID_LABEL} in ({','.join(map(str, part))})" for part in parts]


class ClaimList(Request):
    """LIST the fleet's PersistentVolumeClaims."""

    def __init__(self, message: ListClaims, app_id: str) -> None:
        self._reply_to = message.reply_to
        selector = f"{APP_ID_LABEL}={app_id},{ROLE_LABEL}={ROLE_EXECUTOR}"
        super().__init__("list claims", selector, message, kube.ListObjects(CLAIMS, selector), writes=False)

    def report(self, answer: object) -> None:
        """The claims, or why there are none to be seen."""
        self._reply_to.tell(ClaimsListed(answer if isinstance(answer, ApiError) else tuple(answer)))  # type: ignore[arg-type]  # a LIST's answer


class Confirm(Request):
    """GET one pod, to learn whether it is gone or only left our selector. Tried a few times only."""

    def __init__(self, message: ConfirmPod) -> None:
        self._message = message
        call = kube.Get(message.name)
        super().__init__("confirm", message.name, message, call, writes=False, max_tries=CONFIRM_TRIES)

    def report(self, answer: object) -> None:
        """The pod, if it lives under the same UID; None if it is gone or cannot be read."""
        message = self._message
        pod = answer if isinstance(answer, Pod) and answer.uid == message.uid else None
        message.reply_to.tell(PodConfirmed(message.executor_id, message.uid, pod))
