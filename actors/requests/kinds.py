"""The kinds of requests: what each sends next, and whether an answer is final. Pure.

`judge` turns an answer of the API into `Done` or `Retry`. The request that creates a pod is in `create`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, auto
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import structs

from actors import kube
from actors.errors import ApiError, Conflict, Gone, NotFound, TooManyRequests, Unavailable
from actors.kube.api import CLAIMS
from actors.messages import internal
from actors.pods.pod import (
    APP_ID_LABEL,
    EXECUTOR_ID_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
    Pod,
    executor_id,
    fleet_selector,
    is_selected,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from actors.kube.api import Operation
    from actors.runtime import Address, Moment

__all__ = [
    "BLOCKING_TRIES",
    "CONFIRM_TRIES",
    "BulkDelete",
    "ClaimDelete",
    "ClaimList",
    "Confirm",
    "Done",
    "FindAndDelete",
    "Lane",
    "PodDelete",
    "Request",
    "Retry",
    "Verdict",
    "adopt",
    "label",
]

CONFIRM_TRIES: Final = 3
"""A GET that only refines a loss reason must not delay the report of an end for long."""

BLOCKING_TRIES: Final = 3
"""An adoption that always fails, such as one that a webhook or a proxy rejects, must not block creation for ever. In an
outage that lasts for so many steps none blocks it."""


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

    def join(self, other: Request) -> None:
        """Another sender asks the same while it is open."""

    def delayed(self, error: ApiError, retry_at: datetime) -> None:
        """Report to its sender that a try failed and another follows, not before `retry_at`."""

    def report(self, answer: object) -> None:
        """Report the final answer to its sender."""


class PodDelete(Request):
    """DELETE one pod. "Not found" and a failed precondition are as good as success: the next snapshot decides."""

    def __init__(self, message: internal.DeletePod, call: kube.Get | None = None) -> None:
        """`call` is what to send before the DELETE."""
        self.reply_to: list[Address] = [] if message.reply_to is None else [message.reply_to]
        super().__init__(
            "delete",
            message.name,
            message,
            call or kube.Delete(message.name, message.options),
            message.options.uid,
            message.observed_at,
            repeated=True,
            goes_first=message.goes_first,
        )

    def join(self, other: Request) -> None:
        """Report the answer to the other sender, too."""
        if isinstance(other, PodDelete):
            self.reply_to += other.reply_to

    def report(self, answer: object) -> None:
        """Report the answer to those that wait for it."""
        error = answer if isinstance(answer, ApiError) and not isinstance(answer, NotFound | Conflict) else None
        for address in self.reply_to:
            address.tell(internal.PodsDeleted({} if self.uid is None else {self.name: self.uid}, error))


class FindAndDelete(PodDelete):
    """GET a pod that was requested and never observed, and DELETE it by its UID if it is the executor's."""

    def __init__(self, message: internal.DeletePod, app_id: str) -> None:
        self._options = message.options
        self._app_id = app_id
        super().__init__(message, kube.Get(message.name))

    def judge(self, answer: object) -> Verdict:
        """Delete the pod that was found. Another's pod has taken the name of one that was never created."""
        if not isinstance(answer, Pod):
            return super().judge(answer)
        is_named = answer.name == self.name and executor_id(answer) is not None
        if not (is_named and is_selected(answer.labels, self._app_id, active_only=False)):
            return Done()
        self.uid = answer.uid
        self.call = kube.Delete(answer.name, structs.replace(self._options, uid=answer.uid))
        return Retry()


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
    """DELETE the pods of some executors by label, as they were listed."""

    def __init__(self, message: internal.DeletePods, app_id: str) -> None:
        self._message = message
        ids = sorted(message.executor_ids)
        everyone = fleet_selector(app_id, active_only=not message.include_inactive)
        selector = f"{everyone},{EXECUTOR_ID_LABEL} in ({','.join(map(str, ids))})"
        call = kube.DeleteCollection(selector, message.grace, message.at_version)
        key = ("delete pods", message.executor_ids, message.at_version)
        super().__init__("delete pods", f"of {len(ids)} executors", key, call)

    def refusal(self, answer: object) -> ApiError | None:
        """Return None also if the LIST is too old by now: its sender lists again."""
        return None if isinstance(answer, Gone) else super().refusal(answer)

    def report(self, answer: object) -> None:
        """Report the answer."""
        error = answer if isinstance(answer, ApiError) else None
        self._message.reply_to.tell(internal.PodsDeleted(self._message.pods, error))


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
