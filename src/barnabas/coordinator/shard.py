"""The state machine over one state partition, as the driver sees it (Kafka's CoordinatorShard)."""

from __future__ import annotations

from typing import Protocol

from barnabas.record.batch import NO_PRODUCER_ID


class Shard(Protocol):
    """State that is made of records alone.

    Requests read it and make records; `replay` changes it. What is replayed and not yet committed
    must not be shown to readers: they may only see what no fail-over can take back. What a new
    leader can do without (sessions, answers that wait) may be changed by requests and timers.
    """

    def replay(
        self, offset: int, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the log.

        Args:
            offset: of the record; grows from call to call.
            key: with its record type in front. A record of an unknown type is ignored.
            value: with its version in front; None for a tombstone.
            producer_id: of the transaction that the record belongs to; -1 without one.

        Raises:
            ProtocolError: the record cannot be read, or contradicts itself. The state holds
                nothing of it and stays consistent.
        """
        ...

    def replay_end_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Apply (commit) or drop (abort) the records of a producer's open transaction.

        Args:
            offset: of the marker.
        """
        ...

    def commit(self, end_offset: int) -> None:
        """All records below `end_offset` are committed: readers may see them."""
        ...

    def on_loaded(self) -> None:
        """All that is in the log is replayed; requests follow."""
        ...

    def on_unloaded(self) -> None:
        """This broker does not lead the partition any more: answer all who wait. The last call."""
        ...
