"""A response that waits for the commit of records (Kafka's DeferredEvent)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.partition.results import ProduceResult
    from barnabas.storage.topic_partition import TopicPartition
    from barnabas.waiting.timing_wheel import WheelEntry


# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


class HeldResponse:
    """A response that is held until all records below `end_offset` are committed."""

    __slots__ = ("_send", "end_offset", "is_done", "on_outcome", "outcome", "timeout")

    def __init__(self, send: Callable[[ErrorCode], None]) -> None:
        # Sends the response (NONE) or the error. Called once, by `finish`.
        self._send = send
        # End offset (exclusive) of the records on which the response depends; -1 until it is known.
        self.end_offset = -1
        # Whether the response or the error was sent.
        self.is_done = False
        # Result of the append; None until it is known, and always None without records.
        self.outcome: ProduceResult | None = None
        # Called with no argument when the result is known. Set after the replay of the records. A
        # result that arrives earlier is only stored.
        self.on_outcome: Callable[[], None] | None = None
        # The timer that sends REQUEST_TIMED_OUT; None without one. Canceled by `finish`.
        self.timeout: WheelEntry | None = None

    def note_outcome(self, results: dict[TopicPartition, ProduceResult]) -> None:
        """Store the result of the append of one batch."""
        assert self.outcome is None, (self.outcome, results)
        (self.outcome,) = results.values()
        # Cleared, since the callback refers to this object.
        on_outcome, self.on_outcome = self.on_outcome, None
        if on_outcome is not None:
            on_outcome()

    def reject(self) -> None:
        """Send the error with which the log has rejected the batch."""
        assert self.outcome is not None, "the log has not answered"
        self.finish(self.outcome.error)

    def finish(self, error: ErrorCode) -> None:
        """Send the response, or the error. Do nothing if it was sent before."""
        assert self.end_offset >= 0 or error is not _NONE, (
            f"StateFollowsLog: a response is sent before its write, end_offset={self.end_offset}"
        )
        if not self.is_done:
            self.is_done = True
            if self.timeout is not None:
                self.timeout.cancel()
            self._send(error)
