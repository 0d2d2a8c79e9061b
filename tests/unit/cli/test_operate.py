"""The commands for operators without a cluster: arguments, tables, JSON, and what the driver's page answers."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from datetime import timedelta
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import pytest

from actors.cli.arguments import execute
from actors.cli.operate import actions, as_json
from actors.cli.operate.actions import ask_driver, is_readable_on_the_way
from actors.cli.operate.cleanup import Hold, delete, deletions, strangers
from actors.cli.operate.describe import _as_bytes, _as_lines
from actors.cli.operate.tables import columns, events_table, executors_table, list_table, status_lines
from actors.cli.operate.watching import Changes
from actors.errors import ApiError, Conflict, Refused, TooManyRequests, Unavailable
from actors.inspection.events import observe_event
from actors.inspection.fleets import ObservedFleet, judge, with_answer
from actors.inspection.leases import observe_lease
from actors.inspection.reading import FleetReader
from actors.kube import GetObject
from actors.testing import ManualClock
from tests.unit.hostile import HOSTILE
from tests.unit.inspection.objects import NOW, RUNNING, Cluster, at, lease, pod, stamped
from tests.unit.inspection.test_executors import seen
from tests.unit.inspection.test_fleets import fleet, observed
from tests.unit.kube.scripted import ScriptedServer
from tests.unit.page_fleet import TOKEN, page_fleet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime
    from pathlib import Path

    from actors import Fleet

ENDED = {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": at(10)}}
WAITING = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}


def example() -> ObservedFleet:
    return fleet(
        pod(1, state=RUNNING, podIP="10.0.0.1", spec={"nodeName": "node-a"}),
        pod(2, phase="Pending", state=WAITING),
        pod(12, phase="Failed", state=ENDED),
        lease=observed(),
    )


# ── arguments ────────────────────────────────────────────────────────────────────────────────────────────────────

WRONG = {
    "status": "Missing argument 'APP'.",
    "status a/b": "'a/b' cannot be an app id: a valid label must be",
    "status etl -o xml": "'xml' is neither 'wide' nor 'json'",
    "list -o wide": "'wide' is not 'json'",
    "list -A -n x": "give --namespace or --all-namespaces, not both",
    "list --kubeconfig /nowhere": "/nowhere",
    "describe etl x": "Invalid value for 'ID'",
    "describe etl 0": "Invalid value for 'ID'",
    "logs etl 1 --tail -1": "Invalid value for '--tail'",
    "scale etl": "Missing argument 'TARGET",
    "scale etl 3": "Missing option '--endpoint'",
    "scale etl 3 --endpoint http://x": "Missing option '--token-file'",
    "scale etl x --endpoint http://x --token-file /x": "'x' is no target: write a number, or PROFILE=NUMBER",
    "scale etl =3 --endpoint http://x --token-file /x": "'=3' is no target",
    "scale etl 3 default=4 --endpoint http://x --token-file /x": "profile 'default' has two targets",
    "kill etl 1 --endpoint x --token-file /x": "'x': must be the URL of a driver's page",
    "kill etl 1 --endpoint http://a:b@x --token-file /x": "must have no password and no query",
    "kill etl 1 --endpoint http://x --token-file /nowhere": "/nowhere: cannot be read: No such file or directory",
    "kill etl 1 --endpoint http://x --token-file /dev/null": "/dev/null: must have a token",
    "retire etl 1 --deadline 5 --endpoint http://x --token-file /x": "'5' has no unit",
}


@pytest.mark.parametrize(("arguments", "words"), WRONG.items(), ids=WRONG)
def test_a_wrong_argument_is_answered_with_one_line_and_exit_code_2(
    arguments: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(SimpleQueue(), arguments.split()) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1


# ── tables ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_columns_are_aligned_as_kubectl_does() -> None:
    assert list(columns(("A", "LONG", "B"), [("aaaa", "", "x y"), ("b", "c", "")])) == [
        "A      LONG     B",
        "aaaa   <none>   x y",
        "b      c",
    ]


def test_list_has_a_line_for_each_profile() -> None:
    lines = list(list_table([example(), fleet(lease=None)], namespaces=False))
    assert [line.split() for line in lines] == [
        [
            "APP-ID",
            "PROFILE",
            "STATE",
            "HOLDER",
            "RENEWED",
            "WANTED",
            "RUNNING",
            "PENDING",
            "STUCK",
            "TERMINATING",
            "ENDED",
        ],
        ["etl", "default", "alive", "host_1", "3s", "3", "1", "1", "1", "0", "1"],
        ["etl", "gpu", "alive", "host_1", "3s", "1", "0", "0", "0", "0", "0"],
        ["etl", "<none>", "unknown", "<none>", "<none>", "0", "0", "0", "0", "0", "0"],
    ]
    assert next(iter(list_table([example()], namespaces=True))).startswith("NAMESPACE   APP-ID ")
    unread = ObservedFleet("etl", "default", (), None, judge(None, {}, NOW, "no"), NOW)
    assert list(list_table([unread], namespaces=False))[1].split()[3:5] == ["?", "?"]


def test_status_has_what_the_driver_says_of_a_hold_and_of_who_retires() -> None:
    rows = [{"pod": "etl-exec-1", "retiring": True, "registered": True}, {"pod": "a stranger's"}, "no row"]
    asked = with_answer(example(), {"on_hold": True}, {"executors": rows})
    lines = list(status_lines(asked, wide=False))
    assert lines[1] == "on hold: its executors retire, and none is created until `resume`"
    assert [line.split()[0] for line in lines if "running, retiring" in line] == ["1"]
    document = as_json.status(asked)
    assert document["on_hold"] is True
    assert [row["retiring"] for row in document["executors"]][:2] == [True, None]
    assert as_json.status(example())["on_hold"] is None


@pytest.mark.parametrize("command", [[], ["run"], ["status"], ["scale"], ["config"], ["local"]])
def test_each_command_explains_itself_at_h(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(SimpleQueue(), [*command, "-h"]) == 0
    assert capsys.readouterr().out.strip().startswith("Usage: executor-pods")


def test_status_shows_the_driver_the_profiles_and_each_executor() -> None:
    lines = list(status_lines(example(), wide=True))
    assert lines[:6] == [
        "Fleet etl in namespace default: alive, host_1 holds the Lease",
        "",
        "PROFILE   WANTED   RUNNING   PENDING   STUCK   TERMINATING   ENDED",
        "default   3        1         1         1       0             1",
        "gpu       1        0         0         0       0             0",
        "",
    ]
    head, one, two, twelve = lines[6:]
    assert head.split() == ["ID", "PROFILE", "STATE", "FOR", "POD", "RESTARTS", "AGE", "IP", "NODE", "WHY"]
    assert one.split() == ["1", "default", "running", "60s", "etl-exec-1", "2", "2m", "10.0.0.1", "node-a"]
    assert two.split()[-6:] == ["<none>", "ErrImagePull:", "main:", "no", "such", "image"]
    assert twelve.endswith("exited with exit code 3; containers: main ended with 3 (Error)")
    narrow = list(status_lines(example(), wide=False))
    assert narrow[-1].endswith("EXITED, exit code 3")
    header, *rows = narrow[6:]
    for name in ("PROFILE", "STATE", "POD", "RESTARTS"):
        assert all(row[header.index(name) - 1] == " " != row[header.index(name)] for row in rows)


def test_where_there_is_little_room_those_that_do_not_run_are_shown_first() -> None:
    many = fleet(*(pod(number, state=RUNNING) for number in range(1, 8)), pod(9, phase="Pending"), lease=observed())
    lines = list(status_lines(many, wide=False, room=2))
    assert [line.split()[0] for line in lines[-3:]] == ["1", "9", "..."]
    assert lines[-1] == "... and 6 more"


def test_what_strangers_wrote_is_one_line_of_text() -> None:
    labels = {**pod(1)["metadata"]["labels"], "executor-pods/profile": HOSTILE}
    odd = seen(pod(1, phase="Pending", state={"waiting": {"reason": "ErrImagePull", "message": HOSTILE}}))
    hostile = fleet(pod(1, metadata={"labels": labels}, podIP=HOSTILE), lease=observed(3, HOSTILE))
    event = observe_event({"involvedObject": {"kind": HOSTILE, "name": HOSTILE}, "reason": HOSTILE, "message": HOSTILE})
    for line in (
        *executors_table([odd], NOW, wide=True),
        *status_lines(hostile, wide=True),
        *list_table([hostile], namespaces=True),
        *events_table([event], NOW),
    ):
        assert line.isprintable()
        assert len(line) < 20_000


def test_an_event_says_how_often_it_happened() -> None:
    event = observe_event({"lastTimestamp": at(5), "firstTimestamp": at(300), "count": 3, "message": "m"})
    assert list(events_table([event], NOW, objects=False))[1].split("   ")[0] == "5s (x3 over 5m)"


# ── JSON ─────────────────────────────────────────────────────────────────────────────────────────────────────────

ROW_KEYS = [
    *("id", "profile", "state", "since", "requested_at", "running_at", "ended_at", "registered", "retiring", "pod"),
    *("node", "ip", "restarts", "why", "loss", "exit_code", "caused_by_app", "notes"),
]


def test_json_has_the_rows_of_the_drivers_own_page() -> None:
    from actors.page.documents import Executor  # noqa: PLC0415 - only this test compares the two

    found = json.loads(as_json.as_text(as_json.status(example())))
    assert [row["id"] for row in found["executors"]] == [1, 2]
    (ended,) = found["ended"]
    assert list(ended) == ROW_KEYS
    assert set(ROW_KEYS) == set(Executor.__struct_fields__)
    assert (ended["loss"], ended["exit_code"], ended["caused_by_app"]) == ("EXITED", 3, True)
    assert ended["ended_at"] == NOW.timestamp() - 10
    assert (found["version"], found["state"], found["orphaned"], found["holder"]) == (1, "alive", False, "host_1")
    assert found["profiles"]["gpu"] == dict.fromkeys(("running", "pending", "stuck", "terminating", "ended"), 0) | {
        "wanted": 1
    }


def test_json_is_ascii() -> None:
    assert as_json.as_text({"a": "é\x7f\x1b"}, one_line=True) == '{"a": "\\u00e9\\u007f\\u001b"}'


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pipe_gets_the_rows_that_have_changed(capsys: pytest.CaptureFixture[str]) -> None:
    changes = Changes(wide=False, json=False)
    changes.show(fleet(pod(1, phase="Pending"), pod(2, state=RUNNING), lease=observed()))
    assert len(capsys.readouterr().out.splitlines()) == 9
    changes.show(fleet(pod(1, phase="Pending"), pod(2, state=RUNNING), lease=observed(2)))
    assert capsys.readouterr().out == ""
    changes.show(fleet(pod(1, state=RUNNING), lease=observed()))
    row, gone = capsys.readouterr().out.splitlines()
    assert row.split()[:3] == ["1", "default", "running"]
    assert gone == "pod etl-exec-2 is gone"


def test_an_outage_is_said_once_until_it_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    changes, seen_fleet = Changes(wide=False, json=True), fleet(pod(1), lease=observed())
    for _ in range(2):
        for _ in range(3):
            changes.note("cannot connect")
        changes.show(seen_fleet)
    assert capsys.readouterr().err.splitlines() == ["executor-pods: cannot connect; looking again, until Ctrl-C"] * 2


def test_as_json_each_change_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    changes = Changes(wide=False, json=True)
    for age in (3, 2, 60):
        changes.show(fleet(pod(1), lease=observed(age)))
    assert [json.loads(line)["state"] for line in capsys.readouterr().out.splitlines()] == ["alive", "orphaned"]


# ── logs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_on_a_terminal_a_log_is_text_and_in_a_pipe_it_is_what_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    log = [b"a\tb\r\n\x1b[2J", b"\xffc\nrest"]
    _as_lines(log)
    assert capfdbinary.readouterr().out == b"a\tb\n\\x1b[2J\\xffc\nrest\n"
    _as_bytes(log)
    assert capfdbinary.readouterr().out == b"".join(log)
    _as_lines([b"x" * 40_000, b"x" * 40_000])
    assert capfdbinary.readouterr().out.count(b"\n") == 1


# ── cleaning up ──────────────────────────────────────────────────────────────────────────────────────────────────


class Asked:
    """A cluster whose Lease a driver renews, or takes, while somebody wants to clean up."""

    def __init__(self, *leases: dict[str, Any] | ApiError) -> None:
        self.clock = ManualClock(start=NOW)
        self.requests: list[Any] = []
        self._leases = list(leases)

    def now(self) -> datetime:
        return NOW

    def ask(self, request: Any) -> Any:
        self.requests.append(request)
        answer = self._leases.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer


def expired(version: str = "9", **metadata: Any) -> dict[str, Any]:
    """A Lease of a tenth of a second, which was renewed a minute ago by its holder's clock."""
    made = lease("etl", 60, resourceVersion=version, **metadata)
    return made | {"spec": made["spec"] | {"leaseDurationSeconds": 1}}


def hold(cluster: Asked, manifest: dict[str, Any]) -> Any:
    return Hold(cast("Any", cluster), fleet(pod(), lease=observe_lease(manifest)))


def test_a_lease_that_is_renewed_after_all_spares_its_fleet() -> None:
    cluster = Asked(expired("10"))
    with pytest.raises(Refused, match="fleet 'etl' is alive: host_1 renews its Lease; nothing was deleted"):
        hold(cluster, expired())
    assert [type(request) for request in cluster.requests] == [GetObject]


def test_a_lease_that_somebody_takes_first_spares_its_fleet() -> None:
    with pytest.raises(Refused, match="somebody else has just taken or renewed the Lease of 'etl'"):
        hold(Asked(Conflict("modified", status=409)), expired(managedFields=stamped(60)))


def test_the_lease_is_renewed_while_a_large_fleet_is_deleted_and_released_at_the_end() -> None:
    ours = expired("10", managedFields=stamped(0))
    cluster = Asked(ours, ours, Conflict("modified", status=409))
    held = hold(cluster, expired(managedFields=stamped(60)))
    held.keep()
    assert len(cluster.requests) == 1
    cluster.clock.move_to(timedelta(seconds=21))
    held.keep()
    assert [request.patch["spec"]["leaseDurationSeconds"] for request in cluster.requests] == [60, 60]
    held.release()
    assert cluster.requests[-1].patch["spec"]["holderIdentity"] == ""


class Storing(Asked):
    """A cluster with these pods and no Lease, whose answers a test may spoil."""

    def __init__(self, *pods: dict[str, Any]) -> None:
        super().__init__()
        self.cluster = Cluster(*pods)
        self.spoiled: list[ApiError] = []

    def ask_each(self, requests: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
        for request in requests:
            try:
                answer = self.spoiled.pop(0) if self.spoiled else self.cluster.ask_in("default")(request)
            except ApiError as error:
                answer = error
            yield request, answer

    def fleet(self) -> ObservedFleet:
        found, _ = FleetReader(self.cluster.ask_in, "default", self.now).one("etl")
        return found

    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.cluster.store.list("pods", "default").items]


def copied(executor_id: int, name: str, **labels: str) -> dict[str, Any]:
    """An executor's pod under another name, or with other labels."""
    subject = pod(executor_id)
    marks = subject["metadata"]["labels"] | {
        f"executor-pods/{key.replace('_', '-')}": text for key, text in labels.items()
    }
    return subject | {"metadata": subject["metadata"] | {"name": name, "uid": f"uid-{name}", "labels": marks}}


def claim_of(name: str, **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}", **metadata}}


def test_only_what_has_the_name_and_id_of_an_executor_is_deleted_and_the_rest_is_named() -> None:
    storing = Storing(pod(1), copied(1, "payments-0"), copied(2, "etl-exec-7"), copied(3, "etl-exec-3"))
    of_pod = {"ownerReferences": [{"kind": "Pod", "name": "etl-exec-1"}]}
    claims = [
        claim_of("etl-exec-1-pvc-0"),
        claim_of("etl-exec-1-scratch", **of_pod),
        claim_of("billing-data"),
        claim_of("billing-data-of-a-pod", **of_pod),
        claim_of("etl-exec-1-pvc-x"),
        claim_of("etl-exec-2-pvc-0", deletionTimestamp="2024-01-01T00:00:00Z"),
    ]
    planned = [(each.kind, each.name) for each in deletions(storing.fleet(), claims)]
    claim = "persistentvolumeclaim"
    assert planned == [
        ("pod", "etl-exec-1"),
        ("pod", "etl-exec-3"),
        (claim, "etl-exec-1-pvc-0"),
        (claim, "etl-exec-1-scratch"),
    ]
    assert list(strangers(storing.fleet(), claims)) == [
        ("pod", "etl-exec-7"),
        ("pod", "payments-0"),
        (claim, "billing-data"),
        (claim, "billing-data-of-a-pod"),
        (claim, "etl-exec-1-pvc-x"),
    ]


def test_a_pod_that_came_later_under_the_same_name_is_not_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    storing = Storing(pod(1), pod(2))
    planned = list(deletions(storing.fleet(), ()))
    storing.cluster.store.delete("pods", "default", "etl-exec-1")
    storing.cluster.add(pod(1))
    assert delete(cast("Any", storing), planned, Hold(cast("Any", storing), storing.fleet())) == 0
    captured = capsys.readouterr()
    assert captured.out == 'pod "etl-exec-2" deleted\n'
    assert captured.err == 'executor-pods: pod "etl-exec-1" is another one by now, and stays\n'
    assert storing.names() == ["etl-exec-1"]


def test_a_deletion_is_sent_again_to_a_server_in_need_and_not_to_one_that_refuses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actors.cli.operate.cleanup.PAUSE", 0.0)
    storing = Storing(pod(1), pod(2))
    storing.spoiled = [TooManyRequests("later", status=429), Unavailable("away", status=503)]
    planned = list(deletions(storing.fleet(), ()))
    assert delete(cast("Any", storing), planned, Hold(cast("Any", storing), storing.fleet())) == 0
    assert storing.names() == []
    storing = Storing(pod(1))
    storing.cluster.api.forbidden |= {("delete", "pods")}
    planned = list(deletions(storing.fleet(), ()))
    assert delete(cast("Any", storing), planned, Hold(cast("Any", storing), storing.fleet())) == 1
    assert 'pod "etl-exec-1" not deleted: pods is forbidden: ' in capsys.readouterr().err


# ── through the driver ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def driver() -> Iterator[Fleet]:
    """A fleet with a page that takes actions."""
    with page_fleet() as made:
        yield made


def test_an_operator_acts_through_the_drivers_page(
    driver: Fleet, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    token, wrong = tmp_path / "token", tmp_path / "wrong"
    token.write_text(f"{TOKEN}\n")
    wrong.write_text("another-token-of-any-length")

    def act(arguments: str, file: Path = token, app_id: str = driver.app_id) -> tuple[int, str]:
        name, *rest = arguments.split()
        given = [name, app_id, *rest, "--endpoint", str(driver.page_url), "--token-file", str(file)]
        code = execute(SimpleQueue(), given)
        captured = capsys.readouterr()
        return code, (captured.out + captured.err).strip()

    driver.wait_for(running=2, timeout="30s")
    assert act("scale 3") == (0, "targets: default 3; running executors that end: none")
    driver.wait_for(running=3, timeout="30s")
    assert act("scale default=2 --victims oldest --grace 30s") == (
        0,
        "targets: default 2; running executors that end: 1",
    )
    assert act("retire 2 --deadline 1m --adjust-target") == (0, "executors that retire: 2")
    unknown = "executor-pods: executors that are unknown, or have ended"
    assert act("kill 3 99 98 --grace 0s") == (1, f"executors that end: 3\n{unknown}: 99, 98")
    assert act("retire 99") == (1, f"executors that retire: none\n{unknown}: 99")
    assert act("hold --deadline 1s")[0] == 0
    assert driver.status().on_hold
    monkeypatch.setenv("EXECUTOR_PODS_ENDPOINT", str(driver.page_url))
    monkeypatch.setenv("EXECUTOR_PODS_TOKEN_FILE", str(token))
    status, _ = ask_driver(str(driver.page_url), driver.app_id)
    assert status["on_hold"]
    assert execute(SimpleQueue(), ["hold", driver.app_id, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 1, "ids": []}
    assert act("resume") == (0, "resumed")
    assert not driver.status().on_hold
    assert act("scale x=3") == (
        1,
        f"executor-pods: the driver refused: {_refusal(driver)}",
    )
    assert act("resume", wrong)[0] == 1
    code, said = act("resume", app_id="other")
    assert (code, said.endswith("not 'other'; nothing was done")) == (1, True)


def _refusal(driver: Fleet) -> str:
    try:
        driver.scale({"x": 3})
    except Exception as error:  # noqa: BLE001 - its words are all that counts
        return str(error)
    raise AssertionError


@pytest.mark.parametrize(
    ("url", "readable"),
    [
        ("http://127.0.0.1:8080", False),
        ("http://[::1]:8080", False),
        ("http://localhost", False),
        ("https://etl.example", False),
        ("http://etl.example", True),
        ("http://10.0.0.7:8080", True),
    ],
)
def test_a_token_that_others_could_read_on_the_way_is_warned_of(url: str, readable: bool) -> None:
    assert is_readable_on_the_way(url) is readable


STARTS = {"kind": "Status", "message": "storage is (re)initializing", "reason": "TooManyRequests", "code": 429}


@pytest.mark.parametrize("status", [429, 503])
def test_a_command_asks_again_as_long_as_a_server_that_starts_wants(
    status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServer() as server:
        for _ in range(3):
            server.answers(status, STARTS, {"Retry-After": "0"})
        empty = {"metadata": {"resourceVersion": "1"}, "items": []}
        server.answers(200, {"kind": "PodList", "apiVersion": "v1", **empty})
        server.answers(200, {"kind": "LeaseList", "apiVersion": "coordination.k8s.io/v1", **empty})
        code = execute(SimpleQueue(), ["list", "--kubeconfig", str(server.kubeconfig(tmp_path))])
    assert (code, len(server.asked)) == (0, 5), capsys.readouterr().err


def test_a_command_says_at_once_what_would_take_longer_than_its_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ScriptedServer() as server:
        server.answers(429, STARTS, {"Retry-After": "60"})
        assert execute(SimpleQueue(), ["list", "--kubeconfig", str(server.kubeconfig(tmp_path))]) == 1
    assert "storage is (re)initializing" in capsys.readouterr().err
    assert len(server.asked) == 1


@pytest.mark.parametrize("body", [b"", b"<html>", b"[1]", b"\xff", b"[" * 100_000])
def test_whatever_answers_instead_of_a_driver_is_said(
    body: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with ScriptedServer() as server:
        server.answers(200, body)
        given = ["resume", "etl", "--endpoint", f"http://{server.name}/", "--token-file", str(token)]
        assert execute(SimpleQueue(), given) == 1
        assert "with something else than a driver's page would" in capsys.readouterr().err
        assert "Authorization" not in server.asked[0].headers
        server.stop_listening()
        assert execute(SimpleQueue(), given) == 1
    assert "gave no answer" in capsys.readouterr().err


@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_page_that_answers_byte_by_byte_holds_no_command(
    answer: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Each byte comes within the limit of a read, and the answer never ends."""
    monkeypatch.setattr(actions, "_LIMIT", 1.0)
    over = threading.Event()

    def trickle(listener: socket.socket) -> None:
        peer, _ = listener.accept()
        with peer, suppress(OSError):
            peer.sendall(answer)
            while not over.wait(0.05):
                peer.sendall(b" ")

    token = tmp_path / "token"
    token.write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=trickle, args=(listener,))
        server.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            code = execute(SimpleQueue(), ["resume", "etl", "--endpoint", url, "--token-file", str(token)])
        finally:
            over.set()
            server.join()
    assert code == 1
    assert "gave no whole answer within 1 s; does its driver run" in capsys.readouterr().err
