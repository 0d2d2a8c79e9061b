"""The kinds of requests: what each sends next, and whether an answer is final. Pure.

`judge` turns an answer of the API into `Done` or `Retry`. The request that creates a pod is in `create`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors import kube
from actors.errors import ApiError, Conflict, NotFound, TooManyRequests, Unavailable
from actors.kube.api import CLAIMS
from actors.messages import internal
from actors.pods.pod import (
    APP_ID_LABEL,
    EXECUTOR_ID_LABEL,
    PROFILE_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
    Pod,
    fleet_selector,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime, timedelta

    from actors.kube.api import Operation
    from actors.runtime import Moment

__all__ = [
    "BLOCKING_TRIES",
    "CONFIRM_TRIES",
    "IDS_PER_CALL",
    "BulkDelete",
    "ClaimDelete",
    "ClaimList",
    "Confirm",
    "Done",
    "Lane",
    "Request",
    "Retry",
    "Verdict",
    "adopt",
    "delete",
    "label",
]

CONFIRM_TRIES: Final = 3
"""A GET that only refines a loss reason must not delay the report of an end for long."""

BLOCKING_TRIES: Final = 3
"""An adoption that always fails, such as one that a webhook or a proxy rejects, must not block creation for ever. In an
outage that lasts for so many steps none blocks it."""

IDS_PER_CALL: Final = 250
"""The selector is part of the URL, and many proxies accept no line over 8 KiB: 250 ids of 18 digits fit."""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is final."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Send it again: after a backoff if there was an error, else at once."""

    error: ApiError | None = None


Verdict: TypeAlias = Done | Retry


class Lane(IntEnum):
    """The kinds of calls that share the slots and the rate of the RequestPool."""

    READ = auto()
    DELETE = auto()
    PATCH = auto()
    POST = auto()


_LANES: Final[Mapping[Operation, Lane]] = {
    "get": Lane.READ,
    "list_objects": Lane.READ,
    "delete": Lane.DELETE,
    "delete_collection": Lane.DELETE,
    "delete_object": Lane.DELETE,
    "patch": Lane.PATCH,
    "create": Lane.POST,
    "create_object": Lane.POST,
}


@dataclass(eq=False)
class Request:
    """One request to the API, sent until the answer is final."""

    kind: str
    """For logs and metrics, such as "create"."""
    name: str
    """The name of its object, for logs."""
    key: object
    """Requests of the same key ask the same: only one of them is open at a time."""
    call: kube.Request[Any]
    """What to send next."""
    uid: str | None = None
    """The UID of the pod that it writes to, None if it is unknown."""
    observed_at: Moment | None = None
    """See `DeletePod`."""
    repeated: bool = False
    """Its sender repeats it every round until it has its effect."""
    blocks_posts: bool = False
    """No POST is sent while it is open, unless it has failed `BLOCKING_TRIES` times."""
    goes_first: bool = False
    """POSTs wait until it is answered, but not for long; see `Dispatcher`."""
    max_tries: int | None = None
    """Any answer to the last try is final."""
    rank: int = 0
    """POSTs go in the order of their rank, then of their submission."""
    serial: int = field(default=0, init=False)
    """Its place in the order of submission."""
    tries: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    """Failed tries in a row that may be its own fault. Its backoff grows with them."""
    is_last_try: bool = field(default=False, init=False)
    """It is in flight, and must not be sent again."""

    @property
    def lane(self) -> Lane:
        """The kind of its next call."""
        return _LANES[self.call.operation]

    @property
    def writes(self) -> bool:
        """It changes something, and must not be sent while another driver has the lease."""
        return self.lane is not Lane.READ

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    def judge(self, answer: object) -> Verdict:
        """Retry after transient errors; every other answer is final."""
        tries_left = self.max_tries is None or self.tries < self.max_tries
        return Retry(answer) if tries_left and isinstance(answer, TooManyRequests | Unavailable) else Done()

    def settle(self, retry: Retry) -> Verdict:
        """Return whether to send it again, after what has become known since it was sent."""
        return retry

    def refusal(self, answer: object) -> ApiError | None:
        """Return the error that an operator should see if this is the final answer, else None."""
        unimportant = isinstance(answer, NotFound | Conflict | TooManyRequests | Unavailable)
        return answer if isinstance(answer, ApiError) and not unimportant else None

    def delayed(self, error: ApiError, retry_at: datetime) -> None:
        """Report to its sender that a try failed and another follows, not before `retry_at`."""

    def report(self, answer: object) -> None:
        """Report the final answer to its sender."""


def delete(message: internal.DeletePod) -> Request:
    """DELETE one pod. "Not found" and a failed precondition are as good as success: the next snapshot decides."""
    call, uid = kube.Delete(message.name, message.options), message.options.uid
    goes_first = message.goes_first
    return Request(
        "delete", message.name, message, call, uid, message.observed_at, repeated=True, goes_first=goes_first
    )


def label(message: internal.LabelPod) -> Request:
    """PATCH labels and annotations of one pod, with its UID as precondition."""
    changes = {"labels": dict(message.labels), "annotations": dict(message.annotations)}
    key = [frozenset(change.items()) for change in changes.values()]
    return _patch("label", message, {name: change for name, change in changes.items() if change}, key)


def adopt(message: internal.AdoptPod) -> Request:
    """PATCH the owners of one pod, with its UID as precondition.

    The patch replaces the whole list: the API refuses two owners that are controllers, and the old one is gone. A pod
    whose owner is gone may be collected at any moment, so adoptions go before POSTs.
    """
    changes = {"ownerReferences": [*map(dict, message.owners)]}
    request = _patch("adopt", message, changes, [str(owner["uid"]) for owner in message.owners])
    request.blocks_posts = True
    return request


def _patch(
    kind: str, message: internal.LabelPod | internal.AdoptPod, changes: dict[str, Any], key: Sequence[object]
) -> Request:
    name, uid = message.name, message.uid
    call = kube.Patch(name, {"metadata": {"uid": uid, **changes}})
    return Request(kind, name, (kind, name, uid, *key), call, uid, message.observed_at, repeated=True)


class BulkDelete(Request):
    """DELETE pods by label: those of some executors or of the whole application, by default without inactive ones.

    Many ids take several calls, one after the other, whether they fail or not.
    """

    def __init__(self, message: internal.DeletePods, app_id: str) -> None:
        everyone = fleet_selector(app_id, active_only=not message.include_inactive)
        selectors = _selectors(everyone, message.executor_ids)
        self._message = message
        self._calls = (call for selector in selectors for call in _bulk_deletes(selector, message.graces))
        self._error: ApiError | None = None
        how_many = "all" if message.executor_ids is None else len(message.executor_ids)
        super().__init__("delete pods", f"of {how_many} executors", message, next(self._calls))

    def judge(self, answer: object) -> Verdict:
        """Continue with the next call; the answer to the last one is final."""
        verdict = super().judge(answer)
        if isinstance(verdict, Retry):
            return verdict
        self._error = answer if isinstance(answer, ApiError) else self._error
        if (call := next(self._calls, None)) is None:
            return verdict
        self.call = call
        return Retry()

    def refusal(self, answer: object) -> ApiError | None:
        """Return the error of any of the calls."""
        return super().refusal(self._error or answer)

    def report(self, answer: object) -> None:  # noqa: ARG002 - an earlier call may have failed
        """Report the last error, if any call failed."""
        if self._message.reply_to is not None:
            self._message.reply_to.tell(internal.PodsDeleted(self._message.executor_ids, self._error))


def _bulk_deletes(selector: str, graces: internal.GracePeriods) -> Iterator[kube.DeleteCollection]:
    """Yield the calls that delete what the selector matches, one for each grace period: it is that of a whole call."""
    profiles: dict[timedelta | None, list[str]] = {}
    for profile, grace in sorted(graces.named.items()):
        if grace != graces.others:
            profiles.setdefault(grace, []).append(profile)
    for grace, names in profiles.items():
        yield kube.DeleteCollection(f"{selector},{PROFILE_LABEL} in ({','.join(names)})", grace)
    named = ",".join(sorted(name for names in profiles.values() for name in names))
    yield kube.DeleteCollection(f"{selector},{PROFILE_LABEL} notin ({named})" if named else selector, graces.others)


def _selectors(everyone: str, executor_ids: frozenset[int] | None) -> list[str]:
    if executor_ids is None:
        return [everyone]
    ids = sorted(executor_ids)
    parts = (ids[start : start + IDS_PER_CALL] for start in range(0, len(ids), IDS_PER_CALL))
    return [f"{everyone},{EXECUTOR_ID_LABEL} in ({','.join(map(str, part))})" for part in parts]


class ClaimList(Request):
    """LIST the fleet's PersistentVolumeClaims."""

    def __init__(self, message: internal.ListClaims, app_id: str) -> None:
        self._reply_to = message.reply_to
        selector = f"{APP_ID_LABEL}={app_id},{ROLE_LABEL}={ROLE_EXECUTOR}"
        super().__init__("list claims", selector, message, kube.ListObjects(CLAIMS, selector))

    def report(self, answer: object) -> None:
        """Report the claims, or the error."""
        self._reply_to.tell(internal.ClaimsListed(answer if isinstance(answer, ApiError) else tuple(answer)))  # type: ignore[arg-type]  # a LIST's answer


class ClaimDelete(Request):
    """DELETE one PersistentVolumeClaim, with its UID as precondition."""

    def __init__(self, message: internal.DeleteClaim) -> None:
        self._reply_to = message.reply_to
        call = kube.DeleteObject(CLAIMS, message.name, message.uid)
        super().__init__("delete claim", message.name, message, call, message.uid)

    def report(self, answer: object) -> None:  # noqa: ARG002 - an error was logged
        """Report that the request has ended."""
        self._reply_to.tell(internal.ClaimDeleted(self.name))


class Confirm(Request):
    """GET one pod, to learn whether it is gone or was relabelled. Tried a few times only."""

    def __init__(self, message: internal.ConfirmPod) -> None:
        self._message = message
        call = kube.Get(message.name)
        super().__init__("confirm", message.name, message, call, max_tries=CONFIRM_TRIES)

    def report(self, answer: object) -> None:
        """Report the pod if it still has the same UID; None if it is gone or cannot be read."""
        message = self._message
        pod = answer if isinstance(answer, Pod) and answer.uid == message.uid else None
        message.reply_to.tell(internal.PodConfirmed(message.executor_id, message.uid, pod))
