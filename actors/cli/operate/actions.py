"""`scale`, `retire`, `kill`, `hold` and `resume`: through the page of the driver, which does them.

The token is read from a file, never from an argument: everybody on the machine sees those.
"""

from __future__ import annotations

import ipaddress
import json
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import urllib3

from actors.cli.main_loop import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from actors.cli.operate import as_json
from actors.cli.operate.cluster import interruptible
from actors.cli.operate.target import show
from actors.cli.streams import say
from actors.errors import ApiError, Refused, SettingsError, Unavailable
from actors.page.hosts import LONGEST_TOKEN
from actors.runtime import start_thread
from actors.text import LONGEST_LINE, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Endpoint", "act", "ask_driver", "is_readable_on_the_way"]

_LIMIT: Final = 15.0
"""Seconds for one answer: the page itself waits some seconds for the Backend."""

_LOOK: Final = 0.5
"""Seconds: a signal that the system hands to another thread does not wake this one."""

_LONGEST_ANSWER: Final = 4 * 1024 * 1024
"""Bytes: the ids of 100,000 executors have a fifth of that."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A driver's page, as the arguments name it."""

    url: str
    token_file: Path


def ask_driver(url: str, app_id: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return what the driver's page says of this fleet: `/api/v1/status` and `/api/v1/executors`.

    Raises:
        Refused: it is another fleet's page, or refuses.
        SettingsError: the URL is wrong.
        Unavailable: nobody answers.
    """
    url = _checked_url(url)
    with urllib3.PoolManager(retries=urllib3.Retry(total=False), timeout=_LIMIT) as pool:
        status = _in_time(url, partial(_ask, pool, "GET", f"{url}/api/v1/status"))
        _check_fleet(status, app_id, url)
        return status, _in_time(url, partial(_ask, pool, "GET", f"{url}/api/v1/executors"))


def act(endpoint: Endpoint, app_id: str, action: str, body: Mapping[str, Any], done: str | None) -> int:
    """Have the driver of this fleet do it; return the exit code, 1 if the driver does not know one of the executors.

    `done` says what it did, with `{ids}` for the executors it is about; None: say it as JSON.

    Raises:
        SettingsError: the URL or the token's file is wrong.
    """
    url, token = _checked_url(endpoint.url), _token(endpoint.token_file)
    if is_readable_on_the_way(url):
        problem = f"the token goes to {url} unencrypted, and whoever is on the way can read it"
        say(one_line(f"{problem}: use kubectl port-forward, or https", LONGEST_LINE))
    with interruptible(), urllib3.PoolManager(retries=urllib3.Retry(total=False), timeout=_LIMIT) as pool:
        try:
            _check_fleet(_in_time(url, partial(_ask, pool, "GET", f"{url}/api/v1/status")), app_id, url)
            answer = _in_time(url, partial(_ask, pool, "POST", f"{url}/api/v1/{action}", token, body)).get("ids")
        except (ApiError, Refused) as error:
            say(one_line(str(error), LONGEST_LINE))
            return EXIT_FAILED
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
    ids = [each for each in answer if isinstance(each, int)] if isinstance(answer, list) else []
    if done is None:
        show([as_json.as_text({"version": as_json.VERSION, "ids": ids})])
    else:
        show([one_line(done.replace("{ids}", _listed(ids)), LONGEST_LINE)])
    if others := [each for each in body.get("ids", ()) if each not in ids]:
        say(one_line(f"executors that are unknown, or have ended: {_listed(others)}", LONGEST_LINE))
        return EXIT_FAILED
    return EXIT_OK


def _listed(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "none"


def _check_fleet(status: Mapping[str, Any], app_id: str, url: str) -> None:
    """Check that the driver is that of the fleet which the user means.

    Raises:
        Refused: it is another one's.
    """
    theirs = status.get("app_id")
    if theirs != app_id:
        raise Refused(f"the driver at {url} keeps fleet {theirs!r}, not {app_id!r}; nothing was done")


def _checked_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(f"--endpoint {url!r}: must be the URL of a driver's page, such as http://127.0.0.1:8080")
    if parts.username is not None or parts.password is not None or parts.query:
        raise SettingsError("--endpoint: must have no password and no query; the token belongs into --token-file")
    return url.rstrip("/")


def is_readable_on_the_way(url: str) -> bool:
    """Whether others than this machine and the driver can read what is sent."""
    parts = urlsplit(url)
    try:
        is_local = ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        is_local = parts.hostname == "localhost"
    return parts.scheme == "http" and not is_local


def _token(path: Path) -> str:
    try:
        with path.open("rb") as file:
            token = file.read(LONGEST_TOKEN + 1).strip()
    except OSError as error:
        raise SettingsError(f"--token-file {path}: cannot be read: {error.strerror}") from None
    if not token or len(token) > LONGEST_TOKEN or not token.isascii() or not token.decode().isprintable():
        raise SettingsError(f"--token-file {path}: must have a token, in one line of ASCII")
    return token.decode()


def _in_time(url: str, ask: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the answer, if it is there in time: a page may send a byte a second, which no timeout of a read ends.

    Raises:
        Refused, Unavailable: as `ask` does.
        Unavailable: the answer took too long. The thread that reads it ends with this process.
    """
    answers: SimpleQueue[Mapping[str, Any] | BaseException] = SimpleQueue()

    def answer() -> None:
        try:
            answers.put(ask())
        except BaseException as error:  # noqa: BLE001 - who waits raises it
            answers.put(error)

    start_thread(answer, "executor-pods/page-answer")
    for _ in range(ceil(_LIMIT / _LOOK)):
        with suppress(Empty):
            match answers.get(timeout=_LOOK):
                case BaseException() as error:
                    raise error
                case found:
                    return found
    raise Unavailable(f"{url} gave no whole answer within {_LIMIT:g} s; does its driver run, with a page?")


def _ask(
    pool: urllib3.PoolManager,
    method: str,
    url: str,
    token: str | None = None,
    body: Mapping[str, Any] | None = None,
) -> Mapping[str, Any]:
    """Return the JSON object of an answer.

    Raises:
        Refused: it is a refusal.
        Unavailable: there was none.
    """
    headers = {
        "Accept": "application/json",
        **({"Content-Type": "application/json"} if body is not None else {}),
        **({"Authorization": f"Bearer {token}"} if token is not None else {}),
    }
    content = None if body is None else json.dumps(body).encode()
    try:
        answer = pool.request(method, url, headers=headers, body=content, redirect=False, preload_content=False)
        try:
            text = answer.read(_LONGEST_ANSWER)
        finally:
            answer.close()
    except (urllib3.exceptions.HTTPError, OSError) as error:
        cause = getattr(error, "reason", error)
        raise Unavailable(f"{url} gave no answer: {type(cause).__name__}; does its driver run, with a page?") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Unavailable(f"{url} answered {answer.status} with something else than a driver's page would")
    if answer.status != 200:
        raise Refused(f"the driver refused: {found.get('error') or answer.status}")
    return found
