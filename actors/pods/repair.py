"""Repairs pods with unusable fields: whatever one field says, the pod stays known by the others.

A pod that were left out of a LIST would be taken for gone. This is the slow way, only for pods that do not decode.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final

import msgspec
from msgspec import inspect
from msgspec.structs import force_setattr

from actors.pods.api_pod import ApiPod, made_container
from actors.pods.pod import time_of

__all__ = ["UNREADABLE_TIME", "pod_from"]

UNREADABLE_TIME: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The deletion timestamp of a pod whose own one is unusable: that it has one says that its deletion has begun."""


def pod_from(value: Any) -> ApiPod:
    """Convert a pod that was decoded as plain JSON. An unusable field is normalised, or gets its default.

    A timestamp without a time zone is UTC, a number above its limit becomes the limit, and a list loses the items that
    are no objects.

    Raises:
        msgspec.ValidationError: it is no pod with a name and a UID.
    """
    try:
        pod = msgspec.convert(value, ApiPod)
    except msgspec.ValidationError as error:
        pod = _usable(value, _pod_type())
        if not isinstance(pod, ApiPod):
            raise msgspec.ValidationError(str(error)) from None
    if not _is_identity(pod.metadata.name) or not _is_identity(pod.metadata.uid):
        raise msgspec.ValidationError("Object has no usable `name` or `uid` - at `$.metadata`")
    if pod.metadata.deletion_timestamp is None and value["metadata"].get("deletionTimestamp") is not None:
        force_setattr(pod.metadata, "deletion_timestamp", UNREADABLE_TIME)
    force_setattr(pod, "made_container", made_container(value))
    return pod


def _is_identity(text: str) -> bool:
    """Whether an object's name or UID is as the server has it: no character was lost in decoding."""
    return bool(text) and "\N{REPLACEMENT CHARACTER}" not in text


@cache
def _pod_type() -> inspect.Type:
    return inspect.type_info(ApiPod)


def _usable(value: Any, kind: inspect.Type) -> Any:
    """Return what is usable of a JSON value as a value of this type, `msgspec.UNSET` if nothing is."""
    match kind:
        case inspect.UnionType(types):  # of one type and None
            one = next(each for each in types if not isinstance(each, inspect.NoneType))
            return None if value is None else _usable(value, one)
        case inspect.StructType() if isinstance(value, Mapping):
            found = {each.name: _usable(value.get(each.encode_name, msgspec.UNSET), each.type) for each in kind.fields}
            return kind.cls(**{name: each for name, each in found.items() if each is not msgspec.UNSET})
        case inspect.VarTupleType(item) if isinstance(value, Sequence) and not isinstance(value, str):
            return tuple(each for one in value if (each := _usable(one, item)) is not msgspec.UNSET)
        case inspect.DictType() if isinstance(value, Mapping):
            return {key: each for key, each in value.items() if isinstance(key, str) and isinstance(each, str)}
        case inspect.IntType(le=int(limit)) if type(value) in {int, float} and value > limit:
            return limit
        case inspect.DateTimeType() if isinstance(value, str):
            return msgspec.UNSET if (time := time_of(value)) is None else time
        case inspect.IntType(ge=int(least), le=int(limit)):
            return value if type(value) is int and least <= value <= limit else msgspec.UNSET
        case inspect.StrType() if isinstance(value, str):
            return value
        case inspect.BoolType() if isinstance(value, bool):
            return value
        case _:
            return msgspec.UNSET
