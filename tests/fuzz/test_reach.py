"""Nobody opens a file or starts a program that the caller did not ask for, whatever is in what was read."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.errors import SettingsError
from actors.kube.auth.discovery import load
from actors.kube.http import decode
from actors.manifests.executor_pod import check_template
from actors.settings.model import Settings
from tests.fuzz.material import spoiled, spoiled_bytes, strings
from tests.fuzz.reach import reaching
from tests.fuzz.test_answers import POD
from tests.fuzz.test_kubeconfig import CONFIG
from tests.fuzz.test_settings import PATCH, TEMPLATE
from tests.unit.local.server_kit import PODS, Endpoint, manifest, served

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

NAMES = ("..", "../../../../etc/passwd", "/etc/passwd", "%2e%2e%2fetc%2fpasswd", "a/../../b", "\0", "a", "~", "$(HOME)")


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    yield from served(tmp_path_factory.mktemp("api"))


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def named_in(document: Any, folder: Path) -> set[str]:
    """Every path that a document could mean: a caller who names a file has asked for it."""
    return {os.path.realpath(folder / text) for text in strings(document) if text and "\0" not in text}


def of_the_caller(paths: set[str], folder: Path) -> set[str]:
    """Without what Python itself reads: its own modules, time zones, certificates that come with a package."""
    return {path for path in paths if path.startswith((str(folder), "/etc/passwd", "/etc/shadow", "/root", "/home"))}


@ONE_FOLDER
@given(spoiled(CONFIG), st.sampled_from((None, "first", "pass", "cert")))
@example({**CONFIG, "users": [{"name": "me", "user": {"tokenFile": "/etc/passwd"}}]}, "first")
def test_a_kubeconfig_opens_itself_and_what_it_names_and_starts_nothing(
    tmp_path: Path, config: Any, context: str | None
) -> None:
    path = tmp_path / "k"
    path.write_bytes(json.dumps(config, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    with reaching() as reach, suppress(SettingsError):
        load(path, context, limit=timedelta(seconds=5))
    assert reach.started == []
    assert of_the_caller(reach.opened, tmp_path) <= {str(path), *named_in(config, tmp_path)}
    assert str(path) in reach.opened, "somebody looks"


@ONE_FOLDER
@given(spoiled(TEMPLATE), st.none() | spoiled(PATCH))
def test_a_template_opens_nothing_and_starts_nothing(tmp_path: Path, template: Any, patch: Any) -> None:
    with reaching() as reach, suppress(SettingsError):
        check_template(Settings(app_id="app", executor={"pod_template": template, "template_patch": patch}))
    assert reach.started == []
    if isinstance(template, str):  # the name of a file
        return
    assert of_the_caller(reach.opened, tmp_path) <= named_in(patch if isinstance(patch, str) else None, tmp_path)


@given(spoiled_bytes(POD))
def test_a_pod_opens_nothing_and_starts_nothing(tmp_path_factory: pytest.TempPathFactory, body: bytes) -> None:
    with reaching() as reach, suppress(ValueError, RecursionError):
        decode.pod(body)
    assert reach.started == []
    assert of_the_caller(reach.opened, tmp_path_factory.getbasetemp()) == set()


@ONE_FOLDER
@given(
    st.sampled_from(("GET", "DELETE", "POST", "PUT", "PATCH")),
    st.sampled_from(NAMES) | st.text(max_size=20),
    st.sampled_from(("", "/log", "/status", "/eviction", "/exec", "/proxy/etc/passwd")),
    st.sampled_from(("", *NAMES)),
)
def test_a_request_opens_nothing_and_starts_nothing(
    api: Endpoint, tmp_path: Path, method: str, name: str, part: str, container: str
) -> None:
    path = f"{PODS}/{quote(name, safe='', errors='surrogatepass')}{part}?container={quote(container, safe='')}"
    body = manifest(name) if method in {"POST", "PUT"} else None
    api.request("GET", "/api")  # the connection is there before anybody looks
    with reaching() as reach:
        api.request(method, path, body)
    assert reach.started == []
    assert of_the_caller(reach.opened, tmp_path.parent) == set()
