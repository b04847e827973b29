"""A reserved position in the response order of one connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.runtime.sockets import Chunk, Stream


class ResponseTimes(Protocol):
    """Receives the time between the creation of a response and its sending.

    A response that is sent at once causes neither call.
    """

    def on_released(self, held_ms: float) -> None:
        """Record the time for which earlier requests of the connection held the response."""
        ...

    def on_sent(self, send_ms: float) -> None:
        """Record the send time.

        The kernel has accepted the last byte, or the connection has ended.
        """
        ...


class SlotOwner(Protocol):
    """The connection of a slot."""

    @property
    def stream(self) -> Stream | None:
        """The underlying stream; None after the connection has closed."""
        ...

    def on_answered(
        self, slot: ResponseSlot, chunks: Sequence[Chunk], times: ResponseTimes | None
    ) -> None:
        """Send the response, or hold it until earlier responses are sent."""
        ...


class ResponseSlot:
    """A reserved position of one response. It is answered exactly once."""

    __slots__ = (
        "_connection",
        "_on_client_gone",
        "chunks",
        "held_since_ms",
        "is_answered",
        "times",
    )

    # A held response, the start of its wait in ms, and the receiver of its times. The connection
    # sets them.
    chunks: Sequence[Chunk]
    held_since_ms: float
    times: ResponseTimes | None

    def __init__(self, connection: SlotOwner) -> None:
        self._connection = connection
        # Whether `complete` or `skip` was called. Never reset.
        self.is_answered = False
        # Called if the connection ends before the response. None after the response.
        self._on_client_gone: Callable[[], object] | None = None

    def on_client_gone(self, callback: Callable[[], object]) -> None:
        """Register a callback for the end of the connection before the response."""
        if not self.is_answered:
            self._on_client_gone = callback
            if self._connection.stream is None:
                self.abandon()

    def abandon(self) -> None:
        """Cancel the operation behind this request, since the connection has ended."""
        # Break the reference cycle between a held response and its slot.
        self.times = None
        callback, self._on_client_gone = self._on_client_gone, None
        if callback is not None:
            callback()

    def complete(self, chunks: Sequence[Chunk], times: ResponseTimes | None = None) -> None:
        """Answer with a whole frame. It is dropped if the connection has ended.

        Args:
            chunks: the frame.
            times: receives the times if the response is not sent at once.
        """
        assert not self.is_answered, "a request is answered once"
        self.is_answered = True
        self._on_client_gone = None
        self._connection.on_answered(self, chunks, times)

    def skip(self) -> None:
        """Release the slot without a response (acks=0)."""
        self.complete(())
