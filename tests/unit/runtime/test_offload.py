"""The offload interface, with a child process and with slices on the loop: one contract."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from barnabas.runtime.clock import LoopTimer, SystemClock
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.loop import new_loop
from barnabas.runtime.offload import ChildOffload, OffloadError, SlicedOffload
from barnabas.runtime.offload_task import OffloadTask
from unit.runtime import offloaded_work as work

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from barnabas.runtime.offload import Offload

# For what hangs.
DEADLINE_S = 90.0


class Runner:
    """A loop, and the reports of the work."""

    def __init__(self, make: Callable[[asyncio.AbstractEventLoop], Offload]) -> None:
        self.loop = new_loop()
        self.offload = make(self.loop)
        self.told: list[object] = []
        self.ended: list[BaseException | None] = []

    def submit(self, function: object, argument: object, **options: float) -> object:
        task = OffloadTask(function, argument, **options)
        return self.offload.submit(task, self.told.append, self.ended.append)

    def run_until(self, predicate: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S

        def look() -> None:
            if predicate() or time.monotonic() > deadline:
                self.loop.stop()
            else:
                self.loop.call_later(0.002, look)

        self.loop.call_soon(look)
        self.loop.run_forever()
        assert predicate(), (self.told, self.ended)

    def run(self, function: object, argument: object, **options: float) -> None:
        count = len(self.ended)
        self.submit(function, argument, **options)
        self.run_until(lambda: len(self.ended) > count)


def in_child(loop: asyncio.AbstractEventLoop) -> Offload:
    return ChildOffload(loop)


def in_slices(loop: asyncio.AbstractEventLoop) -> Offload:
    return SlicedOffload(RealDisk(), SystemClock(), LoopTimer(loop))


@pytest.fixture(params=[in_child, in_slices])
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    made = Runner(request.param)
    yield made
    made.offload.close()
    made.loop.close()


@pytest.fixture
def children() -> Iterator[Runner]:
    made = Runner(in_child)
    yield made
    made.offload.close()
    made.loop.close()


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_work_reads_and_writes_files_and_sends_messages_in_order(
    runner: Runner, tmp_path: Path
) -> None:
    (tmp_path / "a").write_bytes(b"content")
    runner.run(work.copy, (str(tmp_path / "a"), str(tmp_path / "b")))
    assert (tmp_path / "b").read_bytes() == b"content"
    # Numbers of bytes are counted, not told.
    assert runner.told == [b"content"]
    assert runner.ended == [None]


def test_messages_may_be_larger_than_a_pipe(runner: Runner) -> None:
    runner.run(work.large, 3_000_000)
    assert [len(each) for each in runner.told] == [3_000_000, 3_000_000]


def test_an_argument_may_be_larger_than_a_pipe(runner: Runner) -> None:
    runner.run(work.failing, OSError(5, "x" * 1_000_000))
    (error,) = runner.ended
    assert isinstance(error, OSError)
    assert (error.errno, len(error.strerror)) == (5, 1_000_000)


def test_an_error_ends_the_work_and_is_passed_to_the_callback(runner: Runner) -> None:
    runner.run(work.failing, FileNotFoundError(2, "gone", "/path"))
    (error,) = runner.ended
    assert isinstance(error, FileNotFoundError)
    assert runner.told == ["begun"]
    runner.run(work.oddly_failing, None)
    assert "odd failure" in str(runner.ended[1])


def test_canceled_work_stops_and_calls_no_callback(runner: Runner, tmp_path: Path) -> None:
    path = tmp_path / "count"
    handle = runner.submit(work.endless, str(path))
    runner.run_until(lambda: path.exists() and path.stat().st_size > 3)
    handle.cancel()
    handle.cancel()
    runner.told.clear()
    runner.run(work.failing, OSError(5, "io"))
    size = path.stat().st_size
    runner.run(work.failing, OSError(5, "io"))
    assert path.stat().st_size == size
    assert runner.told == ["begun", "begun"]
    assert len(runner.ended) == 2


def test_several_tasks_run_concurrently(runner: Runner, tmp_path: Path) -> None:
    for name in ("a", "b"):
        runner.submit(work.endless, str(tmp_path / name))
    paths = [tmp_path / "a", tmp_path / "b"]
    runner.run_until(lambda: all(each.exists() and each.stat().st_size > 3 for each in paths))


def test_work_is_throttled(runner: Runner) -> None:
    runner.run(work.counted, 1)
    before = time.monotonic()
    runner.run(work.counted, 30, bytes_per_second=100_000.0)
    assert time.monotonic() - before >= 0.25


def test_the_child_process_is_reused(children: Runner) -> None:
    children.run(work.counted, 1)
    first = children.offload.process_ids
    children.run(work.counted, 1)
    assert children.offload.process_ids == first


def test_an_idle_child_ends() -> None:
    runner = Runner(lambda loop: ChildOffload(loop, idle_s=0.05))
    runner.submit(work.counted, 1)
    (first,) = runner.offload.process_ids
    runner.run_until(lambda: bool(runner.ended) and not is_alive(first))
    assert runner.offload.process_ids == []
    runner.run(work.counted, 1)
    assert runner.ended == [None, None]
    runner.offload.close()
    runner.loop.close()


def test_no_child_is_started_before_there_is_work(children: Runner) -> None:
    assert children.offload.process_ids == []


def test_the_child_has_a_low_priority(children: Runner) -> None:
    children.run(work.counted, 1)
    (pid,) = children.offload.process_ids
    # 19 is the lowest priority.
    expected = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    assert os.getpriority(os.PRIO_PROCESS, pid) == expected


def test_the_death_of_a_child_is_reported_and_the_child_is_replaced(children: Runner) -> None:
    children.run(work.dying, None)
    (error,) = children.ended
    assert isinstance(error, OffloadError)
    children.run(work.counted, 1)
    assert children.ended[1] is None


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "count"
    code = f"""
import sys
sys.path[:] = {sys.path!r}
from barnabas.runtime.offload import ChildOffload
from barnabas.runtime.loop import new_loop
from barnabas.runtime.offload_task import OffloadTask
from unit.runtime import offloaded_work as work
loop = new_loop()
offload = ChildOffload(loop)
offload.submit(OffloadTask(work.endless, {str(path)!r}), print, print)
print(offload.process_ids[0], flush=True)
loop.run_forever()
"""
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    deadline = time.monotonic() + DEADLINE_S
    while not (path.exists() and path.stat().st_size):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    while is_alive(child):
        assert time.monotonic() < deadline
        time.sleep(0.01)
