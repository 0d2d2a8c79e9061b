"""What ends a wait for executors before its time: only what cannot heal. The rest is said, and waited for."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial

import pytest

from actors.errors import Unreachable, WaitTimeout
from actors.local.kubelet.scripted_kubelet import StayUnscheduled, StayWaiting
from tests.scenarios.doors import KINDS, Stage

pytestmark = pytest.mark.parametrize("kind", KINDS)


@pytest.mark.parametrize(
    ("reason", "words", "ends"),
    [
        ("InvalidImageName", 'couldn\'t parse image name "a b"', "at once"),
        ("CreateContainerConfigError", "container has runAsNonRoot and image will run as root", "at once"),
        ("CreateContainerConfigError", "container's runAsUser breaks non-root policy", "at once"),
        ("CreateContainerError", "failed to generate container spec: no command specified", "at once"),
        ("ErrImagePull", "manifest unknown: manifest unknown", "later"),
        ("ErrImagePull", "failed to authorize: unexpected status: 401 Unauthorized", "later"),
        ("ErrImagePull", "pull access denied, repository does not exist or may require authorization", "later"),
        ("ErrImageNeverPull", 'Container image "w" is not present with pull policy of Never', "later"),
        ("ErrImagePull", "dial tcp 10.0.0.9:443: connect: connection refused", "never"),
        ("ErrImagePull", "failed to fetch anonymous token: dial tcp: lookup auth.example: no such host", "never"),
        ("ErrImagePull", "unexpected status from HEAD request: 503 Service Unavailable", "never"),
        ("ImagePullBackOff", 'Back-off pulling image "worker:1"', "never"),
        ("RegistryUnavailable", "the registry is not available", "never"),
        ("CreateContainerConfigError", 'secret "db" not found', "never"),
        ("CreateContainerConfigError", "couldn't find key password in Secret default/db", "never"),
        ("CreateContainerError", "context deadline exceeded", "never"),
        ("RunContainerError", "failed to create containerd task: context deadline exceeded", "never"),
        ("CrashLoopBackOff", "back-off 40s restarting failed container", "never"),
    ],
)
def test_only_what_cannot_heal_ends_a_wait_before_its_time(reason: str, words: str, ends: str, kind: str) -> None:
    stage = Stage(kind, script=lambda _pod: StayWaiting(reason, words))

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            error = WaitTimeout if ends == "never" else Unreachable
            with pytest.raises(error, match=f"executor 1 is stuck: {reason}: executor: {re.escape(words)}"):
                await fleet.wait_for(running=1, timeout="3m")
            assert stage.kit.clock.elapsed < timedelta(seconds={"at once": 5, "later": 50, "never": 200}[ends])

    stage.run(program())


P = 'pods "etl-exec-1" is forbidden: '


@pytest.mark.parametrize(
    ("code", "words", "ends"),
    [
        (403, f"{P}exceeded quota: q, requested: cpu=8, used: cpu=0, limited: cpu=4", "once"),
        (403, f"{P}exceeded quota: q, requested: cpu=1,pods=1, used: cpu=0,pods=0, limited: cpu=2,pods=0", "once"),
        (403, f"{P}failed quota: q: must specify limits.cpu for: executor", "once"),
        (403, f'{P}violates PodSecurity "restricted:latest": runAsNonRoot != true', "once"),
        (403, f"{P}maximum memory usage per Container is 1Gi, but limit is 2Gi", "once"),
        (403, f"{P}ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "once"),
        (413, "Request entity too large: limit is 3145728", "once"),
        (500, "etcdserver: request is too large", "once"),
        (403, 'pods is forbidden: User "u" cannot create resource "pods" in API group ""', "later"),
        (403, f"{P}unable to create new content in namespace x because it is being terminated", "later"),
        (404, 'namespaces "x" not found', "later"),
        (403, f"{P}exceeded quota: q, requested: cpu=2, used: cpu=3, limited: cpu=4", "never"),
        (403, f"{P}status unknown for quota: q, resources: pods", "never"),
        (403, f'{P}error looking up service account x/default: serviceaccount "default" not found', "never"),
        (403, f"{P}no PriorityClass with name high was found", "never"),
        (403, 'admission webhook "policy.example" denied the request: not now', "never"),
        (400, 'admission webhook "policy.example" denied the request: not now', "never"),
        (500, 'Internal error occurred: failed calling webhook "policy.example": no endpoints available', "never"),
        (500, "etcdserver: mvcc: database space exceeded", "never"),
        (401, "Unauthorized", "never"),
        (503, "the server is currently unable to handle the request", "never"),
    ],
)  # fmt: skip
def test_only_a_refusal_that_cannot_heal_ends_a_wait_before_its_time(
    code: int, words: str, ends: str, kind: str
) -> None:
    stage = Stage(kind)
    stage.cluster.refuse("create", code, words, times=999)

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            error = WaitTimeout if ends == "never" else Unreachable
            with pytest.raises(error, match=re.escape(words)):
                await fleet.wait_for(running=1, timeout="3m")
            assert stage.kit.clock.elapsed < timedelta(seconds={"once": 5, "later": 50, "never": 200}[ends])

    stage.run(program())


def test_an_image_that_a_registry_lacks_after_it_was_away_ends_the_wait_too(kind: str) -> None:
    stage = Stage(kind, script=lambda _pod: StayWaiting("ErrImagePull", "dial tcp: i/o timeout"))

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            stage.kit.timers.schedule(timedelta(minutes=1), lambda: stage.cluster.stuck(1, "ErrImagePull", "not found"))
            with pytest.raises(Unreachable, match="executor 1 is stuck: ErrImagePull: executor: not found"):
                await fleet.wait_for(running=1, timeout="10m")
            assert stage.kit.clock.elapsed < timedelta(seconds=110)

    stage.run(program())


def test_the_error_at_the_end_of_the_time_says_why_an_executor_is_stuck_by_then(kind: str) -> None:
    stage = Stage(kind, script=lambda _pod: StayWaiting("ErrImagePull", "dial tcp: i/o timeout"))

    async def program() -> None:
        async with stage.fleet(instances=1) as fleet:
            stage.kit.timers.schedule(timedelta(minutes=1), lambda: stage.cluster.stuck(1, "ErrImagePull", "EOF"))
            with pytest.raises(WaitTimeout, match="executor 1 is stuck: ErrImagePull: executor: EOF"):
                await fleet.wait_for(running=1, timeout="2m")

    stage.run(program())


def test_what_holds_a_wait_up_is_logged_once_for_each_cause(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage(kind, script=lambda _pod: StayWaiting("CreateContainerConfigError", 'secret "db" not found'))

    async def program() -> None:
        async with stage.fleet(instances=3) as fleet:
            for executor_id in (1, 2, 3):
                stage.kit.timers.schedule(timedelta(seconds=70), partial(stage.cluster.run, executor_id))
            await fleet.wait_for(running=3, timeout="10m")

    stage.run(program())
    said = [record.getMessage() for record in caplog.records if "held up" in record.getMessage()]
    assert [line.partition("cause=")[2] for line in said] == [
        'executor 1 is stuck: CreateContainerConfigError: executor: secret "db" not found'
    ]


def test_a_refusal_of_one_more_does_not_end_the_wait_for_those_that_are_there(kind: str) -> None:
    stage = Stage(kind, script=lambda _pod: StayUnscheduled())

    async def program() -> None:
        async with stage.fleet(instances=2) as fleet:
            stage.kit.advance(timedelta(seconds=5))
            stage.cluster.refuse("create", 422, "Pod is invalid", times=99)
            await fleet.scale(3)
            for executor_id in (1, 2):
                stage.kit.timers.schedule(timedelta(seconds=30), partial(stage.cluster.run, executor_id))
            await fleet.wait_for(running=2, timeout="10m")
            with pytest.raises(Unreachable, match=r"3 executors should run, 2 run: .*Pod is invalid"):
                await fleet.wait_for(running=3, timeout="10m")

    stage.run(program())
