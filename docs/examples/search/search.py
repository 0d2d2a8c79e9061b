"""Search hyper-parameters on executors: many trials train a little, and the best third trains on.

python search.py
"""

import itertools
import random
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from actors import (
    BackendFailed,
    ExecutorRemoved,
    ExecutorRunning,
    ExecutorTerminating,
    Fleet,
    FleetFailed,
    TaskQueue,
)
from actors.registration.listener import Answered, Connected, Disconnected, Listener, ListenerThread

EXECUTORS = 4
TRIALS = 18
EPOCHS = (4, 12, 36)


@contextmanager
def pool(program: Path, instances: int) -> Iterator[tuple[Fleet, Callable[[object], Future]]]:
    """Yield a fleet, and a function that hands work to its executors. Any thread may call it."""
    inbox: SimpleQueue = SimpleQueue()
    token = secrets.token_urlsafe()

    def submit(work: object) -> Future:
        future: Future = Future()
        inbox.put((work, future))
        return future

    with (
        socket.create_server(("127.0.0.1", 0)) as sock,
        Fleet(
            local=True,
            instances=instances,
            command=[sys.executable, str(program)],
            env={"DRIVER_TOKEN": token},
            driver_address=f"127.0.0.1:{sock.getsockname()[1]}",
            on_event=inbox.put,
        ) as fleet,
        ListenerThread(Listener(token, tell=inbox.put), fleet, sock),
    ):
        thread = Thread(target=hand_out, args=(inbox,))
        thread.start()
        try:
            yield fleet, submit
        finally:
            inbox.put(None)
            thread.join()


def hand_out(inbox: SimpleQueue) -> None:
    """Give work to executors that are free, until None comes; the work of a lost executor goes to another one."""
    tasks, works, futures, numbers = TaskQueue(), {}, {}, itertools.count(1)
    failure = None
    while (message := inbox.get()) is not None:
        match message:
            case work, Future() as future:
                number = next(numbers)
                works[number], futures[number] = work, future
                tasks.add([number])
            case Connected(connection):
                tasks.connected(connection)
            case Answered(connection, number, answer):
                if tasks.answered(connection, number):
                    del works[number]
                    futures.pop(number).set_result(answer)
            case Disconnected(connection):
                tasks.disconnected(connection)
            case ExecutorTerminating(executor_id):
                for connection in tasks.terminating(executor_id):
                    connection.stop()
            case ExecutorRunning(executor_id):
                print(f"executor {executor_id} runs", flush=True)
            case ExecutorRemoved(executor_id, reason):
                print(reason.message, flush=True)
                tasks.removed(executor_id, reason)
            case FleetFailed(cause):
                failure = RuntimeError(cause)
            case BackendFailed(cause):
                failure = cause
        for connection, number in tasks.assign():
            connection.send(number, works[number])
        for number in tasks.failed.keys() & futures.keys():
            futures.pop(number).set_exception(RuntimeError(tasks.failed[number].refusal))
        while failure is not None and futures:
            futures.popitem()[1].set_exception(failure)


def search(fleet: Fleet, submit: Callable[[object], Future]) -> None:
    """Train all trials for a few epochs, the best third of them for three times as many, and so on."""
    rng = random.Random(7)
    trials = [{"rate": 10 ** rng.uniform(-4, 0), "decay": rng.uniform(0.8, 1)} for _ in range(TRIALS)]
    for epochs in EPOCHS:
        fleet.scale(min(EXECUTORS, len(trials)))
        futures = [submit({**trial, "epochs": epochs}) for trial in trials]
        ranked = sorted(((future.result(), trial) for future, trial in zip(futures, trials, strict=True)), key=loss_of)
        loss, best = ranked[0]
        print(f"{len(trials)} trials of {epochs} epochs: the best loss is {loss:.4f}", flush=True)
        trials = [trial for _, trial in ranked[: len(ranked) // 3]]
    print(f"the best rate is {best['rate']:.4f}, its decay {best['decay']:.2f}")


def loss_of(result: tuple[float, dict]) -> float:
    """Return what results are ranked by."""
    return result[0]


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with pool(Path(__file__).with_name("train.py"), EXECUTORS) as (fleet, submit):
        search(fleet, submit)
