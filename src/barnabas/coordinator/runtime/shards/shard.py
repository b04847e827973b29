"""The interface of a state machine over one state partition (Kafka's CoordinatorShard)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from barnabas.record.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord


class Shard(Protocol):
    """State that is derived from records only.

    Requests read the state and create records; `replay` changes the state. Reads must not show
    replayed records before their commit, so that no failover can revert a response. Requests and
    timers may directly change state that a new leader does not need, such as sessions and pending
    responses.
    """

    __slots__ = ()

    def replay(
        self, offset: int, key: bytes, value: bytes | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record of the log.

        Args:
            offset: the offset of the record; increases from call to call.
            key: starts with the record type. A record of an unknown type is ignored.
            value: starts with the version; None for a tombstone.
            producer_id: the producer of the record's transaction; -1 without one.

        Raises:
            ProtocolError: the record is unreadable or inconsistent. The state ignores it and stays
                consistent.
        """
        ...

    def replay_written(
        self, offset: int, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record that this broker has just written, like `replay`."""
        self.replay(offset, record.key, record.value, producer_id)

    def replay_end_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Apply (commit) or discard (abort) the records of a producer's open transaction.

        Args:
            offset: the offset of the marker.
            producer_id: the producer of the transaction.
            is_commit: whether the transaction is committed.
        """
        ...

    def commit(self, end_offset: int) -> None:
        """Make all records below `end_offset` visible to reads, since they are committed."""
        ...

    def on_loaded(self) -> None:
        """Start work after the whole log is replayed and committed. Requests follow."""
        ...

    def on_unloaded(self) -> None:
        """Fail all pending requests, since this broker lost the leadership.

        This is the last call.
        """
        ...
