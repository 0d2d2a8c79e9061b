"""Waiting for executors to register, and for the silence that says that none of them reaches the scheduler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from actors.errors import Unreachable

if TYPE_CHECKING:
    from actors.dask.link import Link
    from actors.fleet.async_fleet import AsyncFleet

__all__ = ["until_registered"]

CONNECT_PATIENCE: Final = 30.0
"""Seconds that an executor may run without a connection while no other one is connected: as long as Dask tries once."""


async def until_registered(fleet: AsyncFleet, link: Link, number: int, limit: str | None) -> None:
    """Wait until so many executors are registered.

    Raises:
        Unreachable: that cannot come true, in the words of the pods or of the API.
        WaitTimeout: the time is over.
    """
    waits = [
        asyncio.ensure_future(fleet.wait_for(registered=number, timeout=limit)),
        asyncio.ensure_future(_until_silent(fleet, link)),
    ]
    try:
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for each in waits:
            each.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


async def _until_silent(fleet: AsyncFleet, link: Link) -> None:
    """Wait until executors have run for long and none has connected; then raise."""
    while (silence := link.silence()) < CONNECT_PATIENCE:  # noqa: ASYNC110 - nothing happens
        await asyncio.sleep(min(1.0, CONNECT_PATIENCE - silence))
    raise Unreachable(
        f"executors have run for {silence:.0f} s and no worker has connected: they were given the address "
        f"{fleet.settings.driver_address} of the scheduler, which must be reachable from their pods"
    )
