"""The Kubernetes API as a fleet in one namespace needs it: requests as values, and the seam `PodApi` that sends them.

The actors send requests and open watches here; answers, events and errors come back as values in callbacks, which tell
an actor. This package handles no message itself, never retries, and never sleeps. It is the only one that imports the
`kubernetes` package, and only for a user with an `auth-provider`: before release 37 the import takes 1.5 s and 80 MiB.

==========  ===========================================================================================================
call        one request under way; completes exactly once. A *stream* is the call of a watch
reply       the callback of a call; the *sink* is the callback of a stream
access      a server, a namespace and *credentials*, from a kubeconfig or from the pod's service account
wire        the socket that a call or stream uses, and the right to cut it from another thread
transport   a connection that urllib3 made, with wires. Each worker and each stream has its own: no thread gets
            a connection that another is about to cut
worker      one of the bounded daemon threads that run calls; each stream has a thread of its own
fence       the `PodApi` of one incarnation of an actor; sends nothing once that incarnation has ended
limit       the time a call may take in all, including the wait for a worker and for DNS
==========  ===========================================================================================================
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from actors.kube.api import *

if TYPE_CHECKING:
    from pathlib import Path

    from actors.kube.http.bounds import AnswerBounds
    from actors.kube.http.pod_api import HttpPodApi


def connect(
    kubeconfig: Path | None = None,
    context: str | None = None,
    namespace: str | None = None,
    *,
    request_timeout: timedelta = timedelta(seconds=10),
    max_connections: int = 16,
    bounds: AnswerBounds | None = None,
) -> HttpPodApi:
    """Return a client of the real API. Reads the configuration and sends nothing yet.

    Args:
        kubeconfig: a file; by default the files of `KUBECONFIG`, else `~/.kube/config`, else the pod's service account.
        context: a context of the kubeconfig; by default the current one.
        namespace: by default the namespace of the context or service account, else `default`.
        request_timeout: the limit of every call, of a watch until its headers arrive, and of an exec plugin.
        max_connections: the number of calls that run at once, each in its own thread; further calls queue.
        bounds: how much of an answer is accepted; by default that of the settings.

    Raises:
        SettingsError: no kubeconfig, context or credential is usable.
    """
    from actors.kube.auth import discovery as auth  # noqa: PLC0415 - loads urllib3
    from actors.kube.http import pod_api as http  # noqa: PLC0415 - as above

    access = auth.load(kubeconfig, context, limit=request_timeout)
    return http.HttpPodApi(
        access,
        namespace=namespace or access.namespace,
        request_timeout=request_timeout,
        max_connections=max_connections,
        bounds=bounds,
    )
