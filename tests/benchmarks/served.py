"""The server's pods, as events and as pages of a list."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.benchmarks.pods import FIRST_VERSION, PodBytes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Counts", "Served", "failure"]

READ_EVENTS: Final = 25
"""Events in one write at full speed: what a socket's buffer takes at once."""

TICK: Final = 0.002
"""Most seconds between two writes of a stream with a given rate."""

GZIP_FROM: Final = 128 * 1024
"""A real API server compresses lists from this size on, at level 1."""

RUN: Final = {"Running": "Restarted", "Restarted": "Running"}
"""Phase of a running pod → its phase after the next change."""

LISTS_KEPT: Final = 4
"""Lists that can be read page by page at a time: those of one client."""


@dataclass(slots=True)
class Kept:
    """A pod of the server; `before` holds its event up to the version."""

    number: int
    version: int
    phase: str
    before: bytes


@dataclass(slots=True)
class Counts:
    """Which requests came, and when, by CLOCK_MONOTONIC, which all processes share on Linux."""

    posts: list[float] = field(default_factory=list)
    answered: list[float] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    deletes: int = 0
    lists: int = 0
    """Pages."""
    first_list: float = 0.0
    """When the first page was requested."""
    ended: dict[int, float] = field(default_factory=dict)
    """Executor id → when the event of its end was written."""
    late: list[float] = field(default_factory=list)
    """How late each of these events was written."""


class Served:
    """`send` writes to every watch; `flushed` waits until every watch can take more."""

    def __init__(
        self,
        pods: int,
        send: Callable[[bytes], None],
        *,
        gzipped: bool = False,
        starts: bool = False,
        joined: bool = False,
        changed: bool = False,
        shuffled: bool = False,
    ) -> None:
        self.bytes = PodBytes()
        self.version = FIRST_VERSION
        self.counts = Counts()
        self._paces = 0
        self._send = send
        self._gzipped = gzipped
        self._starts = starts
        self._joined = joined
        self._changed = changed
        self._ends = {phase: end if joined else end + b"\r\n" for phase, end in self.bytes.ends.items()}
        self.pods = {number: self._kept(number, FIRST_VERSION, "Running") for number in range(1, pods + 1)}
        self._running = list(self.pods.values())
        if shuffled:
            random.Random(17).shuffle(self._running)
        self._next = 0
        self._lists: dict[str, list[tuple[int, int, str]]] = {}
        self._zipped: dict[tuple[str, int, int], bytes] = {}

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def stream(self, count: int, flushed: Callable[[], Any], ends: int = 0) -> dict[str, float]:
        """Send `count` events at full speed, `ends` ends of executors among them, then the end of the last executor."""
        began, cpu = time.monotonic(), time.process_time()
        endings = sorted(self.pods)[:ends]
        for part in range(ends + 1):
            left = count * (part + 1) // (ends + 1) - count * part // (ends + 1)
            while left > 0:
                write = min(READ_EVENTS, left)
                self._send(self._beat(write))
                left -= write
                await flushed()
                await asyncio.sleep(0)
            if part < ends:
                self._end(endings[part])
        last = max(self.pods)
        self._end(last)
        await flushed()
        cpu = time.process_time() - cpu
        return {"began": began, "sent": time.monotonic(), "last": last, "cpu": cpu}

    async def pace(self, seconds: float, rate: float, ends: float, flushed: Callable[[], Any]) -> dict[str, float]:
        """Send `rate` events a second, evenly, `ends` of them ends of executors at random moments, alike in each run.

        Random, because at even moments all could come just before a timer, or just after.
        """
        before = len(self.counts.late)
        self._paces += 1
        chance, due_at, due_ends = random.Random(17 + self._paces), 0.0, []
        while (due_at := due_at + chance.expovariate(ends)) < seconds:
            due_ends.append(due_at)
        due_ends.reverse()
        began, cpu = time.monotonic(), time.process_time()
        candidates, beats = iter(sorted(self.pods)), 0
        while (now := time.monotonic() - began) < seconds:
            while due_ends and due_ends[-1] <= now:
                self.counts.late.append(time.monotonic() - began - due_ends.pop())
                self._end(next(candidates))
            due = int(now * (rate - ends))
            if due > beats:
                self._send(self._beat(due - beats))
                beats = due
            await flushed()
            await asyncio.sleep(min(TICK, 1 / rate))
        took = time.monotonic() - began
        cpu = time.process_time() - cpu
        return {"events": beats + len(self.counts.late) - before, "seconds": took, "cpu": cpu}

    def _beat(self, count: int) -> bytes:
        """Return the next `count` events, of running pods in turn: in the order of their ids, unless shuffled."""
        pieces: list[bytes] = []
        running, at, version = self._running, self._next, self.version
        for _ in range(count if running else 0):
            at = at + 1 if at + 1 < len(running) else 0
            kept = running[at]
            version += 1
            kept.version = version
            if self._changed:
                kept.phase = RUN[kept.phase]
            pieces += (kept.before, b"%d" % version, self._ends[kept.phase])
        self._next, self.version = at, version
        events = b"".join(pieces)
        return b"%x\r\n%b\r\n" % (len(events), events) if self._joined and events else events

    def _end(self, number: int) -> None:
        self.counts.ended[number] = time.monotonic()
        self._change(number, "Failed", "MODIFIED")

    def _change(self, number: int, phase: str, kind: str) -> None:
        """Send the event of one pod that is created, changes, or is deleted."""
        self.version += 1
        old = self.pods.pop(number, None)
        if old is not None and old.phase in RUN:
            self._running.remove(old)
        if kind != "DELETED":
            self.pods[number] = kept = self._kept(number, self.version, phase)
            if phase == "Running":
                self._running.append(kept)
        before, after = self.bytes.around(number, phase, kind)
        event = b"%b%d%b" % (before, self.version, after)
        self._send(b"%x\r\n%b\r\n" % (len(event), event))

    def _kept(self, number: int, version: int, phase: str) -> Kept:
        before, after = self.bytes.around(number, phase, "MODIFIED")
        if not self._joined:
            before = b"%x\r\n%b" % (len(before) + len(str(FIRST_VERSION)) + len(after), before)
        return Kept(number, version, phase, before)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def page(self, query: dict[str, str], *, gzipped: bool) -> tuple[bytes, bool]:
        """Return a page of a list, which is of one version, and whether the body is compressed."""
        if not self.counts.lists:
            self.counts.first_list = time.monotonic()
        self.counts.lists += 1
        version, _, start = query.get("continue", "").partition("-")
        if not version:
            version = str(self.version)
            self._lists[version] = [(kept.number, kept.version, kept.phase) for kept in self.pods.values()]
            while len(self._lists) > LISTS_KEPT:
                del self._lists[next(iter(self._lists))]
        listed, at = self._lists[version], int(start or 0)
        limit = int(query.get("limit", 0)) or len(listed) + 1
        if not gzipped or not self._gzipped:
            return self._page(version, listed, at, limit), False
        key = (version, at, limit)
        if key not in self._zipped:
            body = self._page(version, listed, at, limit)
            if len(body) < GZIP_FROM:
                return body, False
            self._zipped = {known: page for known, page in self._zipped.items() if known[0] in self._lists}
            self._zipped[key] = gzip.compress(body, compresslevel=1)
        return self._zipped[key], True

    def _page(self, version: str, listed: list[tuple[int, int, str]], at: int, limit: int) -> bytes:
        left = len(listed) - at - limit
        metadata: dict[str, Any] = {"resourceVersion": version}
        if left > 0:
            metadata |= {"continue": f"{version}-{at + limit}", "remainingItemCount": left}
        return b'{"kind":"PodList","apiVersion":"v1","metadata":%b,"items":[%b]}' % (
            json.dumps(metadata).encode(),
            b",".join(self.bytes.item(*pod) for pod in listed[at : at + limit]),
        )

    def warm_up(self) -> None:
        """Compress the pages of the usual size beforehand, so that the server is not measured."""
        self.page({"limit": "500"}, gzipped=True)
        for at in range(500, len(self.pods), 500):
            self.page({"limit": "500", "continue": f"{self.version}-{at}"}, gzipped=True)
        self.counts.lists = 0

    def create(self, body: bytes) -> tuple[int, bytes]:
        """Answer a POST: the pod exists at once and, with `starts`, runs."""
        number = int(json.loads(body)["metadata"]["labels"]["executor-pods/executor-id"])
        if number in self.pods:
            return 409, failure(409, "AlreadyExists")
        self._change(number, "Pending", "ADDED")
        answer = self.bytes.whole(number, self.version, "Pending")
        if self._starts:
            self._change(number, "Running", "MODIFIED")
        return 201, answer

    def delete(self, number: int) -> tuple[int, bytes]:
        """Answer a DELETE: the pod is gone at once."""
        self.counts.deletes += 1
        kept = self.pods.get(number)
        if kept is None:
            return 404, failure(404, "NotFound")
        self._change(number, kept.phase, "DELETED")
        return 200, b'{"kind":"Status","apiVersion":"v1","status":"Success"}'

    def show(self, number: int) -> tuple[int, bytes]:
        """Answer a PATCH, which changes nothing."""
        kept = self.pods.get(number)
        if kept is None:
            return 404, failure(404, "NotFound")
        return 200, self.bytes.whole(number, kept.version, kept.phase)


def failure(code: int, reason: str) -> bytes:
    """Return the body of an error."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return json.dumps(status).encode()
