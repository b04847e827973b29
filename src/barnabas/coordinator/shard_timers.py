"""A shard's delays by name: one may be put off, called off, and dies with the shard's leadership
(Kafka's CoordinatorTimer)."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from barnabas.coordinator.result import CoordinatorResult
    from barnabas.runtime.clock import Clock
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

    Operation = Callable[[], CoordinatorResult[None]]


class _Delay:
    """One name's delay."""

    __slots__ = ("due_ms", "entry", "operation")

    def __init__(self, due_ms: float, operation: Operation) -> None:
        # Monotonic clock.
        self.due_ms = due_ms
        self.operation = operation
        # In the wheel at `due_ms` or before; then what is left is waited for.
        self.entry: WheelEntry


class ShardTimers:
    """Operations that run later unless put off or called off; what they make is written.

    Sessions are put off with every heartbeat and hardly ever end, hence a delay that is put off
    stays in the wheel where it is, and is looked at again when its first time comes.
    """

    __slots__ = ("_clock", "_delays", "_is_closed", "_run", "_wheel")

    def __init__(self, wheel: TimingWheel, clock: Clock, run: Callable[[Operation], None]) -> None:
        self._wheel = wheel
        self._clock = clock
        # Runs an operation and writes its records.
        self._run = run
        self._delays: dict[Hashable, _Delay] = {}
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._delays)

    def schedule(self, key: Hashable, delay_ms: float, operation: Operation) -> None:
        """Run `operation` in `delay_ms`, in place of what `key` waits for."""
        if self._is_closed:
            return
        due_ms = self._clock.monotonic_ms() + delay_ms
        delay = self._delays.get(key)
        if delay is not None:
            if delay.due_ms <= due_ms:
                delay.due_ms = due_ms
                delay.operation = operation
                return
            delay.entry.cancel()
        delay = self._delays[key] = _Delay(due_ms, operation)
        delay.entry = self._wheel.add(delay_ms, partial(self._on_due, key, delay))

    def cancel(self, key: Hashable) -> None:
        """Call off what `key` waits for, if anything."""
        delay = self._delays.pop(key, None)
        if delay is not None:
            delay.entry.cancel()

    def close(self) -> None:
        """Call off everything, for good."""
        self._is_closed = True
        for delay in self._delays.values():
            delay.entry.cancel()
        self._delays.clear()

    def _on_due(self, key: Hashable, delay: _Delay) -> None:
        left_ms = delay.due_ms - self._clock.monotonic_ms()
        if left_ms > 0:
            delay.entry = self._wheel.add(left_ms, partial(self._on_due, key, delay))
            return
        del self._delays[key]
        self._run(delay.operation)
