"""Conversion of old formats: small jobs immediately, large jobs in turns with other work."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from barnabas.runtime.executor import InlineExecutor
from barnabas.server.conversion.conversion_queue import ConversionQueue
from barnabas.waiting.steps import OffLoop


class Turns:
    """A timer whose loop turns on request."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> object:
        raise AssertionError("nothing waits for a time")

    def turn(self) -> None:
        due, self.due = self.due, []
        for callback in due:
            callback()


def job(name: str, steps: int, done: list[str]) -> Generator[None, None, str]:
    for number in range(steps):
        done.append(f"{name}{number}")
        yield
    return name


def test_a_job_of_one_step_is_done_immediately() -> None:
    turns, done = Turns(), []
    queue = ConversionQueue(turns, InlineExecutor())
    queue.submit("a", job("a", 0, []), done.append)
    assert done == ["a"]
    assert len(queue) == 0


def test_lanes_take_turns_and_a_lane_keeps_its_order() -> None:
    turns, done = Turns(), []
    queue = ConversionQueue(turns, InlineExecutor())
    queue.submit("x", job("a", 3, done), done.append)
    queue.submit("x", job("b", 1, done), done.append)
    queue.submit("y", job("c", 2, done), done.append)
    assert done == ["a0", "c0"]
    while turns.due:
        turns.turn()
    assert done == ["a0", "c0", "a1", "c1", "a2", "c", "a", "b0", "b"]
    assert len(queue) == 0


def test_a_failed_job_does_not_affect_other_jobs() -> None:
    def failing() -> Generator[None, None, str]:
        yield
        raise OSError("the disk")

    turns, done = Turns(), []
    queue = ConversionQueue(turns, InlineExecutor())
    queue.submit("x", failing(), done.append)
    queue.submit("y", job("c", 1, []), done.append)
    with pytest.raises(OSError, match="the disk"):
        turns.turn()
    turns.turn()
    assert done == ["c"]
    assert len(queue) == 0


class Calls:
    """An executor that runs its calls on request."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any, Any], None]]] = []

    def submit(self, work: Callable[[], Any], on_done: Callable[[Any, Any], None]) -> None:
        self.waiting.append((work, on_done))

    def make(self) -> None:
        work, on_done = self.waiting.pop(0)
        InlineExecutor().submit(work, on_done)


def calling(size: int, done: list[str]) -> Generator[OffLoop | None, Any, str]:
    answer = yield OffLoop(lambda: f"called {size}", size)
    done.append(answer)
    yield
    return "end"


def test_other_lanes_run_during_a_call_outside_the_event_loop() -> None:
    turns, calls, done = Turns(), Calls(), []
    queue = ConversionQueue(turns, calls)
    queue.submit("x", calling(7, done), done.append)
    queue.submit("y", job("c", 2, done), done.append)
    while turns.due:
        turns.turn()
    assert done == ["c0", "c1", "c"]
    calls.make()
    while turns.due:
        turns.turn()
    assert done[3:] == ["called 7", "end"]
    assert len(queue) == 0


def test_calls_wait_for_memory_for_their_results() -> None:
    turns, calls, done = Turns(), Calls(), []
    queue = ConversionQueue(turns, calls, held_bytes_max=100)
    for lane, size in enumerate((60, 60, 30, 500)):
        queue.submit(lane, calling(size, done), done.append)
    held: list[tuple[int, int]] = []
    while len(queue):
        held.append((queue.held_bytes, len(calls.waiting)))
        calls.make()
        while turns.due:
            turns.turn()
    # A call whose result is larger than the limit runs alone.
    assert held == [(60, 1), (90, 2), (30, 1), (500, 1)]
    assert [each for each in done if each != "end"] == [
        "called 60", "called 60", "called 30", "called 500",
    ]  # fmt: skip
    assert queue.held_bytes == 0


def test_a_job_gives_up_the_memory_that_its_result_does_not_need() -> None:
    def small() -> Generator[OffLoop | None, Any, str]:
        yield OffLoop(lambda: b"1234567890", 90, lambda made: 2 * len(made))
        yield OffLoop(lambda: None)
        return "small"

    turns, calls, done = Turns(), Calls(), []
    queue = ConversionQueue(turns, calls, held_bytes_max=100)
    queue.submit("x", small(), done.append)
    queue.submit("y", calling(80, done), done.append)
    assert (queue.held_bytes, len(calls.waiting)) == (90, 1)
    calls.make()
    assert (queue.held_bytes, len(calls.waiting)) == (20 + 80, 1)
    while len(queue):
        turns.turn()
        if calls.waiting:
            calls.make()
    assert sorted(done) == ["called 80", "end", "small"]
    assert queue.held_bytes == 0


def test_a_job_converts_the_error_of_a_call_into_its_result() -> None:
    def failing() -> Generator[OffLoop | None, Any, str]:
        try:
            yield OffLoop(lambda: 1 // 0)
        except ZeroDivisionError:
            return "caught"
        return "not raised"

    turns, done = Turns(), []
    queue = ConversionQueue(turns, InlineExecutor())
    queue.submit("x", failing(), done.append)
    while turns.due:
        turns.turn()
    assert done == ["caught"]


class Works:
    """A connection."""

    def __init__(self) -> None:
        self.count = 0
        self.is_open = True

    def begin_work(self) -> None:
        self.count += 1

    def end_work(self) -> None:
        self.count -= 1

    def abort(self) -> None:
        self.is_open = False


def test_an_unexpected_error_closes_the_connection() -> None:
    def failing() -> Generator[OffLoop | None, Any, str]:
        yield OffLoop(bytes, 100)
        yield
        raise MemoryError

    turns, done, connection = Turns(), [], Works()
    queue = ConversionQueue(turns, InlineExecutor())
    queue.submit("x", failing(), done.append, connection)
    turns.turn()
    with pytest.raises(MemoryError):
        turns.turn()
    assert (connection.is_open, connection.count, queue.held_bytes) == (False, 0, 0)
    assert (done, len(queue)) == ([], 0)


def test_a_connection_with_a_running_job_accepts_no_more_requests() -> None:
    turns, done, connection = Turns(), [], Works()
    queue = ConversionQueue(turns, InlineExecutor())
    queue.submit("x", job("a", 0, []), done.append, connection)
    assert (done, connection.count) == (["a"], 0)
    queue.submit("x", job("b", 1, []), done.append, connection)
    queue.submit("x", job("c", 0, []), done.append, connection)
    assert connection.count == 2
    while turns.due:
        turns.turn()
    assert (done, connection.count) == (["a", "b", "c"], 0)
