"""The types of the settings: which values they allow, and the message that refuses others.

A validator raises `ValueError` with the end of a sentence that begins with the setting and its value.
"""

from __future__ import annotations

import json
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from actors.kube.names import dns_label_problem, dns_subdomain_problem, label_key_problem, label_value_problem
from actors.kube.quantities import parse_quantity
from actors.pods.loss_kind import LossKind
from actors.pods.pod import DEFAULT_PROFILE, MANAGED_BY_LABEL
from actors.settings.durations import parse_duration
from actors.settings.problems import GroupError, from_validation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = [
    "LARGEST_FLEET",
    "RESERVED_LABELS",
    "AccessMode",
    "Address",
    "AnnotationKey",
    "AnnotationValue",
    "Argv",
    "ByteSize",
    "ClaimSize",
    "Command",
    "Consistent",
    "Count",
    "CountOrZero",
    "DataKey",
    "DeletionCost",
    "DnsLabel",
    "Duration",
    "Folder",
    "FromJson",
    "FromText",
    "Group",
    "Growth",
    "Label",
    "LabelKey",
    "LabelValue",
    "MountPath",
    "ObjectName",
    "OnSigterm",
    "OwnLabelKey",
    "Owner",
    "Pacing",
    "Parallelism",
    "PodName",
    "ProfileName",
    "Quantity",
    "Rate",
    "Ratio",
    "Ready",
    "Replace",
    "ReplacementPolicy",
    "ResourceName",
    "RollPolicy",
    "Seconds",
    "Size",
    "StorageClass",
    "SubPath",
    "Switch",
    "VariableName",
    "VariablePrefix",
    "Word",
    "Words",
    "annotations_problem",
    "bytes_of",
    "from_json",
    "is_for_processes",
    "is_reserved_variable",
    "is_unicode",
]

RESERVED_LABELS: Final = "executor-pods/"
"""Labels with this prefix are set by the fleet only."""

LONGEST_DNS_LABEL: Final = 63
"""By RFC 1123; also Kubernetes' limit for a label's value."""

LARGEST_FLEET: Final = 100_000
"""Executors of one profile, and executors that one message can name. Kubernetes supports 150,000 pods in a cluster."""

_FEWEST_BYTES: Final = 1024
_MOST_BYTES: Final = 16 * 1024**3
"""Of a `ByteSize`: no answer is smaller, and no process has the memory for a larger one."""

_LARGEST_ANNOTATIONS: Final = 256 * 1024
"""Bytes of all annotations of an object together, keys and values, by the API server's rule."""

_LONGEST_DATA_KEY: Final = 253

_VARIABLE: Final = re.compile(r"(?!\.\.?$|\.\.)[-._a-zA-Z][-._a-zA-Z0-9]*")
"""The API server's rule before Kubernetes 1.32. Later ones allow any printable ASCII character but '='."""

_LAST_PORT: Final = 65535

_STANDARD_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


# ── groups of settings ───────────────────────────────────────────────────────────────────────────────────────────


class Consistent(BaseModel):
    """Settings that are refused if they contradict each other."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if problems := list(self._contradictions()):
            raise GroupError(problems)
        return self

    def _contradictions(self) -> Iterable[str]:
        """Yield one line for each problem."""
        return ()


class Group(Consistent):
    """Settings that belong together."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise from_validation(error, list(type(self).model_fields)) from None


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _no_bool(value: object) -> object:
    """Refuse TOML's `true`, which pydantic would read as 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic collects ValueErrors, a TypeError would escape
    return value


def _dns_label(text: str) -> str:
    if dns_label_problem(text):
        raise ValueError(
            f"must be a DNS label: at most {LONGEST_DNS_LABEL} lower-case letters, digits and '-', "
            "with a letter or digit first and last"
        )
    return text


def _profile_name(text: str) -> str:
    if text == DEFAULT_PROFILE:
        raise ValueError("is what `executor` describes; the profile must have another name")
    return _dns_label(text)


def _pod_name(text: str) -> str:
    if dns_subdomain_problem(text):
        raise ValueError("must be a pod's name: lower-case letters, digits, '-' and '.', at most 253 characters")
    return text


def _storage_class(text: str) -> str:
    if text and dns_subdomain_problem(text):
        raise ValueError(
            "must be a storage class's name: lower-case letters, digits, '-' and '.'; or \"\" for no class"
        )
    return text


def _label_key(text: str) -> str:
    if label_key_problem(text):
        raise ValueError(
            "must be a label's key: at most 63 letters, digits, '-', '_' and '.', with a letter or digit "
            "first and last, optionally after a DNS name and '/'"
        )
    return text


def _label_value(value: object) -> object:
    if not isinstance(value, str) or label_value_problem(value):
        raise ValueError(
            "must be a label's value: text of at most 63 letters, digits, '-', '_' and '.', "
            "with a letter or digit first and last"
        )
    return value


def _label(text: str) -> str:
    key, equals, value = text.partition("=")
    if not equals or label_key_problem(key) or label_value_problem(value):
        raise ValueError('must be a label as "key=value", such as "example.com/state=leaving"')
    if key.startswith(RESERVED_LABELS):
        raise ValueError(f"must not start with {RESERVED_LABELS!r}: such labels are set by the fleet")
    return text


def _own_label_key(text: str) -> str:
    if text.startswith(RESERVED_LABELS) or text == MANAGED_BY_LABEL:
        raise ValueError("is set by the fleet")
    return _label_key(text)


def _annotation_key(text: str) -> str:
    if label_key_problem(text.lower()):
        raise ValueError(
            "must be an annotation's key: at most 63 letters, digits, '-', '_' and '.', with a letter or digit "
            "first and last, optionally after a DNS name and '/'"
        )
    return text


def _annotation_value(value: object) -> object:
    if not isinstance(value, str) or not is_unicode(value):
        raise ValueError("must be text")
    return value


def annotations_problem(annotations: Mapping[str, str]) -> str | None:
    """Return what is wrong with the annotations of one object, taken together."""
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size <= _LARGEST_ANNOTATIONS:
        return None
    return f"must have at most {_LARGEST_ANNOTATIONS} bytes together, keys and values; has {size}"


def _object_name(text: str) -> str:
    if dns_subdomain_problem(text):
        raise ValueError(
            "must be the name of an object: lower-case letters, digits, '-' and '.', at most 253 characters"
        )
    return text


def _data_key(text: str) -> str:
    if len(text) > _LONGEST_DATA_KEY or not re.fullmatch(r"[-._a-zA-Z0-9]+", text) or text.startswith(".."):
        raise ValueError(
            "must be a key of a Secret or ConfigMap: letters, digits, '-', '_' and '.', at most 253 characters"
        )
    return text


def _variable_prefix(text: str) -> str:
    if not _VARIABLE.fullmatch(text):
        raise ValueError("must have only letters, digits, '_', '-' and '.', and no digit first")
    return text


def _variable_name(text: str) -> str:
    if is_reserved_variable(text):
        raise ValueError("is set by the fleet")
    return _variable_prefix(text)


def is_reserved_variable(name: str) -> bool:
    """Whether an environment variable of an executor is set by the fleet only."""
    return name == "DRIVER_ADDRESS" or name.startswith("EXECUTOR_")


def _folder(text: str) -> str:
    if not text.startswith("/") or not is_for_processes(text):
        raise ValueError('must be an absolute path, such as "/app"')
    return text


def _resource_name(text: str) -> str:
    kind, _, page = text.partition("-")
    is_huge = kind == "hugepages" and (parse_quantity(page) or 0) > 0
    is_device = "/" in text and not label_key_problem(text) and not text.startswith("requests.")
    if not (text in _STANDARD_RESOURCES or is_huge or is_device):
        raise ValueError(
            'must be cpu, memory, ephemeral-storage, hugepages-<size>, or a device\'s name such as "nvidia.com/gpu"'
        )
    return text


def _quantity(value: object) -> str:
    """Return a quantity as text: exact, and written in the manifest as the user wrote it."""
    number = parse_quantity(value)
    if number is None or number < 0:
        raise ValueError('must be a quantity, such as "500m", "2" or "4Gi"')
    return str(value)


def _claim_size(value: object) -> str:
    number = parse_quantity(value)
    if number is None or number < 1:
        raise ValueError('must be a size, such as "10Gi"')
    return str(value)


def _byte_size(value: object) -> str:
    number = parse_quantity(value)
    if number is None or not _FEWEST_BYTES <= number <= _MOST_BYTES:
        raise ValueError('must be a size from "1Ki" to "16Gi", such as "64Mi"')
    return str(value)


def bytes_of(size: str) -> int:
    """Return a `ByteSize` as a number of bytes."""
    return int(parse_quantity(size) or 0)


def _mount_path(text: str) -> str:
    if not re.fullmatch(r"/[^:\s][^:]*", text) or not is_for_processes(text):
        raise ValueError("must be an absolute path without ':', such as \"/data\"")
    return text


def _sub_path(text: str) -> str:
    if not text or text.startswith("/") or ".." in text.split("/") or not is_for_processes(text):
        raise ValueError("must be a relative path without '..'")
    return text


def _switch(value: object) -> object:
    """Return one of the three values; pydantic's own message for a union would be three lines."""
    match value:
        case bool() | "auto":
            return value
        case str() if value.lower() in {"true", "false"}:  # from the environment
            return value.lower() == "true"
        case _:
            raise ValueError('must be "auto", true or false')


def is_unicode(text: str) -> bool:
    """Whether a request can have it. Arguments and variables that are not UTF-8 reach Python as lone surrogates."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def is_for_processes(text: str) -> bool:
    """Whether a request can have it, and a process can get it as an argument, a variable or a path: without NUL."""
    return is_unicode(text) and "\0" not in text


def _address(text: str) -> str:
    """Return an address, or a port alone as ":7077"."""
    port = text.removeprefix(":")
    if port != text and not (re.fullmatch("[0-9]{1,5}", port) and 1 <= int(port) <= _LAST_PORT):
        raise ValueError('must be an address, such as "etl-driver.batch.svc:7077", or a port alone, such as ":7077"')
    return _word(text)


def _word(text: str) -> str:
    if not is_unicode(text):
        raise ValueError("must be Unicode text")
    if not text or any(character.isspace() for character in text):
        raise ValueError("must be text without spaces")
    if not is_for_processes(text):
        raise ValueError("must not have a NUL character")
    return text


def from_json(value: object) -> object:
    """Decode a list or map from JSON, as the environment has it; leave other text for the next validator to refuse."""
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):  # no JSON, a number of thousands of digits, or endless brackets
            return value
    return value


def _words(value: object) -> tuple[str, ...]:
    """Refuse a command in one string: it would need a shell to split it."""
    words = from_json(value)
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise ValueError('must be a list of words, such as ["python", "-m", "worker"]')
    if not all(map(is_unicode, words)):
        raise ValueError("must be Unicode text")
    if not all(map(is_for_processes, words)):
        raise ValueError("must not have a NUL character, which no process can get")
    return tuple(words)


def _command(value: object) -> tuple[str, ...]:
    """Return a command, or no word at all."""
    words = _words(value)
    if words and not words[0]:
        raise ValueError("must begin with the name or path of a program, not with an empty word")
    return words


def _replace(value: object) -> object:
    """Return when a lost executor is replaced; pydantic's own message for a union would be many lines."""
    given = from_json(value)
    if given in ("always", "never"):
        return given
    if isinstance(given, (list, tuple, set, frozenset)) and given and all(each in tuple(LossKind) for each in given):
        return tuple(sorted({LossKind(each) for each in given}))
    raise ValueError(f'must be "always", "never", or a list of loss kinds: {", ".join(LossKind)}')


def _argv(value: object) -> tuple[str, ...]:
    if not (words := _command(value)):
        raise ValueError('must be a list of words, such as ["python", "-m", "worker"]')
    return words


class FromText:
    """Marks a type in the environment: it decodes JSON itself, if its text is JSON at all."""


AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]
Address = Annotated[str, AfterValidator(_address)]
AnnotationKey = Annotated[str, AfterValidator(_annotation_key)]
AnnotationValue = Annotated[str, BeforeValidator(_annotation_value)]
Argv = Annotated[tuple[str, ...], BeforeValidator(_argv), FromText]
ByteSize = Annotated[str, BeforeValidator(_byte_size)]
ClaimSize = Annotated[str, BeforeValidator(_claim_size)]
Command = Annotated[tuple[str, ...], BeforeValidator(_command), FromText]
Count = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=1_000_000)]
CountOrZero = Annotated[int, BeforeValidator(_no_bool), Field(ge=0, le=1_000_000)]
DataKey = Annotated[str, AfterValidator(_data_key)]
DeletionCost = Annotated[int, BeforeValidator(_no_bool), Field(ge=-(2**31), le=2**31 - 1)]
DnsLabel = Annotated[str, AfterValidator(_dns_label)]
Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
Folder = Annotated[str, AfterValidator(_folder)]
FromJson = BeforeValidator(from_json)
Label = Annotated[str, AfterValidator(_label)]
LabelKey = Annotated[str, AfterValidator(_label_key)]
LabelValue = Annotated[str, BeforeValidator(_label_value)]
MountPath = Annotated[str, AfterValidator(_mount_path)]
ObjectName = Annotated[str, AfterValidator(_object_name)]
OnSigterm = Literal["stop", "hand-over"]
Owner = Literal["driver", "controller"]
OwnLabelKey = Annotated[str, AfterValidator(_own_label_key)]
Pacing = Literal["pipelined", "batch"]
Parallelism = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=256)]
PodName = Annotated[str, AfterValidator(_pod_name)]
ProfileName = Annotated[str, AfterValidator(_profile_name)]
Growth = Annotated[float, BeforeValidator(_no_bool), Field(ge=1.1, le=10)]
Quantity = Annotated[str, BeforeValidator(_quantity)]
Rate = Annotated[float, BeforeValidator(_no_bool), Field(ge=0.1, le=10_000)]
Ratio = Annotated[float, BeforeValidator(_no_bool), Field(ge=0, le=1)]
Replace = Annotated[Literal["always", "never"] | tuple[LossKind, ...], BeforeValidator(_replace), FromText]
ReplacementPolicy = Literal["TerminatingOrFailed", "Failed"]
ResourceName = Annotated[str, AfterValidator(_resource_name)]
Ready = Literal["running", "registered"]
RollPolicy = Literal["id", "age", "failures"]
Seconds = Annotated[int, BeforeValidator(_no_bool), Field(ge=-(2**31), le=2**31 - 1)]
Size = Annotated[int, BeforeValidator(_no_bool), Field(ge=0, le=LARGEST_FLEET)]
StorageClass = Annotated[str, AfterValidator(_storage_class)]
SubPath = Annotated[str, AfterValidator(_sub_path)]
Switch = Annotated[Literal["auto"] | bool, BeforeValidator(_switch)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
VariablePrefix = Annotated[str, AfterValidator(_variable_prefix)]
Word = Annotated[str, AfterValidator(_word)]
Words = Annotated[tuple[str, ...], BeforeValidator(_words), FromText]
