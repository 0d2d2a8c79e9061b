"""The sources of access, the errors without one, and how a credential is renewed."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from actors import kube
from actors.errors import SettingsError, Unauthorized, Unavailable
from actors.kube.auth import credentials as auth
from actors.kube.auth import kubeconfig
from actors.kube.auth.connection import Connection
from actors.kube.auth.credentials import Access, Credential, Credentials
from actors.kube.auth.discovery import load
from actors.pods.pod import Pod
from actors.testing import ManualClock
from tests.unit.kube.conftest import Client, ask
from tests.unit.kube.http.test_pod_api import pod
from tests.unit.kube.scripted import SAFETY, write_kubeconfig

if TYPE_CHECKING:
    from tests.unit.kube.scripted import Peer, ScriptedServer

SECRET = "s3cr3t-value"


def config(**changes: Any) -> dict[str, Any]:
    """A kubeconfig of two contexts."""
    return {
        "clusters": [
            {"name": "one", "cluster": {"server": "https://one.example:6443"}},
            {"name": "two", "cluster": {"server": "http://two.example/prefix/"}},
        ],
        "users": [{"name": "me", "user": {"token": SECRET}}, {"name": "you", "user": {"token": "other"}}],
        "contexts": [
            {"name": "first", "context": {"cluster": "one", "user": "me", "namespace": "team"}},
            {"name": "second", "context": {"cluster": "two", "user": "you"}},
        ],
        "current-context": "first",
        **changes,
    }


def written(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def wait(clock: ManualClock, delay: timedelta) -> None:
    clock.move_to(clock.elapsed + delay)


def authorization(access: Access) -> str | None:
    return access.credentials.current().authorization


# ── Finding it ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_current_context_names_server_user_and_namespace(tmp_path: Path) -> None:
    access = load(written(tmp_path / "k", config()))
    assert (access.url, access.server, access.namespace) == ("https://one.example:6443", "one.example:6443", "team")
    assert authorization(access) == f"Bearer {SECRET}"


def test_another_context_can_be_named(tmp_path: Path) -> None:
    access = load(written(tmp_path / "k", config()), "second")
    assert (access.url, access.namespace) == ("http://two.example/prefix", "default")
    assert authorization(access) == "Bearer other"


def test_kubeconfig_variable_may_name_several_files(tmp_path: Path) -> None:
    first = written(tmp_path / "a", {key: value for key, value in config().items() if key != "users"})
    second = written(tmp_path / "b", {"users": config()["users"]})
    access = load(environ={"KUBECONFIG": f"{first}:{tmp_path / 'missing'}:{second}", "HOME": "/nowhere"})
    assert authorization(access) == f"Bearer {SECRET}"


def test_the_first_file_that_names_something_has_it(tmp_path: Path) -> None:
    first = written(tmp_path / "a", {**config(), "current-context": "second"})
    users = [{"name": "me", "user": {"token": "not this"}}, {"name": "third", "user": {"token": "nor this"}}]
    second = written(tmp_path / "b", config(users=users))
    environ = {"KUBECONFIG": f"{first}:{second}", "HOME": "/nowhere"}
    assert load(environ=environ).server == "two.example", "the first current context counts, as for kubectl"
    assert authorization(load(context="first", environ=environ)) == f"Bearer {SECRET}"


def test_the_home_folders_kubeconfig_comes_next(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    written(tmp_path / ".kube" / "config", config())
    assert load(environ={"HOME": str(tmp_path)}).namespace == "team"


def test_relative_paths_start_at_the_kubeconfig(tmp_path: Path) -> None:
    written(tmp_path / "token", f" {SECRET}\n")
    users = [{"name": "me", "user": {"tokenFile": "token"}}]
    assert authorization(load(written(tmp_path / "k", config(users=users)))) == f"Bearer {SECRET}"


def test_a_user_may_have_a_password(tmp_path: Path) -> None:
    users = [{"name": "me", "user": {"username": "u", "password": "p"}}]
    assert authorization(load(written(tmp_path / "k", config(users=users)))) == "Basic dTpw"


def test_a_context_may_have_no_user(tmp_path: Path) -> None:
    contexts = [{"name": "first", "context": {"cluster": "one"}}]
    assert authorization(load(written(tmp_path / "k", config(contexts=contexts)))) is None


def test_a_user_may_act_as_another_account(server: ScriptedServer, tmp_path: Path) -> None:
    impersonated = {
        "as": "jané",
        "as-uid": "7",
        "as-groups": ["devs", "ops"],
        "as-user-extra": {"acme.com/Reason": ["a", "b"]},
    }
    api = kube.connect(server.kubeconfig(tmp_path, token="t", **impersonated))
    server.answers(200, pod("a"))
    assert isinstance(ask(lambda reply: api.send(kube.Get("a"), reply)), Pod)
    api.close()
    headers = server.asked[0].headers
    assert headers["authorization"] == "Bearer t"
    assert {name: value for name, value in headers.items() if name.startswith("impersonate-")} == {
        "impersonate-user": "jané",
        "impersonate-uid": "7",
        "impersonate-group": "devs, ops",
        "impersonate-extra-acme.com%2freason": "a, b",
    }, "each of several values in a line of its own, which a server joins"


def test_a_plugins_credential_acts_as_the_users_other_account(tmp_path: Path) -> None:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "t"}}
    plugin = {
        "apiVersion": answer["apiVersion"],
        "command": "echo",
        "args": [json.dumps(answer)],
        "interactiveMode": "Never",
    }
    users = [{"name": "me", "user": {"exec": plugin, "as": "jane"}}]
    credential = load(written(tmp_path / "k", config(users=users))).credentials.current()
    assert credential.authorization == "Bearer t"
    assert credential.impersonation["Impersonate-User"] == "jane"


@pytest.mark.parametrize("part", [{"as-uid": "7"}, {"as-groups": ["g"]}, {"as-user-extra": {"k": ["v"]}}])
def test_groups_of_nobody_are_refused(tmp_path: Path, part: dict[str, Any]) -> None:
    path = written(tmp_path / "k", config(users=[{"name": "me", "user": {"token": SECRET, **part}}]))
    with pytest.raises(SettingsError, match="user 'me' has as-uid, as-groups or as-user-extra, but not `as`"):
        load(path)


@pytest.mark.parametrize("part", [{"as": "a\r\nX-Evil: 1"}, {"as": "a\0"}, {"as": "a", "as-groups": ["g\n"]}])
def test_a_name_that_no_header_can_have_is_refused_at_once_and_not_shown(tmp_path: Path, part: dict[str, Any]) -> None:
    path = written(tmp_path / "k", config(users=[{"name": "me", "user": {"token": SECRET, **part}}]))
    with pytest.raises(SettingsError, match=r"user 'me' has an `as…` field with characters that are not") as refused:
        load(path)
    assert "Evil" not in str(refused.value)


def test_two_kubeconfigs_in_one_file_are_told_apart_from_what_is_no_yaml(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"is not one YAML document: but found another document \(line 3\)"):
        load(written(tmp_path / "k", "a: 1\n---\nb: 2\n"))


def test_a_user_without_an_entry_has_no_account(tmp_path: Path) -> None:
    assert authorization(load(written(tmp_path / "k", config(users=[{"name": "me"}])))) is None


class TestAHomeThatCannotBeUsed:
    """A container often runs as another user than its image's home belongs to."""

    @pytest.fixture
    def locked(self, tmp_path: Path) -> Path:
        """A folder that not even root can look into: a link to itself."""
        (tmp_path / "home").symlink_to(tmp_path / "home")
        return tmp_path / "home"

    def test_a_pod_uses_its_own_account_if_the_home_cannot_be_looked_into(self, account: Path, locked: Path) -> None:
        assert load(environ={**IN_A_POD, "HOME": str(locked)}, account=account).namespace == "mine"

    def test_the_error_says_why_the_home_was_of_no_use(self, locked: Path) -> None:
        with pytest.raises(SettingsError, match=r"config cannot be looked at \(Too many levels.*\), and this program"):
            load(environ={"HOME": str(locked)})

    def test_a_named_file_that_cannot_be_looked_at_is_an_error_that_names_it(self, account: Path, locked: Path) -> None:
        for named, environ in ((locked / "k", {}), (None, {"KUBECONFIG": str(locked / "k")})):
            with pytest.raises(SettingsError, match="home/k cannot be read: Too many levels"):
                load(named, environ={**IN_A_POD, **environ}, account=account)

    def test_a_user_without_a_home_is_told_so(self, account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def unknown(_: type[Path]) -> Path:
            raise RuntimeError("Could not determine home directory.")

        monkeypatch.setattr(Path, "home", classmethod(unknown))
        assert load(environ=IN_A_POD, account=account).namespace == "mine"
        with pytest.raises(SettingsError, match="KUBECONFIG is not set, this user has no home folder, and this"):
            load(environ={})

    @pytest.mark.parametrize("home", ["/dev/null", "no\0home", f"/{'x' * 5000}"])
    def test_an_impossible_home_is_no_kubeconfig(self, account: Path, home: str) -> None:
        assert load(environ={**IN_A_POD, "HOME": home}, account=account).namespace == "mine"


FIELDS_OF_KUBECTL = {
    "cluster": {
        "server": "obeyed",
        "tls-server-name": "obeyed",
        "insecure-skip-tls-verify": "obeyed",
        "certificate-authority": "obeyed",
        "certificate-authority-data": "obeyed",
        "proxy-url": "obeyed",
        "disable-compression": "without effect: lists are compressed if the server does it",
        "extensions": "obeyed: given to an exec plugin",
    },
    "user": {
        "client-certificate": "obeyed",
        "client-certificate-data": "obeyed",
        "client-key": "obeyed",
        "client-key-data": "obeyed",
        "token": "obeyed",
        "tokenFile": "obeyed",
        "as": "obeyed",
        "as-uid": "obeyed",
        "as-groups": "obeyed",
        "as-user-extra": "obeyed",
        "username": "obeyed",
        "password": "obeyed",
        "auth-provider": "obeyed",
        "exec": "obeyed",
        "extensions": "without effect",
    },
    "context": {
        "cluster": "obeyed",
        "user": "obeyed",
        "namespace": "obeyed",
        "extensions": "without effect",
    },
}
"""Every field of `Cluster`, `AuthInfo` and `Context` in `k8s.io/client-go/tools/clientcmd/api/v1`."""


@pytest.mark.parametrize("kind", FIELDS_OF_KUBECTL)
def test_every_field_that_kubectl_knows_is_obeyed_or_has_no_effect_on_purpose(kind: str) -> None:
    structs: dict[str, type[msgspec.Struct]] = {
        "cluster": kubeconfig._Cluster,
        "user": kubeconfig._User,
        "context": kubeconfig._Context,
    }
    read = {field.encode_name for field in msgspec.structs.fields(structs[kind])}
    read |= {"extensions"} if kind == "cluster" else set()  # read by the exec plugin
    assert read == {name for name, what in FIELDS_OF_KUBECTL[kind].items() if what.startswith("obeyed")}


def test_a_clusters_proxy_is_used(tmp_path: Path) -> None:
    clusters = [{"name": "one", "cluster": {"server": "http://one.example", "proxy-url": "http://proxy.example:3128"}}]
    access = load(written(tmp_path / "k", config(clusters=clusters)))
    assert access.credentials.current().connection.proxy == "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("excepted", "proxy"),
    [
        ("", True),
        ("other.example", True),
        ("one.example", False),
        (".example", False),
        ("10.0.0.0/8,one.example", False),
    ],
)
def test_the_environments_proxy_is_used_but_for_what_it_excepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, excepted: str, proxy: bool
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", excepted)
    found = load(written(tmp_path / "k", config())).credentials.current().connection.proxy
    assert found == ("http://proxy.example:3128" if proxy else None)


def test_a_network_can_be_excepted_from_the_proxy(account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8")
    assert load(environ=IN_A_POD, account=account).credentials.current().connection.proxy is None


# ── What is wrong with it ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("content", "context", "words"),
    [
        (config(), "third", "context 'third' is not in {file}; it has: first, second"),
        (config(**{"current-context": "gone"}), None, "the current context 'gone' is not in {file}"),
        (config(**{"current-context": ""}), None, "{file} has no current context"),
        (config(contexts=[]), None, "it has no contexts"),
        (config(contexts=None), None, "it has no contexts"),
        (config(clusters=[]), None, "there is no cluster 'one'; the clusters are: none"),
        (config(users=[{"name": "you", "user": {"token": SECRET}}]), None, "there is no user 'me'; the users are: you"),
        (config(clusters=[{"name": "one", "cluster": {}}]), None, "cluster 'one' has no server"),
        (config(clusters=[{"name": "one", "cluster": {"server": SECRET}}]), None, "not an http or https URL"),
        (config(clusters=[{"name": "one"}]), None, "there is no cluster 'one'"),
        (config(users=[{"name": "me", "user": {"token": f"{SECRET}\x00"}}]), None, "the token has characters"),
        (config(users=[{"name": "me", "user": {"token": f"{SECRET} ü"}}]), None, "the token has characters"),
        (config(users=[{"name": "me", "user": {"tokenFile": "no-such"}}]), None, "no-such: No such file"),
        (
            config(users=[{"name": "me", "user": {"client-certificate": "no-such", "client-key-data": SECRET}}]),
            None,
            "no-such: No such file",
        ),
        (
            config(users=[{"name": "me", "user": {"client-certificate-data": SECRET, "client-key-data": SECRET}}]),
            None,
            "is not valid",
        ),
        (f"users: [{SECRET}: ", None, "{file} is not YAML (line 1)"),
        ("", None, "{file} is not a kubeconfig"),
        ("just words", None, "{file} is not a kubeconfig"),
        ("[1, 2]", None, "{file} is not a kubeconfig"),
        ("contexts: [{}]", None, "{file}"),
    ],
)
def test_a_problem_is_reported_with_its_place_and_without_the_content(
    tmp_path: Path, content: object, context: str | None, words: str
) -> None:
    path = written(tmp_path / "k", content)
    with pytest.raises(SettingsError) as refused:
        load(path, context)
    assert words.format(file=path) in str(refused.value)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("environ", "context", "words"),
    [
        ({"HOME": "/nowhere"}, None, "no kubeconfig was found"),
        ({"HOME": "/nowhere"}, "x", "context 'x' is in no kubeconfig"),
        ({"HOME": "/nowhere", "KUBERNETES_SERVICE_HOST": "h"}, "x", "context 'x' is in no kubeconfig"),
        ({"HOME": "/nowhere", "KUBECONFIG": "/no/such:/other"}, None, "KUBECONFIG names /no/such, /other: there is no"),
    ],
)
def test_missing_access_is_reported_with_the_places_that_were_searched(
    environ: dict[str, str], context: str | None, words: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        load(context=context, environ=environ)
    assert words in str(refused.value)


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="there is no such file"):
        load(tmp_path / "missing")


# ── The pod's own account ────────────────────────────────────────────────────────────────────────────────────────────

IN_A_POD = {"HOME": "/nowhere", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    written(tmp_path / "token", f"{SECRET}\n")
    written(tmp_path / "ca.crt", "a certificate")
    written(tmp_path / "namespace", "mine\n")
    return tmp_path


def test_in_a_pod_its_account_is_used_and_its_token_read_again_every_minute(account: Path) -> None:
    clock = ManualClock()
    access = load(environ=IN_A_POD, account=account, clock=clock)
    assert (access.url, access.namespace) == ("https://10.0.0.1:443", "mine")
    assert authorization(access) == f"Bearer {SECRET}"
    assert access.credentials.current().connection.ca == str(account / "ca.crt")
    written(account / "token", "rotated")
    wait(clock, timedelta(seconds=59))
    assert authorization(access) == f"Bearer {SECRET}"
    wait(clock, timedelta(seconds=1))
    assert authorization(access) == "Bearer rotated"


def test_an_address_of_version_six_is_bracketed(account: Path) -> None:
    assert load(environ={**IN_A_POD, "KUBERNETES_SERVICE_HOST": "fd00::1"}, account=account).server == "[fd00::1]:443"


@pytest.mark.parametrize("name", ["token", "ca.crt"])
def test_an_account_without_a_file_is_refused(account: Path, name: str) -> None:
    (account / name).unlink()
    with pytest.raises(SettingsError, match="the pod's own account"):
        load(environ=IN_A_POD, account=account)


def test_an_account_with_an_empty_token_is_refused(account: Path) -> None:
    (account / "token").write_text("\n")
    with pytest.raises(SettingsError, match="cannot be used: its token is empty"):
        load(environ=IN_A_POD, account=account)


def test_an_account_that_cannot_be_read_is_refused(account: Path) -> None:
    (account / "token").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match=r"the pod's own account in .* cannot be read: it is not text"):
        load(environ=IN_A_POD, account=account)


def test_an_account_without_a_namespace_is_in_the_default_one(account: Path) -> None:
    (account / "namespace").unlink()
    assert load(environ=IN_A_POD, account=account).namespace == "default"


# ── Keeping it fresh ─────────────────────────────────────────────────────────────────────────────────────────────────


def credential(token: str, *, refresh_at: datetime | None = None, expires_at: datetime | None = None) -> Credential:
    return Credential(Connection("http://one.example"), token, refresh_at=refresh_at, expires_at=expires_at)


class Reader:
    """Reads what a test puts there, and counts."""

    def __init__(self, *found: Credential | SettingsError) -> None:
        self.found = list(found)
        self.count = 0

    def __call__(self) -> Credential:
        self.count += 1
        found = self.found[min(self.count, len(self.found)) - 1]
        if isinstance(found, SettingsError):
            raise found
        return found


def test_a_refused_credential_is_read_again_once_for_all_who_met_the_refusal() -> None:
    old, new = credential("old"), credential("new")
    reader = Reader(new)
    credentials = Credentials(old, reader, ManualClock())
    assert credentials.renewed(old) is new
    assert credentials.renewed(old) is new
    assert reader.count == 1


def test_a_credential_that_stays_refused_is_not_read_with_every_request() -> None:
    clock = ManualClock()
    old = credential("same")
    reader = Reader(credential("same"))
    credentials = Credentials(old, reader, clock)
    for _ in range(5):
        assert not credentials.renewed(credentials.current()).differs_from(old)
    assert reader.count == 1
    wait(clock, auth.TRY_AGAIN_AFTER)
    credentials.renewed(credentials.current())
    assert reader.count == 2


def test_a_refresh_that_fails_keeps_the_old_one_and_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    old = credential("old", refresh_at=clock.now())
    reader = Reader(*[SettingsError("the plugin is broken")] * 12, credential("new"))
    credentials = Credentials(old, reader, clock)
    for second in range(120):
        found = credentials.current()
        if second < 119:
            assert found is old
        wait(clock, timedelta(seconds=1))
    assert reader.count == 12, "not more often than every ten seconds"
    assert len(caplog.records) == 2
    assert "the plugin is broken" in caplog.text
    assert credentials.current().authorization == "new"


def test_a_request_does_not_wait_for_a_renewal_while_the_old_credential_is_valid() -> None:
    clock = ManualClock()
    reading, go_on = threading.Event(), threading.Event()

    def read() -> Credential:
        reading.set()
        go_on.wait(SAFETY)
        return credential("new")

    old = credential("old", refresh_at=clock.now(), expires_at=clock.now() + timedelta(minutes=1))
    credentials = Credentials(old, read, clock)
    refreshing = threading.Thread(target=credentials.current)
    refreshing.start()
    assert reading.wait(SAFETY)
    assert credentials.current() is old
    go_on.set()
    refreshing.join(SAFETY)
    assert credentials.current().authorization == "new"


def test_a_kubeconfig_that_now_names_another_server_is_refused_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "k", config())
    access = load(path)
    written(path, config(clusters=[{"name": "one", "cluster": {"server": f"https://me:{SECRET}@elsewhere.example"}}]))
    old = access.credentials.current()
    assert access.credentials.renewed(old) is old
    (line,) = caplog.messages
    assert line == (
        "credential not renewed, the old one stays in use: error=context 'first' of "
        f"{path} names another server now: elsewhere.example instead of one.example:6443"
    )


def test_a_context_that_goes_is_named_and_the_old_credential_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = written(tmp_path / "k", config())
    access = load(path)
    written(path, config(contexts=config()["contexts"][1:], **{"current-context": "second"}))
    old = access.credentials.current()
    assert access.credentials.renewed(old) is old
    assert f"context 'first' of {path}: there is no context 'first'; the contexts are: second" in caplog.text


@pytest.mark.parametrize(
    ("user", "cluster"),
    [
        ({"tokenFile": "a"}, {}),
        ({"client-certificate": "a", "client-key": "b"}, {}),
        ({"token": SECRET}, {"certificate-authority": "a"}),
    ],
)
def test_what_is_in_files_is_looked_at_every_minute(
    tmp_path: Path, user: dict[str, str], cluster: dict[str, str]
) -> None:
    clock = ManualClock()
    for name in "ab":
        written(tmp_path / name, "old")
    access = load(write_kubeconfig(tmp_path / "k", "https://one.example", user, **cluster), clock=clock)
    first = access.credentials.current()
    for name in "ab":
        written(tmp_path / name, "new")
    wait(clock, timedelta(seconds=59))
    assert access.credentials.current() is first
    wait(clock, timedelta(seconds=1))
    assert access.credentials.current().differs_from(first)


def test_a_credential_within_the_kubeconfig_is_read_again_only_after_a_refusal(tmp_path: Path) -> None:
    clock = ManualClock()
    path = written(tmp_path / "k", config())
    access = load(path, clock=clock)
    written(path, config(users=[{"name": "me", "user": {"token": "renewed"}}]))
    wait(clock, timedelta(days=1))
    assert authorization(access) == f"Bearer {SECRET}"
    assert access.credentials.renewed(access.credentials.current()).authorization == "Bearer renewed"


def test_a_due_read_without_a_change_does_not_delay_the_read_after_a_refusal() -> None:
    clock = ManualClock()
    first = credential("same", refresh_at=clock.now())
    reader = Reader(credential("same", refresh_at=clock.now() + timedelta(minutes=1)), credential("new"))
    credentials = Credentials(first, reader, clock)
    current = credentials.current()
    assert credentials.renewed(current).authorization == "new"


def test_a_refusal_of_what_was_only_read_once_more_meanwhile_is_looked_into() -> None:
    clock = ManualClock()
    asked_with = credential("same", refresh_at=clock.now())
    reader = Reader(credential("same", refresh_at=clock.now() + timedelta(minutes=1)), credential("new"))
    credentials = Credentials(asked_with, reader, clock)
    credentials.current()
    assert credentials.renewed(asked_with).authorization == "new"


def test_a_look_that_takes_long_to_fail_is_not_repeated_at_once() -> None:
    clock = ManualClock()
    old = credential("old")
    reads: list[float] = []

    def read() -> Credential:
        reads.append(clock.monotonic())
        wait(clock, auth.TRY_AGAIN_AFTER)
        raise SettingsError("the plugin hangs")

    credentials = Credentials(old, read, clock)
    credentials.renewed(old)
    credentials.renewed(old)
    assert len(reads) == 1


def test_the_chosen_context_stays_when_another_becomes_current(tmp_path: Path) -> None:
    path = written(tmp_path / "k", config())
    access = load(path)
    users = [{"name": "me", "user": {"token": "renewed"}}, {"name": "you", "user": {"token": "other"}}]
    written(path, config(users=users, **{"current-context": "second"}))
    assert access.credentials.renewed(access.credentials.current()).authorization == "Bearer renewed"


def test_no_credential_is_in_a_repr(tmp_path: Path) -> None:
    access = load(written(tmp_path / "k", config()))
    assert SECRET not in f"{access!r} {access.credentials!r} {access.credentials.current()!r}"


# ── Refused by the server ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("request_", [kube.Create({}), kube.Get("a")])
def test_a_refused_request_is_repeated_with_a_newer_credential(
    server: ScriptedServer, client: Client, tmp_path: Path, request_: kube.Request[Pod]
) -> None:
    api = client.connect(token="old")
    server.kubeconfig(tmp_path, token="new")
    server.answers(401, {"kind": "Status", "reason": "Unauthorized"})
    server.answers(200, pod("a"))
    assert isinstance(ask(lambda reply: api.send(request_, reply)), Pod)
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer old", "Bearer new"]
    assert len({(asked.method, asked.target, asked.body) for asked in server.asked}) == 1


def test_a_request_that_is_refused_again_is_unauthorized(
    server: ScriptedServer, client: Client, tmp_path: Path
) -> None:
    api = client.connect(token="old")
    server.kubeconfig(tmp_path, token="new")
    for _ in range(2):
        server.answers(401, {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"})
    assert type(ask(lambda reply: api.send(kube.Get("a"), reply))) is Unauthorized
    assert len(server.asked) == 2


def test_a_repeated_write_that_could_not_be_sent_again_is_unavailable(
    server: ScriptedServer, client: Client, tmp_path: Path
) -> None:
    def refuse_and_go(peer: Peer) -> None:
        server.stop_listening()
        peer.head(401, {"Connection": "close"})

    api = client.connect(token="old")
    server.kubeconfig(tmp_path, token="new")
    server.then(refuse_and_go)
    assert type(ask(lambda reply: api.send(kube.Create({}), reply))) is Unavailable, (
        "refused once, and never sent again"
    )


def test_without_a_newer_credential_nothing_is_repeated(server: ScriptedServer, client: Client) -> None:
    api = client.connect()
    server.answers(401, {"kind": "Status", "reason": "Unauthorized", "message": "Unauthorized"})
    assert type(ask(lambda reply: api.send(kube.Create({}), reply))) is Unauthorized
    assert len(server.asked) == 1


def test_a_clock_in_utc_is_what_expiry_is_compared_with() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    assert auth.refresh_time(now, now + timedelta(hours=1)) == now + timedelta(minutes=55)
    assert auth.refresh_time(now, now + timedelta(minutes=4)) == now + timedelta(minutes=2)


@pytest.mark.parametrize("hours", [-14, 0, 14])
def test_an_expiry_at_the_ends_of_time_is_taken(hours: int) -> None:
    now, zone = datetime(2024, 1, 1, tzinfo=UTC), timezone(timedelta(hours=hours))
    assert auth.refresh_time(now, datetime.min.replace(tzinfo=zone)) < now
    assert auth.refresh_time(now, datetime.max.replace(tzinfo=zone)) > now
