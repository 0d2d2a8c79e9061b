"""Watches a fleet's pods past the code under test, with nothing of it: a LIST, then a raw watch, event by event."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote, urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Observer"]

METADATA: Final = "application/json;as={};v=v1;g=meta.k8s.io"
"""Metadata tells all that matters here, at a fraction of the cost: kwok ends no pod that is not being deleted."""

WATCH_SECONDS: Final = 5
PATIENCE_SECONDS: Final = 2 * WATCH_SECONDS
BETWEEN_LOOKS_SECONDS: Final = 0.2
TRIES: Final = 100
"""Of `wait_for`: twenty seconds, where one LIST is enough."""


class Observer(threading.Thread):
    """Knows at each version of the cluster which pods live and are not about to go. To be used in a `with`."""

    def __init__(self, server: str, authority: str, token: str, selector: str) -> None:
        super().__init__(name="observer", daemon=True)
        self._server = urlsplit(server).netloc
        self._pods = f"/api/v1/namespaces/default/pods?labelSelector={quote(selector, safe='')}"
        self._context = ssl.create_default_context(cafile=authority)
        self._token = token
        self._closing = threading.Event()
        self.alive: dict[str, str] = {}
        """UID → name."""
        self.seen: dict[str, str] = {}
        """UID → name of all that ever were."""
        self.most = 0
        """That were alive at one version."""
        self.looks = 0
        """LISTs: one each time that a watch was over."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self.join()

    def wait_for(self, count: int) -> None:
        """Until it has seen so many, or the time for that is over."""
        for _ in range(TRIES):
            if len(self.seen) >= count:
                return
            self._closing.wait(BETWEEN_LOOKS_SECONDS)

    def run(self) -> None:
        while not self._closing.is_set():
            with suppress(OSError, http.client.HTTPException):  # the server is away, or has just gone
                self._look()
            self._closing.wait(BETWEEN_LOOKS_SECONDS)

    def _look(self) -> None:
        with self._ask("", METADATA.format("PartialObjectMetadataList")) as answer:
            found = json.load(answer)
        self.alive = {}
        for pod in found["items"] or ():
            self._take(pod["metadata"])
        self.looks += 1
        self._count()
        version = found["metadata"]["resourceVersion"]
        follow = f"&watch=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        with self._ask(follow, METADATA.format("PartialObjectMetadata")) as answer:
            for event in _events(answer):
                metadata = event["object"]["metadata"]
                self._take(metadata)
                if event["type"] == "DELETED":
                    self.alive.pop(metadata["uid"], None)
                self._count()

    def _take(self, metadata: dict[str, Any]) -> None:
        uid = metadata["uid"]
        self.seen[uid] = metadata["name"]
        if "deletionTimestamp" in metadata:
            self.alive.pop(uid, None)
        else:
            self.alive[uid] = metadata["name"]

    def _count(self) -> None:
        self.most = max(self.most, len(self.alive))

    @contextmanager
    def _ask(self, query: str, accept: str) -> Iterator[http.client.HTTPResponse]:
        headers = {"Authorization": f"Bearer {self._token}", "Accept": accept}
        with closing(
            http.client.HTTPSConnection(self._server, context=self._context, timeout=PATIENCE_SECONDS)
        ) as connection:
            connection.request("GET", self._pods + query, headers=headers)
            response = connection.getresponse()
            if response.status != http.client.OK:
                raise http.client.HTTPException(f"{response.status} {response.reason}")
            yield response


def _events(answer: Any) -> Iterator[dict[str, Any]]:
    """Until the watch is over, or tells of an error."""
    for line in answer:
        event = json.loads(line)
        if event["type"] == "ERROR":
            return
        yield event
