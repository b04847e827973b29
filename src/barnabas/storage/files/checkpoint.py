"""Kafka's checkpoint files: a version, a count, and that number of lines with words.

The files `recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
`log-start-offset-checkpoint` and `cleaner-offset-checkpoint` have topic, partition and offset.
`leader-epoch-checkpoint` has epoch and start offset.

The format has no checksum, so one flipped bit in a digit could hide records. Therefore Barnabas
encodes a checksum as white space at the end of the last line. The 32 bits of the CRC-32C are
written as spaces (0) and tabs (1), highest bit first. Kafka's readers ignore white space at the
end of a line, and files written by Kafka have none. Kafka's other formats without a checksum get
theirs in the same way.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.record.compiled import crc32c
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from barnabas.runtime.disk import Disk
    from barnabas.runtime.executor import Executor

    Offsets = Mapping[TopicPartition, int]


_BITS = 32
_WHITE = b" \t"


class ChecksumError(ValueError):
    """The checksum does not match the text."""


def trailing_checksum(content: bytes) -> bytes:
    """Return the checksum for the end of `content`, which must not end with white space."""
    assert content == content.rstrip(), content[-20:]
    checksum = crc32c(content)
    return bytes(_WHITE[checksum >> bit & 1] for bit in reversed(range(_BITS)))


def split_checksum(content: bytes) -> bytes:
    """Return the text without its checksum; a text without checksum is returned unchanged.

    Raises:
        ChecksumError: the checksum does not match the text.
    """
    text = content.rstrip()
    found = content[len(text) :]
    if found and found != trailing_checksum(text):
        raise ChecksumError("the checksum is wrong")
    return text


RECOVERY_POINTS = "recovery-point-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
LOG_START_OFFSETS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

_VERSION = b"0"


class CheckpointError(ValueError):
    """The content of a checkpoint file is invalid."""


def encode_lines(lines: Iterable[str]) -> bytes:
    """Return the content of a checkpoint file."""
    entries = list(lines)
    content = "\n".join(["0", str(len(entries)), *entries]).encode()
    # Without lines there is only the count, which needs no checksum.
    return content + (trailing_checksum(content) if entries else b"") + b"\n"


def decode_lines(content: bytes, words: int) -> list[list[str]]:
    """Return the words of each line.

    Raises:
        CheckpointError: the version, the count, the checksum or the number of words is wrong.
    """
    if not content.endswith(b"\n"):
        raise CheckpointError("the checkpoint is incomplete")
    try:
        split_checksum(content[:-1])
    except ChecksumError as error:
        raise CheckpointError(str(error)) from error
    lines = content.split(b"\n")
    if len(lines) < 3 or lines[0].strip() != _VERSION:
        raise CheckpointError("not a checkpoint of version 0")
    entries = [line.decode("utf-8", "replace").split() for line in lines[2:] if line.strip()]
    if not lines[1].strip().isdigit() or int(lines[1]) != len(entries):
        raise CheckpointError(f"the checkpoint has {len(entries)} entries instead of {lines[1]!r}")
    if any(len(entry) != words for entry in entries):
        raise CheckpointError(f"a line does not have {words} words")
    return entries


def countdown(count: int, on_done: Callable[[], None]) -> Callable[[], None]:
    """Return a function whose `count`-th call calls `on_done`; for 0, call `on_done` now."""
    left = count

    def done() -> None:
        nonlocal left
        left -= 1
        if not left:
            on_done()

    if not count:
        on_done()
    return done


class Collection(NamedTuple):
    """Offsets that are collected for a write, perhaps in several turns of the loop."""

    # Has each partition that may get an offset.
    partitions: Container[TopicPartition]
    # Collects the offsets and passes them on. They do not change afterwards.
    start: Callable[[Callable[[Offsets], None]], None]


def collected(offsets: Offsets) -> Collection:
    """Return offsets that are there already."""
    return Collection(offsets, lambda deliver: deliver(offsets))


class OffsetCheckpoint:
    """Checkpoint file with an offset per partition."""

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
        # Whether a write off the loop is running, and whether another write must follow it.
        self._is_writing = False
        self._is_waiting = False
        # Callbacks for the end of the next write to start.
        self._awaiting: list[Callable[[], None]] = []
        # Partitions in the file, and partitions in the running write.
        self._on_disk: Container[TopicPartition] = ()
        self._in_flight: Container[TopicPartition] = ()
        # Number of writes started, and number of the last completed write.
        self.started = 0
        self.written = 0

    def may_name(self, partition: TopicPartition) -> bool:
        """Return whether the file has, or will have, an entry of that partition."""
        return partition in self._on_disk or partition in self._in_flight

    @property
    def is_writing(self) -> bool:
        """Whether a write off the loop is running, during which `write` is not allowed."""
        return self._is_writing

    def read(self) -> dict[TopicPartition, int]:
        """Return the offsets; an empty dict if the file is absent or empty, as Kafka creates it.

        Raises:
            CheckpointError: the content is invalid.
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
            # A copy: the caller may change what it gets.
            self._on_disk = frozenset(found)
            return found
        except ValueError as error:
            raise CheckpointError(f"{self.path}: {error}") from error

    def write_async(
        self,
        executor: Executor,
        collect: Callable[[], Collection],
        on_failure: Callable[[OSError], None],
        on_done: Callable[[], None] | None = None,
    ) -> None:
        """Replace the file off the loop. Concurrent calls are combined into one later write.

        Args:
            collect: called when a write starts.
            on_failure: receives the error of a failed write, on the loop.
            on_done: called on the loop after the end of a write that started after this call, even
                if that write failed.
        """
        if on_done is not None:
            self._awaiting.append(on_done)
        if self._is_writing:
            self._is_waiting = True
            return
        self._is_writing = True

        def begin() -> None:
            self._is_waiting = False
            callbacks, self._awaiting = self._awaiting, []
            self.started += 1
            collection = collect()
            self._in_flight = collection.partitions
            collection.start(partial(replace, callbacks))

        def replace(callbacks: list[Callable[[], None]], offsets: Offsets) -> None:
            executor.submit(
                partial(self._replace, offsets), partial(on_replaced, callbacks, offsets)
            )

        def on_replaced(
            callbacks: list[Callable[[], None]],
            offsets: Offsets,
            _: None,
            error: BaseException | None,
        ) -> None:
            if error is None:
                self._on_written(offsets)
            if isinstance(error, OSError):
                self._is_writing = self._is_waiting = False
                callbacks += self._awaiting
                self._awaiting.clear()
                on_failure(error)
            elif self._is_waiting:
                begin()
            else:
                self._is_writing = False
            for on_end in callbacks:
                on_end()

        begin()

    def write(self, offsets: Offsets, sync: bool = True) -> None:
        """Replace the file synchronously."""
        self._in_flight = offsets
        self.started += 1
        self._replace(offsets, sync)
        self._on_written(offsets)

    def _on_written(self, offsets: Offsets) -> None:
        self.written = self.started
        self._on_disk, self._in_flight = offsets, ()

    def _replace(self, offsets: Offsets, sync: bool = True) -> None:
        lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
        self._disk.write_atomically(self.path, encode_lines(lines), sync)
