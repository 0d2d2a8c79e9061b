"""The Kubernetes API over HTTP: each request becomes one call of the object store, each refusal a `Status`.

This module has no rules about objects. It maps methods and paths to calls, and answers 404, 405 or 501 where the
embedded cluster does not support a request.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from aiohttp import web

from actors.local.schema.statuses import (
    Cause,
    bad_request,
    done,
    invalid_list_options,
    no_such_path,
    not_implemented,
)
from actors.local.server.api_request import (
    Target,
    boolean,
    delete_body,
    dry_run,
    integer,
    json_body,
    method_not_allowed,
    parse_target,
    table_rows,
)
from actors.local.server.discovery import DISCOVERY, HEALTH_PATHS
from actors.local.server.pod_actions import binding_target, eviction_options
from actors.local.server.pod_logs import LogSource, stream_log
from actors.local.server.responses import json_response, large_json_response
from actors.local.server.reviews import PATH, reviewed
from actors.local.server.tables import table
from actors.local.server.watch_stream import WatchQueue, check_upgrade, stream_watch

if TYPE_CHECKING:
    from actors.local.server.tables import IncludeObject
    from actors.local.store.history import WatchMessage
    from actors.local.store.object_store import ListResult, ObjectStore, Selectors, Validation
    from actors.runtime import Clock, Entropy

__all__ = ["Routes"]

_Handler: TypeAlias = Callable[[web.Request, Target], Awaitable[web.StreamResponse]]

_NOT_OLDER: Final = "NotOlderThan"
_MIN_WATCH_SECONDS: Final = 1800.0
"""A watch without a timeout runs this long to twice as long (`--min-request-timeout` of a real server)."""
_MAX_WATCH_SECONDS: Final = 86_400.0
"""A day: longer than any watch needs, and within the limits of `asyncio`."""
_NOT_IMPLEMENTED: Final = frozenset(
    {"attach", "ephemeralcontainers", "exec", "finalize", "portforward", "proxy", "resize", "token"}
)
_OLD_WATCH: Final = re.compile("/api/[^/]+/watch/|/apis/[^/]+/[^/]+/watch/")
"""The form of watches before `?watch=true`; a real server still serves it."""
_OPTIONS: Final[Mapping[str, str]] = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
"""Methods with `dryRun` in the query only; a DELETE may have it in the body, too, and so may an eviction."""
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
        status: Mapping[str, _Handler] = {"GET": self._get, "PUT": self._replace, "PATCH": self._patch}
        self._object: Mapping[str | None, Mapping[str, _Handler]] = {
            None: {**status, "DELETE": self._delete},
            "status": status,
            "log": {"GET": self._pod_log},
            "binding": {"POST": self._bind},
            "eviction": {"POST": self._evict},
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Answer one request."""
        path = request.rel_url.raw_path
        known = path.rstrip("/") or path
        if known == PATH:
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
        return await handler(request, target)

    def _writable(self, *, dry: bool) -> ObjectStore:
        """Return the store, or a copy for a dry run."""
        return self._store.rehearsal() if dry else self._store

    def _methods(self, target: Target) -> Mapping[str, _Handler]:
        resource, subresource = target.resource, target.subresource
        if target.name is None:
            everywhere = resource.namespaced and target.namespace is None
            return {"GET": self._list_or_watch} if everywhere else self._collection
        if subresource in _NOT_IMPLEMENTED:
            raise not_implemented(f"{resource.plural}/{subresource}")
        if subresource is not None and subresource not in resource.subresources:
            raise no_such_path()
        return self._object[subresource]

    # ── Collections ───────────────────────────────────────────────────────────────────────────────────────────────

    async def _list_or_watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        if boolean(request.query, "watch"):
            return await self._watch(request, target)
        query, include = request.query, table_rows(request)
        result = self._store.list(
            *target.collection,
            **_selectors(query),
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
        if include is None:
            return await large_json_response(request, _list_body(target, result, metadata))
        return await large_json_response(request, self._table(target, result.items, metadata, include))

    def _table(
        self,
        target: Target,
        objects: Sequence[Mapping[str, Any]],
        metadata: Mapping[str, Any],
        include: IncludeObject,
        *,
        header: bool = True,
    ) -> dict[str, Any]:
        now = self._clock.now()
        return table(target.resource, objects, now, metadata=metadata, include=include, header=header)

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        query, include = request.query, table_rows(request)
        _check_initial_events(query)
        check_upgrade(request)
        seconds = float(integer(query, "timeoutSeconds") or 0)
        if seconds <= 0:
            seconds = self._entropy.uniform(_MIN_WATCH_SECONDS, 2 * _MIN_WATCH_SECONDS)
        transport = request.transport
        assert transport is not None
        queue = WatchQueue(asyncio.get_running_loop(), transport.abort)
        subscription = self._store.watch(
            *target.collection,
            queue.put,
            **_selectors(query),
            resource_version=query.get("resourceVersion"),
            bookmarks=boolean(query, "allowWatchBookmarks"),
            send_initial_events=boolean(query, "sendInitialEvents"),
        )
        queue.limit()
        try:
            return await stream_watch(request, queue, min(seconds, _MAX_WATCH_SECONDS), self._renderer(target, include))
        finally:
            subscription.cancel()

    def _renderer(self, target: Target, include: IncludeObject | None) -> Callable[[WatchMessage], Mapping[str, Any]]:
        """Return a function that renders a watch's objects: unchanged, or each as a Table, the first with a header."""
        if include is None:
            return lambda message: message.object
        header = True

        def render(message: WatchMessage) -> Mapping[str, Any]:
            nonlocal header
            if message.type == "ERROR":
                return message.object
            rendered = self._table(target, [message.object], _version(message.object), include, header=header)
            header = False
            return rendered

        return render

    async def _create(self, request: web.Request, target: Target) -> web.StreamResponse:
        options, dry = _validation(request), _is_dry(request)
        body = await json_body(request)
        created = self._writable(dry=dry).create(*target.collection, body, **options)
        return json_response(created, 201, warnings=options["warnings"])

    async def _delete_collection(self, request: web.Request, target: Target) -> web.StreamResponse:
        if request.query.get("limit") or request.query.get("continue"):
            raise not_implemented("deletecollection in pages")
        options, dry = await delete_body(request)
        result = self._writable(dry=dry).delete_collection(
            *target.collection,
            listed_at=request.query.get("resourceVersion"),
            match=request.query.get("resourceVersionMatch"),
            **_selectors(request.query),
            **options,
        )
        metadata = {"resourceVersion": result.resource_version}
        return await large_json_response(request, _list_body(target, result, metadata))

    # ── Objects ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _get(self, request: web.Request, target: Target) -> web.StreamResponse:
        include = table_rows(request)
        found = self._store.get(*target.place)
        return json_response(found if include is None else self._table(target, [found], _version(found), include))

    async def _replace(self, request: web.Request, target: Target) -> web.StreamResponse:
        options, dry = _validation(request), _is_dry(request)
        body = await json_body(request)
        store = self._writable(dry=dry)
        replaced = store.replace(*target.place, body, subresource=target.subresource, **options)
        return json_response(replaced, warnings=options["warnings"])

    async def _patch(self, request: web.Request, target: Target) -> web.StreamResponse:
        options, dry = _validation(request), _is_dry(request)
        patch = await json_body(request, frozenset(_PATCH_TYPES))
        if patch is None:
            raise bad_request("the body of a PATCH must not be empty")
        patch_type = _PATCH_TYPES[request.content_type]
        store = self._writable(dry=dry)
        patched = store.patch(*target.place, patch, patch_type, subresource=target.subresource, **options)
        return json_response(patched, warnings=options["warnings"])

    async def _delete(self, request: web.Request, target: Target) -> web.StreamResponse:
        options, dry = await delete_body(request)
        return json_response(self._writable(dry=dry).delete(*target.place, **options))

    # ── Pods ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pod_log(self, request: web.Request, target: Target) -> web.StreamResponse:
        return await stream_log(request, self._store.get(*target.place), self._logs)

    async def _bind(self, request: web.Request, target: Target) -> web.StreamResponse:
        _, namespace, name = target.place
        dry = _is_dry(request)
        node, uid = binding_target(await json_body(request), name)
        self._writable(dry=dry).bind(namespace, name, node, uid=uid)
        return json_response(done(), 201)

    async def _evict(self, request: web.Request, target: Target) -> web.StreamResponse:
        _, namespace, name = target.place
        warnings: list[str] = []
        options, dry = eviction_options(await json_body(request), namespace, name, warnings)
        self._writable(dry=_is_dry(request) or dry).evict(namespace, name, **options)
        return json_response(done(), 201, warnings=warnings)

    # ── Answered without the store ────────────────────────────────────────────────────────────────────────────────

    async def _review(self, request: web.Request) -> web.StreamResponse:
        if request.method != "POST":
            raise method_not_allowed()
        warnings: list[str] = []
        return json_response(reviewed(await json_body(request), warnings), 201, warnings=warnings)


def _selectors(query: Mapping[str, str]) -> Selectors:
    return {"label_selector": query.get("labelSelector", ""), "field_selector": query.get("fieldSelector", "")}


def _is_dry(request: web.Request) -> bool:
    return dry_run(request, _OPTIONS[request.method])


def _validation(request: web.Request) -> Validation:
    return {"field_validation": request.query.get("fieldValidation"), "warnings": []}


def _version(obj: Mapping[str, Any]) -> dict[str, Any]:
    return {"resourceVersion": obj["metadata"]["resourceVersion"]}


def _list_body(target: Target, result: ListResult, metadata: Mapping[str, Any]) -> dict[str, Any]:
    kind, version = f"{target.resource.kind}List", target.resource.api_version
    return {"kind": kind, "apiVersion": version, "metadata": metadata, "items": result.items}


def _check_initial_events(query: Mapping[str, str]) -> None:
    """Refuse contradicting options of a watch, like `validateWatchOptions` of apimachinery."""
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
