"""The account that config/rbac.yaml describes, on a real server: made from that file, with a token asked for."""

from __future__ import annotations

import json
import urllib.error
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from actors.backend.rbac import LIST_PODS, Right
from actors.kube.api import CLAIMS, EVENTS, LEASES, LOGS, PODS, Resource

if TYPE_CHECKING:
    from tests.contract.control_plane import ControlPlane

RESOURCES = {(resource.group, resource.plural): resource for resource in (PODS, LEASES, CLAIMS, EVENTS, LOGS)}
RBAC = Path(__file__).parents[2] / "config" / "rbac.yaml"

_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_TRIES = 2_000
"""A rule is in force some milliseconds after it was made; a try takes several."""


def rights(text: str | None = None) -> list[Right]:
    """Every right that the file gives, or another text of its kind."""
    return [right for document in _documents(text) for rule in document.get("rules", ()) for right in _rights_of(rule)]


def open_account(plane: ControlPlane, namespace: str, *, without: Right | None = None, text: str | None = None) -> Path:
    """A kubeconfig of the account, whose rights are in force: those of the file or `text`, `without` one of them."""
    name = ""
    for document in _documents(text):
        for rule in document.get("rules", ()):
            rule["verbs"] = [right.verb for right in _rights_of(rule) if right != without]
        if "rules" in document:
            document["rules"] = [rule for rule in document["rules"] if rule["verbs"]]
        group = "/api/v1" if document["apiVersion"] == "v1" else f"/apis/{document['apiVersion']}"
        plane.request("POST", f"{group}/namespaces/{namespace}/{document['kind'].lower()}s", document)
        name = document["metadata"]["name"]
    kubeconfig = account(plane, namespace, name)
    given = {*rights(text)} - {without}
    for right in rights():
        wait_for_review(plane, kubeconfig, "yes" if right in given else "no", right)
    return kubeconfig


def account(plane: ControlPlane, namespace: str, name: str) -> Path:
    """A kubeconfig of an account that is there, with a token that was asked for."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    token = plane.request("POST", path, {"spec": {}})["status"]["token"]
    kubeconfig = plane.kubeconfig.with_name(f"account-{namespace}")
    kubeconfig.write_text(json.dumps(_kubeconfig(plane, namespace, token)))
    return kubeconfig


def wait_for_review(plane: ControlPlane, kubeconfig: Path, wanted: str, right: Right = LIST_PODS) -> None:
    """Until the server says "yes" or "no" of a right, or that this must not be asked ("refused")."""
    config = json.loads(kubeconfig.read_text())
    namespace = config["contexts"][0]["context"]["namespace"]
    token = config["users"][0]["user"]["token"]
    said = ""
    for _ in range(_TRIES):
        said = _review(plane, namespace, token, right)
        if said == wanted:
            return
    raise AssertionError(
        f"whether the account may {right.verb} {right.resource} is still answered by {said!r}, not by {wanted!r}"
    )


def _review(plane: ControlPlane, namespace: str, token: str, right: Right) -> str:
    plural, _, subresource = right.resource.plural.partition("/")
    asked = {"namespace": namespace, "verb": right.verb, "group": right.resource.group, "resource": plural}
    asked |= {"subresource": subresource} if subresource else {}
    try:
        review = plane.request("POST", _REVIEWS, {"spec": {"resourceAttributes": asked}}, token=token)
    except urllib.error.HTTPError as error:
        error.close()
        if error.code == 403:
            return "refused"
        raise
    return "yes" if review["status"]["allowed"] else "no"


def _rights_of(rule: dict[str, Any]) -> list[Right]:
    (group,), (plural,) = rule["apiGroups"], rule["resources"]
    return [Right(verb, RESOURCES.get((group, plural)) or Resource(plural, plural, group)) for verb in rule["verbs"]]


def _documents(text: str | None) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(RBAC.read_text() if text is None else text))


def _kubeconfig(plane: ControlPlane, namespace: str, token: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(plane.kubeconfig.read_text())
    context = {"cluster": config["clusters"][0]["name"], "user": "account", "namespace": namespace}
    return config | {
        "users": [{"name": "account", "user": {"token": token}}],
        "contexts": [{"name": "account", "context": context}],
        "current-context": "account",
    }
