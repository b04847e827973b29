"""Busy polling of an event loop, with a simulated clock and queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.loop_stream import (
    CREDIT_MAX,
    LOOK_INTERVAL,
    PAUSE_MAX,
    PAUSE_MIN,
    VAIN_COST,
    BusyPoll,
)

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
        self.preemptions = 0
        self.poll = BusyPoll(
            lambda: self.now_ns, self.queue.append, LIMIT_US, lambda: self.preemptions
        )

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


def answer_beside_others(loop: Loop, requests: int, every: int) -> int:
    """Answer requests; another process preempts this one once in `every` requests.

    Returns:
        The number of responses after which the loop polled.
    """
    polled = 0
    for number in range(requests):
        loop.preemptions += number % every == 0
        loop.poll.on_sent()
        polled += bool(loop.queue)
        for _ in range(5):
            loop.turn()
    return polled


def test_polls_become_rare_while_other_processes_want_the_processor() -> None:
    loop = Loop()
    responses = 100_000
    # All polls are useful, because the clients are busy.
    polled = answer_beside_others(loop, responses, every=4)
    assert 0 < polled <= LOOK_INTERVAL * (8 + responses // PAUSE_MAX)


def test_a_rare_preemption_does_not_end_the_polls() -> None:
    loop = Loop()
    assert answer_beside_others(loop, 10_000, every=4 * VAIN_COST) > 9_900


def test_polls_return_when_the_other_processes_are_gone() -> None:
    loop = Loop()
    answer_beside_others(loop, 20_000, every=2)
    answer_beside_others(loop, PAUSE_MAX, every=1_000_000)
    assert answer_beside_others(loop, 1_000, every=1_000_000) == 1_000


def test_preemptions_without_polls_cost_nothing() -> None:
    loop = Loop()
    loop.answer_at_once(CREDIT_MAX)
    loop.idle_turns()
    loop.preemptions += 1_000
    assert loop.is_polling_after_response()
    assert loop.is_polling_after_response()
