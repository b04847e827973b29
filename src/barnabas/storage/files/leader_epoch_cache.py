"""Start offset of each leader epoch of a log (Kafka's LeaderEpochFileCache; KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.files.checkpoint import CheckpointError, decode_lines, encode_lines
from barnabas.storage.topic_partition import LEADER_EPOCH_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.runtime.disk import Disk

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class EpochEntry(NamedTuple):
    """A leader epoch, and the offset of its first record (Kafka's EpochEntry)."""

    epoch: int
    start_offset: int


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    """Return the content of a leader epoch checkpoint, as Kafka writes it (without a checksum)."""
    lines = [f"{each.epoch} {each.start_offset}" for each in entries]
    return "\n".join(["0", str(len(lines)), *lines, ""]).encode()


def decode_epochs(content: bytes) -> list[EpochEntry]:
    """Return the entries of a leader epoch checkpoint.

    Raises:
        CheckpointError: the content is damaged, or the entries do not increase.
    """
    try:
        entries = [EpochEntry(int(epoch), int(start)) for epoch, start in decode_lines(content, 2)]
    except ValueError as error:
        raise CheckpointError(f"leader epochs: {error}") from error
    if any(not (0 <= epoch < 1 << 31 and 0 <= start < 1 << 63) for epoch, start in entries):
        raise CheckpointError("leader epochs: a number is out of range")
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
            raise CheckpointError(f"leader epochs: {after} follows {before}")
    return entries


class LeaderEpochCache:
    """Epochs and their start offsets, both strictly increasing, stored in a file."""

    __slots__ = ("_disk", "_epochs", "_is_synced", "_is_written", "_starts", "path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        # Epochs, and the offset at which each begins. Invariant: both lists are strictly increasing
        # and have the same length. Appends add to the end, truncations remove at either end.
        self._epochs: list[int] = []
        self._starts: list[int] = []
        # Whether the file has the same epochs as the memory. False while the last epoch has no
        # records, after the opening of the log dropped epochs, and after a change for which no
        # descriptor was free.
        self._is_written = True
        # Whether a sync has begun since the last write of the file, successful or not.
        self._is_synced = True

    def load(self) -> bool:
        """Read the file; return False, with an empty cache, if it is missing or damaged."""
        try:
            entries = decode_lines(self._disk.read(self.path), 2)
            pairs = sorted((int(epoch), int(start)) for epoch, start in entries)
        except (FileNotFoundError, CheckpointError, ValueError):
            return False
        for epoch, start in pairs:
            self._insert(epoch, start)
        return True

    @property
    def latest_epoch(self) -> int | None:
        """The last epoch, None if the cache is empty."""
        return self._epochs[-1] if self._epochs else None

    @property
    def entries(self) -> list[EpochEntry]:
        """All epochs, ascending."""
        return [EpochEntry(*pair) for pair in zip(self._epochs, self._starts, strict=True)]

    @property
    def first_offset(self) -> int | None:
        """Offset of the first record with a known epoch; None if the cache is empty."""
        return self._starts[0] if self._starts else None

    def entries_until(self, end_offset: int) -> list[EpochEntry]:
        """Return the epochs that begin below `end_offset`."""
        slot = bisect_left(self._starts, end_offset)
        pairs = zip(self._epochs[:slot], self._starts[:slot], strict=True)
        return [EpochEntry(*pair) for pair in pairs]

    def entries_in(self, start_offset: int, end_offset: int) -> list[EpochEntry]:
        """Return the epochs of the records in a range (Kafka: epochEntriesInRange).

        The first one begins at `start_offset`, even if it has earlier records.
        """
        entries = self.entries_until(end_offset)
        del entries[: max(0, bisect_right(self._starts, start_offset) - 1)]
        if entries and entries[0].start_offset < start_offset:
            entries[0] = EpochEntry(entries[0].epoch, start_offset)
        return entries

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`; return whether that is new.

        Entries that contradict it, by an epoch or start offset that is not smaller, are dropped.
        """
        is_new = self.announce(epoch, start_offset)
        if not self._is_written:
            self._write()
        return is_new

    def assign_before_records(self, epochs: Iterable[EpochEntry]) -> None:
        """Record the epochs of the next records to append, in memory and in the file.

        Args:
            epochs: epoch and offset of each batch.

        Raises:
            OSError: the file could not be written; the cache is unchanged.
        """
        before = self._epochs, self._starts, self._is_written
        for epoch, start_offset in epochs:
            if not self._has(epoch, start_offset):
                self._epochs, self._starts = [*self._epochs], [*self._starts]
                self._insert(epoch, start_offset)
                self._is_written = False
        if self._is_written:
            return
        self._is_synced = False
        try:
            self._replace_file()
        except OSError:
            self._epochs, self._starts, self._is_written = before
            raise

    def covers(self, epoch: int, start_offset: int) -> bool:
        """Return whether the file already has the epoch of a record at `start_offset`."""
        known = self._epochs
        if not known or known[-1] != epoch or self._starts[-1] > start_offset:
            return False
        return self._is_written

    def _has(self, epoch: int, start_offset: int) -> bool:
        """Return whether records of `epoch` at `start_offset` belong to the last entry."""
        return bool(self._epochs) and self._epochs[-1] == epoch and self._starts[-1] <= start_offset

    def announce(self, epoch: int, start_offset: int) -> bool:
        """Record an epoch without records, from the log end on; return whether it is new.

        The file is not written until there is a record, because a starting broker becomes leader of
        thousands of partitions at once. Loading the file drops epochs without records anyway.
        """
        if self._has(epoch, start_offset):
            return False
        self._insert(epoch, start_offset)
        self._is_written = False
        return True

    def forget_from(self, end_offset: int) -> None:
        """Drop epochs from `end_offset` on while a log is opened, without writing the file.

        Loading the unchanged file again gives the same result; the next record writes it.
        """
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            self._is_written = False

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest epoch up to `epoch`, and its end offset (exclusive).

        Returns:
            (-1, -1) if the cache is empty or `epoch` is above the latest epoch. For an epoch below
                the first one: `epoch`, and the start offset of the first one.
        """
        if epoch == UNDEFINED_EPOCH or not self._epochs or epoch > self._epochs[-1]:
            return UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        slot = bisect_right(self._epochs, epoch)
        if slot == 0:
            return epoch, self._starts[0]
        return self._epochs[slot - 1], self._starts[slot]

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch of the record at `offset`; None if it precedes all known epochs."""
        slot = bisect_right(self._starts, offset)
        return self._epochs[slot - 1] if slot else None

    def previous_epoch(self, epoch: int) -> int | None:
        """Return the largest epoch below `epoch`; None without one."""
        slot = bisect_right(self._epochs, epoch - 1)
        return self._epochs[slot - 1] if slot else None

    def truncate_from_end(self, end_offset: int) -> None:
        """Truncate to a log end offset: drop epochs that begin at or after it."""
        if self._starts and self._starts[-1] >= end_offset:
            self.forget_from(end_offset)
            self._write()

    def truncate_from_start(self, start_offset: int) -> None:
        """Truncate to a log start offset: drop epochs that end there, and raise the first start."""
        if self._drop_before(start_offset):
            self._write()

    def _drop_before(self, start_offset: int) -> bool:
        slot = bisect_right(self._starts, start_offset)
        if not slot or (slot == 1 and self._starts[0] == start_offset):
            return False
        del self._starts[: slot - 1]
        del self._epochs[: slot - 1]
        self._starts[0] = start_offset
        return True

    def clear(self) -> None:
        """Remove all epochs."""
        if self._epochs or not self._is_written:
            self._epochs.clear()
            self._starts.clear()
            self._write()

    def replace(self, entries: Iterable[EpochEntry], log_start_offset: int = 0) -> None:
        """Replace all entries by those of the batches, or of another replica.

        Args:
            entries: ascending epochs.
            log_start_offset: where the log starts; earlier parts of the entries are dropped.
        """
        self._epochs.clear()
        self._starts.clear()
        for epoch, start in entries:
            self._insert(epoch, start)
        self._drop_before(log_start_offset)
        self._write()

    def restore_start(self, entries: Iterable[EpochEntry]) -> None:
        """Add epochs before the first one, which were lost with the file.

        Args:
            entries: ascending epochs; those that contradict the known ones are ignored.
        """
        known = self.entries
        earlier = [
            each
            for each in entries
            if not known
            or (each.epoch <= known[0].epoch and each.start_offset < known[0].start_offset)
        ]
        if earlier and known and earlier[-1].epoch == known[0].epoch:
            del known[0]
        if earlier:
            self.replace([*earlier, *known])

    def on_directory_renamed(self, directory: str) -> None:
        """Adopt the new name of the log's directory."""
        self.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"

    def mark_unsynced(self) -> None:
        """Include the file in the next sync, since a killed process may not have synced it."""
        self._is_synced = False

    def take_unsynced(self) -> list[str]:
        """Return the file if the next sync of the log must include it, and mark it synced.

        Raises:
            OSError: an earlier write failed, and it fails again.
        """
        if self._is_synced:
            return []
        if not self._is_written:
            self._replace_file()
        self._is_synced = True
        return [self.path]

    def _insert(self, epoch: int, start_offset: int) -> None:
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)

    def _write(self) -> None:
        self._is_synced = self._is_written = False
        try:
            self._replace_file()
        except OSError as error:
            # The log and this cache have already changed. The file is written at the next change,
            # or at the latest before the recovery point rises.
            if not is_out_of_descriptors(error):
                raise

    def _replace_file(self) -> None:
        # Not synced: recovery finds the epochs above the recovery point in the log, and a sync of
        # the log includes this file.
        self._disk.write_atomically(self.path, self._encoded(), sync=False)
        self._is_written = True

    def _encoded(self) -> bytes:
        return encode_lines(f"{e} {s}" for e, s in zip(self._epochs, self._starts, strict=True))
