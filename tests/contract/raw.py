"""A cluster asked past the `PodApi`, request by request: for what the library does not send itself but stands upon.

Two doors with one face: HTTP, for whatever speaks it, and the object store's methods. What a test says through it is a
method, a path and a body; what it gets is a status code and JSON, so that one test can ask all clusters.
"""

from __future__ import annotations

import base64
import json
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import urllib3
import yaml

from actors.local.kubelet.nodes import KUBERNETES_VERSION
from actors.local.schema.statuses import ApiStatus, done
from actors.local.server.api_request import parse_target
from actors.local.server.pod_actions import delete_options, eviction_options
from tests.contract.versions import minor_of
from tests.unit.local.server_kit import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from actors.local.server.api_request import Target
    from actors.local.store.history import WatchMessage
    from actors.local.store.object_store import ListResult, ObjectStore
    from actors.local.store.patches import PatchType
    from tests.contract.versions import Minor

__all__ = ["Answer", "HttpDoor", "Raw", "StoreDoor"]

SAFETY: Final = 30.0
"""Seconds until a test that would hang fails instead."""

_GROUPS: Final = {"leases": "/apis/coordination.k8s.io/v1", "selfsubjectaccessreviews": "/apis/authorization.k8s.io/v1"}
"""Where what is not of the core is served."""

_PATCHES: Final[Mapping[str, PatchType]] = {
    "application/json-patch+json": "json",
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
}
MERGE: Final = "application/merge-patch+json"
JSON: Final = "application/json"


@dataclass(frozen=True)
class Answer:
    """What came back. `headers` are empty where there is no HTTP; warnings are told apart from them."""

    status: int
    body: Any
    warnings: tuple[str, ...] = ()
    retry_after: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def refusal(self) -> tuple[int, str, str]:
        """Status code, reason and message of a `Status`; everything that a caller could tell refusals apart by."""
        return self.status, self.body.get("reason", ""), self.body["message"]

    @property
    def causes(self) -> list[tuple[str, str]]:
        """Field and reason of each cause of an `Invalid`."""
        return [(cause.get("field", ""), cause["reason"]) for cause in self.body["details"]["causes"]]


class RawWatch(ABC):
    """The lines of a watch."""

    @abstractmethod
    def next(self) -> dict[str, Any]:
        """The next line."""

    @abstractmethod
    def rest(self) -> list[dict[str, Any]]:
        """All lines until the server ends the stream."""

    @abstractmethod
    def close(self) -> None:
        """Go away."""

    def told(self) -> tuple[str, str]:
        """The next line's type, and the name of its object."""
        event = self.next()
        return event["type"], event["object"]["metadata"].get("name", "")


class Door(ABC):
    """A way in."""

    @property
    @abstractmethod
    def version(self) -> Minor:
        """Of Kubernetes, which decides some answers: see the README."""

    @abstractmethod
    def request(
        self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> Answer:
        """One request and its answer."""

    @abstractmethod
    def watch(self, path: str, query: Mapping[str, str]) -> RawWatch:
        """A watch that the server has agreed to."""


class Raw:
    """One namespace behind a door. A path is below it, such as `pods/a/status`; with a slash in front it is whole."""

    def __init__(self, door: Door, namespace: str) -> None:
        self._door = door
        self.namespace = namespace

    @property
    def version(self) -> Minor:
        """Of Kubernetes."""
        return self._door.version

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send one request; a body of bytes goes as it is."""
        return self._door.request(method, self.path(path), query or {}, body, headers or {})

    def get(self, path: str, **query: str) -> Answer:
        """GET."""
        return self.ask("GET", path, query=query)

    def post(self, path: str, body: Any, **query: str) -> Answer:
        """POST."""
        return self.ask("POST", path, body, query=query)

    def put(self, path: str, body: Any, **query: str) -> Answer:
        """PUT."""
        return self.ask("PUT", path, body, query=query)

    def patch(self, path: str, body: Any, content_type: str = MERGE, **query: str) -> Answer:
        """PATCH, as a merge patch unless it says otherwise."""
        return self.ask("PATCH", path, body, {"Content-Type": content_type}, query)

    def delete(self, path: str, body: Any = None, **query: str) -> Answer:
        """DELETE."""
        return self.ask("DELETE", path, body, query=query)

    def made(self, path: str, body: Any, **query: str) -> dict[str, Any]:
        """POST what the server must take; the object."""
        answer = self.post(path, body, **query)
        assert answer.status == 201, answer
        made: dict[str, Any] = answer.body
        return made

    def names(self, path: str, **query: str) -> set[str]:
        """The names of what a LIST shows."""
        answer = self.get(path, **query)
        assert answer.status == 200, answer
        return {item["metadata"]["name"] for item in answer.body["items"]}

    def watch(self, path: str, **query: str) -> RawWatch:
        """Watch a collection."""
        return self._door.watch(self.path(path), query)

    def path(self, path: str) -> str:
        """The whole path."""
        if path.startswith("/"):
            return path
        root = _GROUPS.get(path.partition("/")[0], "/api/v1")
        return f"{root}/namespaces/{self.namespace}/{path}"


# ── HTTP ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


class HttpDoor(Door):
    """An HTTP server, asked as the current user of a kubeconfig, by a client that adds nothing of its own accord.

    A watch that has no line for `timeout` seconds fails.
    """

    def __init__(self, kubeconfig: Path, timeout: float = SAFETY) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        authority = kubeconfig.with_name(f"{kubeconfig.name}.authority")
        if data := cluster.get("certificate-authority-data"):
            authority.write_bytes(base64.b64decode(data))
        else:
            authority = kubeconfig.parent / cluster["certificate-authority"]
        self.server: str = cluster["server"]
        self.token: str = config["users"][0]["user"]["token"]
        self.authority = authority
        self._pool = urllib3.PoolManager(ca_certs=str(authority), retries=False, timeout=timeout)

    @cached_property
    def version(self) -> Minor:
        return minor_of(self.request("GET", "/version", {}, None, {}).body["gitVersion"])

    def request(
        self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> Answer:
        response = self._open(method, path, query, body, headers)
        data = response.read()
        response.release_conn()
        return Answer(
            response.status,
            json.loads(data) if data.startswith((b"{", b"[")) else data.decode(errors="replace"),
            tuple(response.headers.getlist("Warning")),
            response.headers.get("Retry-After"),
            response.headers,
        )

    def watch(self, path: str, query: Mapping[str, str]) -> RawWatch:
        response = self._open("GET", path, {"watch": "true", **query}, None, {})
        assert response.status == 200, response.read()
        return _HttpWatch(response)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._pool.clear()

    def _open(
        self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> urllib3.BaseHTTPResponse:
        sent = {"Authorization": f"Bearer {self.token}", "Content-Type": JSON, **headers}
        return self._pool.request(
            method,
            f"{self.server}{path}?{urlencode(query)}" if query else f"{self.server}{path}",
            body=body if body is None or isinstance(body, bytes) else json.dumps(body).encode(),
            headers={name: value for name, value in sent.items() if value},
            preload_content=False,
            decode_content=True,
        )


class _HttpWatch(Watch, RawWatch):
    """The lines of a stream, as the embedded server's own tests read them."""


# ── The store ────────────────────────────────────────────────────────────────────────────────────────────────────────


class StoreDoor(Door):
    """The embedded cluster's store, asked by method calls: the same requests, without HTTP."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    @property
    def version(self) -> Minor:
        return minor_of(KUBERNETES_VERSION)

    def request(
        self, method: str, path: str, query: Mapping[str, str], body: Any, headers: Mapping[str, str]
    ) -> Answer:
        warnings: list[str] = []
        try:
            body = self._call(method, parse_target(path), query, body, headers, warnings)
        except ApiStatus as status:
            seconds = status.retry_after
            return Answer(status.code, status.to_json(), retry_after=None if seconds is None else str(seconds))
        return Answer(201 if method == "POST" else 200, body, tuple(f'299 - "{_quoted(text)}"' for text in warnings))

    def watch(self, path: str, query: Mapping[str, str]) -> RawWatch:
        target, lines = parse_target(path), SimpleQueue[Any]()
        subscription = self._store.watch(
            target.resource.plural,
            target.namespace,
            lines.put,
            label_selector=query.get("labelSelector", ""),
            field_selector=query.get("fieldSelector", ""),
            resource_version=query.get("resourceVersion"),
            bookmarks="allowWatchBookmarks" in query,
            send_initial_events="sendInitialEvents" in query,
        )
        return _StoreWatch(lines, subscription.cancel)

    def _call(
        self,
        method: str,
        target: Target,
        query: Mapping[str, str],
        body: Any,
        headers: Mapping[str, str],
        warnings: list[str],
    ) -> Any:
        store, plural, namespace, name = self._store, target.resource.plural, target.namespace, target.name
        checks: Any = {"field_validation": query.get("fieldValidation"), "warnings": warnings}
        selectors: Any = {
            "label_selector": query.get("labelSelector", ""),
            "field_selector": query.get("fieldSelector", ""),
        }
        deletion: Any
        deletion, dry = delete_options(body, query) if method == "DELETE" else ({}, "dryRun" in query)
        store = store.rehearsal() if dry else store
        match method, name, target.subresource:
            case "GET", None, _:
                pages: Any = {
                    "limit": int(query.get("limit", "0")),
                    "continue_token": query.get("continue", ""),
                    "resource_version": query.get("resourceVersion"),
                    "resource_version_match": query.get("resourceVersionMatch"),
                }
                return _list(target, store.list(plural, namespace, **selectors, **pages))
            case "GET", str(), _:
                return store.get(plural, namespace, name)
            case "POST", None, _:
                return store.create(plural, namespace, body, **checks)
            case "POST", str(), "eviction":
                return self._evict(namespace or "", name, body, warnings)
            case "PUT", str(), subresource:
                return store.replace(plural, namespace, name, body, subresource=subresource, **checks)
            case "PATCH", str(), subresource:
                kind = _PATCHES[headers["Content-Type"]]
                return store.patch(plural, namespace, name, body, kind, subresource=subresource, **checks)
            case "DELETE", None, _:
                listed: Any = {"listed_at": query.get("resourceVersion"), "match": query.get("resourceVersionMatch")}
                return _list(target, store.delete_collection(plural, namespace, **listed, **selectors, **deletion))
            case "DELETE", str(), None:
                return store.delete(plural, namespace, name, **deletion)
            case _:
                raise AssertionError(f"the store has no method for {method} {target}")

    def _evict(self, namespace: str, name: str, body: Any, warnings: list[str]) -> Any:
        options, dry = eviction_options(body, namespace, name, warnings)
        store = self._store.rehearsal() if dry else self._store
        store.evict(namespace, name, **options)
        return done()


class _StoreWatch(RawWatch):
    def __init__(self, lines: SimpleQueue[WatchMessage], cancel: Callable[[], None]) -> None:
        self._lines = lines
        self._cancel = cancel

    def next(self) -> dict[str, Any]:
        message = self._lines.get(timeout=SAFETY)
        return {"type": message.type, "object": message.object}

    def rest(self) -> list[dict[str, Any]]:
        """Until an ERROR: nothing else ends a subscription of the store."""
        lines = [self.next()]
        while lines[-1]["type"] != "ERROR":
            lines.append(self.next())
        return lines

    def close(self) -> None:
        self._cancel()


def _list(target: Target, result: ListResult) -> dict[str, Any]:
    metadata: dict[str, Any] = {"resourceVersion": result.resource_version}
    if result.continue_token:
        metadata["continue"] = result.continue_token
    if result.remaining is not None:
        metadata["remainingItemCount"] = result.remaining
    resource = target.resource
    return {
        "kind": f"{resource.kind}List",
        "apiVersion": resource.api_version,
        "metadata": metadata,
        "items": result.items,
    }


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
