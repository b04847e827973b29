"""What a fetcher knows of one partition that it reads."""

from __future__ import annotations

__all__ = ["FetchState"]


class FetchState:
    """One partition: where it is read from, how that goes, and from which replica."""

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
        # Offset of the next fetch. Moved by answers only.
        self.position = position
        # Leader epoch of the batch before the position, -1 if not known.
        self.position_epoch = -1
        # Epoch of the leader that the position is known to hold for, -1 before the first fetch.
        self.leader_epoch = -1
        # Exclusive end of what is wanted, None for no end.
        self.end = end
        # Attempts that failed in a row, and since when.
        self.attempts = 0
        self.failing_since_ms = 0.0
        # In its back-off: not asked for.
        self.delayed = False
        # Not asked for until the user resumes it.
        self.paused = False
        # Read to its end, failed, or its position is being validated.
        self.stopped = end is not None and position >= end
        # The replica that the leader told us to read from, -1 for none, and until when.
        self.preferred = -1
        self.preferred_until_ms = 0.0
