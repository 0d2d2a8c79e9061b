"""How a page is served, before it is."""

from __future__ import annotations

import pytest

from actors.page.hosts import AllowedHosts
from actors.page.plan import PagePlan


def test_a_plan_shows_no_token() -> None:
    assert "secret" not in repr(PagePlan.of(0, "secret-0123456789abcdef", ()))


@pytest.mark.parametrize("host", ["user@localhost", "localhost@host", "user:pass@127.0.0.1:80", "a@b"])
def test_a_host_with_a_user_is_refused(host: str) -> None:
    assert not AllowedHosts("10.0.0.1").allows(host)
    assert not AllowedHosts("127.0.0.1").allows(host)
