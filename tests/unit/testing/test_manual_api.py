"""`ManualPodApi` with a script, and pods as values."""

from __future__ import annotations

from typing import Any

import pytest

from actors import kube
from actors.errors import NotFound
from actors.kube.api import PodPage
from actors.pods.pod import executor_id
from actors.pods.state import PodRules, classify
from actors.testing import ManualPodApi, pod


def test_scripted_answers_come_in_order() -> None:
    api = ManualPodApi()
    answers: list[Any] = []
    page, missing = PodPage((pod(1),), "7"), NotFound("gone", status=404)
    api.script("list", page)
    api.script("list", PodPage((), "8"))
    api.script("get", missing)
    api.send(kube.List("app=a"), answers.append)
    api.send(kube.Get("test-exec-1"), answers.append)
    api.send(kube.List("app=a"), answers.append)
    assert answers == [page, missing, PodPage((), "8")]
    assert api.open() == ()


def test_a_call_without_a_scripted_answer_is_an_error_that_names_it_and_the_script() -> None:
    api = ManualPodApi()
    api.script("get", pod(1))
    api.script("delete")
    api.send(kube.Get("test-exec-1"), lambda _: None)
    with pytest.raises(
        AssertionError,
        match=r"^no answer is scripted for get number 2: Get\(name='test-exec-2'.*\)\. Scripted: get: 1, delete: 0$",
    ):
        api.send(kube.Get("test-exec-2"), lambda _: None)
    with pytest.raises(AssertionError, match="no answer is scripted for delete number 1"):
        api.send(kube.Delete("test-exec-1"), lambda _: None)


def test_operations_without_a_script_wait_for_the_test() -> None:
    api = ManualPodApi()
    api.script("get", pod(1))
    answers: list[Any] = []
    api.send(kube.List("app=a"), answers.append)
    assert answers == []
    api.take("list").answer(PodPage((), "1"))
    assert answers == [PodPage((), "1")]
    with pytest.raises(ValueError, match="a watch is answered by `send` and `end`"):
        api.script("watch", None)


def test_a_closed_api_answers_no_script() -> None:
    api = ManualPodApi()
    api.script("get")
    api.close()
    answers: list[Any] = []
    api.send(kube.Get("test-exec-1", deadline=None), answers.append)
    assert [type(answer).__name__ for answer in answers] == ["Cancelled"]


@pytest.mark.parametrize(
    ("subject", "state", "node"),
    [
        (pod(1), "PodRunning", "node-1"),
        (pod(1, "Pending"), "PodPending", None),
        (pod(1, waiting="ImagePullBackOff", node="n"), "PodPending", "n"),
        (pod(1, exit_code=0), "PodSucceeded", "node-1"),
        (pod(1, exit_code=3, node="n"), "PodFailed", "n"),
        (pod(1, "Failed"), "PodFailed", "node-1"),
        (pod(1, "Succeeded"), "PodSucceeded", "node-1"),
        (pod(1, terminating=True), "PodTerminating", "node-1"),
        (pod(1, "Strange"), "PodUnknown", "node-1"),
    ],
)
def test_a_pod_is_what_its_builder_says(subject: Any, state: str, node: str | None) -> None:
    assert type(classify(subject, PodRules())).__name__ == state
    assert subject.spec.node_name == node
    assert (executor_id(subject), subject.profile) == (1, "default")


def test_a_pod_has_more_labels_and_another_identity() -> None:
    subject = pod(7, app_id="etl", profile="gpu", uid="u", version=9, labels={"team": "a"})
    assert (subject.name, subject.uid, subject.resource_version) == ("etl-exec-7", "u", "9")
    assert (subject.profile, subject.labels["team"]) == ("gpu", "a")
