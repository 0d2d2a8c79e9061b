"""What can be said to `executor-pods` on its command line, and how a wrong word is answered: one line, exit code 2."""

from __future__ import annotations

import sys
from datetime import timedelta  # noqa: TC003 - typer reads annotations
from importlib.metadata import version
from pathlib import Path  # noqa: TC003 - the same
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from actors.errors import SettingsError
from actors.settings.durations import parse_duration
from actors.settings.model import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from actors.cli.run import Inbox

__all__ = ["execute"]

EXIT_USAGE: Final = 2

LOCAL_IMAGE: Final = "executor-pods/local"
"""A pod needs an image; the embedded cluster runs processes of this machine, whatever the image is called."""

UsageError: Any = typer.BadParameter.__base__
"""Of the click that this typer uses: newer ones bring their own, which is not public."""


def execute(inbox: Inbox, arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments (the process's, unless given) say; the exit code."""
    try:
        return int(app(args=arguments, prog_name="executor-pods", standalone_mode=False, obj=inbox) or 0)
    except UsageError as error:
        problem = error.format_message()
    except SettingsError as error:
        problem = str(error)
    for line in problem.splitlines():
        print(f"executor-pods: {line}", file=sys.stderr)
    return EXIT_USAGE


def _duration(text: str) -> timedelta:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} {error}") from None


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"executor-pods {version('executor-pods')}")
        raise typer.Exit


app = typer.Typer(
    help="Keeps a fleet of executor pods alive on Kubernetes.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _command(
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
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
            help="What each executor runs; else the image's own entrypoint, with --local a small built-in one.",
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Settings in TOML; config/reference.toml lists them all.")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Use an embedded cluster, whose pods are processes of this machine.")
    ] = False,
    kubeconfig: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="How to reach the cluster; without it, as kubectl would, or as this pod."),
    ] = None,
    kube_context: Annotated[
        str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig; else its current one.")
    ] = None,
    namespace: Annotated[str | None, typer.Option(metavar="NS", help="Where the pods live.")] = None,
    executors: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, max=100_000, help="How many to keep alive; 2 unless the configuration has it."
        ),
    ] = None,
    image: Annotated[str | None, typer.Option(metavar="IMAGE", help="Image of the executor's container.")] = None,
    run_for: Annotated[
        timedelta | None,
        typer.Option("--for", parser=_duration, metavar="DURATION", help="Stop after this time: 30s, 5m, 1h30m."),
    ] = None,
    kill_every: Annotated[
        timedelta | None,
        typer.Option(parser=_duration, metavar="DURATION", help="With --local: kill a random executor that often."),
    ] = None,
    output: Annotated[
        str,
        typer.Option(
            metavar="live|json", help="A table that redraws (lines if not on a terminal), or one JSON object a line."
        ),
    ] = "live",
    metrics_port: Annotated[
        int | None,
        typer.Option(metavar="P", min=0, max=65535, help="Serve /metrics for Prometheus here; 0 takes a free port."),
    ] = None,
    metrics_address: Annotated[
        str | None, typer.Option(metavar="A", help="On which address; 127.0.0.1 unless given. Anybody may read it.")
    ] = None,
) -> int:
    """Keep N executors alive until Ctrl-C, or for a time.

    Exit codes: 0 ended as asked, 1 the fleet failed, 2 usage, 130 Ctrl-C.
    """
    if local and (kubeconfig is not None or kube_context is not None):
        raise typer.BadParameter("--local brings its own cluster: it goes with neither --kubeconfig nor --context")
    if kill_every is not None and not local:
        raise typer.BadParameter("--kill-every goes with --local only")
    if metrics_address is not None and metrics_port is None:
        raise typer.BadParameter("--metrics-address goes with --metrics-port only")
    if output not in {"live", "json"}:
        raise typer.BadParameter(f"{output!r} is neither 'live' nor 'json'", param_hint="'--output'")
    if config is not None and not config.is_file():
        raise typer.BadParameter(f"there is no file {config}", param_hint="'--config'")
    executor = {"instances": executors, "image": image, "command": tuple(command) if command else None}
    given = {"namespace": namespace, "executor": {name: value for name, value in executor.items() if value is not None}}
    settings = Settings.load(config, **{name: value for name, value in given.items() if value})
    if settings.executor.image is None and settings.executor.pod_template is None:
        if not local:
            raise typer.BadParameter("no image: give --image, or a configuration with executor.image or a pod template")
        executor_settings = settings.executor.model_copy(update={"image": LOCAL_IMAGE})
        settings = settings.model_copy(update={"executor": executor_settings})
    from actors.cli.run import Request, run_fleet  # noqa: PLC0415 - a wrong argument is answered without all of that

    return run_fleet(
        Request(
            settings=settings,
            output="json" if output == "json" else "live",
            local=local,
            kubeconfig=kubeconfig,
            context=kube_context,
            run_for=run_for,
            kill_every=kill_every,
            metrics_port=metrics_port,
            metrics_address=metrics_address or "127.0.0.1",
        ),
        context.obj,
    )


@app.command()
def local(
    context: typer.Context,
    port: Annotated[
        int, typer.Option(metavar="P", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    kubeconfig: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Where to write the kubeconfig; else into a private folder.")
    ] = None,
) -> int:
    """Run the embedded cluster alone, for kubectl and other clients, until Ctrl-C."""
    from actors.cli.run import run_local  # noqa: PLC0415 - as above

    return run_local(port, kubeconfig, context.obj)
