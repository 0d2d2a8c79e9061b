"""`LeaseBook`, whatever holders do and whatever becomes of executors, beside a model as plain as can be."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from actors.executors.leases import AcquireRequest, Lease, LeaseBook

PROFILES = ("default", "gpu")
profiles = st.sampled_from(PROFILES)


class Book(RuleBasedStateMachine):
    """The model is who waits, who has what and who is idle, as lists."""

    def __init__(self) -> None:
        super().__init__()
        self.book = LeaseBook(PROFILES)
        self.waiting: dict[str, list[int]] = {name: [] for name in PROFILES}
        self.idle: dict[str, list[int]] = {name: [] for name in PROFILES}
        self.leases: dict[int, tuple[int, str]] = {}
        self.ending: set[int] = set()
        self.free: dict[str, list[int]] = {name: [] for name in PROFILES}
        """Executors that live, that nobody has, and that are not ready."""
        self.last = 0

    def granted(self, lease: Lease | None, expected: tuple[int, int] | None, profile: str) -> None:
        assert (None if lease is None else (lease.id, lease.executor_id)) == expected
        if lease is not None:
            assert lease.profile == profile
            self.leases[lease.id] = (lease.executor_id, profile)

    @rule(profile=profiles)
    def an_executor_is_requested(self, profile: str) -> None:
        self.last += 1
        self.free[profile].append(self.last)

    @rule(profile=profiles)
    def somebody_asks(self, profile: str) -> None:
        self.last += 1
        idle = self.idle[profile]
        expected = (self.last, idle.pop(0)) if idle else None
        if expected is None:
            self.waiting[profile].append(self.last)
        self.granted(self.book.acquire(AcquireRequest(self.last, profile)), expected, profile)

    @rule(profile=profiles, data=st.data())
    def an_executor_is_ready(self, profile: str, data: st.DataObject) -> None:
        if self.free[profile]:
            executor_id = data.draw(st.sampled_from(self.free[profile]))
            self.free[profile].remove(executor_id)
            waiting = self.waiting[profile]
            expected = (waiting.pop(0), executor_id) if waiting else None
            if expected is None:
                self.idle[profile].append(executor_id)
            self.granted(self.book.offer(executor_id, profile), expected, profile)

    @rule(profile=profiles, data=st.data())
    def one_that_waits_goes_away(self, profile: str, data: st.DataObject) -> None:
        if self.waiting[profile]:
            gone = data.draw(st.sampled_from(self.waiting[profile]))
            self.waiting[profile].remove(gone)
            assert self.book.cancel(gone)
        assert not self.book.cancel(self.last + 1)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def a_lease_is_given_back(self, data: st.DataObject) -> None:
        lease_id = data.draw(st.sampled_from(sorted(self.leases)))
        executor_id, profile = self.leases.pop(lease_id)
        lease = self.book.release(lease_id)
        assert lease is not None
        assert (lease.executor_id, lease.profile) == (executor_id, profile)
        assert self.book.release(lease_id) is None
        self.ending.discard(executor_id)
        self.free[profile].append(executor_id)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def a_leased_executor_begins_to_end(self, data: st.DataObject) -> None:
        executor_id, profile = self.leases[data.draw(st.sampled_from(sorted(self.leases)))]
        self.book.withdraw(executor_id, profile, ends=True)
        self.ending.add(executor_id)

    @rule(profile=profiles, data=st.data())
    def an_idle_executor_is_not_ready_any_more(self, profile: str, data: st.DataObject) -> None:
        if self.idle[profile]:
            executor_id = data.draw(st.sampled_from(self.idle[profile]))
            self.idle[profile].remove(executor_id)
            self.free[profile].append(executor_id)
            self.book.withdraw(executor_id, profile, ends=False)

    @rule(profile=profiles, data=st.data())
    def an_executor_ends(self, profile: str, data: st.DataObject) -> None:
        held = [executor_id for executor_id, of in self.leases.values() if of == profile]
        living = [*held, *self.idle[profile], *self.free[profile]]
        if living:
            executor_id = data.draw(st.sampled_from(living))
            lease = self.book.removed(executor_id, profile)
            lost = [lease_id for lease_id, (held, _) in self.leases.items() if held == executor_id]
            assert ([] if lease is None else [lease.id]) == lost
            for lease_id in lost:
                del self.leases[lease_id]
            self.ending.discard(executor_id)
            for among in (self.idle[profile], self.free[profile]):
                if executor_id in among:
                    among.remove(executor_id)
            assert self.book.times_leased(executor_id) == 0

    @invariant()
    def the_book_says_what_there_is(self) -> None:
        held = [executor_id for executor_id, _ in self.leases.values()]
        assert len(held) == len(set(held)), "an executor has two leases"
        for profile in PROFILES:
            of = [executor_id for executor_id, name in self.leases.values() if name == profile]
            assert self.book.leased(profile) == len(set(of) - self.ending)
            assert self.book.idle(profile) == len(self.idle[profile])
            assert self.book.waiting(profile) == len(self.waiting[profile])
            assert not (self.idle[profile] and self.waiting[profile]), "one waits, though another is idle"
            assert self.book.newest_idle(profile, 2) == tuple(self.idle[profile][::-1][:2])
            assert all(self.book.is_idle(executor_id, profile) for executor_id in self.idle[profile])
        waiting = [*self.waiting["default"], *self.waiting["gpu"]]
        assert [request.id for request in self.book.waiters()] == waiting
        assert all(self.book.waiter(request_id) is not None for request_id in waiting)
        assert self.book.waiter(self.last + 1) is None
        assert all(map(self.book.is_leased, held))
        assert all(map(self.book.holds, self.leases))


TestBook = Book.TestCase
