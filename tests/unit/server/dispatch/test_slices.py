"""Request work in slices: how much runs in a turn, and what runs between slices."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.runtime.loop_watch import unused_watch
from barnabas.server.cluster.cluster_view import Backlog
from barnabas.server.dispatch.slices import (
    FIRST_SLICE_MS,
    SLICE_MS,
    SliceQueue,
    drained,
    release,
    sorted_gradually,
)
from barnabas.waiting.steps import UNFINISHED, gradually
from steps import Loop, counted, finish

if TYPE_CHECKING:
    from collections.abc import Generator


class Owner:
    """The owner of the work."""

    def __init__(self) -> None:
        self.is_needed = True
        self.source = ("Metadata", "client@host")
        self.spent_ms: float | None = None
        self.failure: Exception | None = None

    def on_work_done(self, spent_ms: float) -> None:
        assert self.spent_ms is None, "told once"
        self.spent_ms = spent_ms

    def on_work_failed(self, error: Exception) -> None:
        self.failure = error


class World:
    def __init__(self) -> None:
        self.loop = Loop()
        self.slices = SliceQueue(self.loop, self.loop, unused_watch())
        self.log: list[str] = []

    def work(self, name: str, steps: int, each_ms: float = 1.0) -> Generator[None, None, str]:
        for _ in range(steps):
            self.loop.now_ms += each_ms
            self.log.append(name)
            yield
        return name

    def add(self, name: str, steps: int, *, is_large: bool = False) -> Owner:
        owner = Owner()
        self.slices.add(self.work(name, steps), owner, is_large=is_large)
        return owner

    def turns(self) -> list[str]:
        """Run until idle; return the work of each turn."""
        seen = []
        while self.loop.queue:
            self.log.clear()
            self.loop.turn()
            seen.append("".join(self.log))
        return seen


@pytest.fixture
def world() -> World:
    return World()


def test_short_work_is_done_immediately(world: World) -> None:
    assert world.slices.try_now(world.work("a", 2)) == "a"
    assert world.loop.queue == []


def test_the_first_slice_ends_in_time(world: World) -> None:
    steps = world.work("a", 100)
    assert world.slices.try_now(steps) is UNFINISHED
    assert world.loop.now_ms == FIRST_SLICE_MS + 1


def test_each_turn_runs_one_slice_of_one_work(world: World) -> None:
    first, second = world.add("a", 12), world.add("b", 7)
    # A slice ends with the first step that is over its time.
    assert SLICE_MS == 4.0
    assert world.turns() == ["aaaaa", "bbbbb", "aaaaa", "bb", "aa"]
    assert (first.spent_ms, second.spent_ms) == (12.0, 7.0)
    assert len(world.slices) == 0


def test_large_jobs_run_one_after_the_other(world: World) -> None:
    world.add("a", 10, is_large=True)
    world.add("b", 5, is_large=True)
    world.add("c", 5)
    assert "".join(world.turns()) == "aaaaacccccaaaaabbbbb"


def test_work_of_a_closed_owner_ends(world: World) -> None:
    gone = world.add("a", 1000)
    large = world.add("b", 1000, is_large=True)
    waiting = world.add("c", 3, is_large=True)
    gone.is_needed = large.is_needed = False
    assert "".join(world.turns()) == "ccc"
    assert (gone.spent_ms, large.spent_ms, waiting.spent_ms) == (0.0, 0.0, 3.0)


def test_failed_work_does_not_affect_other_work(world: World) -> None:
    def failing() -> Generator[None, None, None]:
        yield
        raise ValueError("odd")

    owner = Owner()
    world.slices.add(failing(), owner, is_large=True)
    other = world.add("b", 3, is_large=True)
    world.turns()
    assert str(owner.failure) == "odd"
    assert other.spent_ms == 3.0


def test_a_broken_invariant_ends_the_process(world: World) -> None:
    def broken() -> Generator[None, None, None]:
        yield
        raise AssertionError

    world.slices.add(broken(), Owner())
    with pytest.raises(AssertionError):
        world.turns()


def test_a_backlog_keeps_the_order_and_reports_when_it_is_empty(world: World) -> None:
    backlog = Backlog(world.loop, world.loop, pytest.fail)
    backlog.add(iter(world.work("a", 30)))
    backlog.add(iter(world.work("b", 2)))
    backlog.when_empty(lambda: world.log.append("empty"))
    assert world.log == ["a"] * 11
    assert world.turns() == ["a" * 11, "aaaaaaaabb" + "empty"]
    backlog.when_empty(lambda: world.log.append("again"))
    assert world.log[-1] == "again"


def test_a_small_change_is_applied_immediately(world: World) -> None:
    backlog = Backlog(world.loop, world.loop, pytest.fail)
    backlog.add(iter(world.work("a", 5)))
    assert (world.log, len(backlog)) == (["a"] * 5, 0)


def test_a_backlog_that_fails_ends_the_node(world: World) -> None:
    errors: list[BaseException] = []
    backlog = Backlog(world.loop, world.loop, errors.append)

    def failing() -> Generator[None, None, None]:
        yield from world.work("a", 20)
        raise OSError("disk")

    backlog.add(failing())
    backlog.add(iter(world.work("b", 1)))
    world.turns()
    assert [str(error) for error in errors] == ["disk"]
    assert "b" not in world.log


def test_a_closed_backlog_runs_no_work(world: World) -> None:
    backlog = Backlog(world.loop, world.loop, pytest.fail)
    backlog.add(iter(world.work("a", 30)))
    backlog.close()
    assert world.turns() == [""]


def test_names_are_sorted_in_steps() -> None:
    names = [f"{number * 7919 % 10_007:05}" for number in range(10_000)]
    ordered, steps = counted(sorted_gradually(names))
    assert steps == 5
    assert list(ordered) == sorted(names)


def test_collecting_and_draining_take_one_step_per_item() -> None:
    assert counted(gradually(range(100))) == (list(range(100)), 100)
    items = {1: "a", 2: "b"}
    assert list(drained(items)) == [(1, "a"), (2, "b")]
    assert items == {}


def test_a_message_is_freed_in_steps() -> None:
    message = MetadataRequest(
        topics=[MetadataRequestTopic(name=str(number)) for number in range(1000)]
    )
    _, steps = counted(release(message))
    assert message.topics == []
    assert steps == 4
    finish(release(message))
