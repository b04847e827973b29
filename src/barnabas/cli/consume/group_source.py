"""Records as a member of a group: the group says which partitions, and shares them with others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.consume.places import Place, PlaceKind, resolve
from barnabas.cli.consume.source import Chunk
from barnabas.cli.output import warning
from barnabas.client.consumer.errors import CommitFailedError
from barnabas.client.consumer.rebalance_listener import RebalanceListener
from barnabas.client.errors import CorruptRecordsError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from barnabas.cli.consume.skipping import ErrorPolicy
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.consumer.partition_records import PartitionRecords
    from barnabas.client.errors import ClientError
    from barnabas.client.facade import Client
    from barnabas.client.record_decoding import ConsumerRecord
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["GroupSource"]

_RECORDS_MAX = 50_000
_MS_PER_S = 1000.0
# How long a commit is tried: then it is said that the broker is gone, and tried again later.
_COMMIT_S = 5.0


class GroupSource(RebalanceListener):
    """Follows what the group assigns; where it has no offset yet, begins at `start`.

    Args:
        client: looks up places.
        consumer: a member of the group, without auto commit, not subscribed yet.
        start: a place.
        exit_at_end: finished when all assigned partitions are where they ended when they came.
        errors: what becomes of corrupt batches.

    Attributes:
        on_revoke: commits what was printed, before others get the partitions.
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
        # Log end offsets of the assigned partitions, of when they were assigned.
        self._ends: dict[TopicPartition, int] = {}
        # Where the next record of an assigned partition comes from, as far as that is known.
        self._positions: dict[TopicPartition, int] = {}
        self._has_joined = False

    def subscribe(self, topics: Sequence[str]) -> None:
        """Begin: join with the next poll."""
        self._consumer.subscribe(list(topics), self)

    # What the group says

    def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Find ends, and where to start."""
        self._has_joined = True
        added = list(assigned)
        if not added:
            return
        latest = self._client.list_offsets(dict.fromkeys(added, "latest"))
        ends = {tp: found.offset for tp, found in latest.items()}
        self._ends.update(ends)
        if self._start.kind in (PlaceKind.BEGINNING, PlaceKind.END):
            # The consumer's own auto.offset.reset.
            return
        committed = self._consumer.committed(added)
        fresh = [tp for tp in added if committed[tp] is None]
        for tp, offset in resolve(self._client, fresh, self._start, ends).items():
            self._consumer.seek(tp, offset)

    def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Commit for who gets them next."""
        self.on_revoke()
        self._forget(revoked)

    def on_partitions_lost(self, lost: Collection[TopicPartition]) -> None:
        """Others have them already."""
        self._forget(lost)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self._ends.pop(tp, None)
            self._positions.pop(tp, None)

    # Source

    @property
    def is_finished(self) -> bool:
        """Whether all that was there when partitions were assigned has come."""
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
        """Why nothing comes."""
        return self._consumer.trouble

    def poll(self, timeout_ms: float) -> Sequence[Chunk]:
        """What the consumer has.

        Raises:
            CorruptRecordsError: a batch is corrupt, and errors are not skipped.
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
                # The next poll comes to the corrupt batch again.
                return Chunk(tp, readable, error.offset)
            return self._without_batch(readable, error)

    def _without_batch(
        self, records: Sequence[ConsumerRecord], error: CorruptRecordsError
    ) -> Chunk:
        """The records before a corrupt batch; reading goes on behind it."""
        self._errors.handle(error)
        self._consumer.seek(error.partition, error.next_offset)
        return Chunk(error.partition, records, error.next_offset)

    def commit(self, printed: Mapping[TopicPartition, int]) -> None:
        """Commit for the partitions that are still this member's."""
        own = {tp: offset for tp, offset in printed.items() if tp in self._ends}
        if not own:
            return
        try:
            self._consumer.commit(own, _COMMIT_S)
        except CommitFailedError:
            warning("the group went on without this member: some records may come again")


def _nothing() -> None:
    pass
