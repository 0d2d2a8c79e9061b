"""What the RequestPool sends: one class a kind of request, each knowing how to send itself and judge an answer.

`judge` is where an answer of the API becomes "done" or "again". It never waits and never sends.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from actors import kube
from actors.errors import (
    AlreadyExists,
    Ambiguous,
    ApiError,
    Cancelled,
    Conflict,
    NotFound,
    TooManyRequests,
    Unavailable,
)
from actors.kube.api import CLAIMS, Call, DeleteOptions, PodApi
from actors.messages import (
    AdoptPod,
    ClaimsListed,
    ConfirmPod,
    CreatePod,
    DeletePod,
    DeletePods,
    LabelPod,
    ListClaims,
    PodConfirmed,
    PodsDeleted,
)
from actors.pods.pod import (
    APP_ID_LABEL,
    EXECUTOR_ID_LABEL,
    INACTIVE_LABEL,
    ROLE_EXECUTOR,
    ROLE_LABEL,
    Pod,
    fleet_selector,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "Adopt",
    "BulkDelete",
    "ClaimList",
    "Confirm",
    "Create",
    "Delete",
    "Done",
    "Label",
    "Request",
    "Retry",
    "Verdict",
]

CONFIRM_TRIES: Final = 3
"""A GET that only refines a reason must not hold the report of an end up for long."""

IDS_PER_CALL: Final = 250
"""A selector travels in the URL, and many a proxy takes no line over 8 KiB. 250 ids of 19 digits fit."""


@dataclass(frozen=True, slots=True)
class Done:
    """The answer is final."""


@dataclass(frozen=True, slots=True)
class Retry:
    """To be sent again: after a backoff when `error` says what went wrong, at once when it is None."""

    error: ApiError | None


Verdict: TypeAlias = Done | Retry


class Request(ABC):
    """One thing to ask of the API until the answer is final."""

    key: object
    """Two requests of one key ask the same: the second is not sent while the first is open."""
    words: str
    """What it is, for the log."""
    kind: str
    """What sort of request it is, for the log."""
    writes = True
    """It changes something: not to be sent while another driver has the lease."""
    repeated = False
    """Who wants it asks again in every round, until it has its effect."""
    serial = 0
    """Its place in the order in which things were asked for."""
    tries = 0
    failures = 0
    """Of tries in a row, for reasons that may be its own: what its backoff grows with."""

    def __str__(self) -> str:
        return self.words

    @property
    def urgent(self) -> bool:
        """It goes before POSTs."""
        return True

    @abstractmethod
    def send(self, api: PodApi, reply: Callable[[Any], None]) -> Call:
        """Put it on the wire."""

    def judge(self, answer: object) -> Verdict:
        """Transient trouble is tried again, everything else is final."""
        return Retry(answer) if isinstance(answer, TooManyRequests | Unavailable) else Done()

    def refusal(self, answer: object) -> ApiError | None:
        """What an operator should see of the final answer, if anything."""
        unimportant = isinstance(answer, NotFound | Conflict | TooManyRequests | Unavailable)
        return answer if isinstance(answer, ApiError) and not unimportant else None


class Create(Request):
    """POST a pod, under one name, until it is known whether that pod exists.

    A refusal is not the end of it when the name is taken, or when an earlier try may have made the pod (the API server
    checks quota before names: our own pod may be what exhausts it). Then a GET tells: a pod of that name that is ours
    and not about to go is success. A 409 that is not about the name is a conflict on the quota object, and passes.
    """

    kind = "create"

    def __init__(self, message: CreatePod) -> None:
        self.message = message
        self.name = str(message.manifest["metadata"]["name"])
        self.key = self.key_of(message.executor_id)
        self.words = f"create {self.name}"
        self.doom: DeletePods | None = None
        """Who wants it deleted as soon as it exists."""
        self.may_exist = message.again
        """A try was sent whose answer does not rule a pod out."""
        self.withdrawn = False
        """Its Allocator does not want it any more, and it was not on the wire then."""
        self.appeared: Pod | None = None
        """What a snapshot showed under this name meanwhile."""
        self.outcome: Pod | ApiError = Cancelled("it was not sent")
        self._claims = deque(message.claims)
        """Those that are not made yet."""
        self._claim_may_exist = message.again
        """A try was sent for the first of them whose answer does not rule it out."""
        self._refusal: ApiError | None = None
        """What a POST was refused with, while a GET looks whether there is such a pod all the same."""
        self._may_be_ours = message.again
        """Should there be one, an earlier try may have made it."""

    @staticmethod
    def key_of(executor_id: int) -> object:
        """An id is never used again, and has one name: the id alone tells two creates apart."""
        return ("create", executor_id)

    @property
    def urgent(self) -> bool:
        """Once it only looks."""
        return self._refusal is not None

    def send(self, api: PodApi, reply: Callable[[Any], None]) -> Call:
        """POST, its claims first; or GET after a refusal that may not be the whole truth."""
        if self._refusal is not None:
            return api.send(kube.Get(self.name), reply)
        if self._claims:
            return api.send(kube.CreateObject(CLAIMS, self._claims[0]), reply)
        return api.send(kube.Create(self.message.manifest), reply)

    def judge(self, answer: object) -> Verdict:
        """Final once it is known whether there is such a pod of ours."""
        if self._refusal is None and self._claims:
            return self._judge_claim(answer)
        match answer:
            case Pod() if self._refusal is None or self._is_ours(answer):
                self.outcome = answer
                return Done()
            case TooManyRequests() | Conflict():
                return Retry(answer)
            case Unavailable():
                self.may_exist = self.may_exist or leaves_open(answer)
                return Retry(answer)
            case ApiError() if self._refusal is None and (self.may_exist or isinstance(answer, AlreadyExists)):
                self._may_be_ours = self.may_exist
                self._refusal, self.may_exist = answer, True
                return Retry(None)
            case ApiError() if self._refusal is not None and self._may_be_ours and not isinstance(answer, NotFound):
                return Retry(answer)  # until it may be read, or a snapshot shows it
            case Pod() | ApiError():  # another's, gone by now, or not for us to read: the refusal stands
                self.outcome = self._refusal if self._refusal is not None else answer
                return Done()
            case _:
                raise TypeError(f"a POST was answered with {answer!r}")

    def _judge_claim(self, answer: object) -> Verdict:
        """One that exists is ours if an earlier try may have made it, or an earlier executor whose pod was refused.

        Else it is left from another life, and may hold another's data: the id is given up, as for a pod's name.
        """
        name = str(self._claims[0]["metadata"]["name"])
        match answer:
            case TooManyRequests() | Conflict():
                return Retry(answer)
            case Unavailable():
                self._claim_may_exist = self._claim_may_exist or leaves_open(answer)
                return Retry(answer)
            case AlreadyExists() if not self._claim_may_exist and name.startswith(f"{self.name}-"):
                self.outcome = answer
                return Done()
            case ApiError() if not isinstance(answer, AlreadyExists):
                self.outcome = answer
                return Done()
            case _:
                self._claims.popleft()
                self._claim_may_exist = self.message.again
                return Retry(None)

    def only_look(self, why: str) -> None:
        """Nobody wants the pod made any more, but it may exist: from now on only a GET is sent."""
        if self._refusal is None:
            self._refusal, self._may_be_ours = Cancelled(why), True

    def _is_ours(self, pod: Pod) -> bool:
        metadata: Mapping[str, Any] = self.message.manifest["metadata"]
        same = all(pod.labels.get(key) == metadata["labels"][key] for key in (APP_ID_LABEL, EXECUTOR_ID_LABEL))
        owners = {reference.uid for reference in pod.metadata.owner_references or ()}
        owned = all(reference["uid"] in owners for reference in metadata.get("ownerReferences", ()))
        set_aside = pod.labels.get(INACTIVE_LABEL) == "true"  # by an earlier life, whose ids nobody sees any more
        return same and owned and not pod.terminating and not set_aside


def leaves_open(answer: Unavailable) -> bool:
    """Whether a POST may have been carried out: one without a status that is not ambiguous never reached the server."""
    return isinstance(answer, Ambiguous) or answer.status >= 500


class Delete(Request):
    """DELETE one pod. Not found, or another UID or version by now, is an answer like success: it is looked at again."""

    kind = "delete"
    repeated = True

    def __init__(self, message: DeletePod) -> None:
        self._message = message
        self.key = ("delete", message.name, message.options)
        self.words = f"delete {message.name}"

    @classmethod
    def of(cls, pod: Pod) -> Delete:
        """Delete this pod and no later one of its name."""
        return cls(DeletePod(pod.name, DeleteOptions(uid=pod.uid)))

    def send(self, api: PodApi, reply: Callable[[Any], None]) -> Call:
        """DELETE."""
        return api.send(kube.Delete(self._message.name, self._message.options), reply)


class BulkDelete(Request):
    """DELETE by label: some executors, or all of the application's; those set aside are left.

    Many ids take several calls, one after the other. A failure of one does not keep the others from being sent.
    """

    kind = "delete pods"

    def __init__(self, message: DeletePods, app_id: str) -> None:
        self._message = message
        self.key = ("delete pods", message.executor_ids, message.reply_to)
        self.words = f"delete pods: executors={'all' if message.executor_ids is None else len(message.executor_ids)}"
        self._selectors = _selectors(
            fleet_selector(app_id, active_only=not message.include_inactive), message.executor_ids
        )
        self._error: ApiError | None = None

    def send(self, api: PodApi, reply: Callable[[Any], None]) -> Call:
        """DELETE a collection."""
        return api.send(kube.DeleteCollection(self._selectors[0]), reply)

    def judge(self, answer: object) -> Verdict:
        """Final when the last call is."""
        verdict = super().judge(answer)
        if isinstance(verdict, Retry):
            return verdict
        del self._selectors[0]
        self._error = answer if isinstance(answer, ApiError) else self._error
        return Retry(None) if self._selectors else verdict

    def refusal(self, answer: object) -> ApiError | None:
        """Of any of the calls."""
        return super().refusal(self._error or answer)

    def report(self) -> None:
        """Say how it went to whoever asked."""
        if self._message.reply_to is not None:
            self._message.reply_to.tell(PodsDeleted(self._message.executor_ids, self._error))


def _selectors(everyone: str, executor_ids: frozenset[int] | None) -> list[str]:
    if executor_ids is None:
        return [everyone]
    ids = sorted(executor_ids)
    parts = (ids[start : start + IDS_PER_CALL] for start in range(0, len(ids), IDS_PER_CALL))
    return [f"{everyone},{EXECUTOR_ID_LABEL} in ({','.join(map(str, part))})" for part in parts]


class Label(Request):
    """PATCH labels and annotations of one pod, with its UID as precondition."""

    kind = "label"
    repeated = True

    def __init__(self, message: LabelPod) -> None:
        self._message = message
        self.key = (
            "label",
            message.name,
            message.uid,
            tuple(sorted(message.labels.items())),
            tuple(sorted(message.annotations.items())),
        )
        self.words = f"label {message.name}"

    def send(self, api: PodApi, reply: Callable[[Any], None]) -> Call:
        """PATCH."""
        message = self._message
        metadata = {"uid": message.uid, "labels": dict(message.labels), "annotations": dict(message.annotations)}
        patch = {"metadata": {key: value for key, value in metadata.items() if value}}
        return api.send(kube.Patch(message.name, patch), reply)


class Adopt(Request):
    """PATCH the owner of one pod, with its UID as precondition.

    The whole list is replaced: two owners that are controllers are refused, and the old one is gone.
    """

    kind = "adopt"
    repeated = True

    def __init__(self, message: AdoptPod) -> None:
        self._message = message
        self.key = ("adopt", message.name, message.uid, str(message.owner["uid"]))
        self.words = f"adopt {message.name}"

    def send(self, api: PodApi, reply: Callable[[Any], None]) -> Call:
        """PATCH."""
        metadata = {"uid": self._message.uid, "ownerReferences": [dict(self._message.owner)]}
        return api.send(kube.Patch(self._message.name, {"metadata": metadata}), reply)


class ClaimList(Request):
    """LIST the fleet's PersistentVolumeClaims."""

    kind = "list claims"
    writes = False
    words = "list claims"

    def __init__(self, message: ListClaims, app_id: str) -> None:
        self._message = message
        self.key = ("list claims", message.reply_to)
        self._selector = f"{APP_ID_LABEL}={app_id},{ROLE_LABEL}={ROLE_EXECUTOR}"

    def send(self, api: PodApi, reply: Callable[[Any], None]) -> Call:
        """LIST."""
        return api.send(kube.ListObjects(CLAIMS, self._selector), reply)

    def report(self, answer: object) -> None:
        """The claims, or why there are none to be seen."""
        self._message.reply_to.tell(ClaimsListed(answer if isinstance(answer, ApiError) else tuple(answer)))  # type: ignore[arg-type]  # a LIST's answer


class Confirm(Request):
    """GET one pod, to learn whether it is gone or only left our selector."""

    kind = "confirm"
    writes = False

    def __init__(self, message: ConfirmPod) -> None:
        self._message = message
        self.key = ("confirm", message.uid, message.reply_to)
        self.words = f"confirm {message.name}"

    def send(self, api: PodApi, reply: Callable[[Any], None]) -> Call:
        """GET."""
        return api.send(kube.Get(self._message.name), reply)

    def judge(self, answer: object) -> Verdict:
        """Tried a few times only."""
        return Done() if self.tries >= CONFIRM_TRIES else super().judge(answer)

    def report(self, answer: object) -> None:
        """The pod, if it lives under the same UID; None if it is gone or cannot be read."""
        message = self._message
        pod = answer if isinstance(answer, Pod) and answer.uid == message.uid else None
        message.reply_to.tell(PodConfirmed(message.executor_id, message.uid, pod))
