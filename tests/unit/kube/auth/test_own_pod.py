"""The pod that a token says it is for."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from actors.kube.auth.own_pod import OwnPod, own_pod

if TYPE_CHECKING:
    from pathlib import Path

BOUND = {"namespace": "batch", "pod": {"name": "driver-0", "uid": "uid-1"}, "serviceaccount": {"name": "driver"}}


def token(said: Any) -> str:
    claims = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    return f"eyJh.{claims}.c2ln"


def test_a_bound_token_names_the_pod_that_it_was_made_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(token({"kubernetes.io": BOUND, "aud": ["https://kubernetes.default.svc"]}))
    assert own_pod(tmp_path) == OwnPod("batch", "driver-0", "uid-1")


@pytest.mark.parametrize(
    "text",
    [
        token({"kubernetes.io": {"namespace": "batch", "serviceaccount": {"name": "driver"}}}),
        token({"kubernetes.io": BOUND | {"pod": {"name": "", "uid": 5}}}),
        token({"kubernetes.io": []}),
        token([]),
        "one.ünreadable.token",
        "opaque",
        "",
    ],
)
def test_another_token_names_none(text: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(text)
    assert own_pod(tmp_path) is None


def test_without_a_token_there_is_no_pod(tmp_path: Path) -> None:
    assert own_pod(tmp_path) is None
