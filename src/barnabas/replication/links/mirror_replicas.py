"""The partitions that this broker leads and that mirror partitions of another cluster.

The leader of a mirror is a follower of the source's leader: `ReplicaFetcher` fetches for it, as a
consumer, with this module in the place of `LocalReplicas`. There are three differences.

Epochs. The batches get the leader epoch of the mirror. The epochs of the source are those of other
leaders: they may be above the mirror's epoch, and followers and consumers of the mirror need
epochs that only rise with the mirror's own leaders. The CRC does not cover the epoch. What the
source's epochs are needed for, finding that the source has truncated its log, uses the epoch of
the last batch, which is kept here.

First fetch. A new leader of the mirror does not know this epoch. It first fetches its own last
batch again and compares it with the source's. A different batch shows that the source has lost
records that the mirror has.

Truncation. A consumer gets committed records only, so a source never truncates what was fetched,
except after an unclean election. The mirror then stops with a reason, since its records were
already served; or, if the operator has chosen so, it follows the source:

1. `DivergenceSearch` finds where the logs differ. Each probe is a first fetch of its own.
2. The log is truncated there, below its high watermark, in the same leader epoch of the mirror.
3. Nothing is fetched until all replicas have truncated their logs, see `LeaderRole.on_truncated`.

A change of the fetch offset clears the mirror's place. Then `LinkFetchers.follow` starts the fetch
anew, and until then the mirror is held back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import HEADER_SIZE, read_header
from barnabas.record.record import CorruptBatchError
from barnabas.replication.config import UNLIMITED
from barnabas.replication.fetcher.local_replicas import (
    LocalReplicas,
    OffsetTruncation,
    TruncatableLogs,
)
from barnabas.replication.links.mirror_comparison import (
    DivergenceSearch,
    are_equal,
    last_batch_offset,
    local_header,
)
from barnabas.replication.partition.partition_roles import (
    FollowerAppend,
    NotLeadingError,
    OffsetMismatchError,
)
from barnabas.replication.partition.results import UNKNOWN_OFFSET
from barnabas.storage.errors import CorruptRecordError, StorageError, UnexpectedAppendOffsetError
from barnabas.storage.results import AppendInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.record.batch import BatchHeader
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.partition_registry import PartitionRegistry
    from barnabas.replication.partition.partition_roles import Fetched
    from barnabas.replication.partition.results import EpochEndOffset
    from barnabas.replication.replica_metrics import ReplicaMetrics
    from barnabas.replication.replication_throttle import ReplicationThrottle
    from barnabas.runtime.clock import Clock
    from barnabas.storage.log.log import Log
    from barnabas.storage.topic_partition import TopicPartition

_log = logging.getLogger(__name__)


class SourceChangedError(StorageError):
    """The source's log is not the log that the mirror has copied."""


class SourcePlace(NamedTuple):
    """The leader of a partition in the source cluster."""

    leader_id: int
    leader_epoch: int
    topic_id: bytes


class Mirror:
    """One mirror partition in one leader epoch of this broker."""

    __slots__ = (
        "began_ms",
        "caught_up_ms",
        "fetched_ms",
        "leader_epoch",
        "partition",
        "place",
        "probes_end",
        "problem",
        "search",
        "source_end",
        "source_epoch",
        "source_leader_epoch",
        "source_truncations",
        "verify_from",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        # The mirror's own leader epoch. Never changes.
        self.leader_epoch = partition.leader_epoch
        # Where the partition is fetched from; None while no leader is known.
        self.place: SourcePlace | None = None
        # The source's epoch of the last batch; None until a batch was fetched.
        self.source_epoch: int | None = None
        # The leader epoch of the last place, and the number of truncations in the last response. If
        # one of them changes, a source that is a mirror itself may have replaced records.
        self.source_leader_epoch: int | None = None
        self.source_truncations = -1
        # Base offset of the last batch while it has to be compared with the source's; -1 after the
        # comparison, or if the log is empty.
        self.verify_from = last_batch_offset(partition.log)
        # The search for the offset where the logs differ; None without one.
        self.search: DivergenceSearch | None = None
        # Whether the next fetch shows if the source's log ends below this log: the source had no
        # records where the last batch begins, which may not be committed there yet.
        self.probes_end = False
        # The source's high watermark in its last response; -1 before it.
        self.source_end = UNKNOWN_OFFSET
        # Wall clock (ms) of the last response, and of the last one without lag; -1 before it.
        self.fetched_ms = -1
        self.caught_up_ms = -1
        # Wall clock (ms) of the first response; -1 before it.
        self.began_ms = -1
        # Why the mirror has to stop, for the operator. Set once.
        self.problem = ""

    @property
    def fetch_offset(self) -> int:
        """The offset of the first fetch from a source leader."""
        if self.search is not None:
            return self.search.probe
        if self.verify_from < 0 or self.probes_end:
            return self.partition.log.log_end_offset
        return self.verify_from

    @property
    def is_waiting(self) -> bool:
        """Whether nothing is fetched until the fetch starts anew, or all replicas truncated."""
        leader = self.partition.leader
        return self.place is None or (leader is not None and bool(leader.awaiting_truncation))

    def compare_again(self) -> bool:
        """Compare the last batch before anything is appended.

        Returns:
            Whether there is a batch.
        """
        self.verify_from = last_batch_offset(self.partition.log)
        self.search, self.probes_end = None, False
        self.place = None
        return self.verify_from >= 0

    def begin_again(self) -> None:
        """Forget what the source has told, and compare the last batch."""
        self.compare_again()
        self.source_epoch, self.source_end = None, UNKNOWN_OFFSET

    @property
    def lag(self) -> int | None:
        """Number of records behind the source; None before its first response."""
        if self.source_end < 0:
            return None
        return max(0, self.source_end - self.partition.log.log_end_offset)

    def stop(self, reason: str) -> SourceChangedError:
        """Note why the mirror has to stop. Return the error to raise."""
        self.problem = self.problem or reason
        return SourceChangedError(f"{self.partition.topic_partition}: {reason}")

    def note_response(self, fetched: Fetched, now_ms: int) -> None:
        """Note the end of the source's log, after the records of the response are appended."""
        self.source_truncations = fetched.truncations
        self.source_end = fetched.high_watermark
        self.fetched_ms = now_ms
        if self.began_ms < 0:
            self.began_ms = now_ms
        if self.partition.log.log_end_offset >= fetched.high_watermark:
            self.caught_up_ms = now_ms

    def note_unchanged(self, now_ms: int) -> None:
        """Note a response of the source without a change of this partition."""
        if now_ms > self.fetched_ms:
            self.fetched_ms = now_ms
            if not self.lag:
                self.caught_up_ms = now_ms


class MirrorReplicas(LocalReplicas):
    """The access of a link's fetchers to the mirrors that this broker leads."""

    __slots__ = (
        "_clock",
        "bytes_in",
        "follows_truncation",
        "has_waiting",
        "mirrors",
        "records_in",
    )

    def __init__(
        self,
        registry: PartitionRegistry,
        logs: TruncatableLogs,
        metrics: ReplicaMetrics,
        throttle: ReplicationThrottle,
        wake: Callable[[TopicPartition], None],
        clock: Clock,
    ) -> None:
        super().__init__(registry, logs, metrics, throttle, wake)
        self._clock = clock
        # The mirrors of the link that this broker leads. Moved by the link.
        self.mirrors: dict[TopicPartition, Mirror] = {}
        # Whether mirrors truncate their logs where the source has lost records. Moved by the link.
        self.follows_truncation = False
        # Whether a mirror waits for a new start of its fetch, or for its replicas. Set here, reset
        # by the link's fetchers.
        self.has_waiting = False
        # Bytes and records that were appended since the link was created on this broker.
        self.bytes_in = 0
        self.records_in = 0

    def latest_epoch(self, key: TopicPartition) -> int | None:
        """Return the source's epoch of the last batch, or None if it is not known."""
        mirror = self.mirrors.get(key)
        return None if mirror is None else mirror.source_epoch

    def truncation_offset(
        self, log: Log, leader_end: EpochEndOffset, fetch_offset: int
    ) -> OffsetTruncation:
        """Return where the source's log ends for the epoch of the last batch.

        The log has its own epochs, which say nothing about those of the source.
        """
        if leader_end.end_offset == UNKNOWN_OFFSET:
            return OffsetTruncation(fetch_offset, is_complete=True)
        return OffsetTruncation(min(leader_end.end_offset, log.log_end_offset), is_complete=True)

    @property
    def may_hold_back(self) -> bool:
        """Whether a mirror may have to wait: for the limit of the link, or after a truncation."""
        return self.has_waiting or self._throttle.bytes_per_second != UNLIMITED

    def is_held_back(self, key: TopicPartition, lag: int | None) -> bool:
        """Whether a partition is not fetched now.

        The limit of the link, which all its mirrors share, delays partitions with a lag. Others
        wait for a new start of the fetch, or for the truncation of all replicas.
        """
        mirror = self.mirrors.get(key)
        if mirror is not None and mirror.is_waiting:
            self.has_waiting = True
            return True
        return lag != 0 and self._throttle.is_exceeded

    def append(self, key: TopicPartition, fetch_offset: int, fetched: Fetched) -> FollowerAppend:
        """Append the source's records with their offsets.

        Raises:
            StorageError: damaged bytes, a failing disk, or a source with another log.
            OffsetMismatchError: the log end has moved since the request.
        """
        mirror, partition = self._led(key)
        log, leader = partition.log, partition.leader
        assert leader is not None
        skipped = 0
        if mirror.search is not None:
            return self._search(mirror, mirror.search, fetched)
        if mirror.verify_from >= 0:
            if mirror.probes_end or not len(fetched.records):
                return self._nothing(mirror, fetched)
            skipped = self._compare(mirror, fetched.records)
            if skipped < 0:
                return _unchanged(log)
        elif self._has_truncated(mirror, fetched):
            return _unchanged(log)
        elif fetch_offset != log.log_end_offset:
            raise OffsetMismatchError(
                f"{key}: fetched from {fetch_offset}, the log ends at {log.log_end_offset}"
            )
        records = _writable(fetched.records, skipped)
        info = self._append_records(mirror, records, fetched)
        info.size += skipped
        if info.last_leader_epoch >= 0:
            mirror.source_epoch = info.last_leader_epoch
        elif skipped and mirror.source_epoch is not None:
            # The next fetch has the epoch of the batch that was compared.
            info.last_leader_epoch = mirror.source_epoch
        leader.maybe_increment_high_watermark()
        self._follow_log_start(log, fetched.log_start_offset)
        mirror.note_response(fetched, self._clock.wall_ms())
        self._throttle.record(len(records))
        self.bytes_in += len(records)
        self.records_in += info.record_count
        counts = self._metrics.topics[key.topic]
        counts.bytes_in += len(records)
        counts.messages_in += info.record_count
        return FollowerAppend(bool(records), info)

    def _led(self, key: TopicPartition) -> tuple[Mirror, Partition]:
        mirror, partition = self.mirrors.get(key), self._partition(key)
        leader = partition.leader
        if mirror is None or leader is None or leader.leader_epoch != mirror.leader_epoch:
            raise NotLeadingError(f"{key} is not a mirror that this broker leads")
        return mirror, partition

    def _nothing(self, mirror: Mirror, fetched: Fetched) -> FollowerAppend:
        """Process a response without our last batch, which may not be committed in the source.

        A mirror that follows truncations fetches from its own end next. The source refuses that if
        its log ends below, committed or not. Otherwise the last batch is compared again.
        """
        if self.follows_truncation or mirror.probes_end:
            mirror.probes_end = not mirror.probes_end
            mirror.place = None
            return _unchanged(mirror.partition.log)
        mirror.source_end = fetched.high_watermark
        mirror.fetched_ms = self._clock.wall_ms()
        return _unchanged(mirror.partition.log)

    @staticmethod
    def _has_truncated(mirror: Mirror, fetched: Fetched) -> bool:
        """Return whether the source has truncated its log, so that the last batch is compared.

        Its log may have grown beyond the mirror since, in the same leader epoch.
        """
        if fetched.truncations == mirror.source_truncations:
            return False
        mirror.source_truncations = fetched.truncations
        return mirror.compare_again()

    def _search(self, mirror: Mirror, search: DivergenceSearch, fetched: Fetched) -> FollowerAppend:
        """Process the response to a probe. Truncate the log if it was the last one."""
        log = mirror.partition.log
        if not len(fetched.records):
            # The source has lost records again.
            mirror.begin_again()
            return _unchanged(log)
        search.on_records(log, fetched.records)
        mirror.place = None
        if search.is_found:
            self._truncate_mirror(mirror, search.divergence)
        return _unchanged(log)

    def _truncate_mirror(self, mirror: Mirror, offset: int) -> None:
        """Remove the records from `offset` on, which the source has lost.

        Raises:
            StorageError: the disk failed.
        """
        partition = mirror.partition
        key, log, leader = partition.topic_partition, partition.log, partition.leader
        assert leader is not None, f"{key} has no leader"
        before = log.log_end_offset
        if offset <= log.log_start_offset:
            super().restart_log_at(key, log.log_start_offset)
        else:
            super().truncate(key, OffsetTruncation(offset, is_complete=True))
        leader.on_truncated()
        mirror.begin_again()
        _log.warning(
            "Mirror follows the truncation of its source: partition=%s log_end=%d before=%d "
            "awaited_replicas=%s",
            *(key, log.log_end_offset, before, sorted(leader.awaiting_truncation)),
        )
        self.wake(key)

    def _append_records(self, mirror: Mirror, records: memoryview, fetched: Fetched) -> AppendInfo:
        partition = mirror.partition
        log, epoch = partition.log, mirror.leader_epoch
        try:
            return log.appender.append_as_mirror(records, epoch)
        except UnexpectedAppendOffsetError as error:
            # The source's log starts within a batch whose first records are deleted.
            is_empty = log.log_end_offset == log.log_start_offset
            is_within = error.first_offset < error.log_end_offset <= error.last_offset
            if not is_empty or not is_within:
                raise mirror.stop(
                    f"the source has other batches at offset {error.first_offset} than the mirror, "
                    "which ends there"
                ) from error
            self.restart_log_at(partition.topic_partition, error.first_offset)
            return log.appender.append_as_mirror(records, epoch)

    def _compare(self, mirror: Mirror, records: memoryview | bytes) -> int:
        """Compare the source's first batch with the last one here. Return its size in bytes.

        Returns:
            0 if compaction has removed the batch in the source; -1 if the batches differ and the
                mirror follows its source.

        Raises:
            SourceChangedError: the batches differ.
        """
        if len(records) < HEADER_SIZE:
            return 0
        try:
            theirs = read_header(records)
        except CorruptBatchError as error:
            raise CorruptRecordError(str(error)) from None
        log = mirror.partition.log
        own = local_header(log, mirror.verify_from)
        if own is None or theirs.base_offset >= log.log_end_offset:
            mirror.verify_from = UNKNOWN_OFFSET
            return 0
        if not are_equal(own, theirs, is_compacted=log.config.is_compacted):
            if self.follows_truncation:
                self._begin_search(mirror, own)
                return -1
            raise mirror.stop(
                f"the source has another batch at offset {own.base_offset}: it has lost records "
                "that the mirror has, for example by an unclean leader election"
            )
        if theirs.size > len(records):
            raise CorruptRecordError(f"the batch at offset {own.base_offset} is incomplete")
        mirror.verify_from = UNKNOWN_OFFSET
        mirror.source_epoch = theirs.partition_leader_epoch
        return theirs.size

    def _begin_search(self, mirror: Mirror, differing: BatchHeader) -> None:
        """Search the offset where the logs differ. Truncate the log if it is known at once."""
        mirror.search = DivergenceSearch(mirror.partition.log, differing.base_offset)
        mirror.source_epoch = mirror.place = None
        if mirror.search.is_found:
            self._truncate_mirror(mirror, mirror.search.divergence)

    @staticmethod
    def _follow_log_start(log: Log, source_start: int) -> None:
        start = min(source_start, log.high_watermark)
        if start > log.log_start_offset:
            log.maybe_increment_log_start_offset(start, "the source's moved")

    def truncate(self, key: TopicPartition, truncation: OffsetTruncation) -> None:
        """Do nothing before the first fetch; otherwise stop the mirror, or follow the source.

        Raises:
            SourceChangedError: the source's log ends below this log, or diverges from it.
            NotLeadingError: this broker does not lead the mirror any more.
        """
        mirror, partition = self._led(key)
        if truncation.offset >= mirror.fetch_offset:
            return
        if self.follows_truncation:
            self._truncate_mirror(mirror, truncation.offset)
            return
        raise mirror.stop(
            f"the source's log ends or diverges at offset {truncation.offset}, but the mirror "
            f"ends at {partition.log.log_end_offset}: the source has lost records, for example by "
            "an unclean leader election"
        )

    def restart_log_at(self, key: TopicPartition, offset: int) -> None:
        """Empty the log and start it at the source's log start offset, which is above its end.

        Raises:
            StorageError: the disk failed.
            NotLeadingError: this broker does not lead the mirror any more.
        """
        mirror, partition = self._led(key)
        super().restart_log_at(key, offset)
        mirror.verify_from = UNKNOWN_OFFSET
        mirror.source_epoch = None
        # The log has no epoch now, and its followers compare epochs.
        partition.log.leader_epochs.announce(mirror.leader_epoch, offset)


def _unchanged(log: Log) -> FollowerAppend:
    """Return the result of a response without appended records."""
    end = log.log_end_offset
    return FollowerAppend(moved=False, info=AppendInfo(-1, end - 1, log.log_start_offset))


def _writable(records: memoryview | bytes, start: int) -> memoryview:
    """Return the records from `start` on, whose epochs the append replaces in place.

    They are those of the response, which has no other reader, or a copy if it is read-only.
    """
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(view))
    return view[start:]
