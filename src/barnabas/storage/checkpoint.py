"""Kafka's checkpoint files: a version, a count, and that many lines of words.

Of this kind are `recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
`log-start-offset-checkpoint`, `cleaner-offset-checkpoint` (topic, partition, offset) and
`leader-epoch-checkpoint` (epoch, start offset).

The format has no checksum, and one flipped bit of a digit would hide records. So the last line ends
with one in white space (`trailing_checksum`), which Kafka's reader skips. Files of Kafka have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.topic_partition import TopicPartition
from barnabas.storage.trailing_checksum import ChecksumError, split_checksum, trailing_checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.runtime.disk import Disk
    from barnabas.runtime.executor import Executor

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

_VERSION = b"0"


class CheckpointError(ValueError):
    """A checkpoint file whose content is no checkpoint."""


def encode_lines(lines: Iterable[str]) -> bytes:
    """The content of a checkpoint file."""
    entries = list(lines)
    content = "\n".join(["0", str(len(entries)), *entries]).encode()
    # Without a line there is nothing to check but the count.
    return content + (trailing_checksum(content) if entries else b"") + b"\n"


def decode_lines(content: bytes, words: int) -> list[list[str]]:
    """The words of each line.

    Raises:
        CheckpointError: another version, a wrong count, a wrong checksum, or a line with another
            number of words.
    """
    if not content.endswith(b"\n"):
        raise CheckpointError("the checkpoint is cut off")
    try:
        split_checksum(content[:-1])
    except ChecksumError as error:
        raise CheckpointError(str(error)) from error
    lines = content.split(b"\n")
    if len(lines) < 3 or lines[0].strip() != _VERSION:
        raise CheckpointError("not a checkpoint of version 0")
    entries = [line.decode("utf-8", "replace").split() for line in lines[2:] if line.strip()]
    if not lines[1].strip().isdigit() or int(lines[1]) != len(entries):
        raise CheckpointError(f"the checkpoint has {len(entries)} entries, not {lines[1]!r}")
    if any(len(entry) != words for entry in entries):
        raise CheckpointError(f"a line has not {words} words")
    return entries


def countdown(count: int, on_done: Callable[[], None]) -> Callable[[], None]:
    """Return what is to be called `count` times before `on_done` is; for 0 that is at once."""
    left = count

    def done() -> None:
        nonlocal left
        left -= 1
        if not left:
            on_done()

    if not count:
        on_done()
    return done


class OffsetCheckpoint:
    """An offset per partition."""

    __slots__ = (
        "_awaiting",
        "_disk",
        "_in_flight",
        "_is_waiting",
        "_is_writing",
        "_on_disk",
        "path",
        "started",
        "written",
    )

    def __init__(self, disk: Disk, directory: str, name: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{name}"
        # A write off the loop is under way, and another one is to follow it.
        self._is_writing = False
        self._is_waiting = False
        # To be called at the end of the next write that begins.
        self._awaiting: list[Callable[[], None]] = []
        # Partitions that the file names, and those that a write under way will make it name.
        self._on_disk: frozenset[TopicPartition] = frozenset()
        self._in_flight: frozenset[TopicPartition] = frozenset()
        # Writes that were begun, and the number of the last one that is on the disk.
        self.started = 0
        self.written = 0

    def may_name(self, partition: TopicPartition) -> bool:
        """Whether the file has, or is about to get, an entry of a log of that name."""
        return partition in self._on_disk or partition in self._in_flight

    @property
    def is_writing(self) -> bool:
        """Whether a write off the loop is under way: the file must not be written meanwhile."""
        return self._is_writing

    def read(self) -> dict[TopicPartition, int]:
        """The offsets; none if the file is absent or empty, as Kafka creates it.

        Raises:
            CheckpointError: the content makes no sense.
        """
        if not self._disk.exists(self.path):
            return {}
        content = self._disk.read(self.path)
        if not content:
            return {}
        try:
            found = {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partition, offset in decode_lines(content, 3)
            }
            self._on_disk = frozenset(found)
            return found
        except ValueError as error:
            raise CheckpointError(f"{self.path}: {error}") from error

    def write_async(
        self,
        executor: Executor,
        collect: Callable[[], Mapping[TopicPartition, int]],
        on_failure: Callable[[OSError], None],
        on_done: Callable[[], None] | None = None,
    ) -> None:
        """Replace the file off the loop; one write at a time, the last one with the last values.

        Args:
            collect: gives the offsets when it is their turn.
            on_failure: gets the error of a failed write, on the loop.
            on_done: called on the loop when a write has ended that began after this call, also one
                that has failed.
        """
        if on_done is not None:
            self._awaiting.append(on_done)
        if self._is_writing:
            self._is_waiting = True
            return
        self._is_writing = True
        offsets = collect()
        told, self._awaiting = self._awaiting, []
        self._in_flight = frozenset(offsets)
        self.started += 1

        def done(_: None, error: BaseException | None) -> None:
            self._is_writing = False
            if error is None:
                self._note_written()
            if isinstance(error, OSError):
                told.extend(self._awaiting)
                self._awaiting.clear()
                on_failure(error)
            elif self._is_waiting:
                self._is_waiting = False
                self.write_async(executor, collect, on_failure)
            for on_end in told:
                on_end()

        executor.submit(lambda: self._replace(offsets), done)

    def write(self, offsets: Mapping[TopicPartition, int], sync: bool = True) -> None:
        """Replace the file, in this turn."""
        self._in_flight = frozenset(offsets)
        self.started += 1
        self._replace(offsets, sync)
        self._note_written()

    def _note_written(self) -> None:
        self.written = self.started
        self._on_disk, self._in_flight = self._in_flight, frozenset()

    def _replace(self, offsets: Mapping[TopicPartition, int], sync: bool = True) -> None:
        lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
        self._disk.write_atomically(self.path, encode_lines(lines), sync)
