"""The block that an error of the API makes: which errors are one block, and in which words it is reported."""

from __future__ import annotations

import pytest

from actors.allocation.creation_block import CreationBlock
from actors.errors import (
    ApiError,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    QuotaExceeded,
)

TERMINATING = Forbidden(
    'pods "x-1" is forbidden: unable to create new content in namespace x because it is being terminated',
    status=403,
    reason="Forbidden",
)


def quota(name: str, pod: int, used: int) -> QuotaExceeded:
    words = f'pods "app-exec-{pod}" is forbidden: exceeded quota: {name}, requested: pods=1, used: pods={used}'
    return QuotaExceeded(words, status=403, reason="Forbidden")


def invalid(pod: int, *fields: str) -> Invalid:
    causes = tuple((field, "Required value") for field in fields)
    return Invalid(f'Pod "app-exec-{pod}" is invalid: {fields}', status=422, causes=causes)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (quota("q", 1, 5), quota("q", 92, 60), True),
        (quota("q", 1, 5), quota("r", 1, 5), False),
        (quota("q", 1, 5), Forbidden("pods is forbidden", status=403, reason="Forbidden"), False),
        (invalid(1, "spec.a"), invalid(2, "spec.a"), True),
        (invalid(1, "spec.a"), invalid(1, "spec.a", "spec.b"), False),
        (
            Forbidden('pods "x-1" violates PodSecurity', status=403),
            Forbidden('pods "x-2" violates PodSecurity', status=403),
            True,
        ),
        (Forbidden("webhook a denied it", status=403), Forbidden("webhook b denied it", status=403), False),
        (TERMINATING, NotFound('namespaces "x" not found', status=404, reason="NotFound"), True),
        (TERMINATING, Forbidden('pods "x-1" is forbidden: no', status=403, reason="Forbidden"), False),
    ],
)
def test_two_errors_are_one_block_if_only_the_pod_and_the_numbers_differ(
    one: ApiError, other: ApiError, same: bool
) -> None:
    assert CreationBlock.of(one).is_same(CreationBlock.of(other)) is same


def test_an_invalid_manifest_is_named_by_the_server_pod_or_claim() -> None:
    claim = Invalid('PersistentVolumeClaim "app-exec-1-pvc-0" is invalid: spec.resources: Required value', status=422)
    assert CreationBlock.of(claim).message == (
        'the manifest is invalid: PersistentVolumeClaim "app-exec-1-pvc-0" is invalid: spec.resources: Required value'
    )


def test_an_error_without_a_meaning_of_its_own_is_reported_with_the_servers_message() -> None:
    assert CreationBlock.of(Gone("too old", status=410)).message == "the API server refuses it: too old"


def test_the_cause_is_one_word_whatever_the_api_says() -> None:
    causes = [CreationBlock.of(error).cause for error in (quota("q", 1, 5), invalid(1, "spec.a"), TERMINATING)]
    assert causes == ["QuotaExceeded", "Invalid", "namespace"]
