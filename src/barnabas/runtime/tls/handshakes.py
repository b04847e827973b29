"""All TLS handshakes of a process: bounded in number, memory, time and computation.

A handshake takes one or more milliseconds of computation and about 45 KB of memory, and any client
can begin one. Therefore:

- A connection holds only its bytes until its first message is complete and has been checked.
- A limited number of handshakes is started. Further ones are queued in order of arrival; each holds
  only its first message.
- While handshakes are queued, a started one whose peer is silent loses its place after a short
  time. Stalled peers therefore delay others by seconds at most.
- The computation runs in few threads, without the GIL. The event loop stays free, whatever the
  peer's choice of algorithm costs.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.runtime.tls.handshake import Handshake, HandshakePhase
from barnabas.runtime.tls.tls_error import TlsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.runtime.clock import Clock
    from barnabas.runtime.executor import Executor
    from barnabas.runtime.timer import Cancellable, Timer
    from barnabas.runtime.tls.handshake import HandshakeOwner
    from barnabas.runtime.tls.tls_session import TlsSession


# Stalled handshakes that one turn of the loop ends, and as many that it starts instead. A slice
# takes about 3 ms.
_STALLED_SLICE = 50


class HandshakeLimits(msgspec.Struct, frozen=True):
    """Limits of all handshakes of a process."""

    # Started incoming handshakes. Each takes about 45 KB.
    started_max: int = 1_000
    # Computations at the same time. The threads of the executor have other work, too.
    running_max: int = 2
    # Time until a client's first bytes, and from the start of its handshake to the end (ms).
    time_limit_ms: float = 10_000.0
    # Time that a started handshake has at least while others are queued (ms).
    started_ms_min: float = 1_000.0


class HandshakeStatistics(msgspec.Struct, frozen=True):
    """A snapshot of the handshakes."""

    queued: int
    started: int
    running: int
    completed: int
    failed: int


class Handshakes:
    """Starts handshakes and runs their computations."""

    __slots__ = (
        "_check",
        "_clock",
        "_completed",
        "_executor",
        "_failed",
        "_is_busy",
        "_limits",
        "_queue",
        "_runnable",
        "_running",
        "_started",
        "_timer",
    )

    def __init__(
        self,
        clock: Clock,
        timer: Timer,
        executor: Executor,
        limits: HandshakeLimits | None = None,
    ) -> None:
        self._clock = clock
        self._timer = timer
        self._executor = executor
        self._limits = limits or HandshakeLimits()
        # Handshakes that wait for a place, oldest first.
        self._queue: dict[Handshake, None] = {}
        # Incoming handshakes with a place, oldest first. Invariant: at most `started_max`.
        self._started: dict[Handshake, None] = {}
        # Computations that wait for a thread.
        self._runnable: deque[tuple[Handshake, TlsSession]] = deque()
        # Number of computations in threads. Invariant: at most `running_max`.
        self._running = 0
        # The next check for stalled handshakes; None while no handshake is queued.
        self._check: Cancellable | None = None
        # Whether handshakes are being started or ended. The places that they free meanwhile are
        # given away afterwards.
        self._is_busy = False
        self._completed = 0
        self._failed = 0

    def statistics(self) -> HandshakeStatistics:
        """Return a snapshot."""
        return HandshakeStatistics(
            queued=len(self._queue),
            started=len(self._started),
            running=self._running,
            completed=self._completed,
            failed=self._failed,
        )

    def new_handshake(
        self,
        owner: HandshakeOwner,
        new_session: Callable[[], TlsSession],
        *,
        is_outgoing: bool,
    ) -> Handshake:
        """Return the handshake of a new connection."""
        return Handshake(owner, self, new_session, is_outgoing=is_outgoing)

    def enter(self, handshake: Handshake) -> None:
        """Start the handshake, or queue it. Outgoing ones always start: this side chose them."""
        if handshake.is_outgoing:
            handshake.start(self._clock.monotonic_ms())
            return
        self._queue[handshake] = None
        self._start_queued()

    def run(self, handshake: Handshake, session: TlsSession) -> None:
        """Run a computation when a thread is free, outgoing handshakes first."""
        if handshake.is_outgoing:
            self._runnable.appendleft((handshake, session))
        else:
            self._runnable.append((handshake, session))
        self._run_next()

    def leave(self, handshake: Handshake) -> None:
        """Free the place of a handshake that has ended."""
        self._queue.pop(handshake, None)
        if handshake in self._started:
            del self._started[handshake]
            self._start_queued()

    def after_time_limit(self, callback: Callable[[], None]) -> Cancellable:
        """Call back after the time limit of a handshake."""
        return self._timer.call_later(self._limits.time_limit_ms, callback)

    def _start_queued(self) -> None:
        if self._is_busy:
            return
        self._is_busy = True
        while self._queue and len(self._started) < self._limits.started_max:
            handshake = next(iter(self._queue))
            del self._queue[handshake]
            self._started[handshake] = None
            handshake.start(self._clock.monotonic_ms())
        self._is_busy = False
        self._schedule_check(self._limits.started_ms_min)

    def _schedule_check(self, delay_ms: float) -> None:
        if self._queue and self._check is None:
            self._check = self._timer.call_later(delay_ms, self._end_stalled)

    def _end_stalled(self) -> None:
        """End some started handshakes whose peers were silent too long, while others wait."""
        self._check = None
        latest_ms = self._clock.monotonic_ms() - self._limits.started_ms_min
        stalled = [
            each
            for each in self._started
            if each.started_ms <= latest_ms and each.phase is HandshakePhase.RECEIVING
        ]
        count = min(len(self._queue), _STALLED_SLICE)
        self._is_busy = True
        for handshake in stalled[:count]:
            handshake.fail(TlsError("the peer did not continue the TLS handshake, others waited"))
        self._is_busy = False
        if len(stalled) > count:
            self._schedule_check(0.0)
        self._start_queued()

    def _run_next(self) -> None:
        while self._runnable and self._running < self._limits.running_max:
            handshake, session = self._runnable.popleft()
            if handshake.phase is HandshakePhase.ENDED:
                continue
            self._running += 1
            self._executor.submit(session.step, partial(self._on_ran, handshake))

    def _on_ran(
        self, handshake: Handshake, is_done: bool | None, error: BaseException | None
    ) -> None:
        self._running -= 1
        if error is not None:
            self._failed += 1
        elif is_done:
            self._completed += 1
        handshake.on_stepped(is_done, error)
        self._run_next()
