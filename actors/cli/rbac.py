"""The account of a driver as YAML, with exactly the rights that it uses, for `executor-pods config --rbac`.

`config/rbac.yaml` is what is printed for no settings in particular: all rights, and when which rule can be left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from actors.backend.rbac import Right, used
from actors.kube.api import CLAIMS, EVENTS, LEASES, LOGS, PODS, Resource
from actors.lease.record import lease_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from actors.settings import Settings

__all__ = ["render_operator_rbac", "render_rbac"]


@dataclass(frozen=True, slots=True)
class _Rule:
    resource: Resource
    verbs: str
    """A line for each, with what it is for."""
    when: str = ""
    """When the rule is needed, as lines of a comment."""


_RULES: Final = (
    _Rule(
        PODS,
        """\
      - list # the fleet, at the start and every executor.api_polling_interval; during a stop, to see that it is gone
      - watch # every change as it happens
      - create # executors
      - get # whether a create without an answer made its pod, whether a missing pod is gone; the driver_pod_name
      - delete # one executor: in excess, abandoned, stuck, or ended
      - deletecollection # the whole fleet during a stop
""",
    ),
    _Rule(
        PODS,
        """\
      - patch # the owner of executors that a restarted driver adopts; labels of those killed, decommissioned or ended
""",
        """\
  # Leave this rule out unless driver_pod_name, executor.kill_label, executor.decommission_label or
  # executor.decommission_deletion_cost is set, or executor.delete_on_termination is off.
""",
    ),
    _Rule(
        LEASES,
        """\
      - get # who holds the Lease, every few seconds
      - create # once for each app_id; the Lease stays
      - patch # to take, renew and release it
""",
        """\
  # Keeps two drivers with one app_id from both writing. With backend.lease = "auto", the default, a driver without this
  # rule continues without a Lease and logs a warning. With true it does not start. With false it needs no such rule.
""",
    ),
    _Rule(
        CLAIMS,
        """\
      - create # the claims of an executor
      - list # claims to reuse, and to delete with the fleet; without it, none is
      - delete # the claims, at a stop that deletes the fleet; without it, they stay until their owner is gone
""",
        """\
  # Leave this rule out unless executor.claims, or those of a profile, and driver_pod_name are set.
""",
    ),
    _Rule(
        EVENTS,
        """\
      - create # what `kubectl describe pod` shows of the driver: lost executors, blocked creation, its Lease
      - patch # how often it occurred
""",
        """\
  # Optional: without this rule there are no Kubernetes Events, and the driver runs all the same.
""",
    ),
    _Rule(
        LOGS,
        """\
      - get # what executors have printed
""",
        """\
  # Optional: leave it out if the driver calls neither fleet.logs nor fleet.follow_logs.
""",
    ),
)

_OPERATOR_RULES: Final = (
    _Rule(
        PODS,
        """\
      - list # the executors of a fleet, and the fleets that there are
      - get # one executor; the driver's pod, where a fleet has no Lease
""",
    ),
    _Rule(
        LEASES,
        """\
      - list # who drives each fleet
      - get # who drives one fleet, and how many executors it wants
""",
    ),
    _Rule(
        EVENTS,
        """\
      - list # what Kubernetes says of the executors: events, describe
""",
    ),
    _Rule(
        CLAIMS,
        """\
      - list # the claims of a fleet: cleanup
      - get # the claims of an executor: describe
""",
    ),
    _Rule(
        LOGS,
        """\
      - get # what an executor has printed: logs
""",
    ),
    _Rule(
        PODS,
        """\
      - delete # the executors of an orphaned fleet, each by its UID
""",
        """\
  # Leave out the rest for people who only look: it is for cleanup.
""",
    ),
    _Rule(
        CLAIMS,
        """\
      - delete # the claims of an orphaned fleet, each by its UID
""",
    ),
    _Rule(
        LEASES,
        """\
      - patch # to hold the Lease during a cleanup, so that no driver writes meanwhile, and to release it
""",
    ),
)

_CORE: Final = '""'
"""The core group in YAML."""

_ALL: Final = """\
# What a driver may do: keep pods in its own namespace, nothing else. Apply to the namespace of its executors:
#   executor-pods config --rbac | kubectl apply -n batch -f -
# With --config FILE it has only the rights that the settings of this file use.
"""

_SOME: Final = """\
# What a driver with these settings may do: keep pods in its own namespace, nothing else. Apply to the namespace of its
# executors:
#   executor-pods config --rbac --config FILE | kubectl apply -n {namespace} -f -
"""

_ACCOUNT: Final = """\
#
# The driver reviews these rights when it starts, and fails with a message that names what is missing. It needs no right
# to do so: every account may review its own (system:basic-user). If the cluster took that away, it starts without.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: executor-pods-driver
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: executor-pods-driver
rules:
"""

_OPERATOR: Final = """\
# What an operator may do who uses executor-pods list, status, describe, events, logs and cleanup: look at fleets in one
# namespace, and delete one that nobody drives. Apply to the namespace of the executors, and bind it to people:
#   executor-pods config --rbac-operator | kubectl apply -n batch -f -
#   kubectl create rolebinding operators -n batch --role executor-pods-operator --group operators
# For list -A, bind a ClusterRole with the rules of pods and leases by a ClusterRoleBinding. What goes through the
# driver (scale, retire, kill, hold, resume) needs no right here, but the token of the driver's page.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: executor-pods-operator
rules:
"""

_BINDING: Final = """\
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: executor-pods-driver
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: executor-pods-driver
subjects:
  - kind: ServiceAccount
    name: executor-pods-driver
"""


def render_rbac(settings: Settings | None = None) -> str:
    """Return a ServiceAccount, its Role and its RoleBinding: with all rights, or with those that the settings use."""
    head = _ALL if settings is None else _SOME.format(namespace=settings.namespace or "batch")
    rights = None if settings is None else frozenset(used(settings))
    lease = None if settings is None or settings.app_id is None else lease_name(settings.app_id)
    return "".join((head, _ACCOUNT, *_rules(_RULES, rights, lease), _BINDING))


def render_operator_rbac() -> str:
    """Return the Role of an operator, with the rights that the commands use which look at fleets and clean up."""
    return "".join((_OPERATOR, *_rules(_OPERATOR_RULES, None)))


def _rules(rules: Iterable[_Rule], rights: frozenset[Right] | None, lease: str | None = None) -> Iterator[str]:
    """Yield the rules of these rights, None for all. With the name of the Lease, they are for this one."""
    for rule in rules:
        lines = rule.verbs.splitlines(keepends=True)
        if rights is not None:
            lines = [line for line in lines if Right(line.split()[1], rule.resource) in rights]
        if lines:
            yield "" if rights is not None else rule.when
            names_one = lease is not None and rule.resource == LEASES
            of_one = [line for line in lines if names_one and line.split()[1] != "create"]
            yield from _rule(rule.resource, of_one, lease)
            yield from _rule(rule.resource, [line for line in lines if line not in of_one])


def _rule(resource: Resource, verbs: Iterable[str], name: str | None = None) -> Iterator[str]:
    """Yield a rule, for the object of that name only if there is one. None is yielded without a verb."""
    lines = list(verbs)
    if lines:
        yield f"  - apiGroups: [{resource.group or _CORE}]\n"
        yield f"    resources: [{resource.plural}]\n"
        yield f"    resourceNames: [{name}] # a right to create cannot be for one name\n" if name is not None else ""
        yield "    verbs:\n"
        yield from lines
