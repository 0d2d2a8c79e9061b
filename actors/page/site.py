"""`Site`: answers the page's requests, whatever server carries them. It lives in one event loop.

A viewer's state is the number of the last change that he was told. So a slow reader costs nothing: he is told less
often, and of each executor only what it is then. The site follows the fleet; only a probe asks the Backend, whether it
answers.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast, final

from actors.errors import ExecutorPodsError, MissingExtra, Refused
from actors.messages import FleetChanged, HasEnoughExecutors
from actors.page.actions import ACTIONS, WrongActionError, read_action
from actors.page.documents import VERSION, Acted, Events, Executors, Problem, Reset, Status, encode
from actors.page.feed import Notes
from actors.page.health import checks, report
from actors.page.history import FleetHistory
from actors.page.plain import plain_page
from actors.page.status import lasting, status_of
from actors.runtime import ActorDeadError, later
from actors.runtime.mailbox import Reply
from actors.text import get_logger, one_line
from actors.view import FleetView

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.resources.abc import Traversable

    from actors.messages import Question
    from actors.metrics.counts import Metrics
    from actors.page.documents import Change
    from actors.page.feed import Feed
    from actors.page.health import Probe
    from actors.page.hosts import AllowedHosts
    from actors.runtime import Address, Clock, Moment

__all__ = ["MOST_VIEWERS", "Answer", "Asked", "Site", "Stream", "exposed"]

logger = get_logger(__name__)

A = TypeVar("A")

MOST_VIEWERS: Final = 50
"""Streams at once. One more is refused."""

TICK_SECONDS: Final = 0.25
"""Changes are told four times a second: a person sees no more, and a change that is taken back costs nothing."""

QUIET_SECONDS: Final = 15.0
"""After that a comment is sent, so that proxies keep the connection and a dead peer is found."""

ANSWER_SECONDS: Final = 3.0
"""The Backend answers in milliseconds. A probe of the kubelet should wait longer than this."""

PROBE_SECONDS: Final = 1.0
"""Probes ask the Backend no more often, however many there are."""

CHANGES_AT_ONCE: Final = 1_000
"""Executors in one event of a stream, some 400 bytes each. What is more comes in the next event."""

PAGE_FILES: Final = files("actors.page") / "static"

TYPES: Final[Mapping[str, str]] = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "json": "application/json",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}
"""By the ending of a file's name."""

JSON: Final = TYPES["json"]
TEXT: Final = TYPES["txt"]

HEADERS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "executor-pods",
    "X-Content-Type-Options": "nosniff",
}
"""Of every answer."""

PLAIN_MARK: Final = "<!-- plain -->"
"""Where `page.html` takes the tables of browsers without JavaScript."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    """By lower-case name."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is complete."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer that goes on: events for `EventSource`. Whoever reads it closes it at the end."""

    parts: AsyncGenerator[bytes]


Handler: TypeAlias = Callable[[Asked], Any]


@final
class Site:
    """The page of one fleet.

    Args:
        feed: passes on what the driver learns.
        clock: the time.
        hosts: the names under which it is reached.
        app_id: of the fleet.
        token: whoever shows it may act; None: nobody. White space around it is dropped.
        render_metrics: returns the page of Prometheus; it may block. None: there is none.
        tick: see `TICK_SECONDS`.
    """

    def __init__(
        self,
        feed: Feed,
        *,
        clock: Clock,
        hosts: AllowedHosts,
        app_id: str,
        token: str | None = None,
        render_metrics: Callable[[], bytes] | None = None,
        tick: float = TICK_SECONDS,
    ) -> None:
        self.view: Final = FleetView(clock)
        self.history: Final = FleetHistory(clock.now().timestamp())
        self._feed = feed
        self._clock = clock
        self._hosts = hosts
        self._app_id = app_id
        self._token = None if token is None else token.strip().encode()
        self._render_metrics = render_metrics
        self._tick = tick
        self._loop = asyncio.get_running_loop()
        self._followed: Address | None = None
        """The Backend that the view follows."""
        self._answers = True
        """Whether the last question was answered in time."""
        self._ask_from: Moment = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._rendering = asyncio.Lock()
        self._viewers = 0
        self._ticking: asyncio.Task[None] | None = None
        self._news = self._loop.create_future()
        """Done when there is something to tell."""
        self._woken_at = self.history.seq
        """The last change when viewers were woken."""
        self._judged: object = None
        """What the last status was made of."""
        self._told: tuple[Status | None, bytes, int] = (None, b"", 0)
        """The last status that viewers were told: without what always changes, as an event, and how many there were."""
        self._shared: tuple[tuple[int, int], int, bytes] = ((-1, -1), -1, b"")
        """The last event of changes: since which and when it was made, up to which it goes, and its text. Viewers who
        keep up share it."""
        self._handlers: Final[dict[str, Handler]] = {
            "/": self._page,
            "/livez": self._probe,
            "/readyz": self._probe,
            "/api/v1/status": self._fleet,
            "/api/v1/executors": self._executors,
            "/api/v1/events": self._events,
            "/api/v1/timeline": self._timeline,
            "/api/v1/stream": self._stream,
        }
        if render_metrics is not None:
            self._handlers["/metrics"] = self._metrics
        self._files = dict(_files(PAGE_FILES, "/static/"))
        feed.call = self._drain_soon

    def close(self) -> None:
        """End what runs in the loop."""
        for task in (self._ticking, self._asking):
            if task is not None:
                task.cancel()

    # ── requests ────────────────────────────────────────────────────────────────────────────────────────────────

    def takes_body(self, asked: Asked) -> bool:
        """Return whether the answer to this request depends on its body: only an action of somebody who may act does.

        Nobody else can make the driver read and keep a body.
        """
        return (
            self._hosts.allows(asked.headers.get("host"))
            and _action(asked) is not None
            and _refusal(asked, self._token) is None
        )

    async def answer(self, asked: Asked) -> Answer | Stream:
        """Answer a request."""
        host = asked.headers.get("host")
        if not self._hosts.allows(host):
            return _problem(421, f"the page is not served under this Host: {_quoted(host)}; give its name to the page")
        if (action := _action(asked)) is not None:
            return await self._act(action, asked)
        if asked.path in self._files:
            handler: Handler | None = self._file
        else:
            handler = self._handlers.get(asked.path)
        if handler is None:
            return _problem(404, f"there is no {_quoted(asked.path)}; see api/v1/status, executors, events, timeline")
        if asked.method not in {"GET", "HEAD"}:
            return _problem(405, f"{_quoted(asked.method)} is not allowed here: GET is", {"Allow": "GET, HEAD"})
        found: Answer | Stream = await handler(asked)
        return found

    async def _page(self, _: Asked) -> Answer:
        self.drain()
        tables = plain_page(self._status_document(), self._all(), self.history.events())
        page = (PAGE_FILES / "page.html").read_text(encoding="utf-8")
        return Answer(200, page.replace(PLAIN_MARK, tables, 1).encode(), TYPES["html"])

    async def _file(self, asked: Asked) -> Answer:
        found = self._files[asked.path]
        return Answer(200, found.read_bytes(), TYPES[found.name.rpartition(".")[2]], {"Cache-Control": "no-cache"})

    async def _probe(self, asked: Asked) -> Answer:
        probe: Probe = "livez" if asked.path == "/livez" else "readyz"
        answers = await self._does_answer()
        self.drain()
        found = checks(probe, self.history, self.view.status, answers=answers)
        excluded = [name for name in asked.query.get("exclude", "").split(",") if name]
        status, text = report(probe, found, excluded=excluded, verbose="verbose" in asked.query)
        return Answer(status, text.encode(), TEXT)

    async def _metrics(self, _: Asked) -> Answer:
        assert self._render_metrics is not None
        async with self._rendering:  # it asks the Backend, and waits in a thread
            text = await asyncio.to_thread(self._render_metrics)
        return Answer(200, text, "text/plain; version=0.0.4; charset=utf-8")

    async def _fleet(self, _: Asked) -> Answer:
        self.drain()
        return Answer(200, encode(self._status_document()))

    async def _executors(self, _: Asked) -> Answer:
        self.drain()
        return Answer(200, encode(self._all()))

    async def _events(self, _: Asked) -> Answer:
        self.drain()
        return Answer(200, encode(Events(VERSION, self.history.seq, self.history.events())))

    async def _timeline(self, _: Asked) -> Answer:
        self.drain()
        return Answer(200, encode(self.history.timeline(self._now())))

    async def _stream(self, asked: Asked) -> Answer | Stream:
        if self._viewers >= MOST_VIEWERS:
            return _problem(
                503, f"there are {MOST_VIEWERS} viewers; try again when one has left", {"Retry-After": "30"}
            )
        since = asked.headers.get("last-event-id") or asked.query.get("since")
        self.drain()
        if since is not None and not (since.isascii() and since.isdecimal() and len(since) < len(str(2**63))):
            return _problem(400, f"since = {_quoted(since)}: must be a number that this page has told")
        return Stream(self._parts(self.history.seq if since is None else int(since)))

    async def _act(self, name: str, asked: Asked) -> Answer:
        """Pass on an action, and answer which executors it is about."""
        if (refusal := _refusal(asked, self._token)) is not None:
            return refusal
        try:
            message = read_action(name, asked.body)
            result = await self._ask(message)
        except WrongActionError as error:
            return _problem(400, str(error))
        except Refused as error:
            return _problem(409, one_line(str(error)))
        except TimeoutError:
            return _problem(504, f"the backend did not answer within {ANSWER_SECONDS:g} s; it may still do it")
        except (ActorDeadError, ExecutorPodsError) as error:
            return _problem(503, one_line(str(error)))
        logger.info("action of an operator: action=%s result=%s", name, result)
        return Answer(200, encode(Acted([*result] if isinstance(result, tuple) else [])))

    # ── what is known ───────────────────────────────────────────────────────────────────────────────────────────

    def drain(self) -> None:
        """Take in what is new. Follow the Backend, once there is one."""
        if self._feed.backend is not self._followed:
            self._followed = self._feed.backend
            if self._followed is not None:
                self.view.follow(self._followed, self._feed.put)
        for at, fed in self._feed.take():
            try:
                if isinstance(fed, Notes):
                    self.history.annotate(fed.executor_id, fed.columns)
                elif isinstance(fed, FleetChanged):
                    self.view.fold(fed)
                    self.history.fold(fed)
                else:
                    self.history.apply(fed, at)
            except Exception:  # one bad message must not harm the next one
                logger.exception("the page cannot take a message: message=%s", type(fed).__name__)

    def _drain_soon(self) -> None:
        """Let the loop take in what waits. Called by other threads."""
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self.drain)

    async def _does_answer(self) -> bool:
        """Return whether the Backend answers in time. However many want to know it, it is asked once a second."""
        if self._feed.backend is not None and self._clock.monotonic() >= self._ask_from:
            if self._asking is None or self._asking.done():
                self._asking = self._loop.create_task(self._ask_backend())
            await asyncio.shield(self._asking)
        return self._answers

    async def _ask_backend(self) -> None:
        """Ask the Backend something. An answer may be missing: that is a finding."""
        try:
            await self._ask(HasEnoughExecutors())
            self._answers = True
        except Refused:  # it is there
            self._answers = True
        except Exception:  # noqa: BLE001 - it has ended, or crashed with whatever it says, or does not answer in time
            self.drain()
            self._answers = self.history.stopped is not None
        self._ask_from = later(self._clock.monotonic(), timedelta(seconds=PROBE_SECONDS))

    async def _ask(self, message: Question[A]) -> A:
        """Ask the Backend.

        Raises:
            TimeoutError: it did not answer in time.
            ActorDeadError: it has ended.
            ExecutorPodsError: it refuses, or there is none.
        """
        backend = self._feed.backend
        if backend is None:
            raise Refused("the fleet has not started yet")
        reply, answered = backend.request(message), self._loop.create_future()
        assert isinstance(reply, Reply)
        reply.when_set(lambda: _tell(self._loop, answered))
        if not reply.is_set:
            async with asyncio.timeout(ANSWER_SECONDS):
                await answered
        return cast("A", reply.get(timeout=0))

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _status_document(self) -> Status:
        takes, status = self._token is not None, self.view.status_now()
        return status_of(self._app_id, status, self.history, self._now(), takes_actions=takes)

    def _all(self) -> Executors:
        return Executors(VERSION, self.history.seq, self.history.living(), self.history.ended())

    # ── streams ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _parts(self, since: int) -> AsyncGenerator[bytes]:
        """Yield the events of a stream; each is made when the one before it was sent."""
        if self._viewers >= MOST_VIEWERS:
            return
        self._viewers += 1
        if self._ticking is None:
            self._ticking = self._loop.create_task(self._run())
        told = 0
        try:
            yield b"retry: 2000\n\n"
            while True:
                news = self._news
                if not self.history.can_tell_since(since):
                    since = self.history.seq
                    yield _event("reset", Reset(since), since)
                while since < self.history.seq:
                    since, text = self._changes(since)
                    yield text
                if self._told[2] > told:
                    told = self._told[2]
                    yield self._told[1]
                try:
                    async with asyncio.timeout(QUIET_SECONDS):
                        await asyncio.shield(news)
                except TimeoutError:
                    yield b": quiet\n\n"
        finally:
            self._viewers -= 1
            if self._viewers == 0 and self._ticking is not None:
                self._ticking.cancel()
                self._ticking = None

    def _changes(self, since: int) -> tuple[int, bytes]:
        """Return the next changes as an event, and their last number."""
        made_for = (since, self.history.seq)
        if self._shared[0] != made_for:
            changes = self.history.changes(since, CHANGES_AT_ONCE)
            self._shared = (made_for, changes.seq, _event("change", changes, changes.seq))
        return self._shared[1:]

    async def _run(self) -> None:
        """Look for news, as long as there are viewers."""
        while True:
            await asyncio.sleep(self._tick)
            try:
                self.look()
            except Exception:  # the next change may be one that can be told
                logger.exception("viewers not told of a change")

    def look(self) -> None:
        """Take in what is new, and wake the viewers if there is something."""
        self.drain()
        if self._has_new_status() or self.history.seq != self._woken_at:
            self._woken_at = self.history.seq
            news, self._news = self._news, self._loop.create_future()
            news.set_result(None)

    def _has_new_status(self) -> bool:
        """Make the status for the viewers, if it is another one."""
        history = self.history
        judged = (self.view.status, history.failure, history.started, history.stopped, len(history.columns()))
        if judged == self._judged:
            return False
        self._judged = judged
        document = self._status_document()
        known = lasting(document)
        if known == self._told[0]:
            return False
        self._told = (known, _event("status", document), self._told[2] + 1)
        return True


def _action(asked: Asked) -> str | None:
    """Return the name of the action that is asked for, None if none is."""
    name = asked.path.removeprefix("/api/v1/")
    return name if name in ACTIONS and name != asked.path else None


def _refusal(asked: Asked, token: bytes | None) -> Answer | None:
    """Return the answer to an action of somebody who may not act, None if he may.

    No web page of a stranger can have a browser act: it does not know the token, and no browser sends this header and
    this type for it.
    """
    if asked.method != "POST":
        return _problem(405, f"{_quoted(asked.method)} is not allowed here: POST is", {"Allow": "POST"})
    if token is None:
        return _problem(403, "this page takes no actions: the driver gave it no token")
    origin = asked.headers.get("origin")
    if origin is not None and origin.partition("://")[2].lower() != asked.headers["host"].lower():
        return _problem(403, f"an action must come from this page, not from {_quoted(origin)}")
    scheme, _, given = asked.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(errors="replace"), token):
        challenge = {"WWW-Authenticate": "Bearer"}
        return _problem(401, "an action needs the header Authorization: Bearer and the driver's token", challenge)
    if asked.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
        return _problem(415, f"an action is a JSON object: send Content-Type: {JSON}")
    return None


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Yield all files of a folder that browsers load, with their paths."""
    for each in folder.iterdir():
        if each.is_dir():
            yield from _files(each, f"{path}{each.name}/")
        elif each.name.rpartition(".")[2] in TYPES:
            yield path + each.name, each


def exposed(given: Metrics | None) -> tuple[Metrics | None, Callable[[], bytes] | None]:
    """Return the metrics for the Backend, and what renders them."""
    try:
        from actors.metrics.exposition import exposition  # noqa: PLC0415 - of an extra
    except MissingExtra:
        return given, None
    return exposition(given)


def _event(name: str, document: Status | Change | Reset, seq: int | None = None) -> bytes:
    """Return an event of a stream. A browser that connects again says the `id` of the last one."""
    number = b"" if seq is None else b"id: %d\n" % seq
    return b"event: %s\n%sdata: %s\n\n" % (name.encode(), number, encode(document))


def _tell(loop: asyncio.AbstractEventLoop, answered: asyncio.Future[None]) -> None:
    """Wake whoever waits for an answer. Called by the thread that answers."""

    def wake() -> None:
        if not answered.done():
            answered.set_result(None)

    with suppress(RuntimeError):  # the loop was closed: nobody waits any more
        loop.call_soon_threadsafe(wake)


def _problem(status: int, text: str, headers: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, encode(Problem(text)), headers=headers or {})


def _quoted(text: str | None) -> str:
    """Return a text of a stranger for an error."""
    return "none" if text is None else repr(one_line(text, _LONGEST_QUOTE))


_LONGEST_QUOTE: Final = 60
