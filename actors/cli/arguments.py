"""The command line of `executor-pods`. A wrong argument is answered with one line and exit code 2."""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias, cast, get_args

import typer

from actors.cli.logs import LogFormat, LogLevel
from actors.cli.operate.arguments import duration, register
from actors.cli.output import OutputFormat
from actors.cli.streams import give_up, say
from actors.errors import MissingExtra, SettingsError
from actors.settings.model import Settings
from actors.text import one_line
from actors.text.version import package_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.cli.main_loop import Inbox
    from actors.local.cluster import LocalCluster
    from actors.page.plan import PagePlan
    from actors.settings import ExecutorValues, SettingsValues

__all__ = ["execute", "overrides"]

EXIT_USAGE: Final = 2

UsageError: Any = typer.BadParameter.__base__
"""The base class in the click that this typer uses. Newer versions of typer bundle a click that is not public."""


def execute(inbox: Inbox, arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process; return the exit code."""
    try:
        return int(app(args=arguments, prog_name=_program(), standalone_mode=False, obj=inbox) or 0)
    except UsageError as error:
        problem = error.format_message()
    except (SettingsError, MissingExtra) as error:
        problem = str(error)
    except OSError as error:
        return _unwritten(error)
    for line in problem.splitlines():
        say(one_line(line))
    return EXIT_USAGE


def _program() -> str:
    """Return the name that the user called, which is another one as a plugin of kubectl."""
    return "kubectl executor-pods" if Path(sys.argv[0]).name.startswith("kubectl-") else "executor-pods"


def _unwritten(error: OSError) -> int:
    """Return the exit code of a command, such as `--help`, whose stdout cannot be written. Raise any other error."""
    from actors.cli.main_loop import EXIT_FAILED, EXIT_OK  # noqa: PLC0415 - as below

    return EXIT_OK if give_up(error) else EXIT_FAILED


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"executor-pods {package_version()}")
        raise typer.Exit


_FailPulls: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-pulls",
        metavar="PATTERN",
        show_default=False,
        help="Fault of the embedded cluster: images that cannot be pulled, such as 'worker:1.*'. May be repeated.",
    ),
]
_LoseNode: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--lose-node",
        parser=duration,
        metavar="DURATION",
        help="Fault of the embedded cluster: lose its node after this.",
    ),
]
_NodeOutage: TypeAlias = Annotated[
    timedelta | None,
    typer.Option(
        "--node-outage",
        parser=duration,
        metavar="DURATION",
        help="With --lose-node: the node is back after this. Default: never.",
    ),
]
_Realistic: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--realistic", help="The embedded cluster takes the times of a real node: for a start, and to notice an end."
    ),
]

app = typer.Typer(
    help="Keeps a fleet of executor pods alive on Kubernetes.",
    context_settings={"help_option_names": ["--help", "-h"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def _command(
    _version: Annotated[
        bool,
        typer.Option("--version", "-V", is_eager=True, callback=_print_version, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


@app.command(context_settings={"allow_interspersed_args": False})
def run(  # noqa: PLR0917 - typer passes them all by name
    context: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND",
            show_default=False,
            help="Command of each executor. Default: the image's entrypoint, with --local a small built-in one.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings in TOML; `config --reference` prints them all."),
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Use an embedded cluster, whose pods are processes of this machine.")
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH", help="Kubeconfig of the cluster. Default: as kubectl finds it, or this pod's account."
        ),
    ] = None,
    kube_context: Annotated[
        str | None,
        typer.Option("--context", metavar="NAME", help="Context of the kubeconfig. Default: the current one."),
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", metavar="NS", help="Namespace of the pods.")
    ] = None,
    executors: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=100_000, help="Number of executors. Default: the configuration's, else 2."
        ),
    ] = None,
    image: Annotated[str | None, typer.Option(metavar="IMAGE", help="Image of the executor's container.")] = None,
    run_for: Annotated[
        timedelta | None,
        typer.Option("--for", parser=duration, metavar="DURATION", help="Stop after this time: 30s, 5m, 1h30m."),
    ] = None,
    kill_every: Annotated[
        timedelta | None,
        typer.Option(
            parser=duration, metavar="DURATION", help="With --local: kill a random executor at this interval."
        ),
    ] = None,
    fail_pulls: _FailPulls = None,
    lose_node: _LoseNode = None,
    node_outage: _NodeOutage = None,
    realistic: _Realistic = False,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="live|json",
            help="A live table (lines if not on a terminal), or one JSON object per line.",
        ),
    ] = "live",
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="P", min=0, max=65535, help="Serve /metrics for Prometheus on this port; 0 chooses one."),
    ] = None,
    metrics_address: Annotated[
        str | None, typer.Option(metavar="A", help="Address of /metrics, without authentication. Default: 127.0.0.1.")
    ] = None,
    page_port: Annotated[
        int | None,
        typer.Option(metavar="P", min=0, max=65535, help="Serve a page of the fleet, with probes; 0 chooses a port."),
    ] = None,
    page_address: Annotated[
        str | None, typer.Option(metavar="A", help="Address of the page, without authentication. Default: 127.0.0.1.")
    ] = None,
    page_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", show_default=False, help="Another name of the page, such as an Ingress has."),
    ] = None,
    page_token_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Let whoever shows this token scale, retire, kill and hold.")
    ] = None,
    log_format: Annotated[
        str, typer.Option(metavar="text|json", help="Log records as text, or as one JSON object per line on stderr.")
    ] = "text",
    log_level: Annotated[
        str, typer.Option(metavar="debug|info|warning|error", help="The least important log records to show.")
    ] = "warning",
) -> int:
    """Keep N executors alive until Ctrl-C or for a given time.

    Exit codes: 0 ended as asked, 1 the fleet failed, 2 usage, 130 Ctrl-C, 143 handed over at SIGTERM.
    """
    if local and (kubeconfig is not None or kube_context is not None):
        raise typer.BadParameter("--local has its own cluster: use neither --kubeconfig nor --context with it")
    if kill_every is not None and not local:
        raise typer.BadParameter("--kill-every needs --local")
    if not local and (fail_pulls or lose_node is not None or realistic):
        raise typer.BadParameter("--fail-pulls, --lose-node and --realistic need --local")
    _check_outage(lose_node, node_outage)
    if metrics_address is not None and metrics_port is None:
        raise typer.BadParameter("--metrics-address needs --metrics-port")
    if page_port is None and (page_address or page_host or page_token_file):
        raise typer.BadParameter("--page-address, --page-host and --page-token-file need --page-port")
    _check_choice("--output", output, OutputFormat)
    _check_choice("--log-format", log_format, LogFormat)
    _check_choice("--log-level", log_level, LogLevel)
    settings = Settings.load(config, **overrides(namespace, executors, image, command))
    if settings.executor.image is None and settings.executor.pod_template is None and not local:
        raise typer.BadParameter("no image: set --image, executor.image or a pod template; --local needs none")
    cluster = None
    if local:
        cluster = _cluster(fail_pulls, lose_node, node_outage, realistic=realistic, namespace=settings.namespace)
    from actors.cli.run import Request, run_fleet  # noqa: PLC0415 - not needed to reject a wrong argument

    return run_fleet(
        Request(
            settings=settings,
            output=cast("OutputFormat", output),
            cluster=cluster,
            kubeconfig=kubeconfig,
            context=kube_context,
            run_for=run_for,
            kill_every=kill_every,
            metrics_port=metrics_port,
            metrics_address=metrics_address or "127.0.0.1",
            page=_page(page_port, page_address or "127.0.0.1", page_token_file, page_host or ()),
            log_format=cast("LogFormat", log_format),
            log_level=cast("LogLevel", log_level),
        ),
        context.obj,
    )


def _page(port: int | None, address: str, token_file: Path | None, hosts: Sequence[str]) -> PagePlan | None:
    if port is None:
        return None
    from actors.page.plan import PagePlan  # noqa: PLC0415 - as above

    try:
        token = None if token_file is None else _token(token_file)
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{token_file}: {error}", param_hint="'--page-token-file'") from None
    return PagePlan(f"[{address}]:{port}" if ":" in address else f"{address}:{port}", token, tuple(hosts))


def _token(path: Path) -> str:
    """Return what a file has, but no more than the page refuses: a device may have no end."""
    from actors.page.hosts import LONGEST_TOKEN  # noqa: PLC0415 - as above

    with path.open("rb") as file:
        return file.read(2 * LONGEST_TOKEN).decode().strip()


@app.command()
def config(
    reference: Annotated[
        bool, typer.Option("--reference", help="Print every setting with its default, as a TOML file.")
    ] = False,
    check: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Check settings in TOML: print every problem, or the profiles and targets."),
    ] = None,
    rbac: Annotated[
        bool, typer.Option("--rbac", help="Print the account, Role and RoleBinding of a driver, for kubectl.")
    ] = False,
    rbac_operator: Annotated[
        bool, typer.Option("--rbac-operator", help="Print the Role of an operator: list, status, cleanup and so on.")
    ] = False,
    settings: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="With --rbac: print only the rights that these settings use."),
    ] = None,
) -> int:
    """Print the settings' reference, check a file, or print the rights that a driver or an operator needs.

    Exit codes: 0 done, 1 the checked file has problems, 2 usage.
    """
    if reference + rbac + rbac_operator + (check is not None) != 1:
        raise typer.BadParameter("give one of --reference, --check FILE, --rbac and --rbac-operator")
    if settings is not None and not rbac:
        raise typer.BadParameter("--config needs --rbac")
    if check is not None:
        return _check_file(check)
    if reference:
        from actors.settings.reference import render_reference  # noqa: PLC0415 - only this needs it

        text = render_reference()
    elif rbac_operator:
        from actors.cli.rbac import render_operator_rbac  # noqa: PLC0415 - as above

        text = render_operator_rbac()
    else:
        from actors.cli.rbac import render_rbac  # noqa: PLC0415 - as above

        text = render_rbac(None if settings is None else Settings.load(settings))
    print(text, end="", flush=True)
    return 0


def _check_choice(option: str, value: str, choices: object) -> None:
    allowed = get_args(choices)
    if value not in allowed:
        words = ", ".join(map(repr, allowed[:-1])) + f" and {allowed[-1]!r}"
        raise typer.BadParameter(f"{value!r} is none of {words}", param_hint=f"'{option}'")


def _check_file(path: Path) -> int:
    from actors.cli.main_loop import EXIT_FAILED, EXIT_OK  # noqa: PLC0415 - not needed to reject a wrong argument
    from actors.manifests.executor_pod import check_template  # noqa: PLC0415 - as above

    try:
        settings = Settings.load(path)
        check_template(settings)
    except SettingsError as error:
        for line in str(error).splitlines():
            say(one_line(f"{path}: {line.removeprefix(f'{path}: ')}"))
        return EXIT_FAILED
    targets = ", ".join(f"{name} {target}" for name, target in settings.initial_totals.items())
    print(f"{path}: ok: {targets}", flush=True)
    return EXIT_OK


def overrides(
    namespace: str | None, executors: int | None, image: str | None, command: list[str] | None
) -> SettingsValues:
    """Return the settings that the arguments of `run` set."""
    values: SettingsValues = {}
    executor: ExecutorValues = {}
    if namespace is not None:
        values["namespace"] = namespace
    if executors is not None:
        executor["instances"] = executors
    if image is not None:
        executor["image"] = image
    if command:
        executor |= {"command": command, "args": []}  # the command is all that an executor runs
    if executor:
        values["executor"] = executor
    return values


@app.command()
def local(  # noqa: PLR0917 - as above
    context: typer.Context,
    port: Annotated[int, typer.Option(metavar="P", min=0, max=65535, help="Port on 127.0.0.1; 0 chooses one.")] = 0,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Where to write the kubeconfig. Default: a private folder.")
    ] = None,
    fail_pulls: _FailPulls = None,
    lose_node: _LoseNode = None,
    node_outage: _NodeOutage = None,
    realistic: _Realistic = False,
) -> int:
    """Run the embedded cluster alone, for kubectl and other clients, until Ctrl-C."""
    _check_outage(lose_node, node_outage)
    from actors.cli.run import run_local  # noqa: PLC0415 - as above

    cluster = _cluster(fail_pulls, lose_node, node_outage, realistic=realistic, port=port, kubeconfig=kubeconfig)
    return run_local(cluster, context.obj)


def _cluster(
    fail_pulls: list[str] | None,
    lose_node: timedelta | None,
    node_outage: timedelta | None,
    *,
    realistic: bool,
    namespace: str | None = None,
    port: int = 0,
    kubeconfig: Path | None = None,
) -> LocalCluster:
    """Return an embedded cluster, which is not started yet."""
    from actors.local.cluster import LocalCluster  # noqa: PLC0415 - as above

    return LocalCluster(
        port=port,
        kubeconfig=kubeconfig,
        namespace=namespace,
        failing_pulls=fail_pulls or (),
        lose_node_after=lose_node,
        node_outage=node_outage,
        realistic=realistic,
    )


def _check_outage(lose_node: timedelta | None, node_outage: timedelta | None) -> None:
    if node_outage is not None and lose_node is None:
        raise typer.BadParameter("--node-outage needs --lose-node")


register(app)
