"""Records read as a member of a group, or acquired as a member of a share group (KIP-932).

The group assigns the partitions. A share group also acknowledges: printed records are accepted.
With `--on-error skip`, records that cannot be decoded are rejected. All others are released when
the command ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.output import warning
from barnabas.cli.records.source import Chunk, resolve
from barnabas.client.consumer.assignment.subscription import RebalanceListener
from barnabas.client.consumer.errors import CommitFailedError
from barnabas.client.errors import CorruptRecordsError
from barnabas.client.share.acknowledgements import AcknowledgeType

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from barnabas.cli.records.source import ErrorPolicy, Place
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.partition_records import PartitionRecords
    from barnabas.client.errors import ClientError, RecordDeserializationError
    from barnabas.client.facade import Client
    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.client.share.acquired_records import ShareRecord
    from barnabas.client.share.share_consumer import ShareConsumer
    from barnabas.client.topic_partition import TopicPartition

_RECORDS_MAX = 50_000
_MS_PER_S = 1000.0
# Time limit of a commit (s). After a failure, a warning is printed and a later commit retries.
_COMMIT_S = 5.0


class GroupSource(RebalanceListener):
    """A source that follows the assignment of a group; without a committed offset, at `start`.

    Args:
        client: Resolves places to offsets.
        consumer: A group member without auto commit, not yet subscribed.
        start: The place at which partitions without a committed offset start.
        exit_at_end: Whether to finish when all assigned partitions have reached their end at the
            time of the assignment.
        errors: The policy for corrupt batches.

    Attributes:
        on_revoke: Commits the printed records before other members get the partitions.
    """

    def __init__(
        self,
        client: Client,
        consumer: Consumer,
        start: Place,
        *,
        exit_at_end: bool,
        errors: ErrorPolicy,
    ) -> None:
        self._client = client
        self._consumer = consumer
        self._start = start
        self._exit_at_end = exit_at_end
        self._errors = errors
        self.on_revoke: Callable[[], None] = _nothing
        # Log end offsets of the assigned partitions at the time of their assignment.
        self._ends: dict[TopicPartition, int] = {}
        # Offset of the next record by assigned partition, as far as it is known.
        self._positions: dict[TopicPartition, int] = {}
        # Where partitions without a committed offset start. The next commit includes these offsets:
        # without them, a later run could start after records that are written in the meantime.
        self._uncommitted_starts: dict[TopicPartition, int] = {}
        self._has_joined = False

    def subscribe(self, topics: Sequence[str]) -> None:
        """Subscribe to the topics; the next poll joins the group."""
        self._consumer.subscribe(list(topics), self)

    # Group rebalances

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Look up end offsets, and seek to the start where no offset is committed."""
        self._has_joined = True
        added = list(assigned)
        if not added:
            return
        latest = self._client.list_offsets(dict.fromkeys(added, "latest"))
        ends = {tp: found.offset for tp, found in latest.items()}
        self._ends.update(ends)
        committed = self._consumer.committed(added)
        fresh = [tp for tp in added if committed[tp] is None]
        for tp, offset in resolve(self._client, fresh, self._start, ends).items():
            self._consumer.seek(tp, offset)
            self._uncommitted_starts[tp] = offset

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Commit the printed records for the next owners of the partitions."""
        self.on_revoke()
        self._forget(revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Forget the partitions, which already belong to other members."""
        self._forget(lost)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            for known in (self._ends, self._positions, self._uncommitted_starts):
                known.pop(tp, None)

    # Source

    @property
    def is_finished(self) -> bool:
        """Whether the records that existed when the partitions were assigned have been read."""
        if not (self._exit_at_end and self._has_joined):
            return False
        for tp, end in list(self._ends.items()):
            if tp not in self._positions:
                self._positions[tp] = self._consumer.position(tp)
            if self._positions[tp] < end:
                return False
        return True

    @property
    def trouble(self) -> ClientError | None:
        """The reason why no records arrive."""
        return self._consumer.trouble

    @property
    def obstacle(self) -> str | None:
        """The reason why this member has no partitions; None if it has some."""
        if self._ends:
            return None
        group = self._consumer.group_metadata().group_id
        if not self._has_joined:
            return (
                f"the group {group} is rebalancing; records follow when its members have partitions"
            )
        return f"the group {group} has no partition for this member: other members read them all"

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """Return the available records.

        Raises:
            CorruptRecordsError: A batch is corrupt, and errors are not skipped.
        """
        try:
            found = self._consumer.poll(timeout_ms / _MS_PER_S, max_records=_RECORDS_MAX)
        except CorruptRecordsError as error:
            chunks = [self._without_batch((), error)]
        else:
            chunks = [
                self._chunk(tp, found[tp], at.offset) for tp, at in found.next_offsets.items()
            ]
        for tp, _, next_offset in chunks:
            self._positions[tp] = next_offset
        return chunks

    def _chunk(self, tp: TopicPartition, records: PartitionRecords, next_offset: int) -> Chunk:
        try:
            return Chunk(tp, list(records), next_offset)
        except CorruptRecordsError as error:
            readable = list(records.before(error.offset))
            if readable and not self._errors.skip:
                # The next poll returns to the corrupt batch.
                return Chunk(tp, readable, error.offset)
            return self._without_batch(readable, error)

    def _without_batch(
        self, records: Sequence[ConsumerRecord], error: CorruptRecordsError
    ) -> Chunk:
        """Return the records before a corrupt batch; reading continues after the batch."""
        self._errors.handle(error)
        self._consumer.seek(error.partition, error.next_offset)
        return Chunk(error.partition, records, error.next_offset)

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of partitions that this member still owns, also of unread ones."""
        offsets = {**self._uncommitted_starts, **printed}
        own = {tp: offset for tp, offset in offsets.items() if tp in self._ends}
        if not own:
            return
        try:
            self._consumer.commit(own, _COMMIT_S)
        except CommitFailedError:
            warning("the group has removed this member: some records may be read again")
        self._uncommitted_starts = {}


def _nothing() -> None:
    pass


class ShareSource:
    """A source without an end; records that existed before may still be delivered.

    Args:
        consumer: A subscribed consumer with explicit acknowledgements.
        errors: The policy for records that cannot be read; its skipped records are rejected.
    """

    is_finished = False
    obstacle = None

    def __init__(self, consumer: ShareConsumer, errors: ErrorPolicy) -> None:
        self._consumer = consumer
        self._errors = errors
        errors.on_skip = self._reject
        # The records of the last poll that were not acknowledged, by partition and offset.
        self._acquired: dict[tuple[TopicPartition, int], ShareRecord] = {}

    @property
    def trouble(self) -> ClientError | None:
        """The reason why no records arrive."""
        return self._consumer.trouble

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """Accept the records of the previous poll, which were printed; return acquired records.

        Raises:
            CorruptRecordsError: A batch is corrupt, and errors are not skipped.
        """
        self._accept_all()
        try:
            found = self._consumer.poll(timeout_ms / _MS_PER_S)
        except CorruptRecordsError as error:
            # The consumer itself rejects the batch.
            self._errors.handle(error)
            return ()
        chunks = []
        for tp, records in found.items():
            self._acquired.update(((tp, record.offset), record) for record in records)
            chunks.append(Chunk(tp, records, records[-1].offset + 1))
        return chunks

    def _accept_all(self) -> None:
        for record in self._acquired.values():
            self._consumer.acknowledge(record)
        self._acquired = {}

    def _reject(self, error: CorruptRecordsError | RecordDeserializationError) -> None:
        record = self._acquired.pop((error.partition, error.offset), None)
        if record is not None:
            self._consumer.acknowledge(record, AcknowledgeType.REJECT)

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Accept the printed records: those before the given offset of their partition."""
        if not printed:
            return
        for (tp, offset), record in list(self._acquired.items()):
            if offset < printed.get(tp, 0):
                del self._acquired[tp, offset]
                self._consumer.acknowledge(record)
        for tp, error in self._consumer.commit_sync(_COMMIT_S).items():
            if error is not None:
                warning(f"some records of {tp} may be delivered again: {error}")
