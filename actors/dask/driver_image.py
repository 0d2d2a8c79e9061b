"""The image of the driver's own pod, which workers have unless another one is given: so their versions agree."""

from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from actors import kube
from actors.errors import ApiError, NotFound, SettingsError
from actors.kube.api import PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from actors.settings import Settings

__all__ = ["with_driver_image"]

MAIN_CONTAINER: Final = "kubectl.kubernetes.io/default-container"
"""The annotation that names the container that matters, where others were added to a pod."""

IN_A_POD: Final = "KUBERNETES_SERVICE_HOST"
"""The variable that every container of a cluster has."""


async def with_driver_image(
    settings: Settings, kubeconfig: str | os.PathLike[str] | None, context: str | None
) -> Settings:
    """Return these settings; with the image and the pull secrets of the driver's pod if no image is set.

    The pod is `driver_pod_name`, or else the one that has this host's name.

    Raises:
        SettingsError: an image must be given, because this program runs in no pod, or its pod cannot be read.
    """
    executor = settings.executor
    if executor.image is not None or executor.pod_template is not None or executor.template_patch is not None:
        return settings
    name = settings.driver_pod_name or (platform.node() if IN_A_POD in os.environ else None)
    if not name:
        raise SettingsError("image: must be given: this program runs in no pod, whose image the workers could have")
    answer = await _read(settings, name, kubeconfig, context)
    if isinstance(answer, ApiError):
        why = "there is no such pod" if isinstance(answer, NotFound) else str(answer)
        raise SettingsError(f"image: must be given: the driver's pod {name!r} cannot be read: {why}")
    spec: Mapping[str, Any] = answer.get("spec") or {}
    found = settings.with_default_image(_image(answer))
    if executor.image_pull_secrets:
        return found
    secrets = tuple(each["name"] for each in spec.get("imagePullSecrets") or () if each.get("name"))
    return found.model_copy(update={"executor": found.executor.model_copy(update={"image_pull_secrets": secrets})})


async def _read(
    settings: Settings, name: str, kubeconfig: str | os.PathLike[str] | None, context: str | None
) -> Mapping[str, Any] | ApiError:
    api = await asyncio.to_thread(
        kube.connect,
        None if kubeconfig is None else Path(kubeconfig),
        context,
        settings.namespace,
        request_timeout=settings.backend.request_timeout,
    )
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Mapping[str, Any] | ApiError] = loop.create_future()

    def take(value: Mapping[str, Any] | ApiError) -> None:
        if not answer.done():  # it is if nobody waits any more
            answer.set_result(value)

    def reply(value: Mapping[str, Any] | ApiError) -> None:
        loop.call_soon_threadsafe(take, value)

    try:
        api.send(kube.GetObject(PODS, name), reply)
        return await answer
    finally:
        await asyncio.to_thread(api.close)


def _image(pod: Mapping[str, Any]) -> str:
    """Return the image of the container that the annotation names, else of the first one."""
    containers = pod["spec"]["containers"]
    main = (pod["metadata"].get("annotations") or {}).get(MAIN_CONTAINER)
    return str(next((each for each in containers if each["name"] == main), containers[0])["image"])
