"""Who may do what, where there is an HTTP server to ask."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from actors.errors import Forbidden, Unauthorized, Untrusted
from actors.kube import PodPage
from actors.kube.auth.credentials import TRY_AGAIN_AFTER
from actors.pods.pod import Pod
from tests.contract.asking import Asking, manifest
from tests.contract.changing import Client, Embedded, Real
from tests.contract.conftest import KINDS
from tests.contract.control_plane import STRANGERS_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.contract.changing import Changing
    from tests.contract.clusters import EmbeddedCluster, RealCluster

HTTP = [kind for kind in KINDS if kind != "in_process"]


@pytest.mark.parametrize("kind", HTTP)
def test_a_token_that_the_server_does_not_know_is_unauthorized(request: pytest.FixtureRequest, kind: str) -> None:
    cluster: RealCluster | EmbeddedCluster = request.getfixturevalue(kind)
    asking = Asking(cluster.connect_as_stranger(cluster.new_namespace()))
    answers = [asking.create(manifest("a")), asking.list(), asking.watch("", "0").end()]
    asking.api.close()
    assert [type(answer) for answer in answers] == [Unauthorized] * 3
    assert [answer.status for answer in answers] == [401] * 3
    assert STRANGERS_TOKEN not in repr(answers)


def test_what_a_user_may_not_do_is_forbidden_in_the_servers_words(real: RealCluster) -> None:
    namespace = real.new_namespace()
    asking = Asking(real.connect_as("nobody", namespace))
    error = asking.create(manifest("a"))
    asking.api.close()
    assert type(error) is Forbidden
    assert (error.status, error.reason) == (403, "Forbidden")
    assert 'cannot create resource "pods"' in error.message
    assert namespace in error.message


# ── Credentials that change ──────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Accounts:
    """Two of one kind of server: both had worked when they were changed, which takes a real server ten seconds."""

    rotated: Client
    removed: Client


@pytest.fixture(scope="module", params=HTTP)
def accounts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Accounts]:
    with ExitStack() as stack:
        made = [Client(_changing(request, stack, tmp_path_factory.mktemp("account"))) for _ in range(2)]
        for client in made:
            stack.callback(client.close)
            assert isinstance(client.asking.list(), PodPage)
        rotated, removed = made
        rotated.changing.new_token()
        rotated.changing.revoke()
        removed.changing.remove()
        for client in made:
            client.changing.wait_until_refused()
        yield Accounts(rotated, removed)


@pytest.fixture(params=HTTP)
def changing(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Changing]:
    with ExitStack() as stack:
        yield _changing(request, stack, tmp_path)


def _changing(request: pytest.FixtureRequest, stack: ExitStack, folder: Path) -> Changing:
    if request.param == "real":
        return Real(request.getfixturevalue("plane"), folder)
    embedded = Embedded(folder)
    stack.callback(embedded.stop)
    return embedded


def no_token_in(text: str, changing: Changing) -> bool:
    return all(token not in text for token in changing.shown)


def test_a_rotated_token_is_read_again_without_an_event(accounts: Accounts, caplog: pytest.LogCaptureFixture) -> None:
    asking = accounts.rotated.asking
    assert isinstance(asking.create(manifest("a")), Pod)
    assert isinstance(asking.list(), PodPage)
    watching = asking.watch("", "0")
    assert watching.event()[1].name == "a"
    watching.call.cancel()
    assert caplog.records == []


def test_a_removed_account_is_named_in_every_refusal_and_recovers_with_its_next_token(
    accounts: Accounts, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    client = accounts.removed
    changing, asking = client.changing, client.asking
    errors = [asking.list(), asking.create(manifest("a")), asking.watch("", "0").end()]
    assert [type(error) for error in errors] == [Unauthorized] * 3
    whose = f"{changing.server} does not accept the credential of the pod's own account in {changing.folder}: "
    assert {error.message for error in errors} == {f"{whose}Unauthorized"}
    changing.bring_back()
    assert type(asking.list()) is Unauthorized, "it looked a moment ago"
    client.wait(TRY_AGAIN_AFTER)
    assert isinstance(asking.list(), PodPage)
    assert "urllib3" in caplog.text, "everything that is logged is looked at"
    assert no_token_in(f"{caplog.text}{errors}{client.access}", changing)


@pytest.mark.parametrize("kubeconfig", [False, True], ids=["account", "kubeconfig"])
def test_a_ca_that_was_replaced_is_read_again_or_named(changing: Changing, kubeconfig: bool) -> None:
    client = Client(changing, kubeconfig=kubeconfig)
    assert isinstance(client.asking.list(), PodPage)
    changing.new_certificate()
    client.reconnect()
    error = client.asking.create(manifest("a"))
    assert type(error) is Untrusted
    where = "the certificate-authority-data of context 'test' of {}/kubeconfig" if kubeconfig else "the CA in {}/ca.crt"
    assert error.message.startswith(f"there is no TLS connection to {changing.server}: its certificate is not accepted")
    assert error.message.endswith(f"(it was checked against {where.format(changing.folder)})")
    changing.write_ca()
    changing.write_kubeconfig()
    client.wait(TRY_AGAIN_AFTER)
    assert isinstance(client.asking.create(manifest("a")), Pod)
    client.close()


@pytest.mark.parametrize("kubeconfig", [False, True], ids=["account", "kubeconfig"])
def test_a_ca_that_was_replaced_in_time_is_not_noticed(changing: Changing, kubeconfig: bool) -> None:
    client = Client(changing, kubeconfig=kubeconfig)
    assert isinstance(client.asking.list(), PodPage)
    changing.new_certificate()
    changing.write_ca()
    changing.write_kubeconfig()
    client.reconnect()
    assert isinstance(client.asking.list(), PodPage)
    client.close()
