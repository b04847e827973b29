"""Waits for calls that complete by callback, with a loop in virtual time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from barnabas.client.errors import ClientError, ClientTimeoutError
from barnabas.client.session.session import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.client.retries import OnDone
    from barnabas.runtime.stepper import LoopStepper

TIMEOUT_MS = 10_000


class VirtualLoop:
    """Stands for a LoopStepper: its timers run in virtual time."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.is_running = False
        self.runtime = SimpleNamespace(clock=SimpleNamespace(monotonic_ms=lambda: self.now_ms))
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay_ms: float, action: Callable[[], None]) -> None:
        self._timers.append((self.now_ms + delay_ms, action))
        self._timers.sort(key=lambda timer: timer[0])

    def run_until(self, is_done: Callable[[], bool], limit_ms: float) -> bool:
        assert not self.is_running
        end_ms = self.now_ms + limit_ms
        while not is_done():
            if not self._timers or self._timers[0][0] > end_ms:
                self.now_ms = end_ms
                return False
            self.now_ms, action = self._timers.pop(0)
            self.is_running = True
            action()
            self.is_running = False
        return True


def waiter_of(loop: VirtualLoop) -> Waiter:
    return Waiter(cast("LoopStepper", loop), lambda: None, TIMEOUT_MS)


def call_of(loop: VirtualLoop, duration_ms: float) -> Callable[[OnDone[Any]], None]:
    return lambda on_done: loop.call_later(duration_ms, lambda: on_done("done", None))


def test_calls_are_not_limited_together_by_default() -> None:
    loop = VirtualLoop()
    waiter = waiter_of(loop)
    for _ in range(5):
        assert waiter.wait(call_of(loop, 9_000), "call") == "done"
    assert loop.now_ms == 45_000


def test_the_total_limit_ends_the_call_that_exceeds_it() -> None:
    loop = VirtualLoop()
    waiter = waiter_of(loop)
    waiter.limit_total(TIMEOUT_MS)
    assert waiter.wait(call_of(loop, 7_000), "first") == "done"
    with pytest.raises(TimeoutError, match="10000 ms") as raised:
        waiter.wait(call_of(loop, 7_000), "second")
    # A ClientError would count as the error of this single call.
    assert not isinstance(raised.value, ClientTimeoutError)
    assert loop.now_ms == TIMEOUT_MS


def test_a_call_after_the_total_limit_does_not_start() -> None:
    loop = VirtualLoop()
    waiter = waiter_of(loop)
    waiter.limit_total(TIMEOUT_MS)
    with pytest.raises(TimeoutError):
        waiter.wait(call_of(loop, 11_000), "first")
    started: list[str] = []
    with pytest.raises(TimeoutError):
        waiter.wait(lambda _on_done: started.append("second"), "second")
    assert not started


def test_time_between_calls_does_not_count() -> None:
    loop = VirtualLoop()
    waiter = waiter_of(loop)
    waiter.limit_total(TIMEOUT_MS)
    waiter.wait(call_of(loop, 4_000), "first")
    waiter.pause(60_000)
    assert waiter.wait(call_of(loop, 4_000), "second") == "done"


def test_a_call_that_misses_its_own_timeout_fails_alone() -> None:
    loop = VirtualLoop()
    waiter = waiter_of(loop)
    waiter.limit_total(100_000)
    with pytest.raises(ClientTimeoutError, match="first"):
        waiter.wait(call_of(loop, 50_000), "first")
    assert waiter.wait(call_of(loop, 1_000), "second") == "done"


def test_waits_for_records_count_toward_the_total_limit() -> None:
    loop = VirtualLoop()
    waiter = waiter_of(loop)
    waiter.limit_total(TIMEOUT_MS)
    assert not waiter.run_until(lambda: False, 6_000)
    with pytest.raises(TimeoutError, match="10000 ms"):
        waiter.run_until(lambda: False, 6_000)
    assert loop.now_ms == TIMEOUT_MS
    with pytest.raises(TimeoutError):
        waiter.run_until(lambda: True, 0)


def test_the_first_call_that_takes_long_is_notified_once_and_goes_on() -> None:
    loop = VirtualLoop()
    waiter = waiter_of(loop)
    notified: list[float] = []
    waiter.notify_long_wait(1_000, lambda: notified.append(loop.now_ms))
    waiter.wait(call_of(loop, 900), "short")
    assert notified == []
    assert waiter.wait(call_of(loop, 9_000), "long") == "done"
    assert notified == [1_900]
    waiter.wait(call_of(loop, 9_000), "another")
    assert notified == [1_900]


def test_a_notice_does_not_lengthen_the_timeout_of_a_call() -> None:
    loop = VirtualLoop()
    waiter = waiter_of(loop)
    waiter.notify_long_wait(1_000, lambda: None)
    with pytest.raises(ClientTimeoutError, match="call"):
        waiter.wait(call_of(loop, 100_000), "call")
    assert loop.now_ms == TIMEOUT_MS + 5_000


def test_a_call_during_another_call_is_refused_before_it_starts() -> None:
    loop = VirtualLoop()
    waiter = waiter_of(loop)
    started: list[str] = []

    def call_again() -> None:
        with pytest.raises(ClientError, match="another call of this client is not complete"):
            waiter.wait(lambda _on_done: started.append("inner"), "inner")

    loop.call_later(1_000, call_again)
    assert waiter.wait(call_of(loop, 2_000), "outer") == "done"
    assert started == []
