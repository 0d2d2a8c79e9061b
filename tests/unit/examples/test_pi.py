"""The driver of the example, message by message. tests/e2e/test_example.py runs it as a process."""

from __future__ import annotations

import socket
from concurrent.futures import Future

from actors import ExecutorRemoved, LossKind, LossReason, Settings
from actors.examples.pi import Executors, Outcome, PiDriver
from actors.registration.listener import Answered, Connected, Disconnected
from tests.unit.registration.virtual import Driver, hello, run, settle

LOST = LossReason(LossKind.NODE_LOST, -1, caused_by_app=False, message="its node is gone")


def pi_driver() -> PiDriver:
    """Not started: no fleet, no thread."""
    with socket.socket() as sock:
        return PiDriver(Settings(), None, Executors(sock, "token", print), Future[Outcome]())


def test_an_answer_after_the_loss_is_counted_and_its_executor_gets_no_more_work() -> None:
    async def main() -> None:
        network, driver = Driver(), pi_driver()
        peer = network.peer(hello(1))
        await settle()
        (connection,) = network.connections
        driver.on_receive(Connected(connection))
        driver.on_receive(ExecutorRemoved(1, LOST))
        driver.on_receive(Answered(connection, 0, 5))
        driver.on_receive(Disconnected(connection))
        await settle()
        assert driver._answers == {0: 5}
        assert peer.types == ["welcome", "work"]

    run(main())


def test_the_task_of_a_lost_executor_goes_to_another_once() -> None:
    async def main() -> None:
        network, driver = Driver(), pi_driver()
        peers = [network.peer(hello(number)) for number in (1, 2)]
        await settle()
        lost, other = network.connections
        driver.on_receive(Connected(lost))
        driver.on_receive(Connected(other))
        driver.on_receive(Disconnected(lost))
        driver.on_receive(ExecutorRemoved(1, LOST))
        driver.on_receive(Answered(other, 1, 7))
        await settle()
        assert [message["work_id"] for message in peers[1].heard if message["type"] == "work"] == [1, 0]
        assert (driver._tasks.repeated, driver._lost) == (1, 1)

    run(main())
