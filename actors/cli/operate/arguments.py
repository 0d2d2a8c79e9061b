"""The arguments of the commands for operators. What they do is imported when one of them runs."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from actors.kube.names import label_value_problem
from actors.pods.pod import DEFAULT_PROFILE
from actors.settings.durations import format_duration, parse_duration, parse_grace
from actors.settings.loading import ENDPOINT, TOKEN_FILE

if TYPE_CHECKING:
    from collections.abc import Callable

    from actors.cli.operate.look import Format
    from actors.cli.operate.target import Target

__all__ = ["duration", "register"]

_FORMATS: Final = {"table", "wide", "json"}
_MOST_DIGITS: Final = 6
"""Of a target: at most 100,000."""

_COMPLETION_LIMIT: Final = timedelta(seconds=2)
"""A person who pressed the tab key waits no longer."""


def _app_ids(context: typer.Context, incomplete: str) -> list[str]:
    """Return the fleets that there are, for the shell's completion; none if the cluster does not answer at once."""
    from actors.cli.operate.cluster import Cluster  # noqa: PLC0415 - only this completion needs the cluster
    from actors.errors import ExecutorPodsError  # noqa: PLC0415 - as above

    given = context.params
    try:
        with Cluster(
            given.get("kubeconfig"), given.get("kube_context"), given.get("namespace"), limit=_COMPLETION_LIMIT
        ) as cluster:
            return [each.app_id for each in cluster.reader().all().fleets if each.app_id.startswith(incomplete)]
    except ExecutorPodsError:
        return []


def _app_id(text: str) -> str:
    if not text or label_value_problem(text):
        problem = label_value_problem(text) or "it must not be empty"
        raise typer.BadParameter(f"{text!r} cannot be an app id: {problem}")
    return text


def duration(text: str) -> timedelta:
    """Parse an argument such as `30s`.

    Raises:
        BadParameter: it is none.
    """
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from None


def _grace(text: str) -> timedelta:
    """Parse how long executors may take to end; `0s`: not at all.

    Raises:
        BadParameter: it is no duration.
    """
    try:
        return parse_grace(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from None


App: TypeAlias = Annotated[
    str,
    typer.Argument(
        metavar="APP", parser=_app_id, autocompletion=_app_ids, help="The fleet's app id.", show_default=False
    ),
]
ExecutorId: TypeAlias = Annotated[
    int, typer.Argument(metavar="ID", min=1, help="The executor's id.", show_default=False)
]
Ids: TypeAlias = Annotated[
    list[int], typer.Argument(metavar="ID", min=1, help="The executors' ids.", show_default=False)
]
Kubeconfig: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH", help="Kubeconfig of the cluster. Default: as kubectl finds it, or this pod's account."
    ),
]
Context: TypeAlias = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one."),
]
Namespace: TypeAlias = Annotated[
    str | None, typer.Option("--namespace", "-n", metavar="NS", help="Namespace of the fleet. Default: the context's.")
]
Verbose: TypeAlias = Annotated[bool, typer.Option("--verbose", "-v", help="Write every request to stderr.")]
Output: TypeAlias = Annotated[
    str, typer.Option("--output", "-o", metavar="wide|json", help="More columns, or JSON.", show_default=False)
]
JsonOutput: TypeAlias = Annotated[str, typer.Option("--output", "-o", metavar="json", help="JSON.", show_default=False)]


def _format(text: str, *, wide: bool = True) -> Format:
    allowed = _FORMATS if wide else _FORMATS - {"wide"}
    if text not in allowed:
        names = " nor ".join(repr(name) for name in sorted(allowed - {"table"}, reverse=True))
        raise typer.BadParameter(
            f"{text!r} is neither {names}" if wide else f"{text!r} is not {names}", param_hint="'--output'"
        )
    return "json" if text == "json" else "wide" if text == "wide" else "table"


def _target(kubeconfig: Path | None, context: str | None, namespace: str | None, *, verbose: bool) -> Target:
    from actors.cli.operate.target import Target  # noqa: PLC0415 - see the module's docstring

    return Target(kubeconfig, context, namespace, verbose)


def list_(  # noqa: PLR0917 - typer passes them all by name
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Fleets of all namespaces.")] = False,
    ended: Annotated[
        bool, typer.Option("--ended", help="Also fleets that have ended, of which only the Lease is left.")
    ] = False,
    output: JsonOutput = "table",
    verbose: Verbose = False,
) -> int:
    """List the fleets: who drives each, and its executors by profile. One without a driver is orphaned.

    Exit codes: 0 done, 1 the API refused or did not answer, 2 usage, 130 Ctrl-C. The same for all commands below.
    """
    from actors.cli.operate.look import list_fleets  # noqa: PLC0415 - see the module's docstring

    if everywhere and namespace is not None:
        raise typer.BadParameter("give --namespace or --all-namespaces, not both")
    target = _target(kubeconfig, kube_context, namespace, verbose=verbose)
    return list_fleets(target, _format(output, wide=False), everywhere=everywhere, ended=ended)


def status(  # noqa: PLR0917 - as above
    app_id: App,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Look again every 2 s, until Ctrl-C.")] = False,
    endpoint: Annotated[
        str | None,
        typer.Option(
            envvar=ENDPOINT, metavar="URL", help="The driver's page: it also says what is on hold and what retires."
        ),
    ] = None,
    output: Output = "table",
    verbose: Verbose = False,
) -> int:
    """Show one fleet: its driver, each profile, each executor and why it does not run."""
    from actors.cli.operate.look import show_status  # noqa: PLC0415 - as above

    target = _target(kubeconfig, kube_context, namespace, verbose=verbose)
    return show_status(target, app_id, _format(output), watch=watch, endpoint=endpoint)


def describe(  # noqa: PLR0917 - as above
    app_id: App,
    executor_id: ExecutorId,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
    output: JsonOutput = "table",
    verbose: Verbose = False,
) -> int:
    """Show one executor: its pod, conditions, claims and Events, why it is stuck, and how its end is classified."""
    from actors.cli.operate.describe import describe_executor  # noqa: PLC0415 - as above

    target = _target(kubeconfig, kube_context, namespace, verbose=verbose)
    return describe_executor(target, app_id, executor_id, _format(output, wide=False))


def events(  # noqa: PLR0917 - as above
    app_id: App,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
    output: JsonOutput = "table",
    verbose: Verbose = False,
) -> int:
    """Show the Kubernetes Events about a fleet: its executors, also gone ones, its claims, its Lease and its driver."""
    from actors.cli.operate.look import show_events  # noqa: PLC0415 - as above

    target = _target(kubeconfig, kube_context, namespace, verbose=verbose)
    return show_events(target, app_id, _format(output, wide=False))


def logs(  # noqa: PLR0917 - as above
    app_id: App,
    executor_id: ExecutorId,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until the container ends.")] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the container before its restart.")] = False,
    container: Annotated[
        str | None, typer.Option("--container", "-c", metavar="NAME", help="Default: the executor's own.")
    ] = None,
    tail: Annotated[int | None, typer.Option(metavar="LINES", min=0, help="Only the last lines. Default: all.")] = None,
    verbose: Verbose = False,
) -> int:
    """Write what an executor has written."""
    from actors.cli.operate.describe import show_logs  # noqa: PLC0415 - as above

    target = _target(kubeconfig, kube_context, namespace, verbose=verbose)
    return show_logs(target, app_id, executor_id, container=container, follow=follow, previous=previous, tail=tail)


def cleanup(  # noqa: PLR0917 - as above
    app_id: App,
    kubeconfig: Kubeconfig = None,
    kube_context: Context = None,
    namespace: Namespace = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be deleted, and delete nothing.")] = False,
    keep_claims: Annotated[bool, typer.Option("--keep-claims", help="Keep the claims, with their data.")] = False,
    without_lease: Annotated[
        bool,
        typer.Option("--without-lease", help="Also if there is no Lease, and nothing says whether a driver is alive."),
    ] = False,
    verbose: Verbose = False,
) -> int:
    """Delete the pods and claims of an orphaned fleet. Refuses while its driver renews the Lease."""
    from actors.cli.operate.cleanup import Consent, clean_up  # noqa: PLC0415 - as above

    target = _target(kubeconfig, kube_context, namespace, verbose=verbose)
    return clean_up(target, app_id, Consent(yes, dry_run, without_lease, keep_claims))


# ── through the driver ───────────────────────────────────────────────────────────────────────────────────────────

Url: TypeAlias = Annotated[
    str,
    typer.Option(
        "--endpoint",
        envvar=ENDPOINT,
        metavar="URL",
        help="The driver's page: http://127.0.0.1:8080.",
        show_default=False,
    ),
]
TokenFile: TypeAlias = Annotated[
    Path,
    typer.Option("--token-file", envvar=TOKEN_FILE, metavar="FILE", help="The token of its page.", show_default=False),
]
Deadline: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--deadline", parser=_grace, metavar="DURATION", help="How long it may take. Default: the driver's settings."
    ),
]
Grace: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(parser=_grace, metavar="DURATION", help="How long they may take. Default: the settings'."),
]
AdjustTarget: TypeAlias = Annotated[
    bool, typer.Option("--adjust-target", help="Do not replace them: lower the target instead.")
]


def _targets(arguments: list[str]) -> dict[str, int]:
    """Read targets such as `8` or `default=8 gpu=1`."""
    targets: dict[str, int] = {}
    for argument in arguments:
        profile, equals, number = argument.rpartition("=")
        if not (number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS) or (equals and not profile):
            raise typer.BadParameter(f"{argument!r} is no target: write a number, or PROFILE=NUMBER")
        if (profile := profile or DEFAULT_PROFILE) in targets:
            raise typer.BadParameter(f"profile {profile!r} has two targets")
        targets[profile] = int(number)
    return targets


def _act(  # noqa: PLR0917 - what each action has, then its body
    endpoint: str, token_file: Path, output: str, app_id: str, action: str, done: str, **body: Any
) -> int:
    from actors.cli.operate.actions import Endpoint, act  # noqa: PLC0415 - see the module's docstring

    given = {key: _plain(value) for key, value in body.items() if value is not None}
    is_json = _format(output, wide=False) == "json"
    return act(Endpoint(endpoint, token_file), app_id, action, given, None if is_json else done)


def _plain(value: Any) -> Any:
    return format_duration(value) if isinstance(value, timedelta) else value


def scale(  # noqa: PLR0917 - as above
    app_id: App,
    targets: Annotated[
        list[str],
        typer.Argument(metavar="TARGET", help="A number, or PROFILE=NUMBER for each profile.", show_default=False),
    ],
    endpoint: Url,
    token_file: TokenFile,
    victims: Annotated[
        str, typer.Option(metavar="newest|oldest|idle", help="Which running executors end first.")
    ] = "newest",
    grace: Grace = None,
    output: JsonOutput = "table",
) -> int:
    """Set the target of a fleet's profiles, and end what is in excess."""
    wanted = _targets(targets)
    shown = ", ".join(f"{profile} {target}" for profile, target in wanted.items())
    done = f"targets: {shown}; running executors that end: {{ids}}"
    return _act(endpoint, token_file, output, app_id, "scale", done, targets=wanted, victims=victims, grace=grace)


def retire(  # noqa: PLR0917 - as above
    app_id: App,
    ids: Ids,
    endpoint: Url,
    token_file: TokenFile,
    deadline: Deadline = None,
    adjust_target: AdjustTarget = False,
    output: JsonOutput = "table",
) -> int:
    """Let executors finish, replace them, and end them at the deadline."""
    done = "executors that retire: {ids}"
    return _act(
        endpoint, token_file, output, app_id, "retire", done, ids=ids, deadline=deadline, adjust_target=adjust_target
    )


def kill(  # noqa: PLR0917 - as above
    app_id: App,
    ids: Ids,
    endpoint: Url,
    token_file: TokenFile,
    grace: Grace = None,
    adjust_target: AdjustTarget = False,
    output: JsonOutput = "table",
) -> int:
    """End executors, and replace them."""
    done = "executors that end: {ids}"
    return _act(endpoint, token_file, output, app_id, "kill", done, ids=ids, grace=grace, adjust_target=adjust_target)


def hold(
    app_id: App, endpoint: Url, token_file: TokenFile, deadline: Deadline = None, output: JsonOutput = "table"
) -> int:
    """Retire all executors and create none, until `resume`."""
    return _act(
        endpoint, token_file, output, app_id, "hold", "on hold; executors that retire: {ids}", deadline=deadline
    )


def resume(app_id: App, endpoint: Url, token_file: TokenFile, output: JsonOutput = "table") -> int:
    """Create executors again, up to the targets."""
    return _act(endpoint, token_file, output, app_id, "resume", "resumed")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    commands: dict[str, Callable[..., Any]] = {
        "list": list_,
        "status": status,
        "describe": describe,
        "events": events,
        "logs": logs,
        "cleanup": cleanup,
        "scale": scale,
        "retire": retire,
        "kill": kill,
        "hold": hold,
        "resume": resume,
    }
    for name, command in commands.items():
        app.command(name)(command)
