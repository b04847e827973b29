"""Record the times of requests and responses."""

from __future__ import annotations

# More than the kernels of both ends hold.
LARGE = bytes(3_000_000)


class Times:
    """Stores the reported times of one response."""

    def __init__(self) -> None:
        self.held: list[float] = []
        self.sent: list[float] = []

    def on_released(self, held_ms: float) -> None:
        self.held.append(held_ms)

    def on_sent(self, send_ms: float) -> None:
        self.sent.append(send_ms)
