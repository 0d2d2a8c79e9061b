"""Certificates that change at run time: the server's, the CA's, and the client's."""

from __future__ import annotations

import base64
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from actors import kube
from actors.errors import ApiError, Unauthorized, Unavailable, Untrusted
from actors.kube.api import WatchEnded
from actors.kube.auth import discovery as auth
from actors.kube.http.pod_api import HttpPodApi
from actors.pods.pod import Pod
from actors.runtime import SystemClock
from tests.unit.kube.certificates import DAY, Authority
from tests.unit.kube.conftest import ask
from tests.unit.kube.http.test_pod_api import pod
from tests.unit.kube.scripted import SAFETY, write_kubeconfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from actors.kube import Call, PodApi
    from tests.unit.kube.scripted import Peer, ScriptedServer

TOKEN = "s3cr3t-value"

OLD, NEW, CLIENTS = Authority("old"), Authority("new"), Authority("clients")


class Trusting:
    """A client whose CA can be replaced, wherever it keeps it."""

    def __init__(self, where: str, folder: Path, server: ScriptedServer) -> None:
        self.where, self._folder, self._url = where, folder, f"https://{server.name}"
        self.ca = folder / "ca.crt"
        self.kubeconfig = folder / "kubeconfig"
        self.trust(OLD)
        if where == "account":
            (folder / "token").write_text(TOKEN)
            host, port = server.name.split(":")
            environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "HOME": "/nowhere"}
            access = auth.load(environ=environ, account=folder)
        else:
            access = auth.load(self.kubeconfig)
        limit = timedelta(seconds=SAFETY)
        self.api = HttpPodApi(access, namespace="ns", request_timeout=limit, max_connections=1, clock=SystemClock())

    def trust(self, authority: Authority) -> None:
        self.ca.write_bytes(authority.pem)
        if self.where == "file":
            write_kubeconfig(self.kubeconfig, self._url, {"token": TOKEN}, **{"certificate-authority": "ca.crt"})
        elif self.where == "data":
            data = base64.b64encode(authority.pem).decode()
            write_kubeconfig(self.kubeconfig, self._url, {"token": TOKEN}, **{"certificate-authority-data": data})

    @property
    def authority(self) -> str:
        """How it is called in an error."""
        data = f"the certificate-authority-data of context 'test' of {self.kubeconfig}"
        return data if self.where == "data" else f"the CA in {self.ca}"


@pytest.fixture(params=["file", "data", "account"])
def trusting(request: pytest.FixtureRequest, server: ScriptedServer, tmp_path: Path) -> Iterator[Trusting]:
    server.tls = OLD.server(tmp_path)
    made = Trusting(request.param, tmp_path, server)
    yield made
    made.api.close()


def last_answer(peer: Peer) -> None:
    """Answers, and hangs up."""
    peer.answer(200, pod("a"), {"Connection": "close"})
    peer.keep = False


def empty_stream(peer: Peer) -> None:
    """A watch that ends at once."""
    peer.stream()
    peer.finish()


def get(api: PodApi) -> Any:
    return ask(lambda reply: api.send(kube.Get("a"), reply))


def watch(api: PodApi) -> Any:
    def begin(reply: Callable[[Any], None]) -> Call:
        return api.watch(kube.Watch("", "1", timeout=timedelta(minutes=1)), reply)

    return ask(begin)


def test_a_new_ca_is_found_when_the_servers_certificate_is_not_accepted(
    trusting: Trusting, server: ScriptedServer, tmp_path: Path
) -> None:
    server.then(last_answer, last_answer)
    assert isinstance(get(trusting.api), Pod)
    server.tls = NEW.server(tmp_path)
    trusting.trust(NEW)
    assert isinstance(get(trusting.api), Pod)


def test_a_watch_finds_the_new_ca_too(trusting: Trusting, server: ScriptedServer, tmp_path: Path) -> None:
    server.tls = NEW.server(tmp_path)
    trusting.trust(NEW)
    server.then(empty_stream)
    assert watch(trusting.api) == WatchEnded(None)


def test_a_certificate_that_no_ca_of_ours_knows_is_one_error_with_the_server_and_the_ca(
    trusting: Trusting, server: ScriptedServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server.tls = NEW.server(tmp_path)
    words = (
        f"there is no TLS connection to {server.name}: its certificate is not accepted: unable to get local issuer "
        f"certificate (it was checked against {trusting.authority})"
    )
    told: list[ApiError] = [
        get(trusting.api),
        ask(lambda reply: trusting.api.send(kube.Create({}), reply)),
        watch(trusting.api).error,
    ]
    assert [type(error) for error in told] == [Untrusted] * 3, "nothing was sent, so that a write is not ambiguous"
    assert [error.message for error in told] == [words] * 3
    assert server.asked == []
    assert caplog.records == [], "what is said once a minute is that a CA cannot be read, which it can"
    assert TOKEN not in repr(told)


def test_a_connection_lasts_until_the_new_ca_is_read_and_is_then_made_anew(
    trusting: Trusting, server: ScriptedServer, tmp_path: Path
) -> None:
    server.answers(200, pod("a"))
    server.answers(200, pod("a"))
    server.answers(401, {"kind": "Status", "message": "Unauthorized"})
    server.answers(200, pod("a"))
    assert isinstance(get(trusting.api), Pod)
    server.tls = NEW.server(tmp_path)
    trusting.trust(NEW)
    assert isinstance(get(trusting.api), Pod)
    assert isinstance(get(trusting.api), Pod)
    assert [asked.connection for asked in server.asked] == [1, 1, 1, 2]


def test_a_ca_that_cannot_be_used_is_named(server: ScriptedServer, tmp_path: Path) -> None:
    server.tls = OLD.server(tmp_path)
    trusting = Trusting("file", tmp_path, server)
    trusting.ca.write_text("half a certif")
    assert get(trusting.api).message == (
        f"there is no TLS connection to {server.name}: one of the files {trusting.ca} cannot be used: "
        "no certificate or crl found"
    )
    trusting.ca.unlink()
    error = get(trusting.api)
    assert type(error) is Untrusted
    assert error.message.endswith(f"one of the files {trusting.ca} cannot be read: No such file or directory")
    server.then(last_answer)
    trusting.trust(OLD)
    assert isinstance(get(trusting.api), Pod)
    trusting.api.close()


def test_without_a_ca_the_systems_are_named(server: ScriptedServer, tmp_path: Path) -> None:
    server.tls = OLD.server(tmp_path)
    path = write_kubeconfig(tmp_path / "k", f"https://{server.name}", {"token": TOKEN})
    api = kube.connect(path)
    assert get(api).message.endswith(
        f"(it was checked against the system's CAs, for there is none in context 'test' of {path})"
    )
    api.close()


def test_a_ca_without_key_identifiers_is_accepted_as_by_kubectl(server: ScriptedServer, tmp_path: Path) -> None:
    plain = Authority("plain", plain=True)
    server.tls = plain.server(tmp_path)
    trusting = Trusting("file", tmp_path, server)
    trusting.trust(plain)
    server.then(last_answer)
    assert isinstance(get(trusting.api), Pod), "Python 3.13 refuses it by default"
    trusting.api.close()


def test_a_cluster_may_have_another_name_in_its_certificate(server: ScriptedServer, tmp_path: Path) -> None:
    server.tls = OLD.server(tmp_path)
    (tmp_path / "ca.crt").write_bytes(OLD.pem)
    url, cluster = f"https://localhost:{server.port}", {"certificate-authority": "ca.crt"}
    unnamed = kube.connect(write_kubeconfig(tmp_path / "k", url, {}, **cluster))
    assert type(get(unnamed)) is Untrusted
    unnamed.close()
    named = kube.connect(write_kubeconfig(tmp_path / "k", url, {}, **cluster, **{"tls-server-name": "127.0.0.1"}))
    server.then(last_answer)
    assert isinstance(get(named), Pod)
    named.close()


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_certificate_is_not_checked_if_the_cluster_says_so(server: ScriptedServer, tmp_path: Path) -> None:
    server.tls = OLD.server(tmp_path)
    skip: dict[str, Any] = {"insecure-skip-tls-verify": True}
    path = write_kubeconfig(tmp_path / "k", f"https://{server.name}", {}, **skip)
    api = kube.connect(path)
    server.then(last_answer)
    assert isinstance(get(api), Pod)
    api.close()


def test_a_server_that_is_away_is_no_reason_to_read_the_ca_again(
    server: ScriptedServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.tls = OLD.server(tmp_path)
    trusting = Trusting("file", tmp_path, server)
    server.stop_listening()
    monkeypatch.setattr("actors.kube.auth.credentials.Credentials.renewed", None)
    assert type(get(trusting.api)) is Unavailable
    trusting.api.close()


# ── Ours ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def with_certificate(folder: Path, server: ScriptedServer, valid_for: timedelta = DAY) -> Path:
    """A kubeconfig whose user has a certificate in files."""
    CLIENTS.sign("me", valid_for=valid_for).write(folder / "me.crt", folder / "me.key")
    (folder / "ca.crt").write_bytes(OLD.pem)
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    return write_kubeconfig(
        folder / "kubeconfig", f"https://{server.name}", user, **{"certificate-authority": "ca.crt"}
    )


def test_an_expired_certificate_is_reported_and_a_new_one_in_its_files_is_used(
    server: ScriptedServer, tmp_path: Path
) -> None:
    server.tls = OLD.server(tmp_path, clients=CLIENTS)
    path = with_certificate(tmp_path, server, -DAY)
    api = kube.connect(path)
    error = ask(lambda reply: api.send(kube.Create({}), reply))
    assert type(error) is Untrusted, "it was not looked at, so that it is not ambiguous"
    assert error.message.startswith(
        f"there is no TLS connection to {server.name}: it does not accept the client certificate of context 'test' of "
        f"{path}: "
    )
    assert error.message.endswith(" alert certificate expired"), "OpenSSL's words; since 3.2 others stand before these"
    with_certificate(tmp_path, server)
    server.then(last_answer)
    assert isinstance(get(api), Pod)
    api.close()


def test_a_certificate_replaced_before_its_refusal_is_repeated_with(server: ScriptedServer, tmp_path: Path) -> None:
    server.tls = OLD.server(tmp_path, clients=CLIENTS)
    api = kube.connect(with_certificate(tmp_path, server))
    server.answers(401, {"kind": "Status", "message": "Unauthorized"})
    with_certificate(tmp_path, server)
    server.answers(200, pod("a"))
    assert isinstance(get(api), Pod)
    assert [asked.connection for asked in server.asked] == [1, 2], "a connection keeps the certificate it was made with"
    api.close()


def test_a_new_certificate_with_an_old_key_is_reported(server: ScriptedServer, tmp_path: Path) -> None:
    server.tls = OLD.server(tmp_path, clients=CLIENTS)
    api = kube.connect(with_certificate(tmp_path, server))
    (tmp_path / "me.key").write_bytes(CLIENTS.sign("me").key)
    error = get(api)
    assert type(error) is Untrusted
    files = ", ".join(str(tmp_path / name) for name in ("ca.crt", "me.crt", "me.key"))
    assert error.message.endswith(f"one of the files {files} cannot be used: key values mismatch")
    api.close()


def test_a_refused_credential_is_named_by_whose_it_is(server: ScriptedServer, tmp_path: Path) -> None:
    server.tls = OLD.server(tmp_path)
    trusting = Trusting("account", tmp_path, server)
    server.answers(401, {"kind": "Status", "message": "Unauthorized", "reason": "Unauthorized", "code": 401})
    error = get(trusting.api)
    assert type(error) is Unauthorized
    assert (error.status, error.reason) == (401, "Unauthorized")
    whose = f"the pod's own account in {tmp_path}"
    assert error.message == f"{server.name} does not accept the credential of {whose}: Unauthorized"
    trusting.api.close()
