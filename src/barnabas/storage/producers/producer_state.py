"""Idempotence and transactions of one partition (Kafka's ProducerStateManager; KIP-98, KIP-360).

`stage` validates one batch and returns the producer's next state; `commit` applies it after the
batch is written. Recovery and followers use the same methods without the validation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.batch import SEQUENCE_MAX
from barnabas.record.control import ControlType, parse_control_key, parse_end_marker
from barnabas.record.errors import CorruptBatchError
from barnabas.record.reader import first_record
from barnabas.storage.append_info import AppendOrigin
from barnabas.storage.errors import (
    CorruptRecordError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from barnabas.storage.file_names import PRODUCER_SNAPSHOT_SUFFIX, offset_file, offset_of
from barnabas.storage.producers.producer_entry import (
    NO_EPOCH,
    NO_OFFSET,
    ProducerEntry,
    RememberedBatch,
)
from barnabas.storage.producers.producer_snapshot import (
    CorruptSnapshotError,
    decode_snapshot,
    encode_snapshot,
)
from barnabas.storage.segment.transaction_index import AbortedEntry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.runtime.disk import Disk

# Limit for a decompressed control batch; a marker has about twenty bytes.
_MARKER_BYTES_MAX = 1 << 16


class CompletedTxn(NamedTuple):
    """A transaction ended by a marker."""

    producer_id: int
    first_offset: int
    # Offset of the marker.
    last_offset: int
    is_aborted: bool


class EndMarker(NamedTuple):
    """Content of a transaction's control batch."""

    control_type: ControlType
    coordinator_epoch: int
    timestamp: int


def read_end_marker(batch: Buffer, header: BatchHeader) -> EndMarker | None:
    """Return the marker in a control batch; None if it is empty or of another control type.

    Raises:
        CorruptRecordError: the record, its key or its value cannot be read.
    """
    if not header.record_count:
        return None
    try:
        record = first_record(batch, 0, header, _MARKER_BYTES_MAX)
        control_type = parse_control_key(record.key)
        if control_type not in (ControlType.ABORT, ControlType.COMMIT):
            return None
        return EndMarker(control_type, parse_end_marker(record.value), record.timestamp)
    except CorruptBatchError as error:
        raise CorruptRecordError(
            f"the control batch of offset {header.base_offset} cannot be read: {error}"
        ) from None


class ProducerState:
    """State of all producers of one log."""

    __slots__ = (
        "_directory",
        "_disk",
        "_ongoing",
        "_unreplicated",
        "_unsynced",
        "damaged_snapshots",
        "entries",
        "expiration_ms",
        "map_end_offset",
        "snapshots",
    )

    def __init__(self, disk: Disk, directory: str, expiration_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        # How long the state of an idle producer is kept, in ms.
        self.expiration_ms = expiration_ms
        # By producer id.
        self.entries: dict[int, ProducerEntry] = {}
        # Open transactions: first offset -> producer id, ascending by first offset.
        self._ongoing: dict[int, int] = {}
        # Ended transactions with a marker above the high watermark: first offset -> last offset.
        self._unreplicated: dict[int, int] = {}
        # The state covers all batches below this offset.
        self.map_end_offset = 0
        # Offsets of the snapshot files, ascending.
        self.snapshots: list[int] = []
        # Paths of damaged snapshot files, which were removed.
        self.damaged_snapshots: list[str] = []
        # Snapshot files written since the last sync.
        self._unsynced: list[str] = []

    # -- one batch ---------------------------------------------------------------------------

    def find_duplicate(self, header: BatchHeader) -> RememberedBatch | None:
        """Return the earlier append of this batch; None if the batch is new."""
        entry = self.entries.get(header.producer_id)
        if entry is None:
            return None
        return entry.find_duplicate(
            header.producer_epoch, header.base_sequence, header.last_sequence
        )

    def stage(
        self,
        header: BatchHeader,
        first_offset: int,
        origin: AppendOrigin,
        before: ProducerEntry | None = None,
    ) -> ProducerEntry:
        """Return the producer's state after a data batch at `first_offset`; nothing is changed.

        Args:
            before: the state staged for an earlier batch of the same append.

        Raises:
            InvalidProducerEpochError: the producer epoch is too old.
            OutOfOrderSequenceError: the sequence does not follow the last one.
            InvalidTxnStateError: the producer has an open transaction; the batch has none.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        entry = before or self.entries.get(producer_id)
        if entry is None:
            entry = ProducerEntry(producer_id)
        elif origin is not AppendOrigin.REPLICATION:
            _check_epoch(entry, epoch)
            if origin is AppendOrigin.CLIENT:
                _check_sequence(entry, epoch, header.base_sequence)
        is_transactional = header.is_transactional
        if entry.txn_first_offset != NO_OFFSET and not is_transactional:
            raise InvalidTxnStateError(
                f"producer {producer_id} has a transaction open, its batch is not transactional"
            )
        batch = RememberedBatch(
            header.base_sequence,
            header.last_sequence,
            first_offset,
            first_offset + header.last_offset_delta,
            header.max_timestamp,
        )
        return entry.with_batch(epoch, batch, is_transactional)

    def stage_marker(
        self,
        header: BatchHeader,
        marker: EndMarker,
        offset: int,
        context: tuple[AppendOrigin, ProducerEntry | None],
    ) -> tuple[ProducerEntry, CompletedTxn | None]:
        """Return the producer's state after the marker at `offset`, and the ended transaction.

        Args:
            context: the append origin, and the state staged for an earlier batch of the append.

        Raises:
            InvalidProducerEpochError: the producer epoch is too old.
            TransactionCoordinatorFencedError: the coordinator epoch is too old.
        """
        producer_id = header.producer_id
        origin, before = context
        entry = before or self.entries.get(producer_id) or ProducerEntry(producer_id)
        if origin is not AppendOrigin.REPLICATION:
            _check_epoch(entry, header.producer_epoch)
            if marker.coordinator_epoch < entry.coordinator_epoch:
                raise TransactionCoordinatorFencedError(
                    f"marker of coordinator epoch {marker.coordinator_epoch} for producer "
                    f"{producer_id}; epoch {entry.coordinator_epoch} was seen"
                )
        completed = None
        if entry.txn_first_offset != NO_OFFSET:
            is_aborted = marker.control_type is ControlType.ABORT
            completed = CompletedTxn(producer_id, entry.txn_first_offset, offset, is_aborted)
        staged = entry.with_marker(
            header.producer_epoch, marker.coordinator_epoch, marker.timestamp
        )
        return staged, completed

    def commit(self, entry: ProducerEntry, completed: CompletedTxn | None = None) -> None:
        """Apply staged state after the batch was written to the file."""
        self.entries[entry.producer_id] = entry
        if entry.txn_first_offset != NO_OFFSET:
            self._ongoing[entry.txn_first_offset] = entry.producer_id
        if completed is not None:
            self._ongoing.pop(completed.first_offset, None)
            self._unreplicated[completed.first_offset] = completed.last_offset

    def replay(self, batch: Buffer, header: BatchHeader) -> CompletedTxn | None:
        """Apply a batch that is already in the log (recovery, follower).

        Args:
            batch: the whole batch, at position 0.

        Raises:
            CorruptRecordError: a transaction marker cannot be read.
            InvalidTxnStateError: the batch does not belong to its producer's open transaction.
        """
        completed = None
        if header.has_producer_id:
            if header.is_control:
                marker = read_end_marker(batch, header)
                if marker is not None:
                    entry, completed = self.stage_marker(
                        header, marker, header.base_offset, (AppendOrigin.REPLICATION, None)
                    )
                    self.commit(entry, completed)
            else:
                self.commit(self.stage(header, header.base_offset, AppendOrigin.REPLICATION))
        self.map_end_offset = header.next_offset
        return completed

    # -- transactions ------------------------------------------------------------------------

    @property
    def has_transactions(self) -> bool:
        """Whether the last stable offset can be below the high watermark."""
        return bool(self._ongoing or self._unreplicated)

    def first_unstable_offset(self) -> int | None:
        """Return the lowest first offset of the undecided transactions; None without any.

        A transaction is undecided while it is open or its marker is above the high watermark.
        """
        first = min(self._ongoing, default=None)
        replicated = min(self._unreplicated, default=None)
        if first is None or (replicated is not None and replicated < first):
            return replicated
        return first

    def last_stable_offset_after(self, completed: CompletedTxn) -> int:
        """Return the last stable offset once this transaction has ended.

        That is the first offset of the next open transaction, or the offset after the marker.
        """
        others = [first for first in self._ongoing if first != completed.first_offset]
        return min(others, default=completed.last_offset + 1)

    def commit_all(
        self, changes: Iterable[tuple[ProducerEntry, CompletedTxn | None]], end_offset: int
    ) -> list[AbortedEntry]:
        """Apply the staged states of one append, whose batches are in the file.

        Args:
            end_offset: the new log end offset.

        Returns:
            The transactions that the append aborted, for the segment's index.
        """
        aborted_ones = []
        for entry, completed in changes:
            before = self.entries.get(entry.producer_id)
            if before is not None and entry.batches is not before.batches and entry.batches:
                last_offset, first_offset = before.last_offset, entry.batches[-1].first_offset
                assert first_offset > last_offset, (
                    f"ExactlyOncePerSequence: producer_id={entry.producer_id} appends at offset "
                    f"{first_offset}, and its last batch ends at offset {last_offset}"
                )
            self.commit(entry, completed)
            if completed is not None and completed.is_aborted:
                aborted_ones.append(self.aborted_entry(completed))
        self.map_end_offset = end_offset
        return aborted_ones

    def aborted_entry(self, completed: CompletedTxn) -> AbortedEntry:
        """Return the index entry of a transaction whose abort has just been committed."""
        stable = self.last_stable_offset_after(completed)
        return AbortedEntry(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )

    def on_high_watermark_updated(self, high_watermark: int) -> None:
        """Forget ended transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = {
                first: last for first, last in self._unreplicated.items() if last >= high_watermark
            }

    # -- lifecycle ---------------------------------------------------------------------------

    def remove_expired(self, now_ms: int) -> int:
        """Remove producers idle for `producer.id.expiration.ms`; return their number.

        A producer with an open transaction stays.
        """
        oldest = now_ms - self.expiration_ms
        expired = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.last_timestamp <= oldest and entry.txn_first_offset == NO_OFFSET
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    def clear(self, end_offset: int) -> None:
        """Remove all producers, and set the offset of the state to `end_offset`."""
        self.entries.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self.map_end_offset = end_offset

    # -- snapshots ---------------------------------------------------------------------------

    def find_snapshots(self, names: Iterable[str]) -> None:
        """Record the snapshot files among the names in the directory."""
        offsets = (offset_of(name, PRODUCER_SNAPSHOT_SUFFIX) for name in names)
        self.snapshots = sorted(offset for offset in offsets if offset is not None)

    def snapshot_path(self, offset: int) -> str:
        """Return the path of the snapshot at `offset`."""
        return offset_file(self._directory, offset, PRODUCER_SNAPSHOT_SUFFIX)

    def take_snapshot(self) -> None:
        """Write the state at `map_end_offset`, unless that snapshot exists."""
        offset = self.map_end_offset
        if offset <= (self.snapshots[-1] if self.snapshots else 0):
            return
        path = self.snapshot_path(offset)
        self._disk.write_atomically(path, encode_snapshot(self.entries.values()), sync=False)
        self.snapshots.append(offset)
        self._unsynced.append(path)

    def take_unsynced(self) -> list[str]:
        """Return and clear the snapshot files that the next sync must include."""
        paths, self._unsynced = self._unsynced, []
        return paths

    def load_latest_snapshot(self, log_start_offset: int, end_offset: int, now_ms: int) -> int:
        """Load the latest readable snapshot at or below `end_offset`; remove those above.

        Returns:
            The offset from which the log must be replayed.
        """
        self.clear(log_start_offset)
        self.remove_snapshots_above(end_offset)
        while self.snapshots:
            offset = self.snapshots[-1]
            if offset < log_start_offset:
                break
            try:
                entries = self._read_snapshot(offset)
            except (CorruptSnapshotError, FileNotFoundError):
                self.damaged_snapshots.append(self.snapshot_path(offset))
                self._remove_snapshot(offset)
                continue
            for entry in entries:
                if not self._is_expired(entry, now_ms):
                    self.commit(entry)
            self.map_end_offset = offset
            break
        return self.map_end_offset

    def _read_snapshot(self, offset: int) -> list[ProducerEntry]:
        entries = decode_snapshot(self._disk.read(self.snapshot_path(offset)))
        for entry in entries:
            if entry.last_offset >= offset:
                raise CorruptSnapshotError(
                    f"the snapshot of offset {offset} has a batch at {entry.last_offset}"
                )
        return entries

    def remove_snapshots_above(self, offset: int) -> None:
        """Delete the snapshots above a truncation."""
        for other in [other for other in self.snapshots if other > offset]:
            self._remove_snapshot(other)

    def remove_snapshots_below(self, offset: int) -> None:
        """Delete snapshots that no recovery needs; the latest one stays."""
        for other in [other for other in self.snapshots[:-1] if other < offset]:
            self._remove_snapshot(other)

    def remove_snapshot_at(self, offset: int) -> None:
        """Delete the snapshot at `offset`, where no segment begins; the latest one stays."""
        if offset in self.snapshots and offset != self.snapshots[-1]:
            self._remove_snapshot(offset)

    def remove_stray_snapshots(self, segment_bases: set[int]) -> None:
        """Delete snapshots where no segment begins; the latest one stays."""
        for other in [other for other in self.snapshots[:-1] if other not in segment_bases]:
            self._remove_snapshot(other)

    def remove_all_snapshots(self) -> None:
        """Delete every snapshot."""
        for other in list(self.snapshots):
            self._remove_snapshot(other)

    def on_directory_renamed(self, directory: str) -> None:
        """Adopt the new name of the log's directory."""
        self._directory = directory

    def _remove_snapshot(self, offset: int) -> None:
        path = self.snapshot_path(offset)
        if self._disk.exists(path):
            self._disk.remove(path)
        self.snapshots.remove(offset)

    def _is_expired(self, entry: ProducerEntry, now_ms: int) -> bool:
        is_old = entry.last_timestamp <= now_ms - self.expiration_ms
        return is_old and entry.txn_first_offset == NO_OFFSET


def _check_epoch(entry: ProducerEntry, epoch: int) -> None:
    if epoch < entry.producer_epoch:
        raise InvalidProducerEpochError(
            f"producer {entry.producer_id} has epoch {epoch}, {entry.producer_epoch} was seen"
        )


def _check_sequence(entry: ProducerEntry, epoch: int, base_sequence: int) -> None:
    if epoch != entry.producer_epoch:
        if base_sequence != 0 and entry.producer_epoch != NO_EPOCH:
            raise OutOfOrderSequenceError(
                f"producer {entry.producer_id} begins epoch {epoch} with sequence {base_sequence}"
            )
        return
    last = entry.last_sequence
    if base_sequence != last + 1 and not (base_sequence == 0 and last == SEQUENCE_MAX):
        raise OutOfOrderSequenceError(
            f"producer {entry.producer_id} sent sequence {base_sequence} after {last}"
        )
