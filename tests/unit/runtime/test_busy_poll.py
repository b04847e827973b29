"""Busy polling of an event loop, with a simulated clock and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.loop_stream import CREDIT_MAX, PAUSE_MAX, PAUSE_MIN, VAIN_COST, BusyPoll

if TYPE_CHECKING:
    from collections.abc import Callable

LIMIT_US = 50
TURN_NS = 2_000
TURNS_OF_A_VAIN_POLL = LIMIT_US * 1000 // TURN_NS


class Loop:
    """The clock and the queue of one loop."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000
        self.queue: list[Callable[[], None]] = []
        self.poll = BusyPoll(lambda: self.now_ns, self.queue.append, LIMIT_US)

    def turn(self) -> None:
        self.now_ns += TURN_NS
        ready, self.queue[:] = list(self.queue), []
        for callback in ready:
            callback()

    def idle_turns(self) -> int:
        """Run turns until the loop waits in the kernel, and return their number."""
        turns = 0
        while self.queue:
            self.turn()
            turns += 1
        return turns

    def answer_at_once(self, requests: int) -> None:
        """Answer requests that each arrive some turns after the last response."""
        for _ in range(requests):
            self.poll.on_sent()
            for _ in range(5):
                self.turn()

    def is_polling_after_response(self) -> bool:
        self.poll.on_sent()
        polls = bool(self.queue)
        self.idle_turns()
        return polls


def test_a_poll_ends_after_its_time() -> None:
    loop = Loop()
    assert loop.idle_turns() == 0
    loop.poll.on_sent()
    assert TURNS_OF_A_VAIN_POLL <= loop.idle_turns() <= TURNS_OF_A_VAIN_POLL + 2


def test_requests_that_follow_at_once_keep_the_loop_awake() -> None:
    loop = Loop()
    for _ in range(1000):
        loop.answer_at_once(1)
        assert len(loop.queue) == 1
    assert loop.idle_turns() <= TURNS_OF_A_VAIN_POLL + 2


def test_vain_polls_become_rare() -> None:
    loop = Loop()
    responses = 100_000
    vain = sum(loop.is_polling_after_response() for _ in range(responses))
    assert 5 < vain <= 8 + responses // PAUSE_MAX


def test_useful_polls_pay_for_a_vain_one() -> None:
    loop = Loop()
    for _ in range(100):
        loop.answer_at_once(VAIN_COST + 1)
        loop.idle_turns()
    assert loop.is_polling_after_response()


def test_polls_that_are_vain_too_often_are_left_out_for_a_while() -> None:
    loop = Loop()
    loop.answer_at_once(VAIN_COST // 2)
    loop.idle_turns()
    assert [loop.is_polling_after_response() for _ in range(PAUSE_MIN)].index(True) == PAUSE_MIN - 1


def test_the_pauses_are_short_again_after_many_useful_polls() -> None:
    loop = Loop()
    while loop.poll._pause < PAUSE_MAX:
        loop.is_polling_after_response()
    while not loop.is_polling_after_response():
        pass
    for _ in range(2 * PAUSE_MAX):
        loop.answer_at_once(1)
    loop.idle_turns()
    vain = 0
    while loop.is_polling_after_response():
        vain += 1
    assert vain <= CREDIT_MAX // VAIN_COST
    turns = 1
    while not loop.is_polling_after_response():
        turns += 1
    assert turns <= PAUSE_MIN
