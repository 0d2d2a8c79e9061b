"""A fleet whose server says anything of pods, and refuses with any status. Some executors it leaves alone."""

from __future__ import annotations

import copy
import json
import logging
from random import Random
from typing import TYPE_CHECKING, Any, Final

from actors.kube.status import error_from_status
from actors.messages import BackendFailed, ExecutorRemoved, GetFleetStatus
from actors.pods.pod import EXECUTOR_ID_LABEL
from tests.fuzz.material import places
from tests.fuzz.test_answers import POD, STATUS
from tests.scenarios.fleets import name
from tests.scenarios.liar import LyingWorld
from tests.scenarios.memory import sizes

if TYPE_CHECKING:
    from actors.kube.api import Operation

HONEST: Final = 3
"""The first executors. The server says the truth of them."""

STRAYS: Final = 20
"""Pods in each list, and lines in each burst of events, that are not in the cluster."""

FIRST_STRAY: Final = 10**6

OPERATIONS: Final[tuple[Operation, ...]] = ("list", "get", "create", "delete", "patch", "watch", "delete_collection")

EXTREMES: Final[tuple[Any, ...]] = (
    *(None, True, False, [], {}, [[]], [{}], {"a": {"b": []}}),
    *(0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53, 2**63 - 1, -(2**63), 2**63, 2**64, 10**14, 9 * 10**18, 10**30),
    *(0.5, -0.0, 1e300, -1e300, 1e-300),
    *("", " ", "0", "1", "-1", "9" * 18, "9" * 19, "9" * 400, "NaN", "true", "null", "x" * 5000),
    *("\0", "\n", "\r\nERROR forged", "\x1b[2J\x1b]0;owned\x07", "\x7f\x80\x9b", "\u202e\u2066\u2028\u2029"),
    *("{}", "%s%n", "[/red]", "é😀", "../../etc/passwd", "a/b", "Running", "running", "Failed", "Unknown", "DELETED"),
    *("2024-01-01T00:00:00", "2024-01-01T00:00:00Z", "0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00"),
    *("9999-12-31T23:59:59-14:00", "99999-01-01T00:00:00Z", "1969-12-31T23:59:59.999999999Z", "2024-02-30T25:61:61Z"),
)
"""What may stand in any field."""

CODES: Final = (400, 401, 403, 404, 409, 410, 422, 429, 500, 503)

KINDS: Final = ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")


class HostileFleet(LyingWorld):
    """Count with `said` how many pods the server has said things of."""

    def __init__(self, seed: int, **settings: Any) -> None:
        self.random = Random(seed)
        self.said = 0
        super().__init__(executor={"instances": HONEST, "max_failures": None, "stuck_timeout": "20s"}, **settings)
        self.advance(5)
        self.liar.say, self.liar.also = self._say, self._strays

    def _spawn_onlooker(self) -> None:
        """What it would see is not what there is."""

    def spoil(self, document: Any) -> Any:
        """Return the document with some fields replaced, left out or added."""
        result = copy.deepcopy(document)
        for _ in range(self.random.randint(1, 3)):
            *way, last = self.random.choice(places(result)[1:] or [("metadata",)])
            owner: Any = result
            for step in way:
                owner = owner[step]
            match self.random.choice(("replace", "replace", "leave out", "add")):
                case "leave out":
                    del owner[last]
                case "add" if isinstance(owner, dict):
                    owner[str(self._extreme())] = self._extreme()
                case _:
                    owner[last] = self._extreme()
        return result

    def _extreme(self) -> Any:
        return copy.deepcopy(self.random.choice(EXTREMES))

    def _say(self, pod: dict[str, Any]) -> Any:
        honest = pod["metadata"]["name"] in {name(i) for i in range(1, HONEST + 1)}
        return pod if honest or self.random.random() < 0.3 else self.spoil(pod)

    def _strays(self) -> list[Any]:
        self.said += STRAYS
        return [self._spoiled_stray() for _ in range(STRAYS)]

    def _spoiled_stray(self) -> Any:
        """Return a stray, in most cases with its version: an unusable one ends what a watch is good for."""
        pod = self.spoil(self._stray())
        if self.random.random() < 0.99 and isinstance(pod.get("metadata"), dict):
            pod["metadata"]["resourceVersion"] = self.store.resource_version
        return pod

    def _stray(self) -> dict[str, Any]:
        number = self.random.randint(FIRST_STRAY, FIRST_STRAY + 50)
        pod = copy.deepcopy(POD)
        version = self.store.resource_version
        pod["metadata"] |= {"name": name(number), "uid": f"stray-{number}", "resourceVersion": version}
        pod["metadata"]["labels"][EXECUTOR_ID_LABEL] = str(number)
        pod["status"]["phase"] = self.random.choice(("Pending", "Running", "Succeeded", "Failed", "Unknown"))
        return pod

    def step(self) -> None:
        """Let the server say and refuse some more, the driver want something, and time pass."""
        random = self.random
        lines = [{"type": random.choice(KINDS), "object": stray} for stray in self._strays()]
        self.liar.babble(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        if random.random() < 0.5:
            refusal = error_from_status(self.spoil(STATUS), random.choice(CODES), None)
            self.api.fail_next(random.choice(OPERATIONS), refusal, times=random.randint(1, 3))
        if random.random() < 0.2:
            self.target(random.randint(HONEST, 8))
        if random.random() < 0.1:
            self.api.cut()
        self.advance(random.choice((0.1, 1, 5, 30)))

    def calm_down(self) -> None:
        """Let the server say the truth from now on, and time pass until nobody remembers the rest."""
        self.api.calm()
        self.liar.say, self.liar.also = lambda pod: pod, list
        self.target(HONEST + 1)
        self.advance(1200)

    def held(self) -> int:
        """Return how much all actors hold."""
        return sum(sizes(actor for actor in self.kit.dispatcher.actors if actor.name != "driver").values())

    def verify(self, records: list[logging.LogRecord]) -> None:
        """Nobody crashed, no honest executor was harmed, and no line of the log has a control character."""
        assert [record.getMessage() for record in records if record.levelno >= logging.ERROR] == []
        unprintable = [text for record in records if not (text := record.getMessage()).isprintable()]
        assert unprintable == []
        assert self.heard(BackendFailed) == []
        assert self.backend.is_alive()
        removed = {message.executor_id: message.reason for message in self.heard(ExecutorRemoved)}
        assert {i: removed[i] for i in removed if i <= HONEST} == {}
        assert self.ask(GetFleetStatus()).profiles["default"].running >= HONEST

    def check(self) -> None:
        """What was said of the cluster was not true: there is nothing to compare it with."""
