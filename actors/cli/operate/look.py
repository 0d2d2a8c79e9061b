"""The commands that only look at fleets: `list`, `status` and `events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from actors.cli.main_loop import EXIT_OK
from actors.cli.operate import as_json
from actors.cli.operate.tables import events_table, list_table, status_lines
from actors.cli.operate.target import run, show, warn
from actors.cli.streams import say
from actors.errors import ApiError, Refused
from actors.inspection.events import about, prefix_of
from actors.inspection.fleets import FleetState, owners_of, with_answer
from actors.lease.record import lease_name
from actors.text import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from actors.cli.operate.cluster import Cluster
    from actors.cli.operate.target import Target
    from actors.inspection.events import ObservedEvent
    from actors.inspection.fleets import ObservedFleet

__all__ = ["Format", "list_fleets", "show_events", "show_status"]

Format = Literal["table", "wide", "json"]


def list_fleets(target: Target, output: Format, *, everywhere: bool, ended: bool) -> int:
    """Show the fleets of a namespace, or of all. Those of which only the Lease is left are shown if `ended`."""

    def work(cluster: Cluster) -> int:
        read = cluster.reader().all(everywhere=everywhere)
        warn(read.warnings)
        fleets = [fleet for fleet in read.fleets if ended or fleet.executors or fleet.state is not FleetState.ENDED]
        if output == "json":
            show([as_json.as_text(as_json.listed(fleets, cluster.now()))])
        elif fleets:
            show(list_table(fleets, namespaces=everywhere))
            _advise(fleets, namespaces=everywhere or target.namespace is not None)
        else:
            say("no fleets found" if everywhere else f"no fleets found in namespace {cluster.namespace}")
        return EXIT_OK

    return run(target, work)


def _advise(fleets: Iterable[ObservedFleet], *, namespaces: bool) -> None:
    for fleet in fleets:
        if fleet.state is FleetState.ORPHANED:
            where = f" -n {fleet.namespace}" if namespaces else ""
            command = f"executor-pods cleanup {fleet.app_id}{where}"
            say(one_line(f"{fleet.app_id} is orphaned, {fleet.driver.why}: `{command}` deletes it"))


def show_status(target: Target, app_id: str, output: Format, *, watch: bool, endpoint: str | None) -> int:
    """Show one fleet and its executors, once or until Ctrl-C; with what its driver's page at `endpoint` says."""

    def work(cluster: Cluster) -> int:
        if watch:
            from actors.cli.operate.watching import watch_fleet  # noqa: PLC0415 - only this draws on the terminal

            watch_fleet(cluster, app_id, wide=output == "wide", json=output == "json")
        fleet, warnings = cluster.reader().one(app_id)
        warn(warnings)
        if endpoint is not None:
            fleet = _asked(fleet, endpoint)
        is_json = output == "json"
        show([as_json.as_text(as_json.status(fleet))] if is_json else status_lines(fleet, wide=output == "wide"))
        return EXIT_OK

    return run(target, work)


def _asked(fleet: ObservedFleet, endpoint: str) -> ObservedFleet:
    """Return a fleet with what its driver says, if it says anything: without a driver the cluster is all there is."""
    from actors.cli.operate.actions import ask_driver  # noqa: PLC0415 - few ask a driver

    try:
        return with_answer(fleet, *ask_driver(endpoint, fleet.app_id))
    except (ApiError, Refused) as error:
        warn([f"what is on hold and what retires is unknown: {error}"])
        return fleet


def show_events(target: Target, app_id: str, output: Format) -> int:
    """Show the Kubernetes Events about a fleet's executors, also gone ones, its claims, its Lease and its driver."""

    def work(cluster: Cluster) -> int:
        reader = cluster.reader()
        fleet, warnings = reader.one(app_id)
        warn(warnings)
        found = fleet_events(fleet, reader.events())
        if output == "json":
            show([as_json.as_text(as_json.events(found, cluster.now()))])
        elif found:
            show(events_table(found, cluster.now()))
        else:
            say(f"no Events about {app_id} in namespace {cluster.namespace}: the server keeps them for an hour or so")
        return EXIT_OK

    return run(target, work)


def fleet_events(fleet: ObservedFleet, events: Iterable[ObservedEvent]) -> list[ObservedEvent]:
    """Return the Events that are about this fleet, the newest last."""
    prefixes = {fleet.app_id, *filter(None, (prefix_of(each.pod.name) for each in fleet.executors))}
    drivers = {("Pod", owner.name) for owner in owners_of(fleet.executors)}
    if fleet.lease is not None and fleet.lease.record.marks.pod is not None:
        drivers.add(("Pod", fleet.lease.record.marks.pod[0]))
    return about(events, prefixes, {("Lease", lease_name(fleet.app_id)), *drivers})
