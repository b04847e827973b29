"""Blocking work in virtual time: the work runs later, and its result arrives later still."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.runtime.executor import run_in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.clock import Timer
    from barnabas.runtime.rng import Rng

T = TypeVar("T")


class SimExecutor:
    """An executor with random delays, so results can arrive out of order as with threads."""

    __slots__ = ("_rng", "_timer", "delay_max_ms")

    def __init__(self, timer: Timer, rng: Rng, delay_max_ms: float = 5.0) -> None:
        self._timer = timer
        self._rng = rng
        # Upper bound of each delay (ms). Tests may change it at any time.
        self.delay_max_ms = delay_max_ms

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `work` after a random delay, and `on_done` after a second random delay."""

        def run() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the error is passed to on_done
                failure = error
            self._timer.call_later(self._delay(), lambda: on_done(result, failure))

        self._timer.call_later(self._delay(), run)

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all of `works` at the current virtual time, before this method returns."""
        return run_in_order(works)

    def _delay(self) -> float:
        return self._rng.random() * self.delay_max_ms
