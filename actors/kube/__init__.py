"""The Kubernetes API as a fleet in one namespace needs it: the only package that imports the `kubernetes` client.

Words used here:

- *call*: one request and its answer, completed exactly once; a *stream* is a watch.
- *reply* and *sink*: who is told how a call or a stream went; they get errors as values.
- *access*: a server, a namespace, and the *credentials* to show there; made from a kubeconfig or a pod's own account.
- *wire*: the socket that a call or stream uses at the moment, and the right to cut it from another thread.
- *transport*: the `kubernetes` package's urllib3 pool with wires; each worker and each stream has one of its own, so
  that nobody can be handed a connection that somebody else is about to cut.
- *worker*: one of the bounded daemon threads that calls run in; each stream has a thread of its own.
- *fence*: what one actor reaches the API through; shut when that actor ends, in whatever state its thread is.
- *limit*: how long a call may take in all, waiting for a worker and resolving names included.

`PodApi` and its values (`actors.kube.api`) are all that the rest of the library knows of this package, and importing it
loads neither `kubernetes` nor `urllib3`: that costs 0.2 s and 43 MiB, and a driver may bring a `PodApi` of its own.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from actors.kube.api import (
    CLAIMS,
    LEASES,
    PODS,
    Call,
    Create,
    CreateObject,
    Delete,
    DeleteCollection,
    DeleteOptions,
    Get,
    GetObject,
    List,
    ListObjects,
    Manifest,
    Operation,
    Patch,
    PatchObject,
    PodApi,
    PodPage,
    Reply,
    Request,
    Resource,
    ReviewAccess,
    Watch,
    WatchEnded,
    WatchEvents,
    WatchSink,
)

if TYPE_CHECKING:
    from pathlib import Path

    from actors.kube.http.pod_api import HttpPodApi

__all__ = [
    "CLAIMS",
    "LEASES",
    "PODS",
    "Call",
    "Create",
    "CreateObject",
    "Delete",
    "DeleteCollection",
    "DeleteOptions",
    "Get",
    "GetObject",
    "List",
    "ListObjects",
    "Manifest",
    "Operation",
    "Patch",
    "PatchObject",
    "PodApi",
    "PodPage",
    "Reply",
    "Request",
    "Resource",
    "ReviewAccess",
    "Watch",
    "WatchEnded",
    "WatchEvents",
    "WatchSink",
    "connect",
]


def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    namespace: str | None = None,
    *,
    request_timeout: timedelta = timedelta(seconds=10),
    max_connections: int = 16,
) -> HttpPodApi:
    """The real API, over HTTP. Reads the configuration and sends nothing yet.

    Args:
        kubeconfig: a file; by default those of `KUBECONFIG`, else `~/.kube/config`, else the pod's own account.
        context: which of its contexts; by default the current one.
        namespace: by default the context's, else the account's, else `default`.
        request_timeout: the limit of every call, of a watch until its first byte, and of an exec plugin.
        max_connections: calls that can be under way at once, each in a thread of its own; more wait.

    Raises:
        SettingsError: there is no usable kubeconfig, context or credential.
    """
    from actors.kube.auth import discovery as auth  # noqa: PLC0415 - see above: this is what loads the client
    from actors.kube.http import pod_api as http  # noqa: PLC0415 - see above: this is what loads the client

    access = auth.load(kubeconfig, context, limit=request_timeout)
    return http.HttpPodApi(
        access,
        namespace=namespace or access.namespace,
        request_timeout=request_timeout,
        max_connections=max_connections,
    )
