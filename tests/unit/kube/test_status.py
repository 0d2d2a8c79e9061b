"""The table from statuses to error classes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from actors.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    QuotaExceeded,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unavailable,
)
from actors.kube.status import error_from_status


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        (400, {"reason": "BadRequest"}, BadRequest),
        (401, {"reason": "Unauthorized"}, Unauthorized),
        (403, {"reason": "Forbidden", "message": 'pods is forbidden: User "x" cannot list'}, Forbidden),
        (403, {"reason": "Forbidden", "message": 'pods "q" is forbidden: exceeded quota: q'}, QuotaExceeded),
        (404, {"reason": "NotFound"}, NotFound),
        (405, {"reason": "MethodNotAllowed"}, ApiError),
        (408, {}, Unavailable),
        (409, {"reason": "AlreadyExists"}, AlreadyExists),
        (409, {"reason": "Conflict"}, Conflict),
        (409, {}, Conflict),
        (410, {"reason": "Gone"}, Gone),
        (410, {"reason": "Expired"}, Gone),
        (410, {}, Gone),
        (413, {"reason": "RequestEntityTooLarge"}, TooLarge),
        (500, {"message": "etcdserver: request is too large"}, TooLarge),
        (
            500,
            {"message": "rpc error: code = ResourceExhausted desc = trying to send message larger than max"},
            TooLarge,
        ),
        (500, {"message": "etcdserver: mvcc: database space exceeded"}, Unavailable),
        (503, {"message": "etcdserver: request is too large"}, Unavailable),
        (422, {"reason": "Invalid"}, Invalid),
        (422, {"reason": "Invalid", "details": {"causes": [{"field": "metadata.uid"}]}}, Conflict),
        (422, {"reason": "Invalid", "details": {"causes": [{"field": "metadata.uid"}, {"field": "spec"}]}}, Invalid),
        (429, {"reason": "TooManyRequests"}, TooManyRequests),
        (500, {"reason": "InternalError"}, Unavailable),
        (503, {}, Unavailable),
        (504, {"reason": "Timeout"}, Unavailable),
        (599, {}, Unavailable),
        (302, {}, ApiError),
    ],
)
def test_code_reason_and_message_choose_the_class(code: int, status: dict[str, Any], expected: type) -> None:
    error = error_from_status(status, code, None)
    assert type(error) is expected
    assert error.status == code


def test_what_the_server_says_is_kept() -> None:
    causes = [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}]
    status = {"message": "Pod is invalid", "reason": "Invalid", "details": {"causes": causes, "retryAfterSeconds": 5}}
    error = error_from_status(status, 422, None)
    assert (error.message, error.reason) == ("Pod is invalid", "Invalid")
    assert error.causes == (("spec.containers", "Required value"),)
    assert error.retry_after == timedelta(seconds=5)


def test_the_header_goes_before_the_body() -> None:
    status = {"details": {"retryAfterSeconds": 5}}
    assert error_from_status(status, 429, timedelta(seconds=2)).retry_after == timedelta(seconds=2)


def test_a_status_without_a_message_still_makes_a_sentence() -> None:
    error = error_from_status({}, 503, None)
    assert error.message == "the server answered 503 without saying why"
    assert error.reason == "Unavailable"


@pytest.mark.parametrize("wrong", [None, 3, "x", [], {}, [None], [{"field": 3}], True])
def test_a_status_of_any_shape_makes_an_error(wrong: object) -> None:
    status = {"message": wrong, "reason": wrong, "details": {"causes": wrong, "retryAfterSeconds": wrong}}
    assert isinstance(error_from_status(status, 500, None), Unavailable)
    assert isinstance(error_from_status({"details": wrong}, 500, None), Unavailable)
