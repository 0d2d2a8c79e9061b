"""The types of the settings: what a value may look like, and the sentence that refuses one.

A validator raises `ValueError` with the second half of a sentence whose first half is the setting and its value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_settings import NoDecode

from actors.durations import parse_duration

__all__ = [
    "Argv",
    "Count",
    "DnsLabel",
    "Duration",
    "Parallelism",
    "PodName",
    "Rate",
    "Ratio",
    "Size",
    "Template",
    "Word",
]

_DNS_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
LONGEST_DNS_LABEL: Final = 63
"""RFC 1123, and Kubernetes' limit of a label's value."""


def _no_bool(value: object) -> object:
    """TOML's `true` is not the number 1."""
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic collects ValueErrors, a TypeError would escape
    return value


def _dns_label(text: str) -> str:
    if len(text) > LONGEST_DNS_LABEL or not _DNS_LABEL.fullmatch(text):
        raise ValueError(
            f"must be a DNS label: at most {LONGEST_DNS_LABEL} lower-case letters, digits and '-', "
            "with a letter or digit first and last"
        )
    return text


def _pod_name(text: str) -> str:
    if len(text) > 253 or not all(_DNS_LABEL.fullmatch(part) for part in text.split(".")):
        raise ValueError("must be a pod's name: lower-case letters, digits, '-' and '.', at most 253 characters")
    return text


def _word(text: str) -> str:
    if not text or any(character.isspace() for character in text):
        raise ValueError("must be text without spaces")
    return text


def _argv(value: object) -> object:
    """A variable of the environment holds a list as JSON; a command in one string would need a shell to split it."""
    argv = value
    if isinstance(value, str):
        try:
            argv = json.loads(value)
        except json.JSONDecodeError:
            argv = None
    if not isinstance(argv, (list, tuple)) or not argv or not all(isinstance(part, str) for part in argv):
        raise ValueError('must be a list of words, such as ["python", "-m", "worker"]')
    return tuple(argv)


def _template(value: object) -> object:
    """A pod template stands in a YAML file, or in the settings themselves."""
    match value:
        case str() | Path():
            source = Path(value)
            try:
                template = yaml.safe_load(source.read_text(encoding="utf-8"))
            except OSError as error:
                raise ValueError(f"cannot be read: {error.strerror or error}") from None
            except (UnicodeDecodeError, yaml.YAMLError) as error:
                raise ValueError(f"is not one YAML document: {' '.join(str(error).split())}") from None
        case _:
            template = value
    if not isinstance(template, Mapping):
        raise ValueError("must be a v1 Pod as a mapping, or the path of a YAML file with one")  # noqa: TRY004 - as above
    return dict(template)


Argv = Annotated[tuple[str, ...], BeforeValidator(_argv), NoDecode]
Count = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=1_000_000)]
DnsLabel = Annotated[str, AfterValidator(_dns_label)]
Duration = Annotated[timedelta, BeforeValidator(parse_duration)]
Parallelism = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=256)]
PodName = Annotated[str, AfterValidator(_pod_name)]
Rate = Annotated[float, BeforeValidator(_no_bool), Field(ge=0.1, le=10_000)]
Ratio = Annotated[float, BeforeValidator(_no_bool), Field(ge=0, le=1)]
Size = Annotated[int, BeforeValidator(_no_bool), Field(ge=0, le=100_000)]
Template = Annotated[dict[str, Any], BeforeValidator(_template), NoDecode]
Word = Annotated[str, AfterValidator(_word)]
