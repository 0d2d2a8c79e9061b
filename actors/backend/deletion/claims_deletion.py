"""Deletes the claims that the owner of the executors owns, at a stop that deletes the fleet.

They would be deleted with that owner. But it may live long, and run one fleet after another, each with an
`app_id` of its own: the claims of the earlier ones are never reused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.allocation.claims import read
from actors.errors import ApiError
from actors.messages.internal import ClaimDeleted, ClaimsListed, DeleteClaim, ListClaims
from actors.messages.internal.names import POOL

if TYPE_CHECKING:
    from actors.executors.fleet_context import FleetContext
    from actors.kube.api import Manifest

__all__ = ["ClaimsDeletion"]


class ClaimsDeletion:
    """One deletion: a list, then a DELETE for each claim. Without a right to either, the claims stay."""

    def __init__(self, context: FleetContext) -> None:
        self._backend = context.backend
        self._pool = context.children[POOL]
        self._open: set[str] = set()
        """The claims whose DELETE is not answered."""

    def begin(self) -> None:
        """Request the list, also again after a crash of the pool."""
        self._open.clear()
        self._pool.tell(ListClaims(self._backend.myself))

    def handle(self, message: ClaimsListed | ClaimDeleted, owner: Manifest) -> bool:
        """Request what follows from an answer, for claims that `owner` owns. Return whether all is done."""
        match message:
            case ClaimsListed(claims):
                self._delete(() if isinstance(claims, ApiError) else claims, str(owner["uid"]))
            case ClaimDeleted(name):
                self._open.discard(name)
        return not self._open

    def _delete(self, claims: tuple[Manifest, ...], owner: str) -> None:
        for claim in filter(None, map(read, claims)):
            if claim.is_owned_by(owner) and claim.metadata.deletion_timestamp is None:
                self._open.add(claim.name)
                self._pool.tell(DeleteClaim(claim.name, claim.metadata.uid, self._backend.myself))
