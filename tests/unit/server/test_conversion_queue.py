"""Conversion of old formats: small jobs at once, large ones in turns with everything else."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from barnabas.server import conversion_queue
from barnabas.server.conversion_queue import ConversionQueue


class Turns:
    """A timer whose loop turns when it is told to."""

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


def test_a_job_of_one_step_is_done_at_once() -> None:
    turns, done = Turns(), []
    queue = ConversionQueue(turns)
    queue.submit("a", job("a", 0, []), done.append)
    assert done == ["a"]
    assert len(queue) == 0


def test_lanes_take_turns_and_a_lane_keeps_its_order() -> None:
    turns, done = Turns(), []
    queue = ConversionQueue(turns)
    queue.submit("x", job("a", 3, done), done.append)
    queue.submit("x", job("b", 1, done), done.append)
    queue.submit("y", job("c", 2, done), done.append)
    assert done == ["a0", "c0"]
    while turns.due:
        turns.turn()
    assert done == ["a0", "c0", "a1", "c1", "a2", "c", "a", "b0", "b"]
    assert len(queue) == 0


def test_a_job_that_fails_costs_the_others_nothing() -> None:
    def failing() -> Generator[None, None, str]:
        yield
        raise OSError("the disk")

    turns, done = Turns(), []
    queue = ConversionQueue(turns)
    queue.submit("x", failing(), done.append)
    queue.submit("y", job("c", 1, []), done.append)
    with pytest.raises(OSError, match="the disk"):
        turns.turn()
    turns.turn()
    assert done == ["c"]
    assert len(queue) == 0


def test_what_waiting_jobs_hold_in_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion_queue, "HELD_BYTES_MAX", 100)
    turns, done = Turns(), []
    queue = ConversionQueue(turns)
    queue.submit("x", job("a", 5, []), done.append, 60)
    queue.submit("x", job("b", 5, []), done.append, 60)
    assert done == ["a"], "the lane that asks for too much has to work at once"
    queue.submit("x", job("c", 5, []), done.append, 200)
    assert done == ["a", "b", "c"]
