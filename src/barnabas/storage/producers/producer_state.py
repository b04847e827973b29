"""Idempotence and transactions of one partition (Kafka's ProducerStateManager; KIP-98, KIP-360).

`stage` validates one batch and returns the producer's next state; `commit` applies it after the
batch is written. Recovery and followers use the same methods without the validation.
`OpenTransactions` has the transactions that limit the last stable offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.record.batch import SEQUENCE_MAX, ControlType
from barnabas.storage.errors import (
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from barnabas.storage.producers.open_transactions import (
    OpenTransactions,
    VerificationGuard,
    Verifications,
)
from barnabas.storage.producers.producer_entry import (
    NO_EPOCH,
    NO_OFFSET,
    CompletedTxn,
    CorruptSnapshotError,
    ProducerChange,
    ProducerEntry,
    RememberedBatch,
    check_snapshot,
    decode_snapshot_of,
    encode_snapshot,
    read_end_marker,
)
from barnabas.storage.results import AppendOrigin
from barnabas.storage.segment.transaction_index import AbortedEntry
from barnabas.storage.topic_partition import PRODUCER_SNAPSHOT_SUFFIX, offset_file, offset_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.record.batch import BatchHeader, Buffer
    from barnabas.runtime.disk import Disk
    from barnabas.storage.producers.producer_entry import EndMarker


class ProducerState:
    """State of all producers of one log."""

    __slots__ = (
        "_directory",
        "_disk",
        "_unsynced",
        "damaged_snapshots",
        "entries",
        "expiration_ms",
        "map_end_offset",
        "requires_verification",
        "snapshots",
        "transactions",
        "verifications",
    )

    def __init__(self, disk: Disk, directory: str, expiration_ms: int) -> None:
        self._disk = disk
        self._directory = directory
        # How long the state of an idle producer is kept, in ms.
        self.expiration_ms = expiration_ms
        # By producer id. `commit` replaces entries; expiry and `clear` remove them.
        self.entries: dict[int, ProducerEntry] = {}
        # Open and undecided transactions: an index over `entries`, changed by `commit` alone.
        self.transactions = OpenTransactions()
        # transaction.partition.verification.enable: whether the coordinator must confirm each
        # transaction before its first batch. Set for all logs by the log manager.
        self.requires_verification = False
        # Verifications of producers that begin a transaction; None before the first one.
        self.verifications: Verifications | None = None
        # The state covers all batches below this offset (exclusive). Appends and replays raise it.
        self.map_end_offset = 0
        # Offsets of the snapshot files, ascending. Each covers the batches below its offset.
        self.snapshots: list[int] = []
        # Paths of damaged snapshot files, which were removed.
        self.damaged_snapshots: list[str] = []
        # Snapshot files written since the last sync.
        self._unsynced: list[str] = []

    # -- one batch ---------------------------------------------------------------------------

    def find_duplicate(
        self, header: BatchHeader, before: ProducerEntry | None = None
    ) -> RememberedBatch | None:
        """Return the earlier append of this batch; None if the batch is new.

        Args:
            before: the state staged for an earlier batch of the same write.
        """
        entry = before or self.entries.get(header.producer_id)
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
            InvalidTxnStateError: the producer has an open transaction, and the batch has none; or
                the transaction coordinator has not confirmed the transaction of the batch.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        entry = before or self.entries.get(producer_id)
        is_transactional = header.is_transactional
        if (
            is_transactional
            and self.requires_verification
            and origin is not AppendOrigin.REPLICATION
        ):
            _check_verification(self.verifications, entry, header, origin)
        if entry is None:
            entry = ProducerEntry(producer_id)
        elif origin is not AppendOrigin.REPLICATION:
            _check_epoch(entry, epoch)
            if origin is AppendOrigin.CLIENT:
                _check_sequence(entry, epoch, header.base_sequence)
        if entry.txn_first_offset != NO_OFFSET and not is_transactional:
            raise InvalidTxnStateError(
                f"producer {producer_id} has an open transaction, but its batch is not "
                "transactional"
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
        origin: AppendOrigin,
        before: ProducerEntry | None = None,
    ) -> ProducerChange:
        """Return the producer's state after the marker at `offset`, and the ended transaction.

        Args:
            before: the state staged for an earlier batch of the same append.

        Raises:
            InvalidProducerEpochError: the producer epoch is too old.
            TransactionCoordinatorFencedError: the coordinator epoch is too old.
        """
        producer_id = header.producer_id
        entry = before or self.entries.get(producer_id) or ProducerEntry(producer_id)
        if origin is not AppendOrigin.REPLICATION:
            _check_epoch(entry, header.producer_epoch)
            if (
                origin is AppendOrigin.BUMPING_MARKER
                and header.producer_epoch == entry.producer_epoch
                and entry.txn_first_offset != NO_OFFSET
            ):
                raise InvalidProducerEpochError(
                    f"marker of producer {producer_id} has the epoch {entry.producer_epoch} of "
                    f"its open transaction"
                )
            if marker.coordinator_epoch < entry.coordinator_epoch:
                raise TransactionCoordinatorFencedError(
                    f"marker for producer {producer_id} has coordinator epoch "
                    f"{marker.coordinator_epoch}, which is older than epoch "
                    f"{entry.coordinator_epoch}"
                )
        completed = None
        if entry.txn_first_offset != NO_OFFSET:
            is_aborted = marker.control_type is ControlType.ABORT
            completed = CompletedTxn(producer_id, entry.txn_first_offset, offset, is_aborted)
        staged = entry.with_marker(
            header.producer_epoch, marker.coordinator_epoch, marker.timestamp
        )
        return ProducerChange(staged, completed, origin is AppendOrigin.BUMPING_MARKER)

    def commit(
        self,
        entry: ProducerEntry,
        completed: CompletedTxn | None = None,
        *,
        is_bumped: bool = False,
    ) -> None:
        """Apply staged state after the batch was written to the file."""
        self.entries[entry.producer_id] = entry
        if self.verifications is not None:
            # The marker began the epoch of the next transaction. Keep the pending verification of
            # that transaction.
            kept_epoch = entry.producer_epoch if is_bumped else NO_EPOCH
            self.verifications.end(entry.producer_id, kept_epoch)
        if entry.txn_first_offset != NO_OFFSET:
            self.transactions.begin(entry.txn_first_offset, entry.producer_id)
        if completed is not None:
            self.transactions.end(completed)

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
                    change = self.stage_marker(
                        header, marker, header.base_offset, AppendOrigin.REPLICATION
                    )
                    completed = change.completed
                    self.commit(change.entry, completed)
            else:
                self.commit(self.stage(header, header.base_offset, AppendOrigin.REPLICATION))
        self.map_end_offset = header.next_offset
        return completed

    # -- verification ------------------------------------------------------------------------

    def begin_verification(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        now_ms: int,
        *,
        bumps_epoch: bool = False,
    ) -> VerificationGuard | None:
        """Return a guard if the coordinator must confirm the producer's transaction, else None.

        For clients that get new epochs, the coordinator also adds the partition to the transaction,
        so it is asked even if transactions need no confirmation.

        Args:
            producer_id: id of the producer that sends the batch.
            epoch: the producer epoch of the batch.
            sequence: the first sequence of the batch; -1 for a coordinator's batch.
            now_ms: wall clock.
            bumps_epoch: whether the client gets a new epoch with the end of each transaction.
        """
        is_asked = self.requires_verification or bumps_epoch
        if not is_asked or self._has_open_transaction(producer_id, epoch):
            return None
        if self.verifications is None:
            self.verifications = Verifications()
        return self.verifications.begin(
            producer_id, epoch, sequence, now_ms, bumps_epoch=bumps_epoch
        )

    def is_fenced(self, producer_id: int, epoch: int) -> bool:
        """Return whether the log has a later epoch of the producer."""
        entry = self.entries.get(producer_id)
        return entry is not None and epoch < entry.producer_epoch

    def confirm_verification(self, producer_id: int, guard: VerificationGuard) -> bool:
        """Accept the first batch of the transaction: the coordinator has confirmed it.

        Returns:
            False if the verification has ended: a marker or the first batch came in between.
        """
        return self.verifications is not None and self.verifications.confirm(producer_id, guard)

    def _has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        entry = self.entries.get(producer_id)
        return (
            entry is not None
            and entry.txn_first_offset != NO_OFFSET
            and entry.producer_epoch == epoch
        )

    # -- transactions ------------------------------------------------------------------------

    def commit_all(self, changes: Iterable[ProducerChange], end_offset: int) -> list[AbortedEntry]:
        """Apply the staged states of one append, whose batches are in the file.

        Args:
            end_offset: the new log end offset.

        Returns:
            The transactions that the append aborted, for the segment's index.
        """
        aborted_entries = []
        for change in changes:
            entry, completed = change.entry, change.completed
            before = self.entries.get(entry.producer_id)
            if before is not None and entry.batches is not before.batches and entry.batches:
                last_offset, first_offset = before.last_offset, entry.batches[-1].first_offset
                assert first_offset > last_offset, (
                    f"ExactlyOncePerSequence: producer_id={entry.producer_id} appends at offset "
                    f"{first_offset}, and its last batch ends at offset {last_offset}"
                )
            self.commit(entry, completed, is_bumped=change.is_bumped)
            if completed is not None and completed.is_aborted:
                aborted_entries.append(self.aborted_entry(completed))
        self.map_end_offset = end_offset
        return aborted_entries

    def aborted_entry(self, completed: CompletedTxn) -> AbortedEntry:
        """Return the index entry of a transaction whose abort has just been committed."""
        stable = self.transactions.last_stable_offset_after(completed)
        return AbortedEntry(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )

    # -- lifecycle ---------------------------------------------------------------------------

    def has_transaction_before(self, oldest_ms: int) -> bool:
        """Return whether the oldest open transaction had its last write before this time."""
        producer_id = self.transactions.first_producer_id
        entry = None if producer_id is None else self.entries.get(producer_id)
        return entry is not None and 0 < entry.last_timestamp < oldest_ms

    def remove_expired(self, now_ms: int) -> int:
        """Remove producers idle for `producer.id.expiration.ms`; return their number.

        A producer with an open transaction stays.
        """
        oldest = now_ms - self.expiration_ms
        if self.verifications is not None:
            self.verifications.remove_expired(oldest)
        expired = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.last_timestamp <= oldest and entry.txn_first_offset == NO_OFFSET
        ]
        for producer_id in expired:
            del self.entries[producer_id]
        return len(expired)

    def forget_idle(self) -> None:
        """Remove the producers without an open transaction, because their ids are used again."""
        self.entries = {
            producer_id: entry
            for producer_id, entry in self.entries.items()
            if entry.txn_first_offset != NO_OFFSET
        }

    def clear(self, end_offset: int) -> None:
        """Remove all producers, and set the offset of the state to `end_offset`."""
        self.entries.clear()
        self.transactions.clear()
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
            self._commit_unexpired(entries, now_ms)
            self.map_end_offset = offset
            break
        return self.map_end_offset

    def read_snapshot(self, offset: int) -> bytes:
        """Return the content of the snapshot at `offset`; empty if it is missing or damaged."""
        if offset not in self.snapshots:
            return b""
        try:
            content = self._disk.read(self.snapshot_path(offset))
            check_snapshot(content)
        except (CorruptSnapshotError, FileNotFoundError):
            return b""
        return content

    def adopt_snapshot(
        self, offset: int, content: bytes, entries: Iterable[ProducerEntry], now_ms: int
    ) -> list[str]:
        """Replace the state by that of another replica at `offset`.

        Args:
            content: the snapshot; empty if there is none.
            entries: the entries of the snapshot.

        Returns:
            The path of the new snapshot file, which is not synced yet.
        """
        self.clear(offset)
        self._commit_unexpired(entries, now_ms)
        if not content:
            return []
        path = self.snapshot_path(offset)
        self._disk.write_atomically(path, content, sync=False)
        self.snapshots = [offset]
        self._unsynced.append(path)
        return [path]

    def _commit_unexpired(self, entries: Iterable[ProducerEntry], now_ms: int) -> None:
        for entry in entries:
            if not self._is_expired(entry, now_ms):
                self.commit(entry)

    def _read_snapshot(self, offset: int) -> list[ProducerEntry]:
        return decode_snapshot_of(offset, self._disk.read(self.snapshot_path(offset)))

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


def _check_verification(
    verifications: Verifications | None,
    entry: ProducerEntry | None,
    header: BatchHeader,
    origin: AppendOrigin,
) -> None:
    """Check that the coordinator has verified the transaction of a transactional batch."""
    if (
        entry is not None
        and entry.txn_first_offset != NO_OFFSET
        and entry.producer_epoch == header.producer_epoch
    ):
        return
    guard = None
    if verifications is not None:
        guard = verifications.find(header.producer_id, header.producer_epoch)
    if guard is None or not guard.is_verified:
        raise InvalidTxnStateError(
            f"the transaction of producer {header.producer_id} was not verified"
        )
    if origin is not AppendOrigin.CLIENT:
        return
    if guard.bumps_epoch and header.base_sequence != 0 and (entry is None or not entry.batches):
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} begins with sequence {header.base_sequence}"
        )
    if header.base_sequence > guard.lowest_sequence:
        raise OutOfOrderSequenceError(
            f"producer {header.producer_id} sent sequence {header.base_sequence}, which "
            f"is above the lowest pending sequence {guard.lowest_sequence}"
        )


def _check_epoch(entry: ProducerEntry, epoch: int) -> None:
    if epoch < entry.producer_epoch:
        raise InvalidProducerEpochError(
            f"producer {entry.producer_id} has epoch {epoch}, which is older than epoch "
            f"{entry.producer_epoch}"
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
