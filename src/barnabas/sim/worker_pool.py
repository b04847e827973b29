"""The worker pools of a simulated host: works run in virtual time, each after a random delay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.runtime.worker_pool import WorkerPool

if TYPE_CHECKING:
    from barnabas.runtime.clock import Timer
    from barnabas.runtime.rng import Rng
    from barnabas.runtime.worker_pool import OnDone, Work

# Longer than the delays of `SimExecutor`: stores are slower than disks.
_DELAY_MAX_MS = 40.0


class SimWorkers:
    """Runs works that end out of order, as with threads.

    A work takes effect in one moment, between two random delays. A process that is killed before
    has not done it; one that is killed in the second delay did it without knowing.
    """

    def __init__(self, pools: SimWorkerPools) -> None:
        self._pools = pools

    def run(self, work: Work, on_done: OnDone) -> None:
        """Run `work` after a random delay, and `on_done` after a second random delay."""
        timer = self._pools.timer

        def run() -> None:
            result: Any = None
            failure: BaseException | None = None
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 - the error is passed to on_done
                failure = error
            timer.call_later(self._pools.delay_ms(), lambda: on_done(result, failure))

        timer.call_later(self._pools.delay_ms(), run)

    def resize(self, threads: int) -> None:
        """Do nothing: the pool itself limits the running works."""

    def close(self) -> None:
        """Do nothing: there are no threads."""


class SimWorkerPools:
    """Makes the pools of one simulated process."""

    def __init__(self, timer: Timer, rng: Rng) -> None:
        self.timer = timer
        self._rng = rng
        # Upper bound of each delay (ms) in all pools. Tests may change it at any time.
        self.delay_max_ms = _DELAY_MAX_MS

    def __call__(self, name: str, threads: int, queue_max: int) -> WorkerPool:
        """Return a new pool; names have no meaning here."""
        return WorkerPool(SimWorkers(self), self.timer, threads, queue_max)

    def delay_ms(self) -> float:
        """Return the next random delay."""
        return self._rng.random() * self.delay_max_ms
