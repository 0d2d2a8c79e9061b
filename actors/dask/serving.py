"""The scheduler of a cluster: where it listens, with which certificates, and how it ends its workers.

Whoever reaches a scheduler can make it run anything. So it listens on no more addresses than its workers, its pod and
its user need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from dask.utils import parse_timedelta
from distributed import Scheduler
from distributed.security import Security

from actors.errors import SettingsError
from actors.settings.loading import pod_ip
from actors.text import get_logger

if TYPE_CHECKING:
    from datetime import timedelta

__all__ = ["DASK_LOGGER", "as_security", "begin_the_end", "new_scheduler"]

DASK_LOGGER: Final = get_logger("distributed.deploy.executor-pods")
"""Below the logger that Dask sets up: what it gets reaches stderr, as `silence_logs` allows."""

LOOPBACK: Final = "127.0.0.1"
"""Also where there is IPv6 only: the kernel gives it to every network namespace with its interface `lo`."""

MOST_PORTS: Final = 65535


async def new_scheduler(
    *,
    local: bool,
    host: str | None,
    port: int | None,
    protocol: str | None,
    security: Security,
    dashboard_address: str | None,
    idle_timeout: str | float | timedelta | None,
) -> Scheduler:
    """Start a scheduler in the running loop. The arguments are those of `PodCluster`.

    Where no host is given, it listens on the pod's address and on loopback: that is where a port-forward comes from.

    Raises:
        SettingsError: it cannot listen as the arguments say.
    """
    _check(port, idle_timeout)
    address = LOOPBACK if local else pod_ip()
    where = address if host is None else host
    if local and dashboard_address:
        dashboard_address = _on_loopback(dashboard_address)
    is_ipv6 = isinstance(where, str) and "://" not in where and where.count(":") > 1
    page_host = LOOPBACK if is_ipv6 else str(where or "").rpartition("://")[2]  # Dask serves no page on IPv6
    try:
        scheduler = await Scheduler(
            host=f"[{str(where).strip('[]')}]" if is_ipv6 else where,
            port=port or 0,
            protocol=protocol,
            security=security,
            dashboard=dashboard_address is not None,
            dashboard_address=dashboard_address or f"{page_host}:0",
            idle_timeout=idle_timeout,
        )
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        asked = f"host = {host!r}, port = {port!r}, protocol = {protocol!r}"
        raise SettingsError(f"{asked}: the scheduler cannot listen there: {_reason(error)}") from error
    if host is None and address not in {None, LOOPBACK}:
        await _listen_on_loopback(scheduler)
    return scheduler


def as_security(given: Security | bool | None) -> Security:
    """Return the security to use.

    Raises:
        SettingsError: it is none.
    """
    if given is True:
        return Security.temporary()
    if not given:
        return Security()
    if isinstance(given, Security):
        return given
    raise SettingsError(f"security = {given!r}: must be a distributed.Security, or True for new certificates")


def begin_the_end(scheduler: Scheduler) -> None:
    """Release all results and tell all workers to close, whatever they compute. Nothing is to replace them any more.

    The scheduler would compute again what it loses with each worker that ends. And the pause of a pod ends with its
    worker: nobody needs it now.
    """
    for name, client in list(scheduler.clients.items()):
        keys = [task.key for task in client.wants_what]
        scheduler.client_releases_keys(keys=keys, client=name, stimulus_id="executor-pods-close")
    for worker in list(scheduler.workers):
        scheduler.worker_send(worker, {"op": "close", "reason": "executor-pods-close", "executor_wait": False})


def _on_loopback(address: str) -> str:
    """Return a dashboard's address, with this machine's own if it names none: others must not reach it."""
    return f"{LOOPBACK}:{address.removeprefix(':')}" if address.removeprefix(":").isdecimal() else address


def _check(port: Any, idle_timeout: Any) -> None:
    if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= MOST_PORTS):
        raise SettingsError(f"port = {port!r}: must be a whole number from 0, for any free one, to {MOST_PORTS}")
    try:
        parse_timedelta(idle_timeout)
    except (AttributeError, KeyError, OverflowError, ValueError):  # Dask's own name neither the argument nor its value
        how = 'must be a number of seconds, or of units, such as "90s" or "5 minutes"'
        raise SettingsError(f"idle_timeout = {idle_timeout!r}: {how}") from None


def _reason(error: BaseException) -> str:
    """Return what went wrong: Dask's own error has it as its cause, and says only that the scheduler did not start."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error)


async def _listen_on_loopback(scheduler: Scheduler) -> None:
    """Listen there too, on the same port. Its address for others stays the first one."""
    protocol, port = scheduler.address.partition("://")[0], scheduler.port
    try:
        await scheduler.listen(
            f"{protocol}://{LOOPBACK}:{port}",
            allow_offload=False,
            handshake_overrides={"pickle-protocol": 4, "compression": None},
            **scheduler.security.get_listen_args("scheduler"),
        )
    except OSError as error:
        DASK_LOGGER.warning("the scheduler does not listen on %s:%s, a port-forward fails: %s", LOOPBACK, port, error)
