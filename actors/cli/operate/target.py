"""What all commands for operators have in common: which cluster, how errors are said, and the exit codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from actors.cli.main_loop import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from actors.cli.operate.cluster import Cluster, interruptible, verbose
from actors.cli.streams import give_up, say
from actors.errors import ApiError, Forbidden, Refused
from actors.text import LONGEST_LINE, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

__all__ = ["Target", "explained", "run", "show", "warn"]


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster and the namespace of a command, as its arguments name them."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None
    verbose: bool = False


def run(target: Target, work: Callable[[Cluster], int]) -> int:
    """Do the work on the cluster; return its exit code, 1 if the API refuses or does not answer, 130 after Ctrl-C.

    Raises:
        SettingsError: no kubeconfig, context or credential is usable.
    """
    with verbose(wanted=target.verbose), interruptible():
        try:
            with Cluster(target.kubeconfig, target.context, target.namespace) as cluster:
                return work(cluster)
        except ApiError as error:
            say(explained(error))
            return EXIT_FAILED
        except Refused as error:
            say(one_line(str(error), LONGEST_LINE))
            return EXIT_FAILED
        except OSError as error:
            return EXIT_OK if give_up(error) else EXIT_FAILED  # typer itself would end the process with 1
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED


def explained(error: ApiError) -> str:
    """Return what happened and, if a right is missing, where the rights of an operator are listed."""
    if isinstance(error, Forbidden):
        return f"{error.message}; `executor-pods config --rbac-operator` prints the rights that these commands use"
    return error.message


def warn(warnings: Iterable[str]) -> None:
    """Write what could not be read to stderr."""
    for text in warnings:
        say(one_line(text, LONGEST_LINE))


def show(lines: Iterable[str]) -> None:
    """Write these lines to stdout."""
    print("\n".join(lines), flush=True)
