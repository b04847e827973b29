"""Ctrl-C during a private loop: never lost, never inside a callback, and the loop stays usable."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from barnabas.runtime import stepper as stepper_module
from barnabas.runtime.stepper import LoopStepper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from _typeshed import TraceFunction

    from barnabas.runtime.sockets import Stream

# For what hangs.
LIMIT_MS = 60_000
OWN_FILES = (stepper_module.__file__, stepper_module.__file__)


@pytest.fixture
def stepper() -> Iterator[LoopStepper]:
    made = LoopStepper()
    yield made
    made.close()


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def never() -> bool:
    return False


class Pressing:
    """A connection to itself that presses Ctrl-C while it receives."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.stream: Stream | None = None
        self._buffer = bytearray(64)

    def on_connected(self, stream: Stream) -> None:
        self.stream = stream
        self.seen.append("connected")

    def get_buffer(self, size_hint: int) -> memoryview:
        return memoryview(self._buffer)

    def on_received(self, count: int) -> None:
        press()
        self.seen.append("received")

    def on_writable_changed(self, writable: bool) -> None:
        pass

    def on_closed(self, error: Exception | None) -> None:
        self.seen.append("closed")


def test_an_interrupt_is_raised_by_the_call_that_ran_the_loop(stepper: LoopStepper) -> None:
    done: list[str] = []

    def callback() -> None:
        press()
        done.append("to its end")

    stepper.runtime.timer.call_later(1, callback)
    with pytest.raises(KeyboardInterrupt):
        stepper.run_until(never, LIMIT_MS)
    assert done == ["to its end"]
    stepper.runtime.timer.call_later(1, lambda: done.append("again"))
    assert stepper.run_until(lambda: done[-1] == "again", LIMIT_MS)


def test_a_receiving_connection_survives_an_interrupt(stepper: LoopStepper) -> None:
    sockets = stepper.runtime.sockets
    accepting, connecting = Pressing(), Pressing()
    listening = sockets.listen("127.0.0.1", 0, lambda: accepting)
    sockets.connect("127.0.0.1", listening.port, connecting, lambda _error: None, LIMIT_MS)
    assert stepper.run_until(lambda: bool(accepting.seen and connecting.seen), LIMIT_MS)
    assert connecting.stream is not None
    for _ in range(3):
        connecting.stream.write([b"x"])
        with pytest.raises(KeyboardInterrupt):
            stepper.run_until(never, LIMIT_MS)
    assert accepting.seen == ["connected", "received", "received", "received"]


def test_an_interrupt_ends_an_idle_wait(stepper: LoopStepper) -> None:
    timer = threading.Timer(0.05, press)
    # From within the wait: pressed before it, this would end the run of all tests.
    stepper.runtime.timer.call_later(1, timer.start)
    with pytest.raises(KeyboardInterrupt):
        stepper.run_until(never, LIMIT_MS)
    timer.join()


def press_at(line: int, times: int, run: Callable[[], object]) -> bool:
    """Run it, and press Ctrl-C at the `line`th executed line of our files; False if it ended
    before.

    Pressed several times, it is at as many lines one after the other.
    """
    seen = 0

    def on_event(frame: FrameType, event: str, _argument: object) -> TraceFunction | None:
        nonlocal seen
        if frame.f_code.co_filename not in OWN_FILES:
            return None
        if event == "line":
            seen += 1
            if line <= seen < line + times:
                press()
        return on_event

    sys.settrace(on_event)
    try:
        run()
    finally:
        sys.settrace(None)
    return seen >= line


@pytest.mark.parametrize("times", [1, 2])
def test_the_loop_is_usable_after_an_interrupt_at_any_line(
    stepper: LoopStepper, times: int
) -> None:
    before = signal.getsignal(signal.SIGINT)
    interrupted = 0
    for line in itertools.count(1):
        try:
            if not press_at(line, times, lambda: stepper.run_until(never, 0.01)):
                break
        except KeyboardInterrupt:
            interrupted += 1
        done: list[str] = []
        stepper.runtime.timer.call_later(0.01, partial(done.append, "done"))
        assert stepper.run_until(lambda done=done: bool(done), LIMIT_MS)
        assert signal.getsignal(signal.SIGINT) == before
    assert interrupted == line - 1 > 20


def test_a_second_interrupt_ends_a_callback_that_does_not_return(stepper: LoopStepper) -> None:
    seen: list[str] = []

    def callback() -> None:
        try:
            press()
            press()
            seen.append("not reached")
        except KeyboardInterrupt:
            seen.append("broken")

    stepper.runtime.timer.call_later(1, callback)
    with pytest.raises(KeyboardInterrupt):
        stepper.run_until(never, LIMIT_MS)
    assert seen == ["broken"]


def test_the_previous_signal_handler_is_restored(stepper: LoopStepper) -> None:
    pressed: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: pressed.append(number))
    try:
        ours = signal.getsignal(signal.SIGINT)
        stepper.runtime.timer.call_later(1, press)
        assert not stepper.run_until(never, 50)
        assert signal.getsignal(signal.SIGINT) is ours
        assert pressed == [signal.SIGINT]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_thread_other_than_the_main_thread_can_step() -> None:
    results: list[bool] = []

    def work() -> None:
        stepper = LoopStepper()
        results.append(stepper.run_until(lambda: True))
        results.append(stepper.run_until(never, 1))
        stepper.close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert results == [True, False]


def test_an_ignored_sigint_stays_ignored(stepper: LoopStepper) -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        stepper.runtime.timer.call_later(1, press)
        assert not stepper.run_until(never, 50)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
