"""Work off the loop, in virtual time: it happens later, and its answer later still."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from barnabas.runtime.executor import run_in_order

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.rng import Rng
    from barnabas.runtime.timer import Timer

T = TypeVar("T")


class SimExecutor:
    """Delays come from the seed, so that answers may overtake each other as with threads."""

    __slots__ = ("_rng", "_timer", "delay_max_ms")

    def __init__(self, timer: Timer, rng: Rng, delay_max_ms: float = 5.0) -> None:
        self._timer = timer
        self._rng = rng
        # How slow the disk and the threads are; may be changed at any time.
        self.delay_max_ms = delay_max_ms

    def submit(
        self, work: Callable[[], T], on_done: Callable[[T | None, BaseException | None], None]
    ) -> None:
        """Run `work` after a delay and `on_done` after another."""

        def run() -> None:
            result: T | None = None
            failure: BaseException | None = None
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - handed over to on_done, nothing is lost
                failure = error
            self._timer.call_later(self._delay(), lambda: on_done(result, failure))

        self._timer.call_later(self._delay(), run)

    def run_all(self, works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
        """Run all of `works` in this moment: the simulated host waits for them."""
        return run_in_order(works)

    def _delay(self) -> float:
        return self._rng.random() * self.delay_max_ms
