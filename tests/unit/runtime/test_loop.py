"""Running a process, and stepping a private loop."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from barnabas.runtime.executor import InlineExecutor
from barnabas.runtime.loop import ProcessControl, Runtime, on_signal, run
from barnabas.runtime.rng import Rng, SeededRng, SystemRng
from barnabas.runtime.stepper import LoopStepper

# For what hangs.
LIMIT_MS = 60_000


@pytest.fixture
def stepper() -> Iterator[LoopStepper]:
    made = LoopStepper()
    yield made
    made.close()


def test_sigterm_calls_back_once_and_finish_ends_the_loop() -> None:
    seen: list[str] = []

    def main(runtime: Runtime, control: ProcessControl) -> None:
        def stop() -> None:
            seen.append("stop")
            runtime.timer.call_later(1, control.finish)

        control.on_stop(stop)
        runtime.timer.call_soon(lambda: os.kill(os.getpid(), signal.SIGTERM))

    run(main)
    assert seen == ["stop"]


def test_a_loop_without_signal_handlers_calls_back_at_a_signal() -> None:
    class WithoutHandlers(asyncio.SelectorEventLoop):
        """A loop like those of Windows."""

        def add_signal_handler(self, *_words: object) -> None:
            raise NotImplementedError

    loop = WithoutHandlers()
    before = signal.getsignal(signal.SIGTERM)
    try:
        on_signal(loop, signal.SIGTERM, loop.stop)
        loop.call_soon(signal.raise_signal, signal.SIGTERM)
        loop.run_forever()
    finally:
        signal.signal(signal.SIGTERM, before)
        loop.close()


def test_a_second_signal_ends_the_process_immediately() -> None:
    def main(runtime: Runtime, control: ProcessControl) -> None:
        control.on_stop(lambda: None)
        for _ in range(2):
            runtime.timer.call_soon(control.request_stop)

    run(main)


def test_a_broken_invariant_ends_the_process() -> None:
    def main(runtime: Runtime, control: ProcessControl) -> None:
        def broken() -> None:
            raise AssertionError("high watermark above log end")

        runtime.timer.call_soon(broken)

    with pytest.raises(AssertionError, match="high watermark"):
        run(main)


def test_work_runs_in_a_thread_and_its_callback_on_the_loop(stepper: LoopStepper) -> None:
    answers: list[tuple[object, object]] = []
    stepper.runtime.executor.submit(os.getpid, lambda *answer: answers.append(answer))
    assert answers == []
    assert stepper.run_until(lambda: bool(answers), LIMIT_MS)
    assert answers == [(os.getpid(), None)]


def test_an_error_of_the_work_is_passed_to_the_callback(stepper: LoopStepper) -> None:
    answers: list[tuple[object, object]] = []
    stepper.runtime.executor.submit(lambda: 1 // 0, lambda *answer: answers.append(answer))
    assert stepper.run_until(lambda: bool(answers), LIMIT_MS)
    assert isinstance(answers[0][1], ZeroDivisionError)


def test_inline_work_calls_back_before_the_call_returns() -> None:
    answers: list[tuple[object, object]] = []
    InlineExecutor().submit(lambda: 1 // 0, lambda *answer: answers.append(answer))
    InlineExecutor().submit(lambda: 5, lambda *answer: answers.append(answer))
    assert isinstance(answers[0][1], ZeroDivisionError)
    assert answers[1] == (5, None)


def test_a_wait_ends_with_its_condition(stepper: LoopStepper) -> None:
    reached: list[int] = []
    stepper.runtime.timer.call_later(5, lambda: reached.append(1))
    assert stepper.run_until(lambda: bool(reached), LIMIT_MS)
    assert stepper.run_until(lambda: True, 0)


def test_a_wait_ends_at_its_timeout(stepper: LoopStepper) -> None:
    started = stepper.runtime.clock.monotonic_ms()
    assert not stepper.run_until(lambda: False, 20)
    assert stepper.runtime.clock.monotonic_ms() - started >= 19


@pytest.mark.parametrize("rng", [SystemRng(), SeededRng(3)], ids=["system", "seeded"])
def test_ids_are_version_4_and_never_print_a_leading_dash(rng: Rng) -> None:
    for _ in range(500):
        value = rng.uuid()
        assert len(value) == 16
        assert value[6] >> 4 == 4
        assert value[8] >> 6 == 2
        assert value[0] >> 2 != 62
    assert len(rng.token(20)) == 20


def test_one_seed_gives_the_same_numbers() -> None:
    one, other = SeededRng(9), SeededRng(9)
    assert [one.randint(1, 6) for _ in range(20)] == [other.randint(1, 6) for _ in range(20)]
    assert (one.random(), one.uuid(), one.token(4)) == (
        other.random(),
        other.uuid(),
        other.token(4),
    )
