"""Who may do what, where there is an HTTP server to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from actors.errors import Forbidden, Unauthorized
from tests.contract.asking import Asking, manifest
from tests.contract.conftest import KINDS
from tests.contract.control_plane import STRANGERS_TOKEN

if TYPE_CHECKING:
    from tests.contract.clusters import EmbeddedCluster, RealCluster


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "in_process"])
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
