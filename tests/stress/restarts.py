"""A driver that is killed again and again, on the embedded cluster, with real processes.

What is true of the fleet is read past the library: pods from a watch of the API, processes from the machine's list.
"""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import ssl
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import yaml

import actors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["MOMENTS", "WITHOUT_LEASE", "Program", "die_at", "end_with_cluster", "kill_groups", "processes"]

SAFETY_SECONDS = 60.0
"""What takes longer has failed; no test waits for it."""
LOOK_SECONDS = 0.01
TARGET = 4
Moment = Literal["starting", "started", "creating", "running"]
"""When a driver is killed: before it has told of anything, then, while it creates executors, when all run."""
MOMENTS: Sequence[Moment] = ("starting", "started", "creating", "running")
START_SECONDS = 0.8
"""About what a driver needs from its exec to its first request: a death within is one during the start."""

WITHOUT_LEASE = "lease = false"
SCRIPT = "trap 'exit 0' TERM; sleep 600 & wait"
"""An executor of two processes, that lives until it is told to end."""

ESCAPING = "setsid sleep 600 & sleep 600 & wait"
"""An executor of which a process leaves its group, so that no signal to the group reaches it."""

Object = dict[str, Any]


def until(true: Callable[[], bool], what: str) -> None:
    """Look until it is so."""
    pause = threading.Event()
    for _ in range(int(SAFETY_SECONDS / LOOK_SECONDS)):
        if true():
            return
        pause.wait(LOOK_SECONDS)
    raise AssertionError(f"{what}: not within {SAFETY_SECONDS:.0f} s")


def die_at(moments: Sequence[Moment], folder: Path, lease: str, seed: int) -> None:
    """Kill one driver after the other at these moments, end the last one by Ctrl-C, and check that nothing went wrong.

    `lease` has settings of the backend, in TOML. The seed draws the order, and which executors are killed.
    """
    dice = random.Random(seed)
    with Restarts(folder, lease) as cluster:
        for moment in dice.sample(moments, len(moments)):
            cluster.live(moment, dice)
            cluster.some_die(dice)
        last = cluster.start()
        last.until(cluster.is_full, "as many run as are wanted")
        victims = cluster.some_die(dice, at_least=1)
        last.until(lambda: victims.isdisjoint(cluster.history.named("Running")), "they have ended")
        last.until(lambda: cluster.is_full() and len(cluster.history.pods) == TARGET, "they are replaced and cleared")
        running = cluster.history.named("Running")
        last.until(lambda: cluster.names(last.present()) == running, "the driver has been told of those who run")
        owned = processes(cluster.app_id)
        assert sorted(owned) == running, f"processes of {owned}, but pods {running}"
        assert {len(groups) for groups in owned.values()} == {1}, f"more than one container of a pod: {owned}"
        assert len(set().union(*owned.values())) == TARGET, f"one container of two pods: {owned}"
        assert cluster.history.most == TARGET, f"{cluster.history.most} lived at one moment"
        twice = [number for number, pods in Counter(cluster.history.ids.values()).items() if pods > 1]
        assert not twice, f"ids that were given out again: {twice}"

        codes = cluster.end()
        assert codes == (130, 130), f"exit codes {codes}: {last.lines}"
        for driver in cluster.drivers:
            check_story(driver)
        assert not last.present(), f"not each end was told: {last.lines}"
        left = [*last.folder.iterdir(), *cluster.cluster.folder.iterdir()]
        assert not left, f"temporary files: {left}"
        assert not cluster.kubeconfig.exists(), "the kubeconfig is still there"


def end_with_cluster(folder: Path, lease: str, *, together: bool) -> None:
    """Kill the cluster, with its driver or without: neither an executor nor another process of the cluster is left."""
    with Restarts(folder, lease) as restarts:
        driver = restarts.start(*(("--local",) if together else ()), script=ESCAPING)
        driver.until(lambda: len(driver.ids("running")) == TARGET, "all run")
        until(lambda: sum(map(len, processes(restarts.app_id).values())) == 2 * TARGET, "each has two groups")
        cluster = driver if together else restarts.cluster
        started = descendants(cluster.process.pid)
        assert len(started) > 2 * TARGET, "the executors' processes, and who started them"
        cluster.kill()
        until(lambda: not processes(restarts.app_id), "the executors have ended")
        until(lambda: not any(is_alive(pid) for pid in started), "whatever the cluster started has ended")
        assert (driver.process.poll() is None) is not together


def check_story(driver: Program) -> None:
    """What a life has told, however short it was: its start first and once, each run and each end once."""
    events = [event["event"] for event in driver.events]
    assert "failed" not in events, driver.lines
    assert events.count("started") == (1 if events else 0), driver.lines
    assert events[:1] in ([], ["started"]), driver.lines
    for kind in ("running", "removed"):
        ids = driver.ids(kind)
        assert len(ids) == len(set(ids)), f"told twice that one is {kind}: {driver.lines}"


class Program:
    """`executor-pods` with these arguments as a process of its own; its events, or lines, as they come."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        """For its temporary files."""
        env = {name: value for name, value in os.environ.items() if not name.startswith("EXECUTOR_PODS_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "actors", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=env | {"TMPDIR": str(folder), "PYTHONPATH": str(Path(actors.__file__).parents[1])},
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def events(self) -> list[Object]:
        """What it has told."""
        return [json.loads(line) for line in self.lines if line.startswith("{") and line.endswith("\n")]

    def ids(self, event: str) -> list[int]:
        """Executors of which it has told this, in order."""
        return [told["executor_id"] for told in self.events if told["event"] == event]

    def present(self) -> set[int]:
        """Executors that run, as far as it has told."""
        return set(self.ids("running")) - set(self.ids("removed"))

    def told(self, event: str) -> bool:
        """Whether it has told this."""
        return any(told["event"] == event for told in self.events)

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Look until it is so; it never will be once this has ended."""
        try:
            until(lambda: true() or self.process.poll() is not None, what)
            assert true(), f"{what}: it has ended before that"
        except AssertionError as error:
            error.add_note("".join(self.lines))
            raise

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.end()

    def end(self) -> int:
        """Wait for its end; the exit code."""
        try:
            code = self.process.wait(SAFETY_SECONDS)
        finally:
            self.process.kill()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(self.process.stdout)  # grows line by line


class History(threading.Thread):
    """All that ever happened to pods, from one watch of the embedded cluster's API."""

    def __init__(self, kubeconfig: Path) -> None:
        super().__init__(daemon=True)
        config = yaml.safe_load(kubeconfig.read_text(encoding="utf-8"))
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        url = f"{cluster['server']}/api/v1/namespaces/default/pods?watch=true"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {user['token']}"})
        with_authority = urllib.request.HTTPSHandler(context=ssl.create_default_context(cadata=authority))
        self._stream = urllib.request.build_opener(urllib.request.ProxyHandler({}), with_authority).open(request)
        self.pods: dict[str, Object] = {}
        """UID → pod, of those whose object is there."""
        self.ids: dict[str, int] = {}
        """UID → executor id, of all that ever were, in the order of their creation."""
        self.most = 0
        """That neither ended nor were about to go at one moment."""
        self.start()

    def run(self) -> None:
        with suppress(OSError, ValueError):  # the cluster has ended
            for line in self._stream:
                event = json.loads(line)
                metadata = event["object"]["metadata"]
                if event["type"] == "DELETED":
                    self.pods = {uid: pod for uid, pod in self.pods.items() if uid != metadata["uid"]}
                else:
                    self.pods = {**self.pods, metadata["uid"]: event["object"]}
                    self.ids[metadata["uid"]] = int(metadata["labels"]["executor-pods/executor-id"])
                self.most = max(self.most, len(self.named("Pending", "Running")))

    def named(self, *phases: str) -> list[str]:
        """Names of the pods in these phases that are not about to go."""
        return sorted(
            pod["metadata"]["name"]
            for pod in self.pods.values()
            if pod.get("status", {}).get("phase", "Pending") in phases and "deletionTimestamp" not in pod["metadata"]
        )


def processes(app_id: str) -> dict[str, set[int]]:
    """Pod → process groups of this application's executors that live on this machine."""
    found: dict[str, set[int]] = defaultdict(set)
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile, or is somebody else's
                lines = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
                environment = dict(line.split("=", 1) for line in lines if "=" in line)
                state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
                if environment.get("EXECUTOR_APP_ID") == app_id and state != "Z":
                    found[environment["EXECUTOR_POD_NAME"]].add(int(group))
    return dict(found)


def kill_groups(groups: set[int]) -> None:
    """SIGKILL; who has ended meanwhile is past it."""
    for group in groups:
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)


def descendants(pid: int) -> set[int]:
    """Processes that this one started, and those that they did."""
    found: set[int] = set()
    for listing in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, listing.read_text().split()):
            found |= {child, *descendants(child)}
    return found


def is_alive(pid: int) -> bool:
    """Whether this process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Restarts:
    """One cluster, one driver after the other, and what each could know when it began."""

    def __init__(self, folder: Path, lease: str) -> None:
        self.app_id = f"app-{uuid.uuid4().hex[:12]}"
        self._folder = folder
        self.kubeconfig = folder / "kubeconfig"
        self._config = folder / "driver.toml"
        self._config.write_text(f'app_id = "{self.app_id}"\n[backend]\n{lease}\n', encoding="utf-8")
        self.cluster = Program(folder / "cluster", "local", "--kubeconfig", str(self.kubeconfig))
        self.drivers: list[Program] = []

    def __enter__(self) -> Self:
        self.cluster.until(self.kubeconfig.exists, "the cluster is ready")
        self.history = History(self.kubeconfig)
        return self

    def __exit__(self, *_: object) -> None:
        for program in (*self.drivers, self.cluster):
            program.kill()
        self.history.join(SAFETY_SECONDS)
        for groups in processes(self.app_id).values():  # only where a test has failed
            kill_groups(groups)

    def start(self, *cluster: str, script: str = SCRIPT) -> Program:
        """The driver's next life, on this cluster unless another one is named."""
        cluster = cluster or ("--kubeconfig", str(self.kubeconfig))
        arguments = ("run", *cluster, "--config", str(self._config), "--output", "json")
        more = ("--executors", str(TARGET), "--image", "none", "--", "sh", "-c", script)
        self.drivers.append(Program(self._folder / f"driver {len(self.drivers) + 1}", *arguments, *more))
        return self.drivers[-1]

    def is_full(self) -> bool:
        """Whether as many run as are wanted."""
        return len(self.history.named("Running")) == TARGET

    def names(self, executor_ids: set[int]) -> list[str]:
        """Of these executors' pods."""
        return sorted(f"{self.app_id}-exec-{executor_id}" for executor_id in executor_ids)

    def some_die(self, dice: random.Random, at_least: int = 0) -> set[str]:
        """Up to two executors are killed, as the machine's memory manager might; the names of their pods.

        The last one made is spared: the next life counts ids on from the highest that the cluster shows.
        """
        last = f"{self.app_id}-exec-{max(self.history.ids.values(), default=0)}"
        alive = processes(self.app_id)
        possible = sorted(alive.keys() - {last})
        victims = dice.sample(possible, min(len(possible), dice.randint(at_least, 2)))
        for name in victims:
            kill_groups(alive[name])
        return set(victims)

    def live(self, moment: Moment, dice: random.Random) -> None:
        """A life of the driver, until it is killed at this moment."""
        driver = self.start()
        match moment:
            case "starting":
                with suppress(subprocess.TimeoutExpired):
                    driver.process.wait(dice.uniform(0, START_SECONDS))
            case "started":
                driver.until(lambda: driver.told("started"), moment)
            case "running":
                driver.until(lambda: len(driver.ids("running")) >= TARGET and self.is_full(), moment)
            case "creating":
                driver.until(self.is_full, "all run")
                made = len(self.history.ids)
                self.some_die(dice, at_least=1)
                driver.until(lambda: len(self.history.ids) > made, moment)
        assert driver.process.poll() is None, driver.lines
        driver.kill()

    def end(self) -> tuple[int, int]:
        """Ctrl-C, first for the driver, then for the cluster; the exit codes."""
        self.drivers[-1].process.send_signal(signal.SIGINT)
        driver = self.drivers[-1].end()
        until(lambda: not self.history.pods and not processes(self.app_id), "neither pod nor process is left")
        self.cluster.process.send_signal(signal.SIGINT)
        return driver, self.cluster.end()
