"""`ManualPodApi`: a `PodApi` that does nothing by itself. It records every call, and the test answers when it likes.

For tests of one actor, message by message: what is on the wire is as much in the test's hand as what is in the mailbox.
It keeps the protocol's promises (each call completes once, a cancelled one with `Cancelled`), and raises
`AssertionError` when a test would break them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from actors.errors import ApiError, Cancelled
from actors.kube.api import DeleteOptions, Manifest, PodPage, Resource, WatchEnded, WatchEvents, WatchSink

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from actors.pods.pod import Pod, PodEvent

__all__ = ["ManualCall", "ManualPodApi", "Verb"]

Verb: TypeAlias = Literal[
    "list",
    "watch",
    "get",
    "create",
    "delete",
    "delete_collection",
    "patch",
    "may",
    "get_object",
    "list_objects",
    "create_object",
    "patch_object",
]

_OPEN_STREAM: Final = "a watch is answered by `send` and `end`"


@dataclass(eq=False)
class ManualCall:
    """A call under way, in the hands of the test."""

    verb: Verb
    arguments: Mapping[str, Any]
    """By the names that `PodApi` gives them."""
    reply: Callable[[Any], None] = field(repr=False)
    answered: bool = False
    """It has completed; nothing more may be said."""
    cancelled: bool = False
    """The caller gave it up before it was answered."""
    taken: bool = field(default=False, repr=False)

    def answer(self, answer: object) -> None:
        """Complete it: with what the method returns, or with an `ApiError`."""
        assert self.verb != "watch", _OPEN_STREAM
        self._complete(answer)

    def send(self, *events: PodEvent, version: str, malformed: int = 0, initial_events_end: bool = False) -> None:
        """What one read of this watch brings; no events make a bookmark."""
        assert self.verb == "watch", f"a {self.verb} is completed by `answer`"
        assert not self.answered, f"the stream has ended: {self}"
        self.reply(WatchEvents(events, version, malformed, initial_events_end))

    def end(self, error: ApiError | None = None, *, in_stream: bool = False) -> None:
        """End this watch: cleanly, or with `error`, which comes as an answer or as an event `in_stream`."""
        assert self.verb == "watch", f"a {self.verb} is completed by `answer`"
        self._complete(WatchEnded(error, in_stream))

    def cancel(self) -> None:
        """The caller's side: complete with `Cancelled`, unless it has completed before."""
        if self.answered:
            return
        self.cancelled = True
        error = Cancelled(f"the {self.verb} was cancelled")
        self._complete(WatchEnded(error) if self.verb == "watch" else error)

    def _complete(self, answer: object) -> None:
        assert not self.answered, f"the call has completed before: {self}"
        self.answered = True
        self.reply(answer)


class ManualPodApi:
    """A `PodApi` whose every answer is the test's."""

    def __init__(self, namespace: str = "default") -> None:
        self._namespace = namespace
        self.calls: list[ManualCall] = []
        """Every call that was ever made, in order."""
        self.closed = False

    def take(self, verb: Verb) -> ManualCall:
        """The oldest open call of this kind that was not taken before. There must be one."""
        for call in self.calls:
            if call.verb == verb and not call.taken and not call.answered:
                call.taken = True
                return call
        raise AssertionError(f"no {verb} is under way; under way are {self.open() or 'none'}")

    def open(self, *verbs: Verb) -> tuple[ManualCall, ...]:
        """The calls under way, of these kinds (or all), oldest first."""
        return tuple(call for call in self.calls if not call.answered and (not verbs or call.verb in verbs))

    # ── PodApi ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def namespace(self) -> str:
        """The namespace that every call goes to."""
        return self._namespace

    def list(
        self,
        selector: str,
        reply: Callable[[PodPage | ApiError], None],
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
    ) -> ManualCall:
        """Record a page of a LIST."""
        return self._record(
            "list",
            reply,
            selector=selector,
            limit=limit,
            continue_token=continue_token,
            resource_version=resource_version,
        )

    def watch(
        self,
        selector: str,
        resource_version: str,
        sink: WatchSink,
        *,
        timeout: timedelta,
        send_initial_events: bool = False,
    ) -> ManualCall:
        """Record a watch."""
        return self._record(
            "watch",
            sink,
            selector=selector,
            resource_version=resource_version,
            timeout=timeout,
            send_initial_events=send_initial_events,
        )

    def get(self, name: str, reply: Callable[[Pod | ApiError], None]) -> ManualCall:
        """Record a GET."""
        return self._record("get", reply, name=name)

    def create(self, manifest: Manifest, reply: Callable[[Pod | ApiError], None]) -> ManualCall:
        """Record a POST."""
        return self._record("create", reply, manifest=manifest)

    def delete(self, name: str, options: DeleteOptions, reply: Callable[[ApiError | None], None]) -> ManualCall:
        """Record a DELETE."""
        return self._record("delete", reply, name=name, options=options)

    def delete_collection(
        self, selector: str, reply: Callable[[ApiError | None], None], *, grace: timedelta | None = None
    ) -> ManualCall:
        """Record a DELETE by selector."""
        return self._record("delete_collection", reply, selector=selector, grace=grace)

    def patch(self, name: str, patch: Manifest, reply: Callable[[Pod | ApiError], None]) -> ManualCall:
        """Record a PATCH."""
        return self._record("patch", reply, name=name, patch=patch)

    def may(self, verb: str, resource: Resource, reply: Callable[[bool | ApiError], None]) -> ManualCall:
        """Record a question about a right. Its own `verb` is among the arguments."""
        return self._record("may", reply, verb=verb, resource=resource)

    def get_object(self, resource: Resource, name: str, reply: Callable[[Manifest | ApiError], None]) -> ManualCall:
        """Record a GET of another kind."""
        return self._record("get_object", reply, resource=resource, name=name)

    def list_objects(
        self, resource: Resource, selector: str, reply: Callable[[Sequence[Manifest] | ApiError], None]
    ) -> ManualCall:
        """Record a LIST of another kind."""
        return self._record("list_objects", reply, resource=resource, selector=selector)

    def create_object(
        self, resource: Resource, manifest: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> ManualCall:
        """Record a POST of another kind."""
        return self._record("create_object", reply, resource=resource, manifest=manifest)

    def patch_object(
        self, resource: Resource, name: str, patch: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> ManualCall:
        """Record a PATCH of another kind."""
        return self._record("patch_object", reply, resource=resource, name=name, patch=patch)

    def close(self) -> None:
        """Cancel what is under way."""
        self.closed = True
        for call in self.open():
            call.cancel()

    def _record(self, kind: Verb, reply: Callable[[Any], None], **arguments: Any) -> ManualCall:
        call = ManualCall(kind, arguments, reply)
        self.calls.append(call)
        if self.closed:
            call.cancel()
        return call
