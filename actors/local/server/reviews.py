"""`SelfSubjectAccessReview`: what the account that asks may do. Pure.

The embedded cluster has one account, whose token opens everything: whatever is asked about, the answer is yes.
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
    """The review with its answer; 400 for another object, 422 for one that is not about one thing."""
    review = decode_as(REVIEW, (REVIEWS.api_version,), body, warnings)
    spec = review.get("spec", {})
    match [name for name in _ABOUT if name in spec]:
        case [_]:
            pass
        case []:
            words = f"exactly one of {_ABOUT[1]} or {_ABOUT[0]} must be specified"
            raise invalid_kind("", REVIEWS.group, "", [Cause.invalid(f"spec.{_ABOUT[0]}", "null", words)])
        case _:
            words = f"cannot be specified in combination with {_ABOUT[0]}"
            raise invalid_kind("", REVIEWS.group, "", [Cause.invalid(f"spec.{_ABOUT[1]}", spec[_ABOUT[1]], words)])
    return {
        "kind": REVIEWS.kind,
        "apiVersion": REVIEWS.api_version,
        "metadata": review["metadata"],
        "spec": spec,
        "status": {"allowed": True},
    }
