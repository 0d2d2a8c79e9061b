"""Checks of the driver's messages: each field's type and range, in one place. Pure.

Their values may come from executors, over a network. A wrong one is an error for the driver, and never for the Backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, assert_never, cast, get_args

from actors.errors import Refused
from actors.messages import (
    AcquireExecutor,
    CancelAcquire,
    DecommissionExecutors,
    ExecutorBusy,
    ExecutorDisconnected,
    ExecutorDrained,
    ExecutorIdle,
    FollowFleet,
    FromDriver,
    GetExecutorIds,
    GetExecutors,
    GetFleetStatus,
    HasEnoughExecutors,
    HoldFleet,
    IsExecutorActive,
    IsExecutorExcluded,
    KillExecutors,
    RegisterExecutor,
    ReleaseExecutor,
    RenewLease,
    RequestTotalExecutors,
    ResumeFleet,
    RetireExecutors,
    ScaleExecutors,
    SetWarm,
    StopBackend,
    Suspected,
)
from actors.pods.ids import MAX_ID_DIGITS
from actors.pods.pod import DEFAULT_PROFILE
from actors.settings.durations import LONGEST
from actors.settings.types import LARGEST_FLEET
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import TypeGuard

    from actors.messages import Victims

__all__ = ["FROM_DRIVER", "checked"]

FROM_DRIVER: Final[frozenset[type]] = frozenset(get_args(FromDriver))

_HIGHEST_ID: Final = 10**MAX_ID_DIGITS - 1

_POLICIES: Final = ("newest", "oldest", "idle")

_SUSPECTED: Final[tuple[str, ...]] = get_args(Suspected)

_HIGHEST_LEASE: Final = 2**63 - 1
"""A million leases a second do not reach it in a hundred thousand years."""

_LONGEST_HOLDER: Final = 200
"""Characters of a text that stands in log lines."""

_LONGEST_VALUE: Final = 60
"""Characters of a value that an error quotes: enough to recognise it, too few to fill a screen."""


def checked(message: FromDriver, profiles: Collection[str], pools: Collection[str] = ()) -> FromDriver:
    """Return the message with values that no other thread can change. `pools` are the profiles with `warm`.

    Raises:
        Refused: a value is not allowed. The error names the message and the field, and says what is allowed.
    """
    try:
        return _checked(message, type(message).__name__, profiles, pools)
    except Refused:
        raise
    except Exception as error:  # noqa: BLE001 - a value of a foreign class may raise anything when it is read
        raise Refused(f"{type(message).__name__} cannot be read: {type(error).__name__}") from None


def _checked(  # noqa: C901, PLR0912 - one case a message
    message: FromDriver, name: str, profiles: Collection[str], pools: Collection[str]
) -> FromDriver:
    match message:
        case RequestTotalExecutors(totals, keep_others):
            return RequestTotalExecutors(
                _targets(totals, f"{name}.totals", profiles, pools), _flag(keep_others, f"{name}.keep_others")
            )
        case ScaleExecutors(totals, victims, grace):
            return ScaleExecutors(
                _targets(totals, f"{name}.totals", profiles, pools),
                _victims(victims, f"{name}.victims"),
                _grace(grace, f"{name}.grace"),
            )
        case KillExecutors(executor_ids, adjust_target, grace):
            return KillExecutors(
                _ids(executor_ids, f"{name}.executor_ids"),
                _flag(adjust_target, f"{name}.adjust_target"),
                _grace(grace, f"{name}.grace"),
            )
        case RetireExecutors(executor_ids, deadline, adjust_target):
            return RetireExecutors(
                _ids(executor_ids, f"{name}.executor_ids"),
                _grace(deadline, f"{name}.deadline"),
                _flag(adjust_target, f"{name}.adjust_target"),
            )
        case HoldFleet(deadline):
            return HoldFleet(_grace(deadline, f"{name}.deadline"))
        case DecommissionExecutors(executor_ids):
            return DecommissionExecutors(_ids(executor_ids, f"{name}.executor_ids"))
        case ExecutorDisconnected(executor_id, suspected):
            return ExecutorDisconnected(
                _id(executor_id, f"{name}.executor_id"), _suspected(suspected, f"{name}.suspected")
            )
        case (
            RegisterExecutor(executor_id)
            | ExecutorDrained(executor_id)
            | ExecutorBusy(executor_id)
            | ExecutorIdle(executor_id)
            | IsExecutorActive(executor_id)
            | IsExecutorExcluded(executor_id)
        ):
            return type(message)(_id(executor_id, f"{name}.executor_id"))
        case SetWarm(warm):
            return SetWarm(_warm(warm, f"{name}.warm", pools))
        case AcquireExecutor(profile, timeout, ttl, holder):
            return AcquireExecutor(
                _pool(profile, f"{name}.profile", pools),
                _grace(timeout, f"{name}.timeout"),
                _grace(ttl, f"{name}.ttl"),
                _holder(holder, f"{name}.holder"),
            )
        case CancelAcquire(lease):
            return CancelAcquire(_lease(lease, f"{name}.lease"))
        case ReleaseExecutor(lease, reuse):
            return ReleaseExecutor(_lease(lease, f"{name}.lease"), _flag(reuse, f"{name}.reuse"))
        case RenewLease(lease, ttl):
            return RenewLease(_lease(lease, f"{name}.lease"), _grace(ttl, f"{name}.ttl"))
        case FollowFleet(follower):
            if not callable(follower):
                raise Refused(f"{name}.follower = {_shown(follower)}: must be a function of one FleetChanged")
            return message
        case StopBackend(delete_pods):
            if not isinstance(delete_pods, bool | None):
                raise Refused(f"{name}.delete_pods = {_shown(delete_pods)}: must be True, False or None")
            return message
        case GetExecutorIds() | GetExecutors() | GetFleetStatus() | HasEnoughExecutors() | ResumeFleet():
            return message
        case _:
            assert_never(message)


def _targets(totals: object, field: str, profiles: Collection[str], pools: Collection[str]) -> int | dict[str, int]:
    if not isinstance(totals, Mapping):
        _check_target(DEFAULT_PROFILE, field, pools)
        return _target(totals, field)
    given = dict(totals)  # one step: another thread of the driver may change its dict
    for profile in given:
        if not isinstance(profile, str) or profile not in profiles:
            names = ", ".join(map(repr, profiles))
            raise Refused(f"{field} has {_shown(profile)}: there is no such profile; there are {names}")
        _check_target(profile, field, pools)
    return {profile: _target(total, f"{field}[{profile!r}]") for profile, total in given.items()}


def _check_target(profile: str, field: str, pools: Collection[str]) -> None:
    if profile in pools:
        raise Refused(f"{field} has {profile!r}: its target follows its leases; SetWarm sets how many are warm")


def _warm(warm: object, field: str, pools: Collection[str]) -> dict[str, int]:
    given = warm if isinstance(warm, Mapping) else {DEFAULT_PROFILE: warm}
    return {_pool(profile, field, pools): _target(number, field) for profile, number in dict(given).items()}


def _pool(profile: object, field: str, pools: Collection[str]) -> str:
    if not isinstance(profile, str) or profile not in pools:
        there_are = ", ".join(map(repr, pools)) or "none"
        raise Refused(f"{field} has {_shown(profile)}: must be a profile with `warm`; there are {there_are}")
    return profile


def _holder(holder: object, field: str) -> str:
    if not isinstance(holder, str) or len(holder) > _LONGEST_HOLDER:
        raise Refused(f"{field} = {_shown(holder)}: must be text of at most {_LONGEST_HOLDER} characters")
    return one_line(holder)


def _lease(lease: object, field: str) -> int:
    if not _is_whole(lease, 1, _HIGHEST_LEASE):
        raise Refused(f"{field} = {_shown(lease)}: must be the number of a lease, as AcquireExecutor answers it")
    return int(lease)


def _target(total: object, field: str) -> int:
    if not _is_whole(total, 0, LARGEST_FLEET):
        raise Refused(f"{field} = {_shown(total)}: must be a whole number from 0 to {LARGEST_FLEET}")
    return int(total)


def _victims(victims: object, field: str) -> Victims:
    if callable(victims):
        return victims
    if victims in _POLICIES:
        return victims
    raise Refused(f"{field} = {_shown(victims)}: must be one of {', '.join(map(repr, _POLICIES))}, or a function")


def _suspected(suspected: object, field: str) -> Suspected | None:
    if suspected is None or (isinstance(suspected, str) and suspected in _SUSPECTED):
        return cast("Suspected | None", suspected)
    raise Refused(f"{field} = {_shown(suspected)}: must be one of {', '.join(map(repr, _SUSPECTED))}, or None")


def _ids(executor_ids: object, field: str) -> tuple[int, ...]:
    """Return the ids, each once."""
    if not isinstance(executor_ids, tuple | list | set | frozenset | range):
        raise Refused(f"{field} = {_shown(executor_ids)}: must be a tuple of executor ids")
    if len(executor_ids) > LARGEST_FLEET:
        raise Refused(f"{field} has {len(executor_ids)} executor ids: must have at most {LARGEST_FLEET}")
    return tuple(dict.fromkeys(_id(value, field) for value in tuple(executor_ids)))


def _flag(value: object, field: str) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"{field} = {_shown(value)}: must be True or False")
    return value


def _grace(grace: object, field: str) -> timedelta | None:
    if grace is not None and not (isinstance(grace, timedelta) and timedelta() <= grace <= LONGEST):
        raise Refused(f"{field} = {_shown(grace)}: must be None or a timedelta from 0 to {LONGEST.days} days")
    return grace


def _id(executor_id: object, field: str) -> int:
    if not _is_whole(executor_id, 1, _HIGHEST_ID):
        raise Refused(f"{field} has {_shown(executor_id)}: an executor id is a whole number from 1 to {_HIGHEST_ID}")
    return int(executor_id)


def _is_whole(value: object, lowest: int, highest: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and lowest <= value <= highest


def _shown(value: object) -> str:
    """Return a value for an error: short and printable, whatever it is. Only plain values are asked for their text."""
    match value:
        case bool() | float() | timedelta() | None:
            return repr(value)
        case str() | bytes():
            return repr(value[:_LONGEST_VALUE]) + ("..." if len(value) > _LONGEST_VALUE else "")
        case int():
            return str(int(value)) if value.bit_length() <= _LONGEST_VALUE else f"a number of {value.bit_length()} bits"
        case _:
            return f"a value of type {type(value).__name__}"
