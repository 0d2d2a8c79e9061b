"""`/livez` and `/readyz`, as the Kubernetes API server has them. Pure.

The driver is live while its actors answer: only a restart helps one that does not. It is ready when the fleet has
started and was listed once, and has not failed. A driver that waits for the lease is ready: it does all that a standby
can do. An outage of the API does not make a driver unready: a Service would take it from its executors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.messages import FleetStatus
    from actors.page.history import FleetHistory

__all__ = ["Check", "Probe", "checks", "report"]

Probe: TypeAlias = Literal["livez", "readyz"]


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must be so."""

    name: str
    failure: str | None
    """Why it is not; None if it is."""


def checks(probe: Probe, history: FleetHistory, status: FleetStatus | None, *, answers: bool) -> tuple[Check, ...]:
    """Return the checks of a probe.

    Args:
        probe: which one.
        history: of the fleet.
        status: the Backend's last answer, None if there was none.
        answers: the Backend answered in time, or has not been started yet, or was stopped in order.
    """
    alive = Check("actors", history.failure or (None if answers else "the backend does not answer"))
    if probe == "livez":
        return (alive,)
    synced = status is not None and any(source.since_full_sync is not None for source in status.sources.values())
    failed = None if status is None else status.failed
    return (
        alive,
        Check("started", None if history.started is not None else "the fleet has not started yet"),
        Check("synced", None if synced else "the executors were not listed yet"),
        Check("fleet", failed),
    )


def report(probe: Probe, found: Sequence[Check], *, excluded: Sequence[str], verbose: bool) -> tuple[int, str]:
    """Return the status code and the text of the answer."""
    names = {check.name for check in found}
    lines, is_well = [], True
    for check in found:
        if check.name in excluded:
            lines.append(f"[+]{check.name} excluded: ok")
        elif check.failure is None:
            lines.append(f"[+]{check.name} ok")
        else:
            is_well = False
            lines.append(f"[-]{check.name} failed: {check.failure}")
    if unknown := [name for name in excluded if name not in names]:
        shown = ", ".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {shown}")
    if is_well and not verbose:
        return 200, "ok"
    lines.append(f"{probe} check {'passed' if is_well else 'failed'}")
    return (200 if is_well else _UNWELL), "\n".join(lines) + "\n"


_UNWELL: Final = 500
"""As the API server answers, and any code outside of 200 to 399 tells a kubelet."""
