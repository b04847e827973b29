"""Where each leader epoch begins in the log (Kafka's LeaderEpochFileCache; KIP-101, KIP-279)."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from barnabas.runtime.disk import is_out_of_descriptors
from barnabas.storage.checkpoint import CheckpointError, decode_lines, encode_lines
from barnabas.storage.file_names import LEADER_EPOCH_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.runtime.disk import Disk

UNDEFINED_EPOCH = -1
UNDEFINED_EPOCH_OFFSET = -1


class LeaderEpochCache:
    """Epochs and their start offsets, both strictly increasing, and the file that keeps them."""

    __slots__ = ("_disk", "_epochs", "_is_synced", "_is_written", "_starts", "path")

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"
        self._epochs: list[int] = []
        self._starts: list[int] = []
        # Whether the file has every epoch that is in memory. False while the last one has no
        # records, and after a change for which no descriptor was free.
        self._is_written = True
        # Whether a sync has begun since the file was, or should have been, written.
        self._is_synced = True

    def load(self) -> bool:
        """Read the file; returns False if it is missing or damaged (the cache is then empty)."""
        if not self._disk.exists(self.path):
            return False
        try:
            entries = decode_lines(self._disk.read(self.path), 2)
            pairs = sorted((int(epoch), int(start)) for epoch, start in entries)
        except (CheckpointError, ValueError):
            return False
        for epoch, start in pairs:
            self._insert(epoch, start)
        return True

    @property
    def latest_epoch(self) -> int | None:
        """The last epoch, None if there is none."""
        return self._epochs[-1] if self._epochs else None

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of all."""
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Records of `epoch` are in the log from `start_offset` on; returns whether that was news.

        Entries that contradict it (no smaller epoch, no smaller start) are dropped.
        """
        is_news = self.announce(epoch, start_offset)
        if not self._is_written:
            self._write()
        return is_news

    def assign_before_records(self, epochs: Iterable[tuple[int, int]]) -> None:
        """Note the epochs of records that will be appended next, in memory and in the file.

        Args:
            epochs: epoch and offset of each batch.

        Raises:
            OSError: the file could not be written; the cache is as before.
        """
        before = self._epochs, self._starts, self._is_written
        for epoch, start_offset in epochs:
            known = self._epochs
            # `_has`, written out: this runs for each append.
            if not known or known[-1] != epoch or self._starts[-1] > start_offset:
                self._epochs, self._starts = [*known], [*self._starts]
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

    def _has(self, epoch: int, start_offset: int) -> bool:
        """Whether records of `epoch` at `start_offset` add nothing to what is known."""
        return bool(self._epochs) and self._epochs[-1] == epoch and self._starts[-1] <= start_offset

    def announce(self, epoch: int, start_offset: int) -> bool:
        """The log will go on with `epoch` at `start_offset`, its end; returns whether that is news.

        The file is left alone until there is a record: a broker that starts leads thousands of
        partitions at once, and who reads the file again drops an epoch without records anyway.
        """
        if self._has(epoch, start_offset):
            return False
        self._insert(epoch, start_offset)
        self._is_written = False
        return True

    def forget_from(self, end_offset: int) -> None:
        """As `truncate_from_end` for a log that is being opened; the file is left alone.

        It would be read the same way again, until a record at its end writes it.
        """
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch that is no larger than `epoch`, and where it ends (exclusive).

        Returns:
            (-1, -1) if the epoch is unknown: none is cached, or it lies above the latest; for an
            epoch below the first: that epoch, with the start of the first one.
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
        """The epoch of the record at `offset`; None if it lies before all known ones."""
        slot = bisect_right(self._starts, offset)
        return self._epochs[slot - 1] if slot else None

    def previous_epoch(self, epoch: int) -> int | None:
        """The largest epoch below `epoch`."""
        slot = bisect_right(self._epochs, epoch - 1)
        return self._epochs[slot - 1] if slot else None

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: drop epochs that begin there or later."""
        if self._starts and self._starts[-1] >= end_offset:
            self.forget_from(end_offset)
            self._write()

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now begins at `start_offset`: drop epochs that end there, lift the first one."""
        slot = bisect_right(self._starts, start_offset)
        if (slot and self._starts[slot - 1] != start_offset) or slot > 1:
            del self._starts[: slot - 1]
            del self._epochs[: slot - 1]
            self._starts[0] = start_offset
            self._write()

    def clear(self) -> None:
        """Forget all."""
        if self._epochs:
            self._epochs.clear()
            self._starts.clear()
            self._write()

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Make `entries` all there is: after a damaged file, as found in the log."""
        self._epochs.clear()
        self._starts.clear()
        for epoch, start in entries:
            self._insert(epoch, start)
        self._write()

    def on_directory_renamed(self, directory: str) -> None:
        """The log's directory has a new name."""
        self.path = f"{directory}/{LEADER_EPOCH_CHECKPOINT}"

    def mark_unsynced(self) -> None:
        """The file may have been written by a process that was killed before it synced it."""
        self._is_synced = False

    def take_unsynced(self) -> list[str]:
        """The file, if the next sync of the log has to include it.

        Raises:
            OSError: it could not be written before, and cannot be now.
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
            # The log and this cache have changed already. The file follows at the next change, at
            # the latest before the recovery point is raised.
            if not is_out_of_descriptors(error):
                raise

    def _replace_file(self) -> None:
        # Not synced: the epochs above the recovery point are found again in the log itself, and a
        # sync of the log syncs this file too.
        self._disk.write_atomically(self.path, self._encoded(), sync=False)
        self._is_written = True

    def _encoded(self) -> bytes:
        return encode_lines(f"{e} {s}" for e, s in zip(self._epochs, self._starts, strict=True))
