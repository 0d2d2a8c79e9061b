"""A fence: a `PodApi` for one incarnation of an actor, which sends nothing once that has ended.

Nothing can end a thread from outside. One that was given up because it hung may wake up at any time and go on where it
was, beside its replacement. Before this fence it finds every way to the API shut, and what it had under way given up.
A call that hangs in the very middle of being sent is given up as soon as it has been.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, final

from actors.errors import ApiError, Cancelled
from actors.kube.api import WatchEnded, WatchEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from actors.kube.api import Call, DeleteOptions, Manifest, PodApi, PodPage, Resource, WatchSink
    from actors.pods.pod import Pod

__all__ = ["FencedPodApi"]

SHUT = "nothing is sent for an actor that has ended"


@final
class FencedPodApi:
    """Passes everything on to `api`, until it is shut. See `actors.kube.api.PodApi` for the methods."""

    def __init__(self, api: PodApi) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._open: set[_FencedCall] = set()
        self._is_shut = False

    def close(self) -> None:
        """Shut it, from any thread: what is under way completes with `Cancelled`, what comes later at once.

        `api` is left open: it is not ours alone.
        """
        with self._lock:
            self._is_shut = True
            still_open = tuple(self._open)
        for call in still_open:
            call.cancel()

    @property
    def namespace(self) -> str:
        """See `PodApi`."""
        return self._api.namespace

    def list(
        self,
        selector: str,
        reply: Callable[[PodPage | ApiError], None],
        *,
        limit: int = 500,
        continue_token: str = "",
        resource_version: str | None = None,
    ) -> Call:
        """See `PodApi`."""
        return self._send(
            lambda reply: self._api.list(
                selector, reply, limit=limit, continue_token=continue_token, resource_version=resource_version
            ),
            reply,
        )

    def watch(
        self,
        selector: str,
        resource_version: str,
        sink: WatchSink,
        *,
        timeout: timedelta,
        send_initial_events: bool = False,
    ) -> Call:
        """See `PodApi`."""
        return self._send(
            lambda sink: self._api.watch(
                selector, resource_version, sink, timeout=timeout, send_initial_events=send_initial_events
            ),
            sink,
            refused=lambda error: sink(WatchEnded(error)),
        )

    def get(self, name: str, reply: Callable[[Pod | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.get(name, reply), reply)

    def create(self, manifest: Manifest, reply: Callable[[Pod | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.create(manifest, reply), reply)

    def delete(self, name: str, options: DeleteOptions, reply: Callable[[ApiError | None], None]) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.delete(name, options, reply), reply)

    def delete_collection(
        self, selector: str, reply: Callable[[ApiError | None], None], *, grace: timedelta | None = None
    ) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.delete_collection(selector, reply, grace=grace), reply)

    def patch(self, name: str, patch: Manifest, reply: Callable[[Pod | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.patch(name, patch, reply), reply)

    def may(self, verb: str, resource: Resource, reply: Callable[[bool | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.may(verb, resource, reply), reply)

    def get_object(self, resource: Resource, name: str, reply: Callable[[Manifest | ApiError], None]) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.get_object(resource, name, reply), reply)

    def list_objects(
        self, resource: Resource, selector: str, reply: Callable[[Sequence[Manifest] | ApiError], None]
    ) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.list_objects(resource, selector, reply), reply)

    def create_object(
        self, resource: Resource, manifest: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.create_object(resource, manifest, reply), reply)

    def patch_object(
        self, resource: Resource, name: str, patch: Manifest, reply: Callable[[Manifest | ApiError], None]
    ) -> Call:
        """See `PodApi`."""
        return self._send(lambda reply: self._api.patch_object(resource, name, patch, reply), reply)

    def _send(
        self,
        send: Callable[[Callable[[Any], None]], Call],
        reply: Callable[[Any], None],
        *,
        refused: Callable[[ApiError], None] | None = None,
    ) -> Call:
        call = _FencedCall()
        if not self._remember(call):
            (refused or reply)(Cancelled(SHUT))
            return call

        def answered(answer: object) -> None:
            if not isinstance(answer, WatchEvents):  # all but these are a last word
                self._forget(call)
            reply(answer)

        call.sent_as(send(answered))
        return call

    def _remember(self, call: _FencedCall) -> bool:
        """Have `close` end it; False if that was called."""
        with self._lock:
            if self._is_shut:
                return False
            self._open.add(call)
            return True

    def _forget(self, call: _FencedCall) -> None:
        with self._lock:
            self._open.discard(call)


@final
class _FencedCall:
    """A call that can be given up before it is known as what it was sent: whichever comes second cancels it."""

    def __init__(self) -> None:
        self._sent: Call | None = None
        self._cancelled = False

    def sent_as(self, call: Call) -> None:
        self._sent = call
        if self._cancelled:
            call.cancel()

    def cancel(self) -> None:
        self._cancelled = True
        if self._sent is not None:
            self._sent.cancel()
