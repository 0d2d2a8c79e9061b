"""The table: each way in which a pod can live and end that users meet, and what the driver is told.

[README.md](README.md) shows it. A row is lived on the embedded cluster and on a real node; what may differ is in it.
"""

from __future__ import annotations

import signal
from typing import Final

from actors.pods.loss import LossKind
from tests.node import deeds
from tests.node.life import Life, Told
from tests.node.pods import (
    ALWAYS_FAILS,
    CRASHES,
    DRAINS,
    ENDS_IN_ORDER,
    ENDS_WHEN_DRAINED,
    GREEDY,
    GREEDY_CHILD,
    HANDLES,
    IGNORES,
    LOSES,
    TOLERATES,
    ends,
    fills,
    native,
    shell,
    template,
)
from tests.node.world import NO_IMAGE

__all__ = ["LIVES"]

KILLED: Final = 128 + signal.SIGKILL
TERMINATED: Final = 128 + signal.SIGTERM
NO_CODE: Final = -1
STUCK_SOON: Final = {"stuck_timeout": "2s"}

# ── the table ────────────────────────────────────────────────────────────────────────────────────────────────────────


def exited(code: int, *says: str) -> Told:
    return Told(LossKind.EXITED, code, app=True, says=says)


def finished(*says: str) -> Told:
    return Told(LossKind.FINISHED, 0, app=False, says=says)


def deleted_with(code: int, *says: str) -> Told:
    return Told(LossKind.DELETED, code, app=False, says=("was deleted by somebody else", *says))


def by_driver(code: int, *says: str) -> Told:
    return Told(LossKind.KILLED_BY_DRIVER, code, app=False, says=says)


def evicted_with(code: int, *says: str) -> Told:
    return Told(LossKind.EVICTED, code, app=False, says=says)


def never_started(*says: str) -> Told:
    return Told(LossKind.NEVER_STARTED, NO_CODE, app=False, says=says)


def lost(*says: str) -> Told:
    return Told(LossKind.NODE_LOST, NO_CODE, app=False, says=says)


def exceeded(*says: str) -> Told:
    return Told("STORAGE_EXCEEDED", KILLED, app=True, says=says, unseen=True)


NO_PROBES: Final = "a process has no probes"
NO_LIMITS: Final = "a process has no limits"
NO_MOUNTS: Final = "a process has no mounts"
NO_IMAGES: Final = "it pulls no images"
NO_KUBELET: Final = "its kubelet and its node are lost together"
NO_CONTROLLERS: Final = "no controller looks after its nodes"

LIVES: Final = (
    # It ends by itself.
    Life("exit 0", "ends with 0", finished(), ends(0)),
    Life("exit 1", "ends with 1", exited(1), ends(1)),
    Life("exit 3", "ends with 3", exited(3), ends(3)),
    Life("exit 126", "ends with 126", exited(126, "the command cannot be executed"), ends(126)),
    Life("exit 127", "ends with 127", exited(127, "the command was not found"), ends(127)),
    Life("exit 137", "ends with 137", exited(137, "SIGKILL"), ends(137)),
    Life("exit 143", "ends with 143", exited(143, "SIGTERM"), ends(143)),
    Life("exit 255", "ends with 255", exited(255), ends(255)),
    Life("crash", "its program crashes", exited(139, "SIGSEGV"), {"command": CRASHES}),
    Life(
        "last words",
        "writes why, and ends with 2",
        exited(2, "termination message", "ValueError: last words"),
        {"command": shell("echo started; echo 'ValueError: last words' >&2; exit 2")},
    ),
    Life("kill -9", "somebody kills it on its node", exited(KILLED), {"command": HANDLES}, deeds.killed_on_its_node),
    Life(
        "out of memory",
        "uses more memory than its limit",
        Told(LossKind.OOM_KILLED, KILLED, app=True),
        {"command": GREEDY, "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}}},
        deeds.out_of_memory,
    ),
    Life(
        "child out of memory",
        "a process that it started uses more memory than its limit; it ends by itself, with 5",
        Told(LossKind.OOM_KILLED, 5, app=True),
        {"command": GREEDY_CHILD, "resources": {"requests": {"memory": "64Mi"}, "limits": {"memory": "64Mi"}}},
        deeds.signalled,
        not_embedded=NO_LIMITS,
    ),
    # It cannot start.
    Life(
        "wrong command",
        "its command is not in the image",
        exited(128, "StartError", "no-such-command", "executable file not found in $PATH"),
        {"command": ("no-such-command",)},
    ),
    Life(
        "no program",
        "its command is no program",
        exited(128, "StartError", "/etc/passwd", "permission denied"),
        {"command": ("/etc/passwd",)},
    ),
    Life(
        "new working directory",
        "its working directory is not in the image: the runtime makes it",
        finished(),
        template(shell("exit 0"), workingDir="/no/such/folder"),
        differs={
            "embedded": (
                exited(128, "StartError", "/no/such/folder"),
                "its processes share the machine's files, where nothing is made for them",
            )
        },
    ),
    Life(
        "invalid image",
        "the name of its image is invalid; replaced after `stuck_timeout`",
        never_started("InvalidImageName"),
        {"image": "registry.example/NO_such:::1", "command": HANDLES, **STUCK_SOON},
        deeds.stuck,
        stuck="InvalidImageName",
        not_embedded=NO_IMAGES,
    ),
    Life(
        "wrong image, deleted",
        "somebody deletes it while it waits for its image",
        never_started("ImagePull", NO_IMAGE),
        {"image": NO_IMAGE, "command": HANDLES},
        deeds.deleted_while_stuck,
        stuck="ImagePull",
    ),
    Life(
        "wrong image, killed",
        "the driver kills it while it waits for its image",
        by_driver(NO_CODE),
        {"image": NO_IMAGE, "command": HANDLES},
        deeds.killed_while_stuck,
        stuck="ImagePull",
    ),
    Life(
        "missing secret",
        "its environment names a secret that is not there; somebody deletes it",
        never_started("CreateContainerConfigError", 'secret "no-such" not found'),
        {"env": {"TOKEN": {"secret": "no-such", "key": "token"}}, "command": HANDLES},
        deeds.deleted_while_stuck,
        stuck="CreateContainerConfigError",
        differs={
            "embedded": (
                never_started("CreateContainerConfigError", "secretKeyRef"),
                "it has no secrets, and names what it cannot give",
            )
        },
    ),
    Life(
        "missing config map",
        "its volume is a config map that is not there; somebody deletes it",
        never_started("ContainerCreating"),
        template(
            spec={"volumes": [{"name": "v", "configMap": {"name": "no-such"}}]},
            volumeMounts=[{"name": "v", "mountPath": "/v"}],
        )
        | STUCK_SOON,
        deeds.deleted_while_stuck,
        not_embedded=NO_MOUNTS,
    ),
    Life(
        "wrong user",
        "must not be root, and is; replaced after `stuck_timeout`",
        never_started("CreateContainerConfigError", "breaks non-root policy"),
        template(securityContext={"runAsNonRoot": True, "runAsUser": 0}) | STUCK_SOON,
        deeds.stuck,
        stuck="CreateContainerConfigError",
        not_embedded="a process has the user of the cluster",
    ),
    Life(
        "too large for its node",
        "is bound to a node without room",
        never_started("OutOfcpu"),
        {
            "command": HANDLES,
            "resources": {"requests": {"cpu": "90"}},
            "template_patch": {"spec": {"nodeName": "node-1"}},
        },
        not_embedded="its node has no limits but the number of pods",
    ),
    # Init containers, hooks, other containers.
    Life(
        "init container fails",
        "its init container ends with 7",
        exited(7, "setup ended with 7"),
        template(init={"command": list(shell("exit 7"))}),
    ),
    Life(
        "init container cannot start",
        "the command of its init container is not in the image",
        exited(128, "setup ended with 128", "StartError"),
        template(init={"command": ["no-such-command"]}),
    ),
    Life(
        "postStart fails",
        "its postStart hook ends with 5",
        exited(TERMINATED),
        template(lifecycle={"postStart": {"exec": {"command": list(shell("exit 5"))}}}),
    ),
    Life(
        "second container fails",
        "another container of its pod ends with 3",
        exited(3, "helper ended with 3"),
        template(sidecar={"command": list(shell("exit 3"))}),
    ),
    Life(
        "second container goes on",
        "ends with 0 while another container runs",
        finished("helper running"),
        template(shell("exit 0"), sidecar={"command": list(HANDLES)}),
    ),
    Life(
        "sidecar goes on",
        "ends with 3 while its native sidecar ignores SIGTERM",
        exited(3, "setup running"),
        template(shell("exit 3"), init=native(IGNORES), spec={"terminationGracePeriodSeconds": 20}),
    ),
    Life(
        "sidecar goes on, exit 0",
        "ends with 0 while its native sidecar ignores SIGTERM",
        finished("setup running"),
        template(shell("exit 0"), init=native(IGNORES), spec={"terminationGracePeriodSeconds": 20}),
    ),
    Life(
        "sidecar crashes",
        "its native sidecar ends with 3 and is restarted; then it is killed by the driver",
        by_driver(TERMINATED),
        template(init=native(shell("sleep 2; exit 3"))),
        deeds.killed_after_crash,
    ),
    # Somebody ends it.
    Life(
        "deleted", "`kubectl delete`; it handles SIGTERM", deleted_with(TERMINATED), {"command": HANDLES}, deeds.deleted
    ),
    Life(
        "deleted, ends in order",
        "`kubectl delete`; it ends with 0 at SIGTERM",
        deleted_with(0),
        {"command": ENDS_IN_ORDER},
        deeds.deleted,
    ),
    Life(
        "deleted, ignores SIGTERM",
        "`kubectl delete`; it ignores SIGTERM",
        deleted_with(KILLED),
        {"command": IGNORES},
        deeds.deleted,
    ),
    Life(
        "deleted, loses SIGTERM",
        "`kubectl delete`; it has no handler, and is process 1 of its container",
        deleted_with(KILLED),
        {"command": LOSES},
        deeds.deleted,
    ),
    Life(
        "deleted, shared processes",
        "`kubectl delete`; it has no handler, and shares the pod's processes",
        deleted_with(TERMINATED),
        {"command": LOSES, "template_patch": {"spec": {"shareProcessNamespace": True}}},
        deeds.deleted,
    ),
    Life(
        "deleted by force",
        "`kubectl delete --force --grace-period=0`",
        deleted_with(NO_CODE),
        {"command": HANDLES},
        deeds.deleted_by_force,
    ),
    Life("evicted", "evicted, as `kubectl drain` does", evicted_with(TERMINATED), {"command": HANDLES}, deeds.evicted),
    Life("killed", "the driver kills it", by_driver(TERMINATED), {"command": HANDLES}, deeds.killed),
    Life(
        "scaled down",
        "the driver wants fewer",
        by_driver(TERMINATED),
        {"command": HANDLES},
        deeds.scaled_down,
    ),
    Life(
        "killed, ignores SIGTERM",
        "the driver kills it; it ignores SIGTERM",
        by_driver(KILLED),
        {"command": IGNORES},
        deeds.killed,
    ),
    Life(
        "retired",
        "the driver retires it, and says that it is drained",
        by_driver(TERMINATED),
        {"command": HANDLES, "drain_timeout": "60s"},
        deeds.retired,
        within=30,
    ),
    Life(
        "drained, file",
        "`kubectl delete`, and it says by its file that it is drained",
        deleted_with(TERMINATED),
        {"command": DRAINS, "drain_timeout": "30s"},
        deeds.deleted_and_drained,
        within=15,
    ),
    Life(
        "drained, end",
        "`kubectl delete`, and it ends when it is drained",
        deleted_with(0),
        {"command": ENDS_WHEN_DRAINED, "drain_timeout": "30s"},
        deeds.deleted_and_drained,
        within=15,
    ),
    Life(
        "drained, unheard",
        "`kubectl delete`, and the driver says that it is drained: the pause goes on",
        deleted_with(TERMINATED),
        {"command": HANDLES, "drain_timeout": "3s"},
        deeds.deleted_and_said_to_be_drained,
    ),
    Life(
        "pause over",
        "`kubectl delete`, and nobody says that it is drained until `drain_timeout`",
        deleted_with(TERMINATED),
        {"command": HANDLES, "drain_timeout": "3s"},
        deeds.deleted,
    ),
    Life(
        "pause by command",
        "`kubectl delete`, and its `drain_command` ends",
        deleted_with(TERMINATED),
        {"command": HANDLES, "drain_timeout": "60s", "drain_command": shell("sleep 1")},
        deeds.deleted,
        within=30,
    ),
    # Its node.
    Life(
        "node rebooted",
        "its node loses power, and is back before anybody noticed",
        lost(),
        {"command": HANDLES},
        deeds.node_rebooted,
        alone=True,
    ),
    Life(
        "node lost",
        "its node loses power, for longer than it tolerates",
        evicted_with(NO_CODE, "DeletionByTaintManager"),
        {"command": HANDLES, "tolerations": TOLERATES, "terminating_timeout": "2s"},
        deeds.node_lost,
        alone=True,
    ),
    Life(
        "kubelet away",
        "its kubelet does not answer for longer than it tolerates",
        evicted_with(NO_CODE, "DeletionByTaintManager"),
        {"command": HANDLES, "tolerations": TOLERATES, "terminating_timeout": "2s"},
        deeds.kubelet_away,
        alone=True,
        not_embedded=NO_KUBELET,
    ),
    Life(
        "node deleted",
        "its node does not answer, and is deleted as a cloud controller does",
        lost("DeletionByPodGC"),
        {"command": HANDLES},
        deeds.node_deleted,
        alone=True,
        not_embedded=NO_CONTROLLERS,
    ),
    Life(
        "ends unwatched",
        "is killed on its node while the kubelet is away",
        exited(KILLED),
        {"command": HANDLES},
        deeds.killed_unwatched,
        alone=True,
        not_embedded=NO_KUBELET,
    ),
    Life(
        "kubelet restarted",
        "its kubelet is killed and comes back; then the driver kills it",
        by_driver(TERMINATED),
        {"command": HANDLES},
        deeds.kubelet_restarted,
        alone=True,
        not_embedded=NO_KUBELET,
    ),
    Life(
        "containerd restarted",
        "containerd is killed and comes back; then the driver kills it",
        by_driver(TERMINATED),
        {"command": HANDLES},
        deeds.containerd_restarted,
        alone=True,
        not_embedded=NO_KUBELET,
    ),
    Life(
        "tainted",
        "its node is tainted with NoExecute",
        evicted_with(TERMINATED, "DeletionByTaintManager"),
        {"command": HANDLES},
        deeds.tainted,
        alone=True,
        not_embedded=NO_CONTROLLERS,
    ),
    Life(
        "preempted",
        "the scheduler makes room for a pod of a higher priority",
        Told(LossKind.PREEMPTED, TERMINATED, app=False, says=("PreemptionByScheduler",)),
        {"command": HANDLES, "resources": {"requests": {"cpu": "1100m"}}},
        deeds.preempted,
        alone=True,
        not_embedded="its scheduler knows no priorities",
    ),
    Life(
        "node under pressure",
        "its node lacks memory",
        evicted_with(TERMINATED, "The node was low on resource: memory"),
        {"command": HANDLES, "resources": {"requests": {"memory": "1Mi"}}},
        deeds.pressed,
        alone=True,
        not_embedded=NO_LIMITS,
    ),
    # Its own limits.
    Life(
        "container's storage",
        "writes more than its container may",
        exceeded("Pod ephemeral local storage usage exceeds"),
        template(fills("/tmp/big")) | {"resources": {"limits": {"ephemeral-storage": "10Mi"}}},
        deeds.signalled,
        not_embedded=NO_LIMITS,
    ),
    Life(
        "volume's storage",
        "writes more than its emptyDir may hold",
        exceeded("Usage of EmptyDir volume"),
        template(
            fills("/v/big"),
            spec={"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "10Mi"}}]},
            volumeMounts=[{"name": "v", "mountPath": "/v"}],
        ),
        deeds.signalled,
        not_embedded=NO_LIMITS,
    ),
    Life(
        "deadline",
        "runs for longer than `activeDeadlineSeconds`",
        evicted_with(TERMINATED, "DeadlineExceeded"),
        {"command": HANDLES, "template_patch": {"spec": {"activeDeadlineSeconds": 3}}},
        not_embedded="a process has no deadline",
    ),
    Life(
        "liveness probe",
        "its liveness probe fails",
        exited(TERMINATED),
        template(livenessProbe=ALWAYS_FAILS | {"initialDelaySeconds": 3}),
        not_embedded=NO_PROBES,
    ),
    Life(
        "startup probe",
        "its startup probe fails",
        exited(TERMINATED),
        template(startupProbe=ALWAYS_FAILS | {"initialDelaySeconds": 3}),
        not_embedded=NO_PROBES,
    ),
    Life(
        "resized",
        "its memory is raised in place; then the driver kills it",
        by_driver(TERMINATED),
        {"command": HANDLES, "resources": {"requests": {"memory": "32Mi"}, "limits": {"memory": "32Mi"}}},
        deeds.resized,
        not_embedded=NO_LIMITS,
    ),
)
