"""A dead letter that is not written yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.server.share.dead_letters.dead_letter import DeadLetter


class PendingLetter:
    """A dead letter, how much of it is written, and the failed attempts."""

    __slots__ = ("attempts", "letter", "next_offset", "on_done", "sent_last", "target")

    def __init__(self, letter: DeadLetter, on_done: Callable[[], None]) -> None:
        self.letter = letter
        # Called once, after the last record is written or the write is given up.
        self.on_done = on_done
        # First offset that is not in the dead-letter topic. Only increases.
        self.next_offset = letter.first
        # Last offset in the request that is built or in flight. Set by each attempt.
        self.sent_last = letter.first
        # Consecutive failed attempts. Reset by a success.
        self.attempts = 0
        # Partition of the dead-letter topic. Set by each attempt.
        self.target = TopicPartition("", -1)
