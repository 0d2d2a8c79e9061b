"""`SelfSubjectAccessReview`: whether the client's account may do something. Pure.

The embedded cluster has one account, which may do everything: the answer is always yes.
"""

from __future__ import annotations

from typing import Any, Final

from actors.local.schema.decode import decode_as
from actors.local.schema.resources import Resource
from actors.local.schema.shapes import REVIEW
from actors.local.schema.statuses import Cause, invalid_kind

__all__ = ["PATH", "REVIEWS", "reviewed"]

REVIEWS: Final = Resource(
    "selfsubjectaccessreviews", "SelfSubjectAccessReview", group="authorization.k8s.io", namespaced=False
)
PATH: Final = f"/apis/{REVIEWS.api_version}/{REVIEWS.plural}"

_ABOUT: Final = ("resourceAttributes", "nonResourceAttributes")


def reviewed(body: Any, warnings: list[str]) -> dict[str, Any]:
    """Return the review with its answer; 400 for another object, 422 unless it is about exactly one thing."""
    review = decode_as(REVIEW, (REVIEWS.api_version,), body, warnings)
    spec = review.get("spec", {})
    match [name for name in _ABOUT if name in spec]:
        case [_]:
            pass
        case []:
            detail = f"exactly one of {_ABOUT[1]} or {_ABOUT[0]} must be specified"
            raise invalid_kind("", REVIEWS.group, "", [Cause.invalid(f"spec.{_ABOUT[0]}", "null", detail)])
        case _:
            detail = f"cannot be specified in combination with {_ABOUT[0]}"
            raise invalid_kind("", REVIEWS.group, "", [Cause.invalid(f"spec.{_ABOUT[1]}", spec[_ABOUT[1]], detail)])
    return {
        "kind": REVIEWS.kind,
        "apiVersion": REVIEWS.api_version,
        "metadata": review["metadata"],
        "spec": spec,
        "status": {"allowed": True},
    }
