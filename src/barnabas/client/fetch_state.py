"""The state that a fetcher keeps for one partition."""

from __future__ import annotations

__all__ = ["FetchState"]


class FetchState:
    """Position, retry state and preferred replica of one partition."""

    __slots__ = (
        "attempts",
        "delayed",
        "end",
        "failing_since_ms",
        "leader_epoch",
        "paused",
        "position",
        "position_epoch",
        "preferred",
        "preferred_until_ms",
        "stopped",
    )

    def __init__(self, position: int, end: int | None) -> None:
        # Offset of the next fetch. Moved by responses, and by `Fetcher.pause` back to the kept
        # output.
        self.position = position
        # Leader epoch of the batch before the position; -1 if unknown.
        self.position_epoch = -1
        # Epoch of the leader with which the position is valid; -1 before the first fetch.
        self.leader_epoch = -1
        # Exclusive end offset; None for no end.
        self.end = end
        # Number of consecutive failed attempts, and the time of the first (ms, monotonic clock).
        self.attempts = 0
        self.failing_since_ms = 0.0
        # Whether the partition waits for its retry backoff; then it is not fetched.
        self.delayed = False
        # Whether the user has paused the partition; then it is not fetched.
        self.paused = False
        # Whether the partition is not fetched because it is read to its end, has failed, or waits
        # for the validation of its position.
        self.stopped = end is not None and position >= end
        # Replica to fetch from, as named by the leader; -1 for the leader itself. Valid until
        # `preferred_until_ms` (monotonic clock).
        self.preferred = -1
        self.preferred_until_ms = 0.0
