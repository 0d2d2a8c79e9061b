"""How a program acquires an executor and gives it back: steps for either kind of fleet, and `Acquiring` for threads.

Whatever interrupts the wait, Ctrl-C and a cancellation included, gives back what was granted meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from actors.errors import ExecutorLost, ExecutorPodsError, Unreachable, WaitTimeout
from actors.fleet.plan import grace_of
from actors.fleet.waiting import Pause, run
from actors.messages import AcquireExecutor, AcquireRefused, CancelAcquire, ReleaseExecutor
from actors.text import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from actors.fleet.door import Door
    from actors.fleet.leases.lease import Lease, LeasedExecutor
    from actors.fleet.plan import Duration
    from actors.fleet.waiting import Steps

__all__ = ["RESET_FAILED", "Acquiring", "acquire", "acquire_message", "give_back"]

logger = get_logger(__name__)

RESET_FAILED: Final = "reset failed, the executor is not offered again: executor=%d"
"""What is logged with the error that a program's `reset` raised."""


def acquire_message(profile: str, timeout: Duration | None, ttl: Duration | None, holder: str) -> AcquireExecutor:
    """Return the request for an executor.

    Raises:
        ValueError: a duration is none.
    """
    return AcquireExecutor(profile, grace_of("timeout", timeout), grace_of("ttl", ttl), holder)


def acquire(door: Door, message: AcquireExecutor) -> Steps[Lease]:
    """Wait for an executor.

    Raises:
        Refused: a value is not allowed, or the profile has no executors to lease.
        WaitTimeout: the time is over; the message says what holds the executors up.
        Unreachable: the fleet has failed, or stops.
        FleetEnded: the fleet has ended.
    """
    lease_id: int | None = None
    leases, state = door.state.leases, door.state
    try:
        lease_id = found = yield from door.ask(message, unheard=lambda given: _drop(door, given))
        with leases.awaited(found) as source:
            yield Pause(lambda: leases.has_answer(found) or state.has_failed, source)
    except BaseException:
        if lease_id is not None:
            _drop(door, lease_id)
        raise
    answer = leases.take(lease_id)
    if answer is None:
        door.check_alive()
        raise AssertionError("the wait ends with an answer, or with the fleet")
    if isinstance(answer, AcquireRefused):
        raise (WaitTimeout if answer.timed_out else Unreachable)(answer.reason)
    return answer


def _drop(door: Door, lease_id: int) -> None:
    """Give up a request, or give back what was granted: nobody has used it."""
    door.state.leases.drop(lease_id)
    door.tell(CancelAcquire(lease_id))


def give_back(door: Door, lease: Lease, error: BaseException | None, *, reuse: bool) -> Steps[None]:
    """End a lease at the end of its block, which `error` has left, if there is one.

    Raises:
        ExecutorLost: it had ended meanwhile.
        FleetEnded: the fleet has ended, and no error says so.
    """
    if isinstance(error, GeneratorExit):  # a coroutine that is closed cannot wait
        door.state.leases.release(lease.id)
        door.tell(ReleaseExecutor(lease.id))
        return
    try:
        yield from door.release(lease, reuse=reuse)
    except ExecutorPodsError:
        if error is None:
            raise
        return
    if error is None or isinstance(error, Exception):
        try:
            lease.check()
        except ExecutorLost as lost:
            raise lost from error  # the error follows from it


@final
class Acquiring:
    """Acquires an executor for a `with` block. Made by `Fleet.acquire`."""

    def __init__(
        self,
        door: Door,
        message: AcquireExecutor,
        reset: Callable[[LeasedExecutor], object] | None,
        *,
        reuse: bool,
    ) -> None:
        self._door: Final = door
        self._message: Final = message
        self._reset: Final = reset
        self._reuse: Final = reuse or reset is not None
        self._lease: Lease | None = None

    def __enter__(self) -> LeasedExecutor:
        if self._lease is not None:
            raise RuntimeError("this executor was acquired already; call fleet.acquire again")
        self._lease = run(acquire(self._door, self._message), self._door.system)
        return self._lease.executor

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lease is not None
        reuse = False
        try:
            reuse = self._reuse and error is None and self._is_reset(self._lease.executor)
        finally:
            run(give_back(self._door, self._lease, error, reuse=reuse), self._door.system)

    def _is_reset(self, executor: LeasedExecutor) -> bool:
        try:
            if self._reset is not None:
                self._reset(executor)
        except Exception:
            logger.exception(RESET_FAILED, executor.id)
            return False
        return True
