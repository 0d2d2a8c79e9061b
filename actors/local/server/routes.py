"""The Kubernetes API over HTTP: each request becomes one call of the object store, each refusal a `Status`.

No rule about objects stands here: this decides only which method on which path means which call, and what is answered
by 404, 405 or 501 because the embedded cluster does not do it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from aiohttp import web

from actors.local.schema.statuses import Cause, bad_request, done, invalid_list_options, not_implemented
from actors.local.server.api_request import (
    Representation,
    Target,
    boolean,
    delete_body,
    integer,
    json_body,
    method_not_allowed,
    no_such_path,
    parse_target,
    refuse_dry_run,
    representation,
)
from actors.local.server.discovery import DISCOVERY, HEALTH_PATHS
from actors.local.server.pod_actions import binding_target, eviction_options, is_dry_run
from actors.local.server.pod_logs import LogSource, stream_log
from actors.local.server.responses import json_response, large_json_response
from actors.local.server.reviews import PATH as REVIEWS
from actors.local.server.reviews import reviewed
from actors.local.server.tables import table
from actors.local.server.watch_stream import WatchQueue, stream_watch

if TYPE_CHECKING:
    from actors.local.store.history import WatchMessage
    from actors.local.store.object_store import ListResult, ObjectStore
    from actors.runtime import Clock, Entropy

__all__ = ["Routes"]

_Handler: TypeAlias = Callable[[web.Request, Target], Awaitable[web.StreamResponse]]

_NOT_OLDER: Final = "NotOlderThan"
_MIN_WATCH_SECONDS: Final = 1800.0
# A watch without a timeout lives this long to twice as long (`--min-request-timeout` of a real server).
_MAX_WATCH_SECONDS: Final = 86_400.0
# Nobody watches longer than a day; `asyncio` cannot wait for ever.
_NOT_IMPLEMENTED: Final = frozenset(
    {"attach", "ephemeralcontainers", "exec", "finalize", "portforward", "proxy", "resize", "token"}
)
_OLD_WATCH: Final = re.compile("/api/[^/]+/watch/|/apis/[^/]+/[^/]+/watch/")
# How watches were asked for before `?watch=true`; a real server still answers that.
_OPTIONS: Final[Mapping[str, str]] = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
# Methods with a `dryRun` in the query only; a DELETE may have it in the body, too.
_PATCH_TYPES: Final[Mapping[str, Literal["json", "merge", "strategic"]]] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}


class Routes:
    """Answers authorised requests. Raises `ApiStatus` for a refusal."""

    def __init__(self, store: ObjectStore, logs: LogSource, clock: Clock, entropy: Entropy) -> None:
        self._store = store
        self._logs = logs
        self._clock = clock
        self._entropy = entropy
        self._collection: Mapping[str, _Handler] = {
            "GET": self._list_or_watch,
            "POST": self._create,
            "DELETE": self._delete_collection,
        }
        self._object: Mapping[str, _Handler] = {
            "GET": self._get,
            "PUT": self._replace,
            "PATCH": self._patch,
            "DELETE": self._delete,
        }
        self._status: Mapping[str, _Handler] = {"GET": self._get, "PUT": self._replace, "PATCH": self._patch}
        self._log: Mapping[str, _Handler] = {"GET": self._pod_log}
        self._binding: Mapping[str, _Handler] = {"POST": self._bind}
        self._eviction: Mapping[str, _Handler] = {"POST": self._evict}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        path = request.rel_url.raw_path
        known = path.rstrip("/") or path
        if known == REVIEWS:
            return await self._review(request)
        if known in HEALTH_PATHS or known in DISCOVERY:
            if request.method != "GET":
                raise method_not_allowed()
            return web.Response(text="ok") if known in HEALTH_PATHS else json_response(DISCOVERY[known])
        if _OLD_WATCH.match(path):
            raise not_implemented("a watch by path")
        target = parse_target(path)
        handler = self._methods(target).get(request.method)
        if handler is None:
            raise method_not_allowed()
        if request.method in _OPTIONS and target.subresource != "eviction":
            refuse_dry_run(request, _OPTIONS[request.method])
        return await handler(request, target)

    def _methods(self, target: Target) -> Mapping[str, _Handler]:
        if target.name is None:
            return self._collection
        match target.subresource:
            case None:
                return self._object
            case name if name in _NOT_IMPLEMENTED:
                raise not_implemented(f"{target.resource.plural}/{name}")
            case "status" if target.resource.has_status:
                return self._status
            case "log" if "log" in target.resource.subresources:
                return self._log
            case "binding" if "binding" in target.resource.subresources:
                return self._binding
            case "eviction" if "eviction" in target.resource.subresources:
                return self._eviction
            case _:
                raise no_such_path()

    # ── Collections ──────────────────────────────────────────────────────────────────────────────────────────────

    async def _list_or_watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        if boolean(request.query, "watch"):
            return await self._watch(request, target)
        query, shown = request.query, representation(request)
        result = self._store.list(
            target.resource.plural,
            target.namespace,
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            limit=integer(query, "limit") or 0,
            continue_token=query.get("continue", ""),
            resource_version=query.get("resourceVersion"),
            resource_version_match=query.get("resourceVersionMatch"),
        )
        metadata: dict[str, Any] = {"resourceVersion": result.resource_version}
        if result.continue_token:
            metadata["continue"] = result.continue_token
        if result.remaining is not None:
            metadata["remainingItemCount"] = result.remaining
        return await large_json_response(request, self._list_body(target, result, metadata, shown))

    def _list_body(
        self, target: Target, result: ListResult, metadata: Mapping[str, Any], shown: Representation
    ) -> dict[str, Any]:
        if shown.as_table:
            return table(target.resource, result.items, self._clock.now(), metadata=metadata, include=shown.include)
        kind, version = f"{target.resource.kind}List", target.resource.api_version
        return {"kind": kind, "apiVersion": version, "metadata": metadata, "items": result.items}

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        query, shown = request.query, representation(request)
        initial = boolean(query, "sendInitialEvents")
        _check_initial_events(query)
        seconds = float(integer(query, "timeoutSeconds") or 0)
        if seconds <= 0:
            seconds = self._entropy.uniform(_MIN_WATCH_SECONDS, 2 * _MIN_WATCH_SECONDS)
        transport = request.transport
        assert transport is not None
        queue = WatchQueue(asyncio.get_running_loop(), transport.abort)
        subscription = self._store.watch(
            target.resource.plural,
            target.namespace,
            queue.put,
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            resource_version=query.get("resourceVersion"),
            bookmarks=boolean(query, "allowWatchBookmarks"),
            send_initial_events=initial,
        )
        queue.limit()
        try:
            return await stream_watch(request, queue, min(seconds, _MAX_WATCH_SECONDS), self._renderer(target, shown))
        finally:
            subscription.cancel()

    def _renderer(self, target: Target, shown: Representation) -> Callable[[WatchMessage], Mapping[str, Any]]:
        """Objects as they are, or each as a Table of its own, the first of which has the header."""
        if not shown.as_table:
            return lambda message: message.object
        header = True

        def render(message: WatchMessage) -> Mapping[str, Any]:
            nonlocal header
            if message.type == "ERROR":
                return message.object
            metadata = {"resourceVersion": message.object["metadata"]["resourceVersion"]}
            rendered = table(
                target.resource,
                [message.object],
                self._clock.now(),
                metadata=metadata,
                include=shown.include,
                header=header,
            )
            header = False
            return rendered

        return render

    async def _create(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.resource.namespaced and target.namespace is None:
            raise method_not_allowed()
        warnings: list[str] = []
        created = self._store.create(
            target.resource.plural,
            target.namespace,
            await json_body(request),
            field_validation=request.query.get("fieldValidation"),
            warnings=warnings,
        )
        return json_response(created, 201, warnings=warnings)

    async def _delete_collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        if target.resource.namespaced and target.namespace is None:
            raise method_not_allowed()
        if request.query.get("limit") or request.query.get("continue"):
            raise not_implemented("deletecollection in pages")
        options = await delete_body(request)
        if options.dry_run:
            raise not_implemented("dryRun")
        result = self._store.delete_collection(
            target.resource.plural,
            target.namespace,
            label_selector=request.query.get("labelSelector", ""),
            field_selector=request.query.get("fieldSelector", ""),
            grace_period_seconds=options.grace_period_seconds,
            uid=options.uid,
            resource_version=options.resource_version,
        )
        metadata = {"resourceVersion": result.resource_version}
        return await large_json_response(request, self._list_body(target, result, metadata, Representation()))

    # ── Objects ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _get(self, request: web.Request, target: Target) -> web.StreamResponse:
        shown = representation(request)
        assert target.name is not None
        found = self._store.get(target.resource.plural, target.namespace, target.name)
        if not shown.as_table:
            return json_response(found)
        metadata = {"resourceVersion": found["metadata"]["resourceVersion"]}
        return json_response(
            table(target.resource, [found], self._clock.now(), metadata=metadata, include=shown.include)
        )

    async def _replace(self, request: web.Request, target: Target) -> web.StreamResponse:
        assert target.name is not None
        warnings: list[str] = []
        replaced = self._store.replace(
            target.resource.plural,
            target.namespace,
            target.name,
            await json_body(request),
            subresource=target.subresource,
            field_validation=request.query.get("fieldValidation"),
            warnings=warnings,
        )
        return json_response(replaced, warnings=warnings)

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        assert target.name is not None
        warnings: list[str] = []
        patch = await json_body(request, frozenset(_PATCH_TYPES))
        if patch is None:
            raise bad_request("the body of a PATCH must not be empty")
        patched = self._store.patch(
            target.resource.plural,
            target.namespace,
            target.name,
            patch,
            _PATCH_TYPES[request.content_type],
            subresource=target.subresource,
            field_validation=request.query.get("fieldValidation"),
            warnings=warnings,
        )
        return json_response(patched, warnings=warnings)

    async def _delete(self, request: web.Request, target: Target) -> web.StreamResponse:
        assert target.name is not None
        options = await delete_body(request)
        if options.dry_run:
            raise not_implemented("dryRun")
        deleted = self._store.delete(
            target.resource.plural,
            target.namespace,
            target.name,
            grace_period_seconds=options.grace_period_seconds,
            uid=options.uid,
            resource_version=options.resource_version,
        )
        return json_response(deleted)

    # ── Pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pod_log(self, request: web.Request, target: Target) -> web.StreamResponse:
        assert target.name is not None
        return await stream_log(request, self._store.get("pods", target.namespace, target.name), self._logs)

    async def _bind(self, request: web.Request, target: Target) -> web.StreamResponse:
        assert target.namespace is not None
        assert target.name is not None
        node, uid = binding_target(await json_body(request), target.name)
        self._store.bind(target.namespace, target.name, node, uid=uid)
        return json_response(done(), 201)

    async def _evict(self, request: web.Request, target: Target) -> web.StreamResponse:
        assert target.namespace is not None
        assert target.name is not None
        unknown: list[str] = []
        options = eviction_options(await json_body(request), target.namespace, target.name, unknown)
        dry_run = is_dry_run([value for value in request.query.getall("dryRun", []) if value], "CreateOptions")
        self._store.evict(
            target.namespace,
            target.name,
            grace_period_seconds=options.grace_period_seconds,
            uid=options.uid,
            resource_version=options.resource_version,
            dry_run=dry_run or options.dry_run,
        )
        return json_response(done(), 201, warnings=[f'unknown field "{field}"' for field in unknown])

    # ── What is answered without the store ───────────────────────────────────────────────────────────────────────

    async def _review(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            raise method_not_allowed()
        unknown: list[str] = []
        review = reviewed(await json_body(request), unknown)
        return json_response(review, 201, warnings=[f'unknown field "{field}"' for field in unknown])


def _check_initial_events(query: Mapping[str, str]) -> None:
    """Which options of a watch go together, as `validateWatchOptions` of apimachinery has it."""
    match, asked = query.get("resourceVersionMatch", ""), "sendInitialEvents" in query
    causes = []
    if asked and match != _NOT_OLDER:
        detail = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER}"
        causes.append(Cause.forbidden("resourceVersionMatch", detail))
    if match and not asked:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(Cause.forbidden("resourceVersionMatch", detail))
    if match and match != _NOT_OLDER:
        causes.append(Cause.unsupported("resourceVersionMatch", match, (_NOT_OLDER,)))
    if query.get("continue"):
        causes.append(
            Cause.forbidden("resourceVersionMatch", "resourceVersionMatch is forbidden when continue is provided")
        )
    if causes:
        raise invalid_list_options(*causes)
