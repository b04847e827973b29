"""Kafka's checkpoint files: a version, a count, and that many lines of words.

Of this kind are `recovery-point-offset-checkpoint`, `replication-offset-checkpoint`,
`log-start-offset-checkpoint`, `cleaner-offset-checkpoint` (topic, partition, offset) and
`leader-epoch-checkpoint` (epoch, start offset).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.runtime.disk import Disk

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
    return "\n".join(["0", str(len(entries)), *entries, ""]).encode()


def decode_lines(content: bytes, words: int) -> list[list[str]]:
    """The words of each line.

    Raises:
        CheckpointError: another version, a wrong count, or a line with another number of words.
    """
    lines = content.split(b"\n")
    if len(lines) < 3 or lines[0].strip() != _VERSION:
        raise CheckpointError("not a checkpoint of version 0")
    entries = [line.decode("utf-8", "replace").split() for line in lines[2:] if line.strip()]
    if not lines[1].strip().isdigit() or int(lines[1]) != len(entries):
        raise CheckpointError(f"the checkpoint has {len(entries)} entries, not {lines[1]!r}")
    if any(len(entry) != words for entry in entries):
        raise CheckpointError(f"a line has not {words} words")
    return entries


class OffsetCheckpoint:
    """An offset per partition."""

    __slots__ = ("_disk", "path")

    def __init__(self, disk: Disk, directory: str, name: str) -> None:
        self._disk = disk
        self.path = f"{directory}/{name}"

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
            return {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partition, offset in decode_lines(content, 3)
            }
        except ValueError as error:
            raise CheckpointError(f"{self.path}: {error}") from error

    def write(self, offsets: Mapping[TopicPartition, int], sync: bool = True) -> None:
        """Replace the file."""
        lines = (f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
        self._disk.write_atomically(self.path, encode_lines(lines), sync)
