"""The request that makes a pod, and before it the pod's claims: a state machine whose input is the API's answers."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Any

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
from actors.kube.api import CLAIMS
from actors.messages import PodCreateDelayed
from actors.pods.pod import APP_ID_LABEL, EXECUTOR_ID_LABEL, INACTIVE_LABEL, Pod
from actors.requests.kinds import Done, Request, Retry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.kube.api import Manifest
    from actors.messages import CreatePod
    from actors.requests.kinds import Verdict

__all__ = ["Create"]


class Stage(Enum):
    """What a create asks of the API."""

    CLAIM = "claim"
    """POST its next claim."""
    POD = "pod"
    """POST the pod."""
    LOOK = "look"
    """GET the pod: its POST was refused, or is not wanted any more, and there may be such a pod all the same."""


class Create(Request):
    """POST a pod, under one name, until it is known whether that pod exists.

    A refusal is not the end of it when the name is taken, or when an earlier try may have made the pod (the API server
    checks quota before names: our own pod may be what exhausts it). Then a GET tells: a pod of that name that is ours
    and not about to go is success. A 409 that is not about the name is a conflict on the quota object, and passes.

    A claim that exists is ours if an earlier try may have made it, or an earlier executor whose pod was refused. Else
    it is left from another life, and may hold another's data: the id is given up, as for a pod's name.
    """

    def __init__(self, message: CreatePod) -> None:
        self.message = message
        name = str(message.manifest["metadata"]["name"])
        super().__init__("create", name, ("create", message.executor_id), kube.Create(message.manifest), urgent=False)
        self.outcome: Pod | ApiError = Cancelled("it was not sent")
        """How it ended. While it looks: how it ends if there is no such pod of ours."""
        self.observed: Pod | None = None
        """What a snapshot showed under this name meanwhile."""
        self.cancelled: Cancelled | None = None
        """Nobody wants the pod POSTed (again)."""
        self.withdrawn = False
        """Its Allocator does not want it any more, and it was not on the wire then."""
        self.delete_when_made = False
        self._claims = deque(message.claims)
        """Those that are not made yet."""
        self._stage: Stage
        self._may_exist: bool
        """An earlier try may have made what is POSTed or looked for."""
        self._begin_post()

    def judge(self, answer: object) -> Verdict:
        """Final once it is known whether there is such a pod of ours."""
        verdict = self._step(answer)
        return verdict if isinstance(verdict, Done) else self.settle(verdict)

    def _step(self, answer: object) -> Verdict:  # noqa: C901 - one case an answer
        match self._stage, answer:
            case _, TooManyRequests() | Conflict() as error:
                return Retry(error)
            case Stage.LOOK, Unavailable() as error:
                return Retry(error)
            case _, Unavailable() as error:
                self._may_exist = self._may_exist or _leaves_open(error)
                return Retry(error)
            case Stage.CLAIM, AlreadyExists() if self._may_exist or not self._is_own(self._claims[0]):
                return self._next_post()
            case Stage.POD, ApiError() as error if self._may_exist or isinstance(error, AlreadyExists):
                self._look(error)
                return Retry()
            case Stage.LOOK, ApiError() as error if self._may_exist and not isinstance(error, NotFound):
                return Retry(error)  # until it may be read, or a snapshot shows it
            case Stage.LOOK, ApiError():
                return Done()
            case _, ApiError() as error:
                self.outcome = error
                return Done()
            case Stage.CLAIM, _:
                return self._next_post()
            case Stage.LOOK, Pod() as pod if not self._is_ours(pod):
                return Done()
            case _, Pod() as pod:
                self.outcome = pod
                return Done()
            case _:
                raise TypeError(f"a POST was answered with {answer!r}")

    def settle(self, retry: Retry) -> Verdict:
        """Do not POST what a snapshot showed meanwhile, or what nobody wants any more: look if it may exist."""
        if self.observed is not None:
            self.outcome = self.observed
            return Done()
        if self.cancelled is None or self._stage is Stage.LOOK:
            return retry
        if self.message.again or (self._stage is Stage.POD and self._may_exist):
            self._look(self.cancelled)
            return retry
        self.outcome = self.cancelled
        return Done()

    def _next_post(self) -> Retry:
        self._claims.popleft()
        self._begin_post()
        return Retry()

    def _begin_post(self) -> None:
        """POST the next claim, or the pod if there is none left."""
        self._stage = Stage.CLAIM if self._claims else Stage.POD
        self._may_exist = self.message.again
        if self._claims:
            self.call = kube.CreateObject(CLAIMS, self._claims[0])
        else:
            self.call = kube.Create(self.message.manifest)

    def _look(self, refusal: ApiError) -> None:
        self._stage, self.outcome = Stage.LOOK, refusal
        self.call = kube.Get(self.name)
        self.urgent, self.writes = True, False

    def _is_own(self, claim: Manifest) -> bool:
        return str(claim["metadata"]["name"]).startswith(f"{self.name}-")

    def _is_ours(self, pod: Pod) -> bool:
        metadata: Mapping[str, Any] = self.message.manifest["metadata"]
        same = all(pod.labels.get(key) == metadata["labels"][key] for key in (APP_ID_LABEL, EXECUTOR_ID_LABEL))
        owners = {reference.uid for reference in pod.metadata.owner_references or ()}
        owned = all(reference["uid"] in owners for reference in metadata.get("ownerReferences", ()))
        set_aside = pod.labels.get(INACTIVE_LABEL) == "true"  # by an earlier life, whose ids nobody sees any more
        return same and owned and not pod.terminating and not set_aside

    def refusal(self, answer: object) -> None:
        """Whoever asked for the pod is told, and knows what an operator should see."""

    def delayed(self, error: ApiError) -> None:
        """Tell its Allocator."""
        message = self.message
        message.reply_to.tell(PodCreateDelayed(message.executor_id, message.epoch, error))


def _leaves_open(answer: Unavailable) -> bool:
    """Whether a POST may have been carried out: one without a status that is not ambiguous never reached the server."""
    return isinstance(answer, Ambiguous) or answer.status >= 500
