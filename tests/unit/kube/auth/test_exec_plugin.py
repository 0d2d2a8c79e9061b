"""Exec plugins: the credentials they print, and the errors of those that fail."""

from __future__ import annotations

import json
import logging
import os
import select
import stat
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import SettingsError, Unauthorized
from actors.kube.auth import exec_plugin
from actors.kube.auth.discovery import load
from actors.pods.pod import Pod
from actors.testing import ManualClock
from tests.unit.kube.auth.test_discovery import SECRET, authorization, wait, written
from tests.unit.kube.conftest import Client, ask
from tests.unit.kube.http.test_pod_api import pod
from tests.unit.kube.scripted import SAFETY, write_kubeconfig

if TYPE_CHECKING:
    from actors.kube.auth.credentials import Access
    from tests.unit.kube.scripted import ScriptedServer

AT_ONCE = timedelta(milliseconds=200)
"""For a program that never ends."""


def plugin(folder: Path, answer: object, *, then: str = "exit 0", **changes: Any) -> dict[str, Any]:
    """A user whose plugin writes a line to `runs` each time, answers, and goes on as `then` says."""
    script = folder / "plugin"
    written(folder / "answer", answer if isinstance(answer, str) else json.dumps(answer))
    lines = ["#!/bin/sh", f"cd {folder}", "echo run >> runs", "echo no luck >&2", "cat answer", then, ""]
    script.write_text("\n".join(lines))
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    api_version = "client.authentication.k8s.io/v1"
    return {"exec": {"apiVersion": api_version, "command": "./plugin", "interactiveMode": "Never", **changes}}


def credential_json(**status: Any) -> dict[str, Any]:
    return {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}


def runs(folder: Path) -> int:
    return len((folder / "runs").read_text().splitlines())


def with_plugin(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    return write_kubeconfig(folder / "k", "https://one.example", user, **cluster)


def refusal(folder: Path, user: dict[str, Any], limit: timedelta = timedelta(seconds=30)) -> str:
    with pytest.raises(SettingsError) as refused:
        load(with_plugin(folder, user), limit=limit)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    return str(refused.value)


# ── What it is good for ──────────────────────────────────────────────────────────────────────────────────────────────


def test_its_token_is_used_until_it_is_about_to_expire(tmp_path: Path) -> None:
    clock = ManualClock()
    expires = (clock.now() + timedelta(hours=1)).isoformat().replace("+00:00", "Z")
    user = plugin(tmp_path, credential_json(token=SECRET, expirationTimestamp=expires))
    access = load(with_plugin(tmp_path, user), clock=clock)
    assert authorization(access) == f"Bearer {SECRET}"
    wait(clock, timedelta(minutes=54))
    assert authorization(access) == f"Bearer {SECRET}"
    assert runs(tmp_path) == 1
    later = (clock.now() + timedelta(hours=1)).isoformat()
    plugin(tmp_path, credential_json(token="newer", expirationTimestamp=later))
    wait(clock, timedelta(minutes=1))
    assert authorization(access) == "Bearer newer"
    assert authorization(access) == "Bearer newer"
    assert runs(tmp_path) == 2


def test_a_short_lived_token_is_not_asked_for_with_every_request(tmp_path: Path) -> None:
    clock = ManualClock()
    expires = (clock.now() + timedelta(minutes=2)).isoformat()
    user = plugin(tmp_path, credential_json(token=SECRET, expirationTimestamp=expires))
    access = load(with_plugin(tmp_path, user), clock=clock)
    wait(clock, timedelta(seconds=59))
    assert authorization(access) == f"Bearer {SECRET}"
    assert runs(tmp_path) == 1


def test_one_whose_token_has_expired_already_is_not_run_with_every_request(tmp_path: Path) -> None:
    clock = ManualClock()
    user = plugin(tmp_path, credential_json(token=SECRET, expirationTimestamp=clock.now().isoformat()))
    access = load(with_plugin(tmp_path, user), clock=clock)
    for _ in range(20):
        assert authorization(access) == f"Bearer {SECRET}"
        wait(clock, timedelta(seconds=1))
    assert runs(tmp_path) == 3, "once at the start, once when asked, once after ten seconds"


def test_a_file_that_the_cluster_has_is_no_reason_to_run_it_every_minute(tmp_path: Path) -> None:
    clock = ManualClock()
    written(tmp_path / "ca.crt", "a certificate")
    user = plugin(tmp_path, credential_json(token=SECRET))
    access = load(with_plugin(tmp_path, user, **{"certificate-authority": "ca.crt"}), clock=clock)
    wait(clock, timedelta(hours=1))
    authorization(access)
    assert runs(tmp_path) == 1


def test_it_may_give_a_certificate_and_a_token_too(tmp_path: Path) -> None:
    user = plugin(tmp_path, credential_json(clientCertificateData="CERTIFICATE", clientKeyData="KEY", token=SECRET))
    credential = load(with_plugin(tmp_path, user)).credentials.current()
    assert Path(str(credential.connection.certificate)).read_text() == "CERTIFICATE"
    assert Path(str(credential.connection.key)).read_text() == "KEY"
    assert credential.authorization == f"Bearer {SECRET}"


def test_a_plugin_gets_the_same_information_as_from_kubectl(tmp_path: Path) -> None:
    user = plugin(
        tmp_path,
        credential_json(token=SECRET),
        then='echo "$KUBERNETES_EXEC_INFO" > info; echo "$1 $EXTRA" > given',
        provideClusterInfo=True,
        args=["one"],
        env=[{"name": "EXTRA", "value": "two"}],
    )
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "here"}}
    load(with_plugin(tmp_path, user, extensions=[extension]))
    info = json.loads((tmp_path / "info").read_text())
    assert (info["apiVersion"], info["kind"]) == ("client.authentication.k8s.io/v1", "ExecCredential")
    assert info["spec"] == {
        "interactive": False,
        "cluster": {"server": "https://one.example", "config": {"audience": "here"}},
    }
    assert (tmp_path / "given").read_text() == "one two\n"


def test_a_refused_token_is_asked_for_anew_and_the_request_repeated(
    server: ScriptedServer, client: Client, tmp_path: Path
) -> None:
    api = client.connect(**plugin(tmp_path, credential_json(token="old")))
    plugin(tmp_path, credential_json(token="new"))
    server.answers(401, {"kind": "Status", "reason": "Unauthorized"})
    server.answers(200, pod("a"))
    assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Pod)
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer old", "Bearer new"]


# ── What is said when it fails ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("answer", "then", "words"),
    [
        ("", "exit 1", "it ended with exit code 1: no luck; run it by hand to see why"),
        ("", "kill -9 $$", "it ended with exit code -9: no luck; run it by hand"),
        (SECRET, "", "it printed no ExecCredential: JSON is malformed"),
        ("", "", "it printed no ExecCredential: Input data was truncated"),
        ('"\\377"', "printf '\\377'", "it printed no ExecCredential"),
        ([SECRET], "", "it printed no ExecCredential: Expected `object`, got `array`"),
        ({**credential_json(token=SECRET), "kind": "Secret"}, "", "it printed no ExecCredential: Invalid enum value"),
        (credential_json(token=[SECRET]), "", "Expected `str`, got `array` - at `$.status.token`"),
        (credential_json(token=SECRET, expirationTimestamp="soon"), "", "Invalid RFC3339 encoded datetime"),
        (credential_json(token=SECRET, expirationTimestamp="2026-01-01T00:00:00"), "", "with a timezone component"),
        (credential_json(), "", "its answer has neither a token nor a client certificate and key"),
        (credential_json(clientCertificateData=SECRET), "", "neither a token nor a client certificate and key"),
        ({**credential_json(token=SECRET), "apiVersion": "v0"}, "", "its apiVersion 'v0' is not the kubeconfig's"),
        ("", f"exec yes {SECRET}", "it printed more than 1048576 bytes and was killed; run it by hand"),
    ],
)
def test_a_failing_plugin_is_reported_with_advice_and_nothing_of_its_output(
    tmp_path: Path, answer: object, then: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    said = refusal(tmp_path, plugin(tmp_path, answer, then=then))
    assert said.startswith(f"context 'test' of {tmp_path / 'k'}: the exec plugin './plugin' gave no credential: ")
    assert words in said
    assert caplog.records == []


def test_one_that_is_not_there_is_named_with_its_hint(tmp_path: Path) -> None:
    user = {"exec": {"apiVersion": "v1", "command": "no-such-plugin", "installHint": "get it from\nthe shop"}}
    said = refusal(tmp_path, user)
    assert said.endswith("gave no credential: it cannot be run: No such file or directory (get it from the shop)")
    assert "'no-such-plugin'" in said


def test_a_plugin_that_needs_a_terminal_is_refused_without_one(tmp_path: Path) -> None:
    said = refusal(tmp_path, plugin(tmp_path, credential_json(token=SECRET), interactiveMode="Always"))
    assert said.endswith("it needs a terminal (interactiveMode: Always), and there is none")


def test_an_incomplete_entry_is_reported(tmp_path: Path) -> None:
    said = refusal(tmp_path, {"exec": {"command": "./plugin"}})
    assert said.endswith("its entry is not valid: Object missing required field `apiVersion`")
    assert refusal(tmp_path, {"exec": 5}).endswith("is not valid: Expected `object | null`, got `int` - at `$.exec`")


@pytest.mark.parametrize(
    "then",
    [
        "sleep 1000",
        "sleep 1000 & exit 0",
        "exec >&- 2>&-; sleep 1000",
    ],
    ids=["it hangs", "it leaves a child with its pipes", "it closes its pipes and hangs"],
)
def test_a_hanging_plugin_is_killed_with_its_children_and_reported(tmp_path: Path, then: str) -> None:
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    said = refusal(tmp_path, plugin(tmp_path, "", then=f"exec 3> held; {then}"), AT_ONCE)
    assert said.endswith("gave no credential: it did not end in 0.2 s and was killed; run it by hand to see why")
    os.close(os.open(tmp_path / "held", os.O_WRONLY))  # as it may have been killed before it came to that
    ended, _, _ = select.select([held], [], [], SAFETY)
    os.close(held)
    assert ended, "one of its programs lives on, and holds the pipe open"


def test_a_plugin_that_fails_later_is_logged_once_a_minute_and_run_at_most_every_ten_seconds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    access = load(with_plugin(tmp_path, plugin(tmp_path, credential_json(token=SECRET))), clock=clock)
    plugin(tmp_path, SECRET, then="exit 1")
    for _ in range(119):
        access.credentials.renewed(access.credentials.current())
        wait(clock, timedelta(seconds=1))
    assert runs(tmp_path) == 1 + 12
    line = (
        f"credential not renewed, the old one stays in use: error=context 'test' of {tmp_path / 'k'}: the exec "
        "plugin './plugin' gave no credential: it ended with exit code 1: no luck; run it by hand to see why"
    )
    assert caplog.messages == [line] * 2
    assert SECRET not in caplog.text


def test_the_old_credential_is_used_while_the_plugin_fails(
    server: ScriptedServer, client: Client, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api = client.connect(**plugin(tmp_path, credential_json(token=SECRET)))
    plugin(tmp_path, "", then="exit 1")
    for _ in range(3):
        server.answers(401, {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"})
    errors = [ask(lambda reply: api.send(kube.Get("a"), reply)) for _ in range(3)]
    assert [type(error) for error in errors] == [Unauthorized] * 3
    assert runs(tmp_path) == 2
    assert len([record for record in caplog.records if record.name == "actors.kube.auth.credentials"]) == 1
    assert SECRET not in f"{caplog.text}{errors}"


def test_nothing_of_a_credential_is_in_what_it_is_kept_in(tmp_path: Path) -> None:
    access: Access = load(with_plugin(tmp_path, plugin(tmp_path, credential_json(token=SECRET))))
    assert SECRET not in repr(access.credentials.current())
    assert SECRET not in repr(exec_plugin.PluginCredential(token=SECRET))
