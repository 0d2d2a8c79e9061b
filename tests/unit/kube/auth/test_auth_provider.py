"""Users with an `auth-provider`: the only ones for whom the `kubernetes` package is loaded."""

from __future__ import annotations

import base64
import json
import logging
import os
import stat
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import pytest
import yaml

from actors.errors import SettingsError
from actors.kube.auth.discovery import load
from tests.unit.kube.auth.test_discovery import SECRET, authorization
from tests.unit.kube.certificates import Authority
from tests.unit.kube.scripted import write_kubeconfig

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.kube.scripted import ScriptedServer

LAST_CENTURY, NEXT_CENTURY = 900_000_000, 4_200_000_000


def jwt(expires: int) -> str:
    parts = ({"alg": "none"}, {"exp": expires})
    return ".".join(
        [*(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts), "s"]
    )


def with_provider(folder: Path, name: str = "oidc", **config: Any) -> Path:
    path = write_kubeconfig(folder / "k", "https://one.example", {"auth-provider": {"name": name, "config": config}})
    path.chmod(0o600)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(SettingsError) as refused:
        load(path)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    return str(refused.value)


def test_a_token_that_is_valid_is_used_as_it_is(tmp_path: Path) -> None:
    token = jwt(NEXT_CENTURY)
    path = with_provider(tmp_path, **{"id-token": token})
    before = path.read_bytes()
    assert authorization(load(path)) == f"Bearer {token}"
    assert path.read_bytes() == before


def test_an_expired_token_is_renewed_and_saved_in_its_file(
    tmp_path: Path, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The issuer is on this machine, so no proxy leads there. No log has a secret or a token."""
    caplog.set_level(logging.DEBUG)
    for name in ("HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.com")
    authority, issuer = Authority("idp"), f"https://{server.name}"
    server.tls = authority.server(tmp_path)
    new = {"id_token": jwt(NEXT_CENTURY), "refresh_token": "second", "access_token": "any", "token_type": "bearer"}
    for answer in ({"token_endpoint": f"{issuer}/token"}, new):
        server.answers(200, answer, {"Content-Type": "application/json", "Connection": "close"})
    path = with_provider(
        tmp_path,
        **{
            "id-token": jwt(LAST_CENTURY),
            "refresh-token": "first",
            "client-id": "me",
            "client-secret": SECRET,
            "idp-issuer-url": issuer,
            "idp-certificate-authority-data": base64.b64encode(authority.pem).decode(),
        },
    )
    assert authorization(load(path)) == f"Bearer {new['id_token']}"
    assert [asked.path for asked in server.asked] == ["/.well-known/openid-configuration", "/token"]
    assert parse_qs(server.asked[1].body.decode())["refresh_token"] == ["first"]
    saved = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (saved["id-token"], saved["refresh-token"]) == (new["id_token"], "second")
    assert saved["client-id"] == "me"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert authorization(load(path)) == f"Bearer {new['id_token']}", "without asking again"
    assert caplog.records, "the package says what it does"
    assert not [secret for secret in (SECRET, "first", "second", new["id_token"]) if secret in caplog.text]
    assert (os.environ["NO_PROXY"], "no_proxy" in os.environ) == ("example.com", False)


def test_one_that_gives_no_token_is_named(tmp_path: Path) -> None:
    whose = f"context 'test' of {tmp_path / 'k'}: the auth-provider of user 'u' gave no token: "
    assert refusal(with_provider(tmp_path, "azure", token=SECRET)) == (
        whose + "it is not supported, or its id-token is not valid and cannot be renewed"
    )
    assert refusal(with_provider(tmp_path, **{"id-token": SECRET})).startswith(whose)
    wrong: dict[str, Any] = {"id-token": [SECRET]}
    assert refusal(with_provider(tmp_path, **wrong)).startswith(whose)
    assert refusal(with_provider(tmp_path, **{"id-token": jwt(LAST_CENTURY)})).startswith(whose)
