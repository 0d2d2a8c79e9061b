"""Kubeconfigs, accounts and exec plugins as bad as they can be: a `SettingsError`, and no secret in its words."""

from __future__ import annotations

import base64
import json
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from actors.errors import SettingsError
from actors.kube.auth import exec_plugin
from actors.kube.auth.discovery import load
from tests.fuzz.material import DEEP, SECRET, spoiled, spoiled_bytes, tried

if TYPE_CHECKING:
    from pathlib import Path

ONE_FOLDER = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

ENCODED = base64.b64encode(SECRET.encode()).decode()

CONFIG: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "clusters": [
        {
            "name": "one",
            "cluster": {
                "server": "https://one.example:6443",
                "tls-server-name": "x",
                "certificate-authority-data": ENCODED,
            },
        }
    ],
    "users": [
        {"name": "me", "user": {"token": SECRET}},
        {"name": "pass", "user": {"username": "u", "password": SECRET}},
        {"name": "cert", "user": {"client-certificate-data": ENCODED, "client-key-data": ENCODED}},
        {
            "name": "oidc",
            "user": {"auth-provider": {"name": "oidc", "config": {"id-token": SECRET, "refresh-token": SECRET}}},
        },
    ],
    "contexts": [
        {"name": "first", "context": {"cluster": "one", "user": "me", "namespace": "team"}},
        {"name": "pass", "context": {"cluster": "one", "user": "pass"}},
        {"name": "cert", "context": {"cluster": "one", "user": "cert"}},
        {"name": "oidc", "context": {"cluster": "one", "user": "oidc"}},
    ],
    "current-context": "first",
}
ANSWER: dict[str, Any] = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "kind": "ExecCredential",
    "status": {"token": SECRET, "expirationTimestamp": "2030-01-01T00:00:00Z", "clientKeyData": SECRET},
}


def loaded_or_refused(path: Path, context: str | None) -> None:
    access = tried(lambda: load(path, context, limit=timedelta(seconds=5)), SettingsError)
    if access is not None:
        shown = f"{access} {access.credentials.current()!r} {access.server}"
        assert SECRET not in shown
        assert ENCODED not in shown


@ONE_FOLDER
@given(spoiled(CONFIG), st.sampled_from((None, "first", "pass", "cert")))
def test_any_kubeconfig_is_access_or_is_refused(tmp_path: Path, config: Any, context: str | None) -> None:
    path = tmp_path / "k"
    path.write_bytes(json.dumps(config, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    loaded_or_refused(path, context)


@pytest.mark.parametrize(
    "text",
    [
        "&a {contexts: *a}",
        "contexts: &a [{name: first, context: &b {cluster: *b}}]\ncurrent-context: first",
        "users: [{name: me, user: {token: " + SECRET,
        f"users: [{{name: me, user: {{token: *{SECRET}}}}}]",
        f"!!python/object/apply:os.system ['touch ran {SECRET}']",
        "[" * 600,
        "9" * 5_000,
        "a: 2001-99-99",
        "\x07",
        "",
        "- a",
    ],
)
def test_a_file_that_is_no_plain_data_is_no_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k").write_text(text)
    with pytest.raises(SettingsError) as refused:
        load(tmp_path / "k")
    assert SECRET not in str(refused.value)
    assert not (tmp_path / f"ran {SECRET}").exists()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["k"]


@given(spoiled_bytes(ANSWER))
@example(DEEP)
def test_any_answer_of_a_plugin_is_a_credential_or_refused_without_it(printed: bytes) -> None:
    found = tried(lambda: exec_plugin._credential(printed, ANSWER["apiVersion"]), exec_plugin.PluginFailed)
    assert SECRET not in repr(found)


@ONE_FOLDER
@given(
    st.binary(max_size=60), st.sampled_from(("token", "ca.crt", "namespace")), st.text(max_size=20), st.text(max_size=6)
)
@example(b"", "namespace", "0", "[")
@example(b"", "namespace", "one.example", "99999999")
def test_any_account_is_access_or_is_refused(tmp_path: Path, content: bytes, file: str, host: str, port: str) -> None:
    for name, usual in (("token", SECRET), ("ca.crt", "none"), ("namespace", "team")):
        (tmp_path / name).write_bytes(content if name == file else usual.encode())
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": str(tmp_path)}
    access = tried(lambda: load(environ=environ, account=tmp_path), SettingsError)
    if access is not None:
        assert SECRET not in f"{access} {access.credentials.current()!r}"
