"""Pools for slow calls: the contract of threads and of their simulated twin."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from barnabas.runtime.loop import close_loop, new_loop, system_runtime
from barnabas.runtime.worker_pool import WorkerPool
from barnabas.sim.world import SimWorld
from waiting import PATIENCE_S


class Place(Protocol):
    """A loop that a test runs by hand."""

    def pool(self, threads: int, queue_max: int) -> WorkerPool: ...

    def run_until(self, predicate: Callable[[], bool]) -> None: ...


class ThreadPlace:
    """Threads and an event loop."""

    def __init__(self) -> None:
        self.loop = new_loop()
        self.runtime = system_runtime(self.loop)

    def pool(self, threads: int, queue_max: int) -> WorkerPool:
        return self.runtime.worker_pool("tested", threads, queue_max)

    def run_until(self, predicate: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S

        def look() -> None:
            if predicate() or time.monotonic() > deadline:
                self.loop.stop()
            else:
                self.loop.call_later(0.001, look)

        self.loop.call_soon(look)
        self.loop.run_forever()
        assert predicate()


class SimPlace:
    """A simulated host."""

    def __init__(self) -> None:
        self.world = SimWorld(3)

    def pool(self, threads: int, queue_max: int) -> WorkerPool:
        return self.world.host("a").runtime.worker_pool("tested", threads, queue_max)

    def run_until(self, predicate: Callable[[], bool]) -> None:
        assert self.world.run_until(predicate)


@pytest.fixture
def threads() -> Iterator[ThreadPlace]:
    made = ThreadPlace()
    yield made
    close_loop(made.loop, made.runtime)


@pytest.fixture(params=["threads", "sim"])
def place(request: pytest.FixtureRequest) -> Place:
    return request.getfixturevalue("threads") if request.param == "threads" else SimPlace()


Results = list[tuple[object, object]]


def recorder(results: Results) -> Callable[[object, BaseException | None], None]:
    return lambda result, error: results.append((result, error))


def test_a_result_and_an_error_arrive_on_the_loop(place: Place) -> None:
    pool = place.pool(2, 5)
    results: Results = []
    failure = ValueError("refused")

    def fail() -> None:
        raise failure

    assert pool.submit(lambda: 7, recorder(results)) is not None
    assert pool.submit(fail, recorder(results)) is not None
    assert results == []
    place.run_until(lambda: len(results) == 2)
    assert sorted(results, key=str) == sorted([(7, None), (None, failure)], key=str)
    assert (pool.running, pool.queued) == (0, 0)


def test_all_works_run_when_there_are_more_than_threads(place: Place) -> None:
    pool = place.pool(3, 50)
    results: Results = []
    for number in range(40):
        assert pool.submit(lambda number=number: number, recorder(results)) is not None  # type: ignore[misc]
        assert pool.running <= 3
    place.run_until(lambda: len(results) == 40)
    assert sorted(number for number, _ in results) == list(range(40))  # type: ignore[type-var]


def test_one_thread_keeps_the_order(place: Place) -> None:
    pool = place.pool(1, 50)
    done: list[int] = []
    results: Results = []
    for number in range(20):
        pool.submit(lambda number=number: done.append(number), recorder(results))  # type: ignore[misc]
    place.run_until(lambda: len(results) == 20)
    assert done == list(range(20))


def test_a_full_queue_accepts_no_work(place: Place) -> None:
    pool = place.pool(1, 2)
    results: Results = []
    tickets = [pool.submit(int, recorder(results)) for _ in range(5)]
    assert [ticket is not None for ticket in tickets] == [True, True, True, False, False]
    assert (pool.running, pool.queued) == (1, 2)
    place.run_until(lambda: len(results) == 3)
    assert pool.submit(int, recorder(results)) is not None


def test_a_waiting_work_that_is_cancelled_never_runs_and_frees_its_place(place: Place) -> None:
    pool = place.pool(1, 1)
    done: list[str] = []
    results: Results = []
    pool.submit(lambda: done.append("first"), recorder(results))
    second = pool.submit(lambda: done.append("second"), recorder(results))
    assert second is not None
    assert second.cancel()
    assert not second.cancel()
    assert pool.queued == 0
    pool.submit(lambda: done.append("third"), recorder(results))
    place.run_until(lambda: len(results) == 2)
    assert done == ["first", "third"]


def test_the_result_of_a_running_work_that_is_cancelled_is_dropped(place: Place) -> None:
    pool = place.pool(1, 1)
    cancelled: Results = []
    results: Results = []
    ticket = pool.submit(lambda: 1, recorder(cancelled))
    assert ticket is not None
    assert not ticket.cancel()
    pool.submit(lambda: 2, recorder(results))
    place.run_until(lambda: len(results) == 1)
    assert (cancelled, results) == ([], [(2, None)])


def test_a_work_that_has_ended_cannot_be_cancelled(place: Place) -> None:
    pool = place.pool(1, 1)
    results: Results = []
    ticket = pool.submit(int, recorder(results))
    assert ticket is not None
    place.run_until(lambda: len(results) == 1)
    assert not ticket.cancel()


def test_the_idle_ratio_falls_with_each_running_work(place: Place) -> None:
    pool = place.pool(4, 4)
    results: Results = []
    assert pool.idle_ratio == 1.0
    pool.submit(int, recorder(results))
    assert pool.idle_ratio == 0.75
    for _ in range(7):
        pool.submit(int, recorder(results))
    assert pool.idle_ratio == 0.0
    place.run_until(lambda: len(results) == 8)
    assert pool.idle_ratio == 1.0


def test_more_threads_start_waiting_works_at_once(place: Place) -> None:
    pool = place.pool(1, 10)
    results: Results = []
    for _ in range(6):
        pool.submit(int, recorder(results))
    pool.resize(4)
    assert (pool.running, pool.queued) == (4, 2)
    place.run_until(lambda: len(results) == 6)


def test_fewer_threads_let_running_works_end(place: Place) -> None:
    pool = place.pool(3, 10)
    results: Results = []
    for _ in range(6):
        pool.submit(int, recorder(results))
    pool.resize(1)
    assert (pool.running, pool.queued) == (3, 3)
    assert pool.idle_ratio == 0.0
    place.run_until(lambda: len(results) == 6)
    for _ in range(3):
        pool.submit(int, recorder(results))
    assert (pool.running, pool.queued) == (1, 2)
    place.run_until(lambda: len(results) == 9)


def test_a_pool_without_work_closes_at_once(place: Place) -> None:
    pool = place.pool(2, 2)
    closed: list[bool] = []
    pool.close(lambda: closed.append(True))
    assert closed == [True]
    assert pool.submit(int, recorder([])) is None


def test_closing_drops_waiting_works_and_waits_for_running_ones(place: Place) -> None:
    pool = place.pool(1, 5)
    order: list[str] = []
    pool.submit(lambda: "first", lambda result, _error: order.append(str(result)))
    pool.submit(lambda: "second", lambda result, _error: order.append(str(result)))
    pool.close(lambda: order.append("closed"))
    assert order == []
    place.run_until(lambda: "closed" in order)
    assert order == ["first", "closed"]


def test_a_work_that_hangs_does_not_hold_up_the_closing() -> None:
    world = SimWorld(4)
    host = world.host("a")
    pool = host.runtime.worker_pool("tested", 1, 1)
    host.worker_pools.delay_max_ms = 1e9
    results: Results = []
    closed: list[float] = []
    pool.submit(int, recorder(results))
    pool.close(lambda: closed.append(host.clock.monotonic_ms()))
    world.run_for(1e9 * 2)
    assert closed == [2000.0]
    assert results == []


def test_a_hanging_thread_does_not_hold_up_the_end_of_the_loop(threads: ThreadPlace) -> None:
    gate = threading.Event()
    began: list[bool] = []
    results: Results = []
    pool = threads.pool(1, 1)
    pool.submit(lambda: (began.append(True), gate.wait(PATIENCE_S)), recorder(results))
    threads.run_until(lambda: bool(began))
    started = time.monotonic()
    threads.runtime.worker_pool.close()  # type: ignore[attr-defined]  # of ThreadPools
    assert time.monotonic() - started < PATIENCE_S
    gate.set()
    assert results == []


def test_threads_start_on_demand_and_end_when_there_are_too_many(threads: ThreadPlace) -> None:
    pool = threads.pool(4, 10)
    before = threading.active_count()
    results: Results = []
    gate = threading.Event()
    for _ in range(4):
        pool.submit(gate.wait, recorder(results))
    assert threading.active_count() == before + 4
    gate.set()
    threads.run_until(lambda: len(results) == 4)
    # Idle threads are used again.
    pool.submit(int, recorder(results))
    threads.run_until(lambda: len(results) == 5)
    assert threading.active_count() == before + 4
    pool.resize(1)
    threads.run_until(lambda: threading.active_count() == before + 1)
    pool.close(lambda: None)
    threads.run_until(lambda: threading.active_count() == before)


def test_the_loop_survives_a_result_that_comes_after_its_end() -> None:
    place = ThreadPlace()
    gate, ended = threading.Event(), threading.Event()
    results: Results = []

    def work() -> None:
        gate.wait(PATIENCE_S)
        ended.set()

    place.pool(1, 1).submit(work, recorder(results))
    close_loop(place.loop, place.runtime)
    gate.set()
    assert ended.wait(PATIENCE_S)
    assert results == []


class Work:
    """Work with a state that has to be freed."""

    def run(self) -> None:
        raise OSError("it failed")


def test_a_failed_work_is_freed_while_its_thread_is_idle(threads: ThreadPlace) -> None:
    pool = threads.pool(1, 1)
    work = Work()
    kept = weakref.ref(work)
    errors: list[str] = []
    gc.disable()
    try:
        pool.submit(work.run, lambda _result, error: errors.append(str(error)))
        del work
        threads.run_until(lambda: errors == ["it failed"])
        threads.run_until(lambda: kept() is None)
    finally:
        gc.enable()
