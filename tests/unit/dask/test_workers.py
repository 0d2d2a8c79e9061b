"""What an executor runs to be a Dask worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("distributed")

from dask.system import CPU_COUNT
from distributed.system import MEMORY_LIMIT

from actors.dask.targets import how_many
from actors.dask.workers import fleet_values, group_values, tls_options, worker_args
from actors.errors import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

PLAIN: dict[str, Any] = {
    "protocol": "tcp",
    "nthreads": None,
    "memory_limit": None,
    "resources": None,
    "nanny": False,
    "options": {},
}


def test_a_worker_is_named_for_its_executor_and_finds_the_scheduler() -> None:
    assert worker_args(**PLAIN)[:-2] == (
        "tcp://$(DRIVER_ADDRESS)",
        *("--name", "$(EXECUTOR_ID)"),
        *("--nthreads", "1"),
        *("--memory-limit", "auto"),
        "--no-nanny",
        "--no-dashboard",
        *("--death-timeout", "60"),
    )


def test_a_worker_ends_on_sigterm_unless_a_nanny_sees_to_that() -> None:
    assert worker_args(**PLAIN)[-2] == "--preload"
    assert "SIGTERM" in worker_args(**PLAIN)[-1]
    assert "$(" not in worker_args(**PLAIN)[-1], "the kubelet would fill it in"
    assert "--preload" not in worker_args(**PLAIN | {"nanny": True})


@pytest.mark.parametrize(
    ("resources", "threads", "memory"),
    [
        ({"requests": {"cpu": "2", "memory": "8Gi"}}, "2", str(8 << 30)),
        ({"requests": {"cpu": "500m"}}, "1", "auto"),
        ({"requests": {"cpu": "1"}, "limits": {"cpu": "2500m", "memory": "1G"}}, "3", "1000000000"),
    ],
)
def test_threads_and_memory_are_those_of_the_container(resources: Any, threads: str, memory: str) -> None:
    args = worker_args(**{**PLAIN, "resources": resources})
    assert args[args.index("--nthreads") + 1] == threads
    assert args[args.index("--memory-limit") + 1] == memory


def test_any_option_of_dask_can_be_given_and_overrides_ours() -> None:
    options = {"lifetime": "1h", "dashboard": True, "death_timeout": None, "lifetime-restart": False}
    args = worker_args(**{**PLAIN, "options": options})
    assert args[-6:-2] == ("--dashboard", "--lifetime", "1h", "--no-lifetime-restart")
    assert "--death-timeout" not in args


def test_a_group_inherits_what_it_does_not_set() -> None:
    base = {"nthreads": 4, "worker_options": {"lifetime": "1h"}, "resources": {"requests": {"memory": "1Gi"}}}
    given = {"n_workers": 2, "image": "gpu:1", "resources": {"limits": {"memory": "2Gi"}}, "priority_class": "high"}
    more: dict[str, Any] = {"protocol": "tls", "nanny": True, "local": False, "tls": {"tls-key": "/k"}}
    values = group_values(given, base=base, **more)
    assert values["instances"] == 2
    assert values["image"] == "gpu:1"
    assert values["priority_class"] == "high"
    assert values["command"] == ("python", "-m", "distributed.cli.dask_worker")
    text = " ".join(values["args"])
    assert text.startswith("tls://$(DRIVER_ADDRESS) --name $(EXECUTOR_ID) --nthreads 4")
    assert f"--memory-limit {2 << 30} --nanny" in text
    assert text.endswith("--tls-key /k --lifetime 1h")


def test_processes_of_this_machine_listen_on_its_loopback_unless_the_user_says_otherwise() -> None:
    more: dict[str, Any] = {"base": {}, "protocol": "tcp", "nanny": False, "tls": {}}
    local = group_values({}, local=True, **more)["args"]
    assert local[local.index("--host") + 1] == "127.0.0.1"
    assert local[local.index("--dashboard-address") + 1] == "127.0.0.1:0"
    assert "--host" not in group_values({}, local=False, **more)["args"]
    own = group_values({"worker_options": {"host": "10.0.0.9"}}, local=True, **more)["args"]
    assert own[own.index("--host") + 1] == "10.0.0.9"


def limits(base: dict[str, Any], groups: dict[str, Any], **more: Any) -> dict[str, int | str]:
    """Return each group's limit of memory."""
    values = fleet_values(
        **{"given": {}, "local": True, **more},
        base=base,
        groups=groups,
        scheduler_address="tcp://127.0.0.1:1",
        drain_timeout=None,
        nanny=False,
        tls={},
    )
    found = {name: each["args"] for name, each in {"default": values["executor"], **values["profiles"]}.items()}
    texts = {name: args[args.index("--memory-limit") + 1] for name, args in found.items() if args}
    return {name: int(text) if text.isdecimal() else text for name, text in texts.items()}


def test_processes_of_this_machine_are_promised_no_more_memory_than_it_has() -> None:
    many = 3 * CPU_COUNT
    (limit,) = limits({"n_workers": many}, {}).values()
    assert limit == MEMORY_LIMIT // many
    with_groups = limits({"n_workers": many}, {"big": {"n_workers": 2, "nthreads": 4}})
    assert with_groups["big"] == 4 * with_groups["default"]
    assert many * with_groups["default"] + 2 * with_groups["big"] <= MEMORY_LIMIT
    assert limits({"n_workers": 1}, {}, given={"executor": {"instances": many}}) == {"default": limit}


def test_a_few_processes_of_this_machine_leave_memory_for_a_worker_on_each_cpu() -> None:
    assert limits({"n_workers": 0}, {}) == {"default": MEMORY_LIMIT // CPU_COUNT}


def test_only_memory_that_nobody_has_set_is_shared() -> None:
    groups = {"own": {"memory_limit": "1 GiB"}, "sized": {"resources": {"limits": {"memory": "2Gi"}}}}
    found = limits({"n_workers": 8}, groups)
    assert (found["own"], found["sized"]) == ("1 GiB", 2 << 30)
    assert limits({"n_workers": 8, "memory_limit": "auto"}, {}) == {"default": "auto"}
    assert limits({"n_workers": 8}, {}, local=False) == {"default": "auto"}


@pytest.mark.parametrize("given", ["12 parsecs", -1, True, [1], "", 1e400])
def test_an_amount_of_memory_that_is_none_is_named_with_its_value(given: Any) -> None:
    with pytest.raises(SettingsError) as raised:
        worker_args(**{**PLAIN, "memory_limit": given})
    assert str(raised.value).startswith(f"memory_limit = {given!r}: must be an amount such as")


@pytest.mark.parametrize("given", [0, -3, True, "2", 1.5])
def test_a_number_of_threads_that_is_none_is_named_with_its_value(given: Any) -> None:
    with pytest.raises(SettingsError) as raised:
        worker_args(**{**PLAIN, "nthreads": given})
    assert str(raised.value) == f"nthreads = {given!r}: must be a whole number of threads, at least 1"


@pytest.mark.parametrize("limit", ["auto", 0, 0.25, 1])
def test_workers_for_an_amount_of_memory_need_an_amount_for_each(limit: Any) -> None:
    with pytest.raises(ValueError, match="workers for an amount of memory need memory_limit as an amount"):
        how_many(None, "8 GiB", None, worker_args(**{**PLAIN, "memory_limit": limit}))
    assert how_many(None, "8 GiB", None, worker_args(**{**PLAIN, "memory_limit": "3 GiB"})) == 3


@pytest.mark.parametrize("given", ["-1s", -1, "soon", [1], 1e300])
def test_a_drain_timeout_that_is_none_is_named_with_its_value(given: Any) -> None:
    more: dict[str, Any] = {"nanny": True, "local": True, "tls": {}}
    with pytest.raises(SettingsError) as raised:
        fleet_values({}, base={}, groups={}, scheduler_address="tcp://10.0.0.1:1", drain_timeout=given, **more)
    assert str(raised.value).startswith(f"drain_timeout = {given!r}: must be a number of seconds")


def test_certificates_must_be_files_unless_the_workers_are_on_this_machine(tmp_path: Path) -> None:
    assert tls_options({"ca_file": "/ca.pem", "cert": None, "ciphers": None}, None) == {"tls-ca-file": "/ca.pem"}
    in_memory = {"key": "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n"}
    with pytest.raises(SettingsError, match="tls key must be the path of a file"):
        tls_options(in_memory, None)
    file = tmp_path / "tls-key.pem"
    assert tls_options(in_memory, tmp_path) == {"tls-key": str(file)}
    assert (file.read_text(), file.stat().st_mode & 0o777) == (in_memory["key"], 0o600)
