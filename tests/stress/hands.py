"""What an operator does to a namespace of a real cluster, past the code under test, and what its audit log says."""

from __future__ import annotations

import threading
import urllib.error
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tests.stress.real import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.stress.plane import Asked, WholePlane

__all__ = ["HANDS", "Namespace"]

HANDS: Final = "Python-urllib"
"""Our own user agent, as the audit log has it."""
SPEC: Final = {"containers": [{"name": "main", "image": "x"}]}
CLASS: Final = "by-hand"
"""Of volumes that nobody provisions."""


class Namespace:
    """Made with its name, for one test alone."""

    def __init__(self, plane: WholePlane, name: str) -> None:
        self._plane = plane
        self.name = name
        self.path = f"/api/v1/namespaces/{name}"
        self.make()

    def make(self) -> None:
        """Also again, once it was deleted."""
        self._plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": self.name}})

    def delete(self) -> None:
        self._plane.request("DELETE", self.path)

    def exists(self) -> bool:
        names = (each["metadata"]["name"] for each in self._plane.request("GET", "/api/v1/namespaces")["items"])
        return self.name in names

    # ── pods ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def pods(self) -> list[str]:
        """All that there are, also those about to go."""
        return sorted(pod["metadata"]["name"] for pod in self._plane.request("GET", f"{self.path}/pods")["items"])

    def delete_by_force(self, pod: str) -> None:
        self._plane.request("DELETE", f"{self.path}/pods/{pod}", {"gracePeriodSeconds": 0})

    def delete_pod(self, pod: str) -> None:
        """With the time that it has to end."""
        self._plane.request("DELETE", f"{self.path}/pods/{pod}", {})

    def make_pod(self, name: str, **metadata: Any) -> dict[str, Any]:
        """One that runs, as kwok has it; it as an owner."""
        self._plane.request("POST", f"{self.path}/pods", {"metadata": {"name": name, **metadata}, "spec": SPEC})
        until(lambda: self._plane.request("GET", f"{self.path}/pods/{name}")["status"]["phase"] == "Running", "it runs")
        uid = self._plane.request("GET", f"{self.path}/pods/{name}")["metadata"]["uid"]
        return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}

    # ── what stands in the way ───────────────────────────────────────────────────────────────────────────────────

    def set_quota(self, pods: int) -> None:
        """Make or change it, and wait until it is in force."""
        path, hard = f"{self.path}/resourcequotas", {"pods": str(pods)}
        body = {"metadata": {"name": "room"}, "spec": {"hard": hard}}
        if self._plane.request("GET", path)["items"]:
            self._plane.request("PATCH", f"{path}/room", body)
        else:
            self._plane.request("POST", path, body)
        until(lambda: self._plane.request("GET", f"{path}/room")["status"].get("hard") == hard, "the quota is in force")

    def limit_memory(self, most: str, refused: dict[str, Any]) -> None:
        """Of a container, in force once a pod with the `refused` resources is."""
        limit = {"limits": [{"type": "Container", "max": {"memory": most}}]}
        self._plane.request("POST", f"{self.path}/limitranges", {"metadata": {"name": "small"}, "spec": limit})
        pod = {"metadata": {"name": "probe"}, "spec": {"containers": [SPEC["containers"][0] | {"resources": refused}]}}
        until(lambda: self._is_forbidden(pod), "the limit is in force")

    def lift_limit(self) -> None:
        self._plane.request("DELETE", f"{self.path}/limitranges/small")

    def _is_forbidden(self, pod: dict[str, Any]) -> bool:
        try:
            self._plane.request("POST", f"{self.path}/pods?dryRun=All", pod)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 403
        return False

    @contextmanager
    def role_without(self, verb: str) -> Iterator[None]:
        """A right to pods is taken away, and given back."""
        path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{self.name}/roles/executor-pods-driver"
        rules = self._plane.request("GET", path)["rules"]
        fewer = [
            rule | {"verbs": [each for each in rule["verbs"] if rule["resources"] != ["pods"] or each != verb]}
            for rule in rules
        ]
        self._plane.request("PATCH", path, {"rules": [rule for rule in fewer if rule["verbs"]]})
        yield
        self._plane.request("PATCH", path, {"rules": rules})

    @contextmanager
    def terminating(self) -> Iterator[None]:
        """Deleted, with something in it that is not let go before the end."""
        keeper = {"metadata": {"name": "keeper", "finalizers": ["example.com/keep"]}}
        self._plane.request("POST", f"{self.path}/configmaps", keeper)
        self.delete()
        yield
        self._plane.request("PATCH", f"{self.path}/configmaps/keeper", {"metadata": {"finalizers": None}})

    # ── volumes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def make_volumes(self, count: int) -> None:
        """Of the cluster, made by hand, for nobody provisions any."""
        for number in range(count):
            spec = {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": CLASS,
                "hostPath": {"path": f"/volumes/{number}"},
            }
            self._plane.request(
                "POST", "/api/v1/persistentvolumes", {"metadata": {"name": f"{self.name}-{number}"}, "spec": spec}
            )

    def claims(self) -> list[str]:
        found = self._plane.request("GET", f"{self.path}/persistentvolumeclaims")["items"]
        return sorted(claim["metadata"]["name"] for claim in found)

    def claims_of(self, pod: str) -> list[str]:
        """Those that it mounts."""
        volumes = self._plane.request("GET", f"{self.path}/pods/{pod}")["spec"]["volumes"]
        return [each["persistentVolumeClaim"]["claimName"] for each in volumes if "persistentVolumeClaim" in each]

    # ── the audit log ────────────────────────────────────────────────────────────────────────────────────────────

    def asked(self, *verbs: str, resource: str = "pods") -> list[Asked]:
        """What anybody but us has asked for and was answered, in the order of its arrival."""
        return [asked for asked in self._all(resource) if asked.verb in verbs and not asked.agent.startswith(HANDS)]

    def codes(self) -> list[int]:
        """How POSTs of pods were answered."""
        return [asked.code for asked in self.asked("create") if asked.subresource is None]

    def done_by_hand(self, verb: str) -> list[Asked]:
        return [asked for asked in self._all("pods") if asked.verb == verb and asked.agent.startswith(HANDS)]

    def hold(self, seconds: float, *, posts: int) -> None:
        """Leave all as it is for so long, in which no more than so many POSTs may come."""
        before = len(self.codes())
        threading.Event().wait(seconds)
        came = len(self.codes()) - before
        print(f"\n{self.name}: {came} POSTs in {seconds:g} s, after {before}")
        assert came <= posts, f"{came} POSTs in {seconds:g} s"

    def _all(self, resource: str) -> list[Asked]:
        here = (asked for asked in self._plane.audit(resource) if asked.namespace == self.name)
        return sorted((asked for asked in here if asked.stage == "ResponseComplete"), key=lambda asked: asked.received)
