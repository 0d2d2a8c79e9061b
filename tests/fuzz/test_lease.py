"""A LeaseKeeper whose server answers anything: it lives, writes what the API accepts, takes nothing that is held."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from actors.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, TooManyRequests, Unavailable
from actors.lease.lease_keeper import LeaseKeeper
from actors.lease.marks import MARKS
from actors.lease.record import LAST_ID
from actors.messages.internal import IdsAllocated, KeepLease, LeaseHeld, LeaseNotHeld
from actors.pods.pod import Pod, PodStatus
from actors.runtime import Terminated
from actors.settings import Settings
from actors.testing import Kit
from actors.testing.manual_api import ManualCall, ManualPodApi
from tests.fuzz.material import spoiled

OURS: Final = 15
LONGEST_REASON: Final = 8_500
LEASE: Final[dict[str, Any]] = {
    "metadata": {"name": "executor-pods-app", "resourceVersion": "3", "annotations": {LAST_ID: "12"}},
    "spec": {
        "holderIdentity": "other",
        "leaseDurationSeconds": 15,
        "renewTime": "2024-01-01T00:00:00.000000Z",
        "leaseTransitions": 2,
    },
}
EXTREMES: Final[dict[str, tuple[Any, ...]]] = {
    "holderIdentity": ("other", "me", "", "x" * 1_000_000, "a\n2024 ERROR b\x1b[2J\u202e", None, 7, [], "\ud800"),
    "leaseDurationSeconds": (15, 1, 0, -1, 10**18, -(10**18), 2**31, True, 1.5, "15", None, [], 31_536_000),
    "renewTime": (
        "9999-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00+14:00",
        "2024-01-01T00:00:00",
        None,
        3,
        "x" * 999,
    ),
    "leaseTransitions": (2, 2**31 - 1, 2**31 - 2, -5, 10**30, "2", None, 0.5, True),
}
ANNOTATIONS: Final[tuple[Any, ...]] = ("12", "9" * 18, "9" * 19, "-1", "", None, 3, [], {}, "\n", "1" * 1_000_000)

MARKED: Final[tuple[Any, ...]] = (
    '{"holder": "other", "process": "../../etc/passwd", "pod": ["driver-0", "uid"]}',
    '{"holder": "other", "process": "0123456789abcdef0123456789abcdef"}',
    '{"holder": "other", "pod": ["\\ud800/", ""]}',
    '{"holder": "other", "pod": 5}',
    *("[" * 1_999, '"other"', "", None, 3, "x" * 1_000_000),
)

odd_specs = st.fixed_dictionaries({key: st.sampled_from(values) for key, values in EXTREMES.items()})
odd_leases = st.builds(
    lambda spec, last_id, marks, version: {
        "metadata": {"resourceVersion": version, "annotations": {LAST_ID: last_id, MARKS: marks}},
        "spec": spec,
    },
    odd_specs,
    st.sampled_from(ANNOTATIONS),
    st.sampled_from(MARKED),
    st.sampled_from(("1", "7", "", None, 5)),
)
errors = st.sampled_from((ApiError, Conflict, Forbidden, Invalid, NotFound, TooManyRequests, Unavailable)).flatmap(
    lambda kind: st.builds(kind, st.text(max_size=20))
)
answers = st.one_of(
    spoiled(LEASE).filter(lambda found: isinstance(found, dict)), odd_leases, odd_leases, errors, st.just("as asked")
)
steps = st.lists(st.tuples(answers, st.sampled_from((0.0, 0.1, 3.0, 6.0, 20.0))), min_size=1, max_size=12)


class Server:
    """Gives the answers that were drawn, and judges what it is asked."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._api = ManualPodApi()
        self.backend, self.owner = kit.probe("backend"), kit.probe("owner")
        self._record: tuple[object, str] | None = None
        """Holder and time of renewal, as last shown."""
        self._since = 0.0
        self._free_at = 0.0
        """When the lease may be taken."""
        self._shown: Mapping[str, Any] = {}
        self.ours = False
        """The last write was answered as ours."""
        settings = Settings(app_id="app", backend={"lease_duration": f"{OURS}s"})
        self.keeper = kit.spawn(
            lambda context: LeaseKeeper(
                context, settings=settings, api=self._api, identity="me", backend=self.backend.address
            ),
            name="lease-keeper",
            owner=self.owner.address,
        )

    def answer(self, answer: Any) -> None:
        """Answer what is asked now, if anything is."""
        for call in self._api.open():
            if call.operation == "get":  # the holder's pod
                call.answer(answer if isinstance(answer, ApiError) else Pod(status=PodStatus("Failed")))
                continue
            if call.operation == "get_object":
                found = LEASE if answer == "as asked" else answer
                self._look(found)
            else:
                self._check(call)
                found = self._carried_out(call) if answer == "as asked" else answer
                spec = found.get("spec") if not isinstance(found, ApiError) and _is_versioned(found) else None
                self.ours = isinstance(spec, Mapping) and spec.get("holderIdentity") == "me"
            call.answer(found)
        self._kit.settle()

    def _look(self, found: Any) -> None:
        """Note from when on the lease that is shown may be taken."""
        if isinstance(found, ApiError) or not _is_versioned(found):
            return
        spec = found.get("spec")
        self._shown = spec if isinstance(spec, Mapping) else {}
        name, seconds = self._shown.get("holderIdentity"), self._shown.get("leaseDurationSeconds")
        holder, now = name if isinstance(name, str) else "", self._kit.clock.monotonic()
        record = (holder, str(self._shown.get("renewTime")))
        if record != self._record:
            self._record, self._since = record, now
        usable = type(seconds) is int and 0 < seconds <= 31_536_000
        self._free_at = self._since + (seconds if usable and isinstance(seconds, int) else OURS)
        if holder in {"", "me"}:
            self._free_at = now
        else:
            self.ours = False

    def _check(self, call: ManualCall) -> None:
        """A real server would accept it, and nobody else loses the lease by it."""
        if call.operation == "create_object":
            assert call.request.manifest["spec"]["holderIdentity"] == "me"
            return
        metadata, spec = call.request.patch["metadata"], call.request.patch["spec"]
        assert isinstance(metadata["resourceVersion"], str)
        assert metadata["resourceVersion"], "a condition on which others' writes are not overwritten"
        last_id = metadata["annotations"][LAST_ID]
        assert last_id.isdecimal()
        assert len(last_id) <= 18
        assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("me", OURS)
        assert datetime.fromisoformat(spec["renewTime"]).tzinfo is not None
        assert 0 <= spec.get("leaseTransitions", 0) < 2**31
        assert self.ours or self._kit.clock.monotonic() >= self._free_at, f"it was held: {self._shown}"

    def _carried_out(self, call: ManualCall) -> dict[str, Any]:
        sent = call.request.manifest if call.operation == "create_object" else call.request.patch
        return {"metadata": {**sent["metadata"], "resourceVersion": "9"}, "spec": {**self._shown, **sent["spec"]}}

    def check_reports(self) -> None:
        """The keeper lives, claims only what the server has said, and reports in words that a log can hold."""
        assert self.owner.take_all(Terminated) == []
        assert self.backend.take_all(LeaseHeld) == [] or self.ours
        for report in self.backend.take_all(LeaseNotHeld):
            assert report.reason.isprintable(), report.reason
            assert len(report.reason) < LONGEST_REASON


def _is_versioned(found: Mapping[str, Any]) -> bool:
    metadata = found.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, Mapping) else None
    return isinstance(version, str) and version != ""


def run(drawn: list[tuple[Any, float]]) -> None:
    with Kit() as kit:
        server = Server(kit)
        server.keeper.tell(KeepLease())
        kit.settle()
        for number, (answer, seconds) in enumerate(drawn):
            server.answer(answer)
            server.check_reports()
            server.keeper.tell(IdsAllocated(number))
            kit.advance(timedelta(seconds=seconds))
        for _ in range(10):  # trouble ends, and so does the other driver
            server.answer("as asked")
            server.check_reports()
            if server.ours:
                return
            kit.advance(timedelta(seconds=3))
        raise AssertionError("it is not acquired in the end")


@given(steps)
@example([({"metadata": {"resourceVersion": "1"}, "spec": {**LEASE["spec"], "leaseDurationSeconds": 10**18}}, 3.0)])
@example([({}, 3.0), ({"metadata": None}, 0.0), ({"metadata": {"resourceVersion": 5}}, 20.0)])
def test_whatever_a_lease_contains_its_keeper_lives_and_takes_nothing_that_is_held(
    drawn: list[tuple[Any, float]],
) -> None:
    run(drawn)


@pytest.mark.stress
@settings(max_examples=10_000, derandomize=False)
@given(steps)
def test_whatever_ten_thousand_leases_contain_their_keeper_lives(drawn: list[tuple[Any, float]]) -> None:
    run(drawn)
