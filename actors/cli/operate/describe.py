"""`describe` and `logs`: one executor, with what Kubernetes says of it and how we read that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from actors import kube
from actors.cli.main_loop import EXIT_FAILED, EXIT_OK
from actors.cli.operate import as_json
from actors.cli.operate.look import fleet_events
from actors.cli.operate.tables import UNKNOWN, ago, columns, events_table
from actors.cli.operate.target import run, show, warn
from actors.cli.streams import say
from actors.errors import ApiError, NotFound
from actors.inspection.executors import observe
from actors.inspection.fields import items, text, time, value
from actors.inspection.fleets import owners_of
from actors.kube.api import CLAIMS, PODS
from actors.pods.loss import parted
from actors.pods.state import PodRules, executor_container
from actors.text import LONGEST_LINE, one_line, rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from actors.cli.operate.cluster import Cluster
    from actors.cli.operate.look import Format
    from actors.cli.operate.target import Target
    from actors.inspection.events import ObservedEvent
    from actors.inspection.executors import ObservedExecutor
    from actors.inspection.fleets import ObservedFleet
    from actors.kube.api import Manifest

__all__ = ["describe_executor", "show_logs"]

_INDENT: Final = "  "
_FIELD: Final = 14
"""Characters of a field's name and the spaces after it."""

_LONGEST_LOG_LINE: Final = 64 * 1024
"""Bytes of a log that a terminal is shown as one line."""


def describe_executor(target: Target, app_id: str, executor_id: int, output: Format) -> int:
    """Show one executor: its pod, conditions, containers, claims, Events, and our reading of them."""

    def work(cluster: Cluster) -> int:
        reader = cluster.reader()
        fleet, seen, warnings = reader.executor(app_id, executor_id)
        warn(warnings)
        events: list[ObservedEvent] = []
        try:
            events = fleet_events(fleet, reader.events(seen.pod.name if seen is not None else None))
        except ApiError as error:
            warn([f"Events cannot be listed: {error.message}"])
        if seen is None:
            _say_gone(fleet, executor_id, events, cluster.now())
            return EXIT_FAILED
        manifest = cluster.ask(kube.GetObject(PODS, seen.pod.name))
        seen = observe(manifest, cluster.now()) or seen
        claims = list(_claims(cluster, manifest))
        if output == "json":
            found = {"version": as_json.VERSION, "time": cluster.now().timestamp(), "executor": as_json.executor(seen)}
            about = as_json.events(events, cluster.now())["events"]
            show([as_json.as_text({**found, "claims": [dict(claim) for claim in claims], "events": about})])
        else:
            show(_lines(fleet, seen, manifest, claims, events, cluster.now()))
        return EXIT_OK

    return run(target, work)


def _say_gone(fleet: ObservedFleet, executor_id: int, events: Iterable[ObservedEvent], now: datetime) -> None:
    ids = [str(each.id) for each in fleet.executors if each.id is not None]
    there = f"those with a pod are {', '.join(ids[:20])}" + (", ..." if len(ids) > 20 else "") if ids else "none has"
    say(f"executor {executor_id} of {fleet.app_id} has no pod: it ended and was deleted, or never was; {there}")
    about = [event for event in events if event.name.endswith(f"-exec-{executor_id}")]
    if about:
        show(events_table(about, now))


def _claims(cluster: Cluster, pod: Manifest) -> Iterator[dict[str, Any]]:
    """Yield each claim that a pod uses: its phase and size, or why it cannot be read."""
    for volume in items(pod, "spec", "volumes"):
        name = text(volume, "persistentVolumeClaim", "claimName")
        if name is None and value(volume, "ephemeral") is not None:
            name = f"{pod['metadata']['name']}-{text(volume, 'name')}"
        if name is None:
            continue
        claim: dict[str, Any] = {"name": name, "phase": None, "size": None, "volume": None, "problem": None}
        try:
            found = cluster.ask(kube.GetObject(CLAIMS, name))
        except NotFound:
            claim["problem"] = "there is no such claim"
        except ApiError as error:
            claim["problem"] = error.message
        else:
            claim["phase"] = text(found, "status", "phase")
            claim["size"] = text(found, "spec", "resources", "requests", "storage")
            claim["volume"] = text(found, "spec", "volumeName")
        yield claim


def _lines(  # noqa: PLR0917 - the parts of the page, in their order
    fleet: ObservedFleet,
    seen: ObservedExecutor,
    manifest: Manifest,
    claims: list[dict[str, Any]],
    events: list[ObservedEvent],
    now: datetime,
) -> Iterator[str]:
    yield from _head(fleet, seen, now)
    yield from _reading(seen)
    yield from _section("Containers", _containers(manifest, now))
    yield from _section("Conditions", _conditions(manifest, now))
    yield from _section("Claims", _claim_rows(claims))
    yield from _section("Events", list(events_table(events, now, objects=False)) if events else [])


def _head(fleet: ObservedFleet, seen: ObservedExecutor, now: datetime) -> Iterator[str]:
    pod = seen.pod
    yield _field("Executor", f"{seen.id} of fleet {fleet.app_id}, profile {seen.profile}")
    yield _field("Pod", pod.name)
    yield _field("Namespace", fleet.namespace)
    yield _field("Node", pod.node or "<none>")
    yield _field("IP", pod.ip or "<none>")
    created = f"{rfc3339(seen.created_at)} ({ago(seen.created_at, now)} ago)" if seen.created_at else UNKNOWN
    yield _field("Created", created)
    owners = ", ".join(f"Pod/{owner.name}" for owner in owners_of((seen,)))
    yield _field("Controlled By", owners or "<none>")
    yield _field("Driver", f"{fleet.state}: {fleet.driver.why}")


def _reading(seen: ObservedExecutor) -> Iterator[str]:
    """Yield the state, and why, as the driver would read it."""
    yield _field("State", seen.state + ("" if not seen.inactive else ", set aside by the driver"))
    facts, said = parted(seen.why or "")
    if facts:
        yield _field("Why", facts)
    if seen.loss is not None:
        yield _field("Loss", seen.loss.kind)
        yield _field("Exit Code", str(seen.loss.exit_code) if seen.loss.exit_code >= 0 else UNKNOWN)
        yield _field("By the App", "yes" if seen.loss.caused_by_app else "no")
    if said:
        yield from _section("Last Words", said)


def _field(name: str, content: str) -> str:
    return f"{name + ':':<{_FIELD}} {one_line(content, LONGEST_LINE)}"


def _section(title: str, lines: list[str]) -> Iterator[str]:
    if not lines:
        yield _field(title, "<none>")
        return
    yield f"{title}:"
    yield from (_INDENT + line for line in lines)


def _containers(pod: Manifest, now: datetime) -> list[str]:
    statuses = (*items(pod, "status", "initContainerStatuses"), *items(pod, "status", "containerStatuses"))
    rows = [
        (
            text(status, "name") or UNKNOWN,
            "true" if value(status, "ready") is True else "false",
            str(value(status, "restartCount") or 0),
            _container_state(value(status, "state"), now) or UNKNOWN,
            _container_state(value(status, "lastState"), now),
        )
        for status in statuses
    ]
    return list(columns(("NAME", "READY", "RESTARTS", "STATE", "LAST STATE"), rows)) if rows else []


def _container_state(state: object, now: datetime) -> str:
    """Return a state in words, "" if there is none."""
    if (ended := value(state, "terminated")) is not None:
        why = ": ".join(filter(None, (text(ended, "reason"), text(ended, "message"))))
        code, at = value(ended, "exitCode"), ago(time(ended, "finishedAt"), now)
        return f"ended with {code} {at} ago" + (f" ({why})" if why else "")
    if (waiting := value(state, "waiting")) is not None:
        why = ": ".join(filter(None, (text(waiting, "reason"), text(waiting, "message"))))
        return f"waiting ({why})" if why else "waiting"
    if (running := value(state, "running")) is not None:
        return f"running for {ago(time(running, 'startedAt'), now)}"
    return ""


def _conditions(pod: Manifest, now: datetime) -> list[str]:
    rows = [
        (
            text(condition, "type") or UNKNOWN,
            text(condition, "status") or UNKNOWN,
            ago(time(condition, "lastTransitionTime"), now),
            text(condition, "reason") or "",
            text(condition, "message") or "",
        )
        for condition in items(pod, "status", "conditions")
    ]
    return list(columns(("TYPE", "STATUS", "FOR", "REASON", "MESSAGE"), rows)) if rows else []


def _claim_rows(claims: list[dict[str, Any]]) -> list[str]:
    rows = [
        (
            claim["name"],
            claim["phase"] or UNKNOWN,
            claim["volume"] or "",
            claim["size"] or UNKNOWN,
            claim["problem"] or "",
        )
        for claim in claims
    ]
    return list(columns(("NAME", "PHASE", "VOLUME", "SIZE", "PROBLEM"), rows)) if rows else []


# ── logs ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_logs(
    target: Target,
    app_id: str,
    executor_id: int,
    *,
    container: str | None,
    follow: bool,
    previous: bool,
    tail: int | None,
) -> int:
    """Write an executor's output as it is; on a terminal with every character escaped that acts on it."""

    def work(cluster: Cluster) -> int:
        fleet, seen, _ = cluster.reader().executor(app_id, executor_id)
        if seen is None:
            _say_gone(fleet, executor_id, (), cluster.now())
            return EXIT_FAILED
        pod = seen.pod.name
        name = container or executor_container(seen.pod, PodRules())
        write = _as_lines if sys.stdout.isatty() else _as_bytes
        write(cluster.api.read_log(pod, container=name, follow=follow, previous=previous, tail=tail))
        return EXIT_OK

    return run(target, work)


def _as_bytes(blocks: Iterable[bytes]) -> None:
    for block in blocks:
        sys.stdout.buffer.write(block)
        sys.stdout.buffer.flush()


def _as_lines(blocks: Iterable[bytes]) -> None:
    rest = b""
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        if len(rest) > _LONGEST_LOG_LINE:
            whole, rest = [*whole, rest], b""
        if whole:
            show(map(_as_line, whole))
    if rest:
        show([_as_line(rest)])


def _as_line(line: bytes) -> str:
    decoded = line.removesuffix(b"\r").decode("utf-8", "backslashreplace")
    return "\t".join(one_line(part, _LONGEST_LOG_LINE) for part in decoded.split("\t"))
