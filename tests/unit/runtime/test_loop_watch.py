"""Measurement of event loop turns, with simulated clocks."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

import pytest

from barnabas.runtime.clock import LoopTimer
from barnabas.runtime.executor import ThreadExecutor
from barnabas.runtime.loop import new_loop
from barnabas.runtime.loop_sockets import LoopSockets
from barnabas.runtime.loop_watch import CHECK_INTERVAL_MS, LoopWatch, loop_watch, unused_watch
from unit.runtime.streams import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Clocks:
    """The clocks and the queue of one loop."""

    def __init__(self) -> None:
        self.now_ms = 1000.0
        self.cpu_ms = 50.0
        self.cpu_reads = 0
        self.queue: list[Callable[[], None]] = []
        self.watch = LoopWatch(lambda: self.now_ms, self._read_cpu, self.queue.append)
        self.watch.begin()

    def _read_cpu(self) -> float:
        self.cpu_reads += 1
        return self.cpu_ms

    def next_turn(self, idle_ms: float = 0.0) -> None:
        """Empty the queue as the loop does; a queue that is not empty keeps it from idling."""
        self.now_ms += 0.0 if self.queue else idle_ms
        ready, self.queue[:] = list(self.queue), []
        for callback in ready:
            callback()

    def work(self, duration_ms: float, cpu_ms: float | None = None, by: str = "Work") -> None:
        """Let something run on the loop, as the dispatcher runs a request."""
        began_ms = self.now_ms
        self.now_ms += duration_ms
        self.cpu_ms += duration_ms if cpu_ms is None else cpu_ms
        if self.now_ms > self.watch.due_ms:
            self.watch.check(self.now_ms, began_ms, by, "someone@127.0.0.1:1")


@pytest.fixture
def clocks() -> Iterator[Clocks]:
    made = Clocks()
    yield made
    made.watch.end()


def test_one_callback_over_the_limit_is_a_long_turn(clocks: Clocks) -> None:
    clocks.next_turn(idle_ms=500)
    clocks.work(150)
    watch = clocks.watch
    assert (watch.long_turns, watch.long_cpu_turns) == (1, 1)
    assert (watch.longest_ms, watch.longest_cpu_ms) == (150.0, 150.0)


def test_many_short_callbacks_of_one_turn_are_a_long_turn(clocks: Clocks) -> None:
    clocks.next_turn()
    for _ in range(300):
        clocks.work(1)
    assert (clocks.watch.long_turns, clocks.watch.long_cpu_turns) == (1, 1)


def test_busy_turns_below_the_limit_are_not_added_up(clocks: Clocks) -> None:
    for _ in range(50):
        clocks.next_turn()
        clocks.work(90)
    assert clocks.watch.long_turns == 0
    assert clocks.watch.longest_cpu_ms <= 90 + CHECK_INTERVAL_MS


def test_a_paused_machine_does_not_count_as_cpu_time(clocks: Clocks) -> None:
    clocks.next_turn()
    clocks.work(5000, cpu_ms=3)
    assert (clocks.watch.long_turns, clocks.watch.long_cpu_turns) == (1, 0)


def test_idle_time_is_no_turn(clocks: Clocks) -> None:
    for _ in range(5):
        clocks.next_turn(idle_ms=10_000)
        clocks.work(1)
        clocks.next_turn()
        clocks.next_turn()
    assert clocks.watch.longest_ms == 1.0


def test_the_usual_cost_between_two_checks_is_one_comparison(clocks: Clocks) -> None:
    for _ in range(1000):
        clocks.work(0.01)
    assert clocks.cpu_reads <= 1000 * 0.01 / CHECK_INTERVAL_MS + 1


def test_an_idle_loop_is_not_woken(clocks: Clocks) -> None:
    clocks.work(50)
    for _ in range(3):
        clocks.next_turn()
    assert clocks.queue == []
    clocks.next_turn(idle_ms=10_000)
    clocks.work(50)
    assert clocks.watch.longest_ms == 50.0


def test_a_turn_ends_where_the_loop_asks_the_kernel_again(clocks: Clocks) -> None:
    for _ in range(10):
        # The sliced value: a piece from the queue, then requests.
        clocks.work(30)
        clocks.work(30)
        clocks.next_turn()
    assert (clocks.watch.long_turns, clocks.watch.longest_ms) == (0, 60.0)


def test_the_log_line_names_the_longest_callback(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    clocks.next_turn()
    clocks.work(90, by="CreateTopics")
    clocks.work(20, by="Metadata")
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "turn_ms=110 cpu_ms=110 gc_ms=0 by=CreateTopics by_ms=90" in record.message
    assert "client=someone@127.0.0.1:1" in record.message


def test_the_log_names_the_request_rather_than_the_callback_that_served_it(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    def take_put_off() -> None:
        clocks.work(95, by="CreateTopics")
        clocks.work(15, by="Metadata")

    clocks.next_turn()
    clocks.watch.run(take_put_off)
    assert "by=CreateTopics by_ms=95" in caplog.text


def test_the_log_line_has_the_time_of_garbage_collection(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    def take_time(phase: str, _: object) -> None:
        if phase == "start":
            clocks.now_ms += 70
            clocks.cpu_ms += 70

    def build_response() -> None:
        gc.collect()
        clocks.now_ms += 50
        clocks.cpu_ms += 50

    gc.callbacks.append(take_time)
    try:
        gc.collect()
        clocks.next_turn(idle_ms=10)
        clocks.watch.run(build_response)
    finally:
        gc.callbacks.remove(take_time)
    assert "turn_ms=120 cpu_ms=120 gc_ms=70" in caplog.text


def test_a_closed_watch_measures_nothing(clocks: Clocks) -> None:
    callbacks = len(gc.callbacks)
    clocks.watch.end()
    clocks.watch.end()
    clocks.work(5000)
    assert clocks.watch.long_turns == 0
    assert len(gc.callbacks) == callbacks - 1


def test_a_turn_of_a_paused_machine_is_logged_below_warning(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clocks.next_turn()
    clocks.work(200, cpu_ms=1)
    assert [record.levelno for record in caplog.records] == [logging.INFO]


def test_the_log_has_one_line_a_second_at_most(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        clocks.next_turn()
        clocks.work(101)
    assert clocks.watch.long_cpu_turns == 20
    assert len(caplog.records) == 2


def test_nothing_is_measured_before_the_node_serves() -> None:
    clocks = Clocks()
    clocks.watch = LoopWatch(lambda: clocks.now_ms, lambda: clocks.began_ms, lambda: clocks.cpu_ms)
    clocks.work(5000)
    assert clocks.watch.long_turns == 0


def test_a_watch_that_was_not_started_measures_nothing() -> None:
    watch = unused_watch()
    watch.begin()
    watch.run(lambda: None)
    assert watch.longest_ms == 0.0


class Watched:
    """A real loop; the clocks of the watch advance by 150 ms in each callback."""

    def __init__(self) -> None:
        self.loop = new_loop()
        self.clocks = Clocks()
        self.watch = self.clocks.watch

    def hold(self, *_: object) -> None:
        self.clocks.next_turn()
        self.clocks.next_turn()
        self.clocks.now_ms += 150
        self.clocks.cpu_ms += 150
        self.loop.call_soon(self.loop.stop)

    def run(self, start: Callable[[], object]) -> int:
        start()
        self.loop.run_forever()
        return self.watch.long_cpu_turns


@pytest.fixture
def watched() -> Iterator[Watched]:
    made = Watched()
    yield made
    made.watch.end()
    made.loop.close()


def test_callbacks_of_timers_are_measured(watched: Watched) -> None:
    timer = LoopTimer(watched.loop, watched.watch)
    assert watched.run(lambda: timer.call_soon(watched.hold)) == 1
    assert watched.run(lambda: timer.call_later(0, watched.hold)) == 2


def test_results_of_blocking_work_are_measured(watched: Watched) -> None:
    executor = ThreadExecutor(watched.loop, 1, watched.watch)
    assert watched.run(lambda: executor.submit(lambda: 1, watched.hold)) == 1
    executor.close()


def test_the_input_of_outgoing_connections_is_measured(watched: Watched) -> None:
    class Holding(Recorder):
        def on_received(self, count: int) -> None:
            super().on_received(count)
            watched.hold()

    class Greeting(Recorder):
        def on_connected(self, stream: object) -> None:
            super().on_connected(stream)  # type: ignore[arg-type]
            self.stream.write([b"hello"])

    sockets = LoopSockets(watched.loop, watched.watch)
    listening = sockets.listen("127.0.0.1", 0, Greeting)
    failed: list[OSError] = []
    assert (
        watched.run(
            lambda: sockets.connect("127.0.0.1", listening.port, Holding(), failed.append, 5000)
        )
        == 1
    )
    assert failed == []
    listening.close()


def test_a_real_loop_runs_the_mark_once_per_turn_and_then_idles() -> None:
    loop = new_loop()
    watch = loop_watch(loop)
    watch.begin()
    pieces = 0

    def piece() -> None:
        nonlocal pieces
        pieces += 1
        watch.due_ms = 0.0
        if pieces < 3:
            loop.call_soon(watch.run, piece)

    loop.call_soon(watch.run, piece)
    rounds = 0

    def stop_when_quiet() -> None:
        nonlocal rounds
        rounds += 1
        if watch._is_marking or pieces < 3:
            assert rounds < 100, "the mark stays in the queue"
            loop.call_soon(stop_when_quiet)
        else:
            loop.stop()

    loop.call_soon(stop_when_quiet)
    loop.run_forever()
    loop.close()
    watch.end()
    assert watch.longest_ms > 0.0


def test_a_garbage_collection_while_a_long_turn_is_counted_changes_nothing(
    clocks: Clocks, caplog: pytest.LogCaptureFixture
) -> None:
    class CollectingTime(float):
        """A time that starts a collection when it is compared, as another thread might."""

        def __gt__(self, other: float) -> bool:
            gc.collect(0)
            return float(self) > other

    clocks.watch._collections.extend([(CollectingTime(1.0), 1.0), (2.0, 1.0)])
    clocks.next_turn()
    clocks.work(150)
    assert "One turn of the event loop took too long" in caplog.text
