"""Create: the request that creates a pod, and its claims first. A state machine over the API's answers. Pure."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from actors import errors, kube
from actors.kube.api import CLAIMS
from actors.messages.internal import PodCreateDelayed
from actors.pods.pod import Pod
from actors.requests.alteration import alteration
from actors.requests.kinds import Done, Request, Retry

if TYPE_CHECKING:
    from datetime import datetime

    from actors.kube.api import DeleteOptions, Manifest
    from actors.messages.internal import CreatePod
    from actors.requests.kinds import Verdict

__all__ = ["Create"]


class Stage(Enum):
    """What a create sends."""

    CLAIM = "claim"
    """POST the next claim."""
    POD = "pod"
    """POST the pod."""
    VERIFY = "verify"
    """GET the pod: its POST was refused or cancelled, but an earlier try may have made it."""


class Create(Request):
    """POST a pod under one name until it is known whether that pod exists.

    A refusal is not final if the name is taken or an earlier try may have made the pod: the API server checks quota
    before names, so our own pod may be what exhausted it. A GET then decides: a pod of ours that is not terminating is
    success. A 409 that is not about the name is a conflict on the quota object and is retried.

    A pod that an admission step has changed is no success: the pool deletes it.

    An existing claim is ours if an earlier try may have made it, or if it was made for an earlier executor whose pod
    was refused. Any other is left from an earlier incarnation and may hold foreign data, so the create fails.
    """

    def __init__(self, message: CreatePod) -> None:
        self.message = message
        name = str(message.manifest["metadata"]["name"])
        super().__init__("create", name, ("create", message.executor_id), kube.Create(message.manifest))
        self.rank = message.rank
        self.outcome: Pod | errors.ApiError = errors.Cancelled("it was not sent")
        """The result. In stage VERIFY: the result if no such pod is ours."""
        self.observed: Pod | None = None
        """The pod of this executor in a snapshot, if it was observed before the POST was answered."""
        self.cancelled: errors.Cancelled | None = None
        """Set once the pod must not be POSTed (again)."""
        self.needs_verification = True
        """Whether a pod that an earlier try may have made is looked up. Not at a stop, which lists the fleet."""
        self.withdrawn = False
        """The Allocator cancelled it, and it was not in flight."""
        self.delete_when_made: DeleteOptions | None = None
        """How to delete the pod once it is made; None if it is to stay."""
        self.altered: Pod | None = None
        """The pod that was created, if it is not what was requested."""
        self._claims = deque(message.claims)
        """Claims that are not made yet."""
        self._stage: Stage
        self._may_exist: bool
        """An earlier try may have made the claim or pod of this stage."""
        self._begin_post()

    def judge(self, answer: object) -> Verdict:
        """An answer is final once it is known whether the pod exists."""
        verdict = self._step(answer)
        return verdict if isinstance(verdict, Done) else self.settle(verdict)

    def _step(self, answer: object) -> Verdict:  # noqa: C901, PLR0912 - one case an answer
        match self._stage, answer:
            case _, errors.TooManyRequests() | errors.Conflict() as error:
                return Retry(error)
            case Stage.VERIFY, errors.Unavailable() as error:
                return Retry(error)
            case _, errors.Unavailable() as error:
                self._may_exist = self._may_exist or _leaves_open(error)
                return Retry(error)
            case Stage.CLAIM, errors.AlreadyExists() if self._may_exist or not self._is_own(self._claims[0]):
                return self._next_post()
            case Stage.POD, errors.ApiError() as error if self._may_exist or isinstance(error, errors.AlreadyExists):
                self._verify(error)
                return Retry()
            case Stage.VERIFY, errors.ApiError() as error if self._may_exist and not isinstance(error, errors.NotFound):
                return Retry(error)  # until the pod can be read, or is observed
            case Stage.VERIFY, errors.ApiError():
                return Done()
            case _, errors.ApiError() as error:
                self.outcome = error
                return Done()
            case Stage.CLAIM, _:
                return self._next_post()
            case Stage.VERIFY, Pod() as pod if not self._is_ours(pod):
                return Done()
            case Stage.POD, Pod() as pod if (what := alteration(self.message.manifest, pod)) is not None:
                self.altered = pod
                self.outcome = errors.Altered(f"an admission step changed the pod, which is deleted: {what}")
                return Done()
            case _, Pod() as pod:
                self.outcome = pod
                return Done()
            case _:
                raise TypeError(f"a POST was answered with {answer!r}")

    def settle(self, retry: Retry) -> Verdict:
        """End if the pod was observed. If cancelled, end too, or verify first that no earlier try made the pod."""
        if self.observed is not None:
            self.outcome = self.observed
            return Done()
        if self.cancelled is None:
            return retry
        if self.needs_verification:
            if self._stage is Stage.VERIFY:
                return retry
            if self.message.again or (self._stage is Stage.POD and self._may_exist):
                self._verify(self.cancelled)
                return retry
        self.outcome = self.cancelled
        return Done()

    def _next_post(self) -> Retry:
        self._claims.popleft()
        self._begin_post()
        return Retry()

    def _begin_post(self) -> None:
        """POST the next claim, or the pod after the last claim."""
        self._stage = Stage.CLAIM if self._claims else Stage.POD
        self._may_exist = self.message.again
        if self._claims:
            self.call = kube.CreateObject(CLAIMS, self._claims[0])
        else:
            self.call = kube.Create(self.message.manifest)

    def _verify(self, refusal: errors.ApiError) -> None:
        self._stage, self.outcome = Stage.VERIFY, refusal
        self.call = kube.Get(self.name)

    def _is_own(self, claim: Manifest) -> bool:
        return str(claim["metadata"]["name"]).startswith(f"{self.name}-")

    def _is_ours(self, pod: Pod) -> bool:
        """Whether an earlier try made the pod. Earlier incarnations may have left one with an inactive label."""
        return not pod.terminating and alteration(self.message.manifest, pod) is None

    def refusal(self, answer: object) -> None:
        """Return None: the Allocator logs refused creates."""

    def delayed(self, error: errors.ApiError, retry_at: datetime) -> None:
        """Report to the Allocator that a try failed and another follows."""
        message = self.message
        message.reply_to.tell(PodCreateDelayed(message.executor_id, message.epoch, error, retry_at))


def _leaves_open(answer: errors.Unavailable) -> bool:
    """Return whether a POST may have been carried out. No status, unless ambiguous, means it was never sent."""
    return isinstance(answer, errors.Ambiguous) or answer.status >= 500
