"""Polls the sockets for some microseconds after a response, instead of waiting in the kernel.

A loop that waits in the kernel leaves its processor idle. Waking up an idle processor takes longer
than serving a small request, above all on a virtual machine. Therefore, after a response, the loop
asks its sockets again and again, until a request arrives or a time limit is reached.

A poll is useful if a request arrives within the limit. Otherwise it is vain: it has only taken
processor time from other processes. Each useful poll earns one credit, and each vain poll costs
several. Without credit, the loop waits in the kernel after the next responses. The number of these
responses doubles each time. So polling costs almost nothing if requests are rare, or if the clients
run on the processor of this loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# Useful polls that pay for a vain one, and those that are remembered.
VAIN_COST = 32
CREDIT_MAX = 128
# Responses without polls after the credit is used up: the first time, and at most.
PAUSE_MIN = 64
PAUSE_MAX = 4096


class BusyPoll:
    """Polls for one event loop."""

    __slots__ = (
        "_call_soon",
        "_credit",
        "_deadline_ns",
        "_is_polling",
        "_limit_ns",
        "_now_ns",
        "_pause",
        "_resumes_at",
        "_seen",
        "_sent",
    )

    def __init__(
        self,
        now_ns: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
        limit_us: int,
    ) -> None:
        """Store the limit.

        Args:
            now_ns: returns the monotonic time.
            call_soon: queues a callback for the next turn of the loop. While one is queued, the
                loop asks its sockets without waiting.
            limit_us: time after the last response in which the loop does not wait (µs).
        """
        self._now_ns = now_ns
        self._call_soon = call_soon
        self._limit_ns = limit_us * 1000
        # Number of responses so far, and at the last look.
        self._sent = 0
        self._seen = 0
        # Whether a callback is queued, and the time at which this poll is vain.
        self._is_polling = False
        self._deadline_ns = 0
        self._credit = 0
        # The next pause, and the number of responses at which the current one ends.
        self._pause = PAUSE_MIN
        self._resumes_at = 0

    def on_sent(self) -> None:
        """Begin to poll, because a response is sent in this turn."""
        self._sent += 1
        if not self._is_polling and self._sent >= self._resumes_at:
            self._is_polling = True
            self._call_soon(self._begin)

    def _begin(self) -> None:
        self._seen = self._sent
        self._deadline_ns = self._now_ns() + self._limit_ns
        self._call_soon(self._poll)

    def _poll(self) -> None:
        """Look whether a request was answered since the last turn. The loop then asks again."""
        now_ns = self._now_ns()
        if self._sent != self._seen:
            self._seen = self._sent
            self._deadline_ns = now_ns + self._limit_ns
            if self._credit < CREDIT_MAX:
                self._credit += 1
            else:
                self._pause = PAUSE_MIN
        elif now_ns >= self._deadline_ns:
            self._end_in_vain()
            return
        self._call_soon(self._poll)

    def _end_in_vain(self) -> None:
        self._is_polling = False
        self._credit -= VAIN_COST
        if self._credit < 0:
            self._credit = 0
            self._resumes_at = self._sent + self._pause
            self._pause = min(2 * self._pause, PAUSE_MAX)
