"""The names of the Backend's child actors."""

from __future__ import annotations

from typing import Final

__all__ = ["ALLOCATOR", "LEASE", "LIFECYCLE", "POLL", "POOL", "RECORDER", "STORE", "WATCH"]

POOL: Final = "request-pool"
STORE: Final = "snapshot-store"
LIFECYCLE: Final = "lifecycle-manager"
ALLOCATOR: Final = "allocator"
POLL: Final = "poll-source"
WATCH: Final = "watch-source"
LEASE: Final = "lease-keeper"
RECORDER: Final = "event-recorder"
