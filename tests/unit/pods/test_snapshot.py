"""`PodsSnapshot`: the counts that are kept with the states always agree with them."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from actors.pods.pod import PROFILE_LABEL, Pod
from actors.pods.snapshot import PodsSnapshot, SnapshotEdit
from actors.pods.state import PodFailed, PodPending, PodRunning, PodState, PodSucceeded, PodTerminating
from tests.unit.builders import pod

STATES = (PodPending, PodRunning, PodTerminating, PodFailed, PodSucceeded)


def of_profile(profile: str) -> Pod:
    subject = pod()
    labels = {**subject.labels, PROFILE_LABEL: profile}
    return msgspec.structs.replace(subject, metadata=msgspec.structs.replace(subject.metadata, shared_labels=labels))


def snapshot_of(*states: PodState) -> PodsSnapshot:
    edit = SnapshotEdit(PodsSnapshot.EMPTY)
    for number, state in enumerate(states, start=1):
        edit.put(number, state, None)
    return edit.finish("1", None)


def test_the_empty_snapshot_counts_none() -> None:
    assert PodsSnapshot.EMPTY.count(*STATES) == 0
    assert PodsSnapshot.EMPTY.profiles() == frozenset()


def test_executors_are_counted_by_state_over_all_profiles_or_in_one() -> None:
    small, big = of_profile("small"), of_profile("big")
    snapshot = snapshot_of(PodRunning(small), PodRunning(small), PodPending(small), PodRunning(big))

    assert snapshot.count(PodRunning) == 3
    assert snapshot.count(PodRunning, PodPending) == 4
    assert snapshot.count(PodRunning, profile="small") == 2
    assert snapshot.count(PodRunning, PodPending, profile="small") == 3
    assert snapshot.count(PodFailed, profile="big") == 0
    assert snapshot.count(PodRunning, profile="unheard of") == 0
    assert snapshot.count() == 0
    assert snapshot.profiles() == {"small", "big"}


def test_a_profile_goes_with_its_last_executor() -> None:
    edit = SnapshotEdit(snapshot_of(PodRunning(of_profile("small")), PodRunning(of_profile("big"))))
    edit.drop(1)

    assert edit.finish("2", None).profiles() == {"big"}


def test_an_edit_leaves_the_snapshot_it_started_from_as_it_was() -> None:
    before = snapshot_of(PodPending(pod()))
    edit = SnapshotEdit(before)
    edit.put(1, PodRunning(pod()), edit.get(1))
    edit.put(2, PodRunning(pod()), None)

    after = edit.finish("9", 3.5)

    assert (before.count(PodPending), before.count(PodRunning), set(before.states)) == (1, 0, {1})
    assert (after.count(PodPending), after.count(PodRunning), set(after.states)) == (0, 2, {1, 2})
    assert (after.resource_version, after.full_sync_at) == ("9", 3.5)


def test_a_renewed_state_takes_the_place_of_the_one_before_and_leaves_the_counts() -> None:
    before = snapshot_of(PodRunning(of_profile("small")))
    edit, renewed = SnapshotEdit(before), PodRunning(of_profile("small").at_version("9"))
    edit.renew(1, renewed)

    after = edit.finish("9", None)

    assert after.states[1] is renewed
    assert after.counts == before.counts


_EDITS = st.lists(
    st.lists(
        st.tuples(st.integers(1, 6), st.sampled_from(("small", "big")), st.sampled_from((*STATES, None))), max_size=8
    ),
    max_size=8,
)


@given(_EDITS)
def test_the_counts_agree_with_the_states_after_any_edits(
    batches: list[list[tuple[int, str, type[PodState] | None]]],
) -> None:
    snapshot = PodsSnapshot.EMPTY
    for batch in batches:
        edit = SnapshotEdit(snapshot)
        for number, profile, state in batch:
            if state is not None:
                edit.put(number, state(of_profile(profile)), edit.get(number))
            elif edit.get(number) is not None:
                edit.drop(number)
        snapshot = edit.finish("1", None)

        expected = Counter((state.pod.profile, type(state)) for state in snapshot.states.values())
        assert dict(snapshot.counts) == dict(expected)
