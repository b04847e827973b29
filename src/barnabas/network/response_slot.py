"""The place of one response among those of its connection, which leave in the order of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.sockets import Chunk, Stream


class ResponseTimes(Protocol):
    """Told how long a response took to leave, once its handler had made it.

    Neither method is called for a response that leaves at once.
    """

    def on_released(self, held_ms: float) -> None:
        """Earlier requests of the connection held the response back for so long."""
        ...

    def on_sent(self, send_ms: float) -> None:
        """The kernel had no room; it has taken the last byte now, or the connection has ended."""
        ...


class SlotOwner(Protocol):
    """The connection of a slot."""

    @property
    def stream(self) -> Stream | None:
        """The stream below; None once closed."""
        ...

    def on_answered(
        self, slot: ResponseSlot, chunks: Sequence[Chunk], times: ResponseTimes | None
    ) -> None:
        """Send the response, or hold it back until earlier ones have left."""
        ...


class ResponseSlot:
    """The place of one response among the connection's; answered exactly once."""

    __slots__ = (
        "_connection",
        "_on_client_gone",
        "chunks",
        "held_since_ms",
        "is_answered",
        "times",
    )

    # What earlier requests hold back, since when, and what is told for how long; set by the
    # connection.
    chunks: Sequence[Chunk]
    held_since_ms: float
    times: ResponseTimes | None

    def __init__(self, connection: SlotOwner) -> None:
        self._connection = connection
        # Whether `complete` or `skip` was called; never goes back.
        self.is_answered = False
        # Called if the connection ends before the answer; None once there is one.
        self._on_client_gone: Callable[[], object] | None = None

    def on_client_gone(self, callback: Callable[[], object]) -> None:
        """Call back if the connection ends before the answer; never called after the answer."""
        if not self.is_answered:
            self._on_client_gone = callback
            if self._connection.stream is None:
                self.abandon()

    def abandon(self) -> None:
        """The connection has ended: what works or waits for this answer may stop."""
        # A response that was held back has a circle of references to its slot.
        self.times = None
        callback, self._on_client_gone = self._on_client_gone, None
        if callback is not None:
            callback()

    def complete(self, chunks: Sequence[Chunk], times: ResponseTimes | None = None) -> None:
        """Answer with a whole frame; dropped silently when the connection is gone.

        Args:
            times: told if the response does not leave at once.
        """
        assert not self.is_answered, "a request is answered once"
        self.is_answered = True
        self._on_client_gone = None
        self._connection.on_answered(self, chunks, times)

    def skip(self) -> None:
        """No answer is due (acks=0)."""
        self.complete(())
