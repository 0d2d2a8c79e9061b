"""`TaskQueue`: who works on which task. The task of a lost executor is handed out again. No thread, no clock.

A connection may be lost before its executor is, and an answer may come after a loss. So a task is open again as soon as
its connection is lost, and its first answer counts, whoever sends it. Why the executor was lost is known later:
`removed` then counts the loss against the tasks that it had. A task whose losses may be too many already is held until
their causes are known, so it ends no more executors than its limit allows.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from actors.tasks.attempts import Attempts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from actors.pods.loss import LossReason

__all__ = ["HasExecutorId", "TaskQueue"]


class HasExecutorId(Hashable, Protocol):
    """Something of one executor, such as a `Connection`."""

    @property
    def executor_id(self) -> int:
        """The executor's id."""


E = TypeVar("E", bound="int | HasExecutorId")
"""How the driver names an executor: a connection of it, or its id."""

T = TypeVar("T", bound=Hashable)
"""A task."""


class TaskQueue(Generic[T, E]):
    """Tasks, and the executors that work on them. Tell it what the listener and the fleet tell you.

    ::

        match event:
            case Connected(connection):
                tasks.connected(connection)
            case Answered(connection, task, answer):
                if tasks.answered(connection, task):
                    results[task] = answer
            case Disconnected(connection):
                tasks.disconnected(connection)
            case ExecutorTerminating(executor_id):
                for connection in tasks.terminating(executor_id):
                    connection.stop()
            case ExecutorRemoved(executor_id, reason):
                tasks.removed(executor_id, reason)
        for connection, task in tasks.assign():
            connection.send(task, ...)

    It is used by one thread. An executor is anything hashable with an `executor_id`, such as a `Connection`, or the id
    itself.

    Args:
        tasks: names of tasks, each one hashable and different from all others.
        at_once: how many tasks one executor has at the same time.
        attempts: the limits of each task, and where it begins.
    """

    def __init__(self, tasks: Iterable[T] = (), *, at_once: int = 1, attempts: Attempts | None = None) -> None:
        if not isinstance(at_once, int) or isinstance(at_once, bool) or at_once < 1:
            raise ValueError(f"at_once = {at_once!r}: must be a whole number, at least 1")
        self._at_once = at_once
        self._first = Attempts() if attempts is None else attempts
        self._open: deque[T] = deque()
        self._held: dict[T, None] = {}
        """Tasks that nobody works on, and that may have been lost too often."""
        self._unfinished: dict[T, E | None] = {}
        """Every task that has neither an answer nor failed, and who works on it; None: it is open, or held."""
        self._working: dict[E, dict[T, None]] = {}
        """The tasks of each executor, in the order in which they were given."""
        self._free: dict[E, None] = {}
        """Who may be given a task, in the order in which they became free."""
        self._closed: set[int] = set()
        """Ids of executors that are terminating: they get no more tasks."""
        self._lost: dict[int, dict[T, None]] = {}
        """By id of an executor: tasks that it had when its connections were lost. It may be gone: `removed` says so."""
        self._unexplained: Counter[T] = Counter()
        """How often each task is in `_lost`."""
        self._attempts: dict[T, Attempts] = {}
        """Of the unfinished tasks that had a loss."""
        self._failed: dict[T, Attempts] = {}
        self._repeated = 0
        self.add(tasks)

    # ── what the driver asks ────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_done(self) -> bool:
        """Whether each task has an answer or has failed."""
        return not self._unfinished

    @property
    def waiting(self) -> int:
        """How many tasks no executor works on: the backlog."""
        return len(self._open) + len(self._held)

    @property
    def failed(self) -> Mapping[T, Attempts]:
        """The tasks that must not run again; `refusal` says why."""
        return self._failed.copy()

    @property
    def repeated(self) -> int:
        """How often a task was open again because its executor was lost."""
        return self._repeated

    def working_on(self, executor: E) -> tuple[T, ...]:
        """Return the tasks of an executor, in the order in which they were given."""
        return tuple(self._working.get(executor, ()))

    def assign(self) -> list[tuple[E, T]]:
        """Give open tasks to executors that have fewer than `at_once`, and return who got which: send these.

        The executor that is free for the longest time gets the first one. Nobody gets a second one before all got one.
        """
        given: list[tuple[E, T]] = []
        while self._open and self._free:
            executor = next(iter(self._free))
            task = self._open.popleft()
            self._working[executor][task] = None
            self._unfinished[task] = executor
            given.append((executor, task))
            del self._free[executor]
            self._free_if_it_may(executor)  # at the end
        return given

    # ── what the driver was told ────────────────────────────────────────────────────────────────────────────────

    def add(self, tasks: Iterable[T]) -> None:
        """Add tasks at the end.

        Raises:
            ValueError: one is unfinished already, or has failed.
        """
        for task in tasks:
            if task in self._unfinished or task in self._failed:
                raise ValueError(f"task {task!r} is in the queue already: give each task a name of its own")
            self._unfinished[task] = None
            self._open.append(task)

    def connected(self, executor: E) -> None:
        """An executor may be given tasks. It has none: what it had over an earlier connection was taken back."""
        self._take_back(executor)
        for task in self._explained(_id_of(executor)):  # it was the connection that was lost
            self._open_if_it_may(task)
        self._working[executor] = {}
        self._free_if_it_may(executor)

    def answered(self, executor: E, task: T) -> bool:
        """Note an answer to a task. False: it is not the first, or the task has failed; drop it."""
        if executor in self._working:
            self._working[executor].pop(task, None)
            self._free_if_it_may(executor)
        if task not in self._unfinished:
            return False
        if self._unfinished.pop(task) is None:  # it was taken back before the answer came
            self._take_out(task)
        self._attempts.pop(task, None)
        return True

    def disconnected(self, executor: E) -> None:
        """The connection is lost: its tasks are open again, before all others.

        One is held instead if its limit is reached should the application have caused this loss and the others whose
        causes are not known: until `removed` says them, or the executors connect again.
        """
        self._take_back(executor)

    def terminating(self, executor_id: int) -> tuple[E, ...]:
        """Give this executor no more tasks. Return its connections: tell each to stop, it answers what it has."""
        connections = self._connections(executor_id)
        self._closed.add(executor_id)
        for executor in connections:
            self._free.pop(executor, None)
        return connections

    def removed(self, executor_id: int, reason: LossReason) -> tuple[T, ...]:
        """The executor is gone: count that against the tasks that it had. Return those that have failed now.

        Tasks that it has over a connection that still stands are taken back first. No executor works on a task that
        fails here.
        """
        for executor in self._connections(executor_id):
            self._take_back(executor)
        self._closed.discard(executor_id)
        failed = []
        for task in self._explained(executor_id):
            self._attempts[task] = self._attempts.get(task, self._first).after(reason)
            if not self._attempts[task].may_run_again:
                self._take_out(task)
                del self._unfinished[task]
                self._failed[task] = self._attempts.pop(task)
                failed.append(task)
            else:
                self._open_if_it_may(task)
        return tuple(failed)

    # ── helpers ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _connections(self, executor_id: int) -> tuple[E, ...]:
        return tuple(executor for executor in self._working if _id_of(executor) == executor_id)

    def _free_if_it_may(self, executor: E) -> None:
        if len(self._working[executor]) < self._at_once and _id_of(executor) not in self._closed:
            self._free[executor] = None

    def _take_back(self, executor: E) -> None:
        """Take its tasks from an executor, and give it no others."""
        self._free.pop(executor, None)
        for task in reversed(self._working.pop(executor, {})):
            if self._unfinished.get(task) != executor:  # another one has answered it
                continue
            self._unfinished[task] = None
            lost = self._lost.setdefault(_id_of(executor), {})
            if task not in lost:
                lost[task] = None
                self._unexplained[task] += 1
            self._held[task] = None
            self._open_if_it_may(task)

    def _explained(self, executor_id: int) -> list[T]:
        """Return the unfinished tasks that an executor had, now that it is known what became of it."""
        tasks = self._lost.pop(executor_id, {})
        for task in tasks:
            self._unexplained[task] -= 1
            if not self._unexplained[task]:
                del self._unexplained[task]
        return [task for task in tasks if task in self._unfinished]

    def _open_if_it_may(self, task: T) -> None:
        """Open a held task, before all others, if its limit cannot have been reached."""
        if task in self._held and self._attempts.get(task, self._first).allows(self._unexplained[task]):
            del self._held[task]
            self._open.appendleft(task)
            self._repeated += 1

    def _take_out(self, task: T) -> None:
        """Give a task that nobody works on to nobody any more."""
        if task in self._held:
            del self._held[task]
        else:
            self._open.remove(task)


def _id_of(executor: int | HasExecutorId) -> int:
    return executor if isinstance(executor, int) else executor.executor_id
