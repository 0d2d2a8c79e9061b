"""A mailbox closes atomically: no message is lost, and no `ask` hangs."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import TYPE_CHECKING, Any

import pytest
from pykka import ActorDeadError
from pykka._envelope import Envelope
from pykka.messages import _ActorStop

from actors.runtime import SystemClock
from actors.runtime.mailbox import MANY_WAITING, DeadLetters, Mailbox, MailboxClosed, Reply, Signal
from actors.testing import ManualClock
from tests.unit.runtime.stage import SAFETY, Recorder, Stage

if TYPE_CHECKING:
    from pykka import Future

    from actors.runtime import Address


@pytest.fixture
def letters() -> DeadLetters:
    return DeadLetters()


@pytest.fixture
def mailbox(letters: DeadLetters) -> Mailbox:
    return Mailbox("box", SystemClock(), letters)


def ask(mailbox: Mailbox, message: object = "question") -> Reply:
    reply = Reply()
    mailbox.put(Envelope(message, reply_to=reply))
    return reply


def test_messages_come_out_in_the_order_they_were_put(mailbox: Mailbox) -> None:
    for message in "abc":
        mailbox.put(Envelope(message))
    assert mailbox.depth == 3
    assert [mailbox.get().message for _ in "abc"] == ["a", "b", "c"]
    assert mailbox.empty()


def test_closing_answers_what_was_asked_and_counts_what_was_told(mailbox: Mailbox, letters: DeadLetters) -> None:
    mailbox.put(Envelope("told"))
    asked = ask(mailbox)
    stop = ask(mailbox, _ActorStop())
    mailbox.put(Envelope(Signal()))
    assert mailbox.close()
    with pytest.raises(ActorDeadError, match="box ended before it answered str"):
        asked.get(timeout=0)
    assert stop.get(timeout=0) is None, "it is stopped, as asked"
    assert letters.total == 1, "signals do not count"


def test_what_comes_later_is_treated_the_same(mailbox: Mailbox, letters: DeadLetters) -> None:
    mailbox.close()
    mailbox.put(Envelope("told"))
    with pytest.raises(ActorDeadError):
        ask(mailbox).get(timeout=0)
    assert ask(mailbox, _ActorStop()).get(timeout=0) is None
    assert letters.total == 1


def test_only_the_first_to_close_it_may_report_the_death(mailbox: Mailbox) -> None:
    assert [mailbox.close(), mailbox.close()] == [True, False]


def test_a_closed_mailbox_is_empty_whatever_is_put_so_that_the_teardown_of_pykka_ends(mailbox: Mailbox) -> None:
    mailbox.put(Envelope("before"))
    mailbox.close()
    mailbox.put(Envelope("after"))
    assert mailbox.empty()
    assert mailbox.depth == 0


def test_who_waits_for_a_message_is_sent_away_when_it_closes(mailbox: Mailbox) -> None:
    left = threading.Event()

    def read() -> None:
        with contextlib.suppress(MailboxClosed):
            mailbox.get()
        left.set()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    mailbox.close()
    assert left.wait(SAFETY)
    with pytest.raises(MailboxClosed):
        mailbox.get()


def test_a_message_that_is_taken_while_it_closes_is_answered_and_not_handled(letters: DeadLetters) -> None:
    class Closing(queue.SimpleQueue[Any]):
        def get(self, block: bool = True, timeout: float | None = None) -> Any:
            envelope = super().get(block, timeout)
            box.close()
            return envelope

    box = Mailbox("box", SystemClock(), letters)
    box._queue = Closing()
    asked = ask(box)
    with pytest.raises(MailboxClosed):
        box.get()
    with pytest.raises(ActorDeadError):
        asked.get(timeout=0)


def test_it_knows_what_its_actor_is_busy_with_and_since_when(letters: DeadLetters) -> None:
    clock = ManualClock()
    mailbox = Mailbox("box", clock, letters)
    assert mailbox.busy_since is None
    mailbox.put(Envelope("work"))
    envelope = mailbox.get()
    assert mailbox.busy_since == clock.monotonic()
    assert mailbox.current is envelope
    mailbox.close()
    with pytest.raises(MailboxClosed):
        mailbox.get()
    assert mailbox.busy_since is None
    assert mailbox.current is None


def test_it_warns_once_for_each_doubling_of_what_waits_and_keeps_the_most_that_ever_did(
    mailbox: Mailbox, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):  # reaching the same depth again logs nothing
        for _ in range(2 * MANY_WAITING + 1):
            mailbox.put(Envelope("work"))
        mailbox.get()
        while not mailbox.empty():
            mailbox.get()
    assert mailbox.high_water == 2 * MANY_WAITING
    assert [record.getMessage() for record in caplog.records] == ["actor falls behind: actor=box waiting=20000"]
    for _ in range(4 * MANY_WAITING):
        mailbox.put(Envelope("work"))
    mailbox.get()
    assert len(caplog.records) == 1, "one less than twice as many"
    mailbox.put(Envelope("work"))
    mailbox.put(Envelope("work"))
    mailbox.get()
    assert caplog.records[-1].getMessage() == "actor falls behind: actor=box waiting=40000"
    assert len(caplog.records) == 2


def test_a_mailbox_that_is_kept_up_with_says_nothing(mailbox: Mailbox, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(MANY_WAITING):
        mailbox.put(Envelope("work"))
    for _ in range(3 * MANY_WAITING):
        mailbox.get()
        mailbox.put(Envelope("work"))
    assert caplog.records == []
    assert mailbox.high_water == MANY_WAITING - 1


def test_abandoning_answers_who_asked_for_what_is_under_way(mailbox: Mailbox) -> None:
    asked = ask(mailbox)
    mailbox.get()
    mailbox.close(abandon=True)
    with pytest.raises(ActorDeadError):
        asked.get(timeout=0)


def test_closing_in_order_leaves_the_message_under_way_to_its_actor(mailbox: Mailbox) -> None:
    asked = ask(mailbox)
    mailbox.get()
    mailbox.close()
    asked.set("an answer")
    assert asked.get(timeout=0) == "an answer"


def test_the_first_answer_counts() -> None:
    reply = Reply()
    reply.set("first")
    reply.set("second")
    reply.set_exception((ValueError, ValueError(), None))
    assert reply.get(timeout=0) == "first"


def test_a_finalizer_may_tell_in_the_middle_of_a_tell(letters: DeadLetters) -> None:
    """With a lock in `put`, the thread would wait for itself here."""

    class Tells(Mailbox):
        def put(self, envelope: Envelope[Any], /) -> None:
            super().put(envelope)
            if envelope.message == "outer":
                self.put(Envelope("inner"))

    mailbox = Tells("box", SystemClock(), letters)
    mailbox.put(Envelope("outer"))
    assert [mailbox.get().message, mailbox.get().message] == ["outer", "inner"]


@pytest.mark.usefixtures("tight_switching")
def test_no_message_is_lost_in_a_race_with_closing(letters: DeadLetters) -> None:
    rounds, writers, each = 150, 3, 20
    handled = 0
    for _ in range(rounds):
        mailbox = Mailbox("box", SystemClock(), letters)
        replies: list[list[Reply]] = [[] for _ in range(writers)]
        go = threading.Barrier(writers + 2)

        def write(mine: list[Reply], mailbox: Mailbox = mailbox, go: threading.Barrier = go) -> None:
            go.wait(SAFETY)
            for _ in range(each):
                mine.append(ask(mailbox))
                mailbox.put(Envelope("told"))

        def close(mailbox: Mailbox = mailbox, go: threading.Barrier = go) -> None:
            go.wait(SAFETY)
            assert mailbox.close()

        threads = [threading.Thread(target=write, args=(mine,), daemon=True) for mine in replies]
        threads.append(threading.Thread(target=close, daemon=True))
        for thread in threads:
            thread.start()
        go.wait(SAFETY)
        with contextlib.suppress(MailboxClosed):
            while True:
                envelope = mailbox.get()
                if envelope.reply_to is not None:
                    envelope.reply_to.set("handled")
                else:
                    handled += 1
        for thread in threads:
            thread.join(SAFETY)
        for reply in (reply for mine in replies for reply in mine):
            with contextlib.suppress(ActorDeadError):
                assert reply.get(timeout=0) == "handled"
    assert handled + letters.total == rounds * writers * each


@pytest.mark.usefixtures("tight_switching")
def test_no_ask_hangs_in_a_race_with_a_stop_by_the_host() -> None:
    with Stage("loop") as stage:
        for _ in range(100):
            _race_one_actor(stage.spawn(Recorder, name="racer"))


def _race_one_actor(address: Address) -> None:
    ref = address.ref
    assert ref is not None
    futures: list[Future[Any]] = []
    go = threading.Barrier(3)

    def keep_asking() -> None:
        go.wait(SAFETY)
        futures.extend(ref.ask("all", block=False) for _ in range(20))

    threads = [threading.Thread(target=keep_asking, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    go.wait(SAFETY)
    assert ref.stop(timeout=SAFETY)
    for thread in threads:
        thread.join(SAFETY)
    for future in futures:
        with contextlib.suppress(ActorDeadError):
            assert future.get(timeout=SAFETY) == []
