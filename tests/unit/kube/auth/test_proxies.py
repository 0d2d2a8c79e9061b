"""The proxy that the environment names, by Go's rules."""

from __future__ import annotations

import pytest

from actors.errors import SettingsError
from actors.kube.auth.proxies import ProxyAccount, environment_proxy, proxy_url, split_account

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    "server",
    [
        "https://localhost:6443",
        "https://LOCALHOST",
        "https://localhost.:6443",
        "https://127.0.0.1:6443",
        "https://127.8.9.10",
        "https://[::1]:6443",
        "https://[::ffff:127.0.0.1]:6443",
    ],
)
def test_this_machine_is_never_reached_through_a_proxy(server: str) -> None:
    assert environment_proxy(server, {"HTTPS_PROXY": PROXY, "ALL_PROXY": PROXY}) is None


@pytest.mark.parametrize(
    ("rule", "server", "excepted"),
    [
        ("", "api.example.com", False),
        ("*", "api.example.com", True),
        ("other, * ", "10.1.2.3", True),
        ("example.com", "api.example.com", True),
        ("example.com", "example.com", True),
        ("example.com", "notexample.com", False),
        ("EXAMPLE.com", "api.Example.COM", True),
        (".example.com", "api.example.com", True),
        (".example.com", "example.com", False),
        ("example.com.", "api.example.com", True),
        ("example.com", "api.example.com.:6443", True),
        ("example.com.:6443", "example.com.:6443", True),
        (".example.com.", "api.example.com", True),
        (".example.com.", "example.com.", False),
        ("api.example.com..", "api.example.com", False),
        ("*.example.com", "a.b.example.com", True),
        ("*.example.com", "example.com", False),
        ("api.*", "api.example.com", False),
        ("example.com:6443", "api.example.com:6443", True),
        ("example.com:443", "api.example.com:6443", False),
        ("example.com:443", "api.example.com", True),
        ("10.1.2.3", "10.1.2.3:6443", True),
        ("10.1.2.3", "10.1.2.33", False),
        ("10.1.2.3:6443", "10.1.2.3:6443", True),
        ("10.1.2.3:443", "10.1.2.3:6443", False),
        ("10.0.0.0/8", "10.1.2.3:6443", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "api.example.com", False),
        ("fd00::/8", "[fd12::1]:6443", True),
        ("fd00::/8", "[fe80::1]", False),
        ("fd12::1", "[fd12::1]:6443", True),
        ("[fd12::1]:6443", "[fd12:0::1]:6443", True),
        ("[fd12::1]:443", "[fd12::1]:6443", False),
        ("10.0.0.0/99, ,:80,.,*.", "api.example.com", False),
    ],
)
def test_a_rule_excepts_what_it_excepts_in_go_and_a_dot_at_the_end_of_a_name_does_not_matter(
    rule: str, server: str, excepted: bool
) -> None:
    found = environment_proxy(f"https://{server}", {"HTTPS_PROXY": PROXY, "NO_PROXY": rule})
    assert found == (None if excepted else PROXY)


@pytest.mark.parametrize(
    ("environ", "server", "proxy"),
    [
        ({"HTTPS_PROXY": "a:1"}, "https://one.example", "http://a:1"),
        ({"https_proxy": "http://me:p%40ss@a:1"}, "https://one.example", "http://me:p%40ss@a:1"),
        ({"HTTP_PROXY": "a:1"}, "https://one.example", None),
        ({"HTTP_PROXY": "a:1"}, "http://one.example", "http://a:1"),
        ({"HTTP_PROXY": "a:1", "REQUEST_METHOD": "GET"}, "http://one.example", None),
        ({"all_proxy": "socks5://a:1"}, "https://one.example", "socks5://a:1"),
        ({"HTTPS_PROXY": "", "https_proxy": "b:2"}, "https://one.example", "http://b:2"),
        ({"HTTPS_PROXY": "a:1", "https_proxy": "b:2"}, "https://one.example", "http://a:1"),
        ({"HTTPS_PROXY": "a:1", "no_proxy": "one.example"}, "https://one.example", None),
    ],
)
def test_the_scheme_of_the_server_names_the_variable(environ: dict[str, str], server: str, proxy: str | None) -> None:
    assert environment_proxy(server, environ) == proxy


@pytest.mark.parametrize("text", ["ftp://me:s3cret@a:1", "http://", "http://a:port", "http://[::1", "http://a:0"])
def test_what_is_no_proxy_is_refused_by_the_name_of_its_place_and_never_shown(text: str) -> None:
    with pytest.raises(SettingsError, match=r"^HTTPS_PROXY is not the URL of a proxy: it must be http, ") as refused:
        environment_proxy("https://one.example", {"HTTPS_PROXY": text})
    assert "s3cret" not in str(refused.value)
    with pytest.raises(SettingsError, match=r"^proxy-url of x is not"):
        proxy_url(text, "proxy-url of x")


@pytest.mark.parametrize(
    ("url", "address", "account"),
    [
        ("http://a:1", "http://a:1", None),
        ("http://@a:1", "http://a:1", None),
        ("SOCKS5://me@[fd12::1]:1", "socks5://[fd12::1]:1", ("me", "")),
        ("http://m%C3%A9:p%40ss:w@a:1", "http://a:1", ("mé", "p@ss:w")),
    ],
)
def test_a_proxys_account_is_split_from_its_url_and_decoded(
    url: str, address: str, account: tuple[str, str] | None
) -> None:
    found, has = split_account(url)
    assert (found, has and (has.user, has.password)) == (address, account)


def test_a_proxys_account_does_not_show_itself() -> None:
    assert repr(ProxyAccount("me:s3cret")) == "ProxyAccount()"
