"""The remote tier of a campaign: a store in a directory or a bucket, and what the events say of it.

The brokers have short intervals, and the topics small segments, of which two stay on the disks. So
most records are read from the tier.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from barnabas.protocol.primitives import uuid_to_string
from barnabas.protocol.record_frame import decode_remote_log_record
from barnabas.protocol.records.remote_log import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
)
from barnabas.record.batch import batches
from barnabas.record.record import CorruptBatchError
from chaos.load import read_each

METADATA_TOPIC = "__remote_log_metadata"
METADATA_PARTITIONS = 3
SEGMENT_BYTES = 40_000
# Closed segments that stay on the disks, and the active one.
LOCAL_SEGMENTS = 2
# Age at which an unfinished copy is deleted.
ORPHAN_AGE_MS = 5_000
PARTS = frozenset({"log", "indexes", "json"})
COPY_STARTED, COPY_FINISHED, DELETE_STARTED, DELETE_FINISHED = range(4)
# The states that may follow a state; other events have no effect.
NEXT_STATES: Mapping[int | None, frozenset[int]] = {
    None: frozenset({COPY_STARTED}),
    COPY_STARTED: frozenset({COPY_FINISHED, DELETE_STARTED}),
    COPY_FINISHED: frozenset({DELETE_STARTED}),
    DELETE_STARTED: frozenset({DELETE_FINISHED}),
    DELETE_FINISHED: frozenset(),
}
_NAME = re.compile(r"(?P<path>[^/]+/[^/]+/\d+/\d{20}-[\w-]{22})\.(?P<suffix>[\w.]+)")


@dataclass
class KnownSegment:
    """A segment in the events of the metadata topic."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    state: int = COPY_STARTED


@dataclass(frozen=True)
class StoredSegment:
    """The files of a segment in the store."""

    topic: str
    partition: int
    start_offset: int
    id: str
    # The suffixes of its objects.
    parts: frozenset[str]
    # The path of the objects without their suffixes.
    path: str


class ChaosStore(Protocol):
    """The objects of a store, for tests. `Bucket` is one."""

    def settings(self) -> dict[str, str]:
        """Return the broker keys of the store."""

    def objects(self) -> Mapping[str, int]:
        """Return the sizes of all objects by their paths."""

    def read(self, path: str) -> bytes:
        """Return the content of an object."""

    def put(self, path: str, content: bytes) -> None:
        """Store an object."""

    def remove(self, path: str) -> None:
        """Delete an object."""

    def stop(self) -> None:
        """Let brokers not reach the store."""

    def start(self) -> None:
        """Let brokers reach the store again."""


class ChaosDirectory:
    """A store in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._unmounted = directory.with_name(f"{directory.name}-unmounted")

    def settings(self) -> dict[str, str]:
        return {"barnabas.remote.storage": f"file://{self._directory}"}

    def objects(self) -> Mapping[str, int]:
        found = {}
        for path in self._directory.rglob("*"):
            # A broker may rename or delete it now.
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    found[str(path.relative_to(self._directory))] = path.stat().st_size
        return found

    def read(self, path: str) -> bytes:
        return (self._directory / path).read_bytes()

    def put(self, path: str, content: bytes) -> None:
        temporary = self._directory.with_name(f"{self._directory.name}-incoming")
        temporary.write_bytes(content)
        temporary.rename(self._directory / path)

    def remove(self, path: str) -> None:
        (self._directory / path).unlink()

    def stop(self) -> None:
        """Take the files away, as an unmounted file system: an empty directory remains."""
        self._directory.rename(self._unmounted)
        self._directory.mkdir()

    def start(self) -> None:
        shutil.rmtree(self._directory)
        self._unmounted.rename(self._directory)


@dataclass
class ChaosTier:
    """The store of a campaign, and the topics that have a tier."""

    store: ChaosStore
    segment_bytes: int = SEGMENT_BYTES
    # Topics of the loads with a tier.
    topics: set[str] = field(default_factory=set)

    @property
    def settings(self) -> dict[str, str]:
        """The keys of the brokers."""
        metadata = "rlmm.config.remote.log.metadata.topic"
        return {
            "remote.log.storage.system.enable": "true",
            **self.store.settings(),
            "barnabas.remote.orphan.age.ms": str(ORPHAN_AGE_MS),
            "remote.log.manager.task.interval.ms": "500",
            "log.segment.delete.delay.ms": "2000",
            f"{metadata}.num.partitions": str(METADATA_PARTITIONS),
            f"{metadata}.replication.factor": "3",
            f"{metadata}.min.isr": "2",
        }

    def configs_of(self, *topics: str) -> dict[str, str]:
        """Return the configs of topics, which have a tier from now on."""
        self.topics.update(topics)
        return {
            "remote.storage.enable": "true",
            "internal.segment.bytes": str(self.segment_bytes),
            "local.retention.bytes": str(LOCAL_SEGMENTS * self.segment_bytes),
        }

    def stored(self) -> list[StoredSegment]:
        """Return all segments of which the store has objects, by topic, partition and offset."""
        parts: dict[str, set[str]] = {}
        for path in self.store.objects():
            found = _NAME.fullmatch(path)
            if found is not None:
                parts.setdefault(found["path"], set()).add(found["suffix"])
        segments = []
        for path, suffixes in parts.items():
            _, topic, partition, file = path.split("/")
            start, _, name = file.partition("-")
            # A topic may have a dash in its name, and so may its id of 22 characters.
            segments.append(
                StoredSegment(
                    topic[:-23], int(partition), int(start), name, frozenset(suffixes), path
                )
            )
        return sorted(segments, key=lambda each: (each.topic, each.partition, each.start_offset))

    def producer_epochs(self, topic: str, partition: int) -> dict[int, int]:
        """Return the producer epoch of each offset that the store has of a partition."""
        found: dict[int, int] = {}
        for segment in self.stored():
            if (segment.topic, segment.partition) == (topic, partition) and "log" in segment.parts:
                found |= dict(_epochs_in(self.store.read(f"{segment.path}.log")))
        return found


def known_segments(bootstrap: str) -> dict[str, KnownSegment]:
    """Return the segments by their ids, as the metadata topic describes them to its end."""
    known: dict[str, KnownSegment] = {}
    for partition in range(METADATA_PARTITIONS):
        for _, value in read_each(bootstrap, METADATA_TOPIC, partition):
            _apply(known, value or b"")
    return known


def _apply(known: dict[str, KnownSegment], value: bytes) -> None:
    record = decode_remote_log_record(value)
    if not isinstance(
        record, RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord
    ):
        return
    name = uuid_to_string(record.remote_log_segment_id.id)
    segment = known.get(name)
    state = record.remote_log_segment_state
    if state not in NEXT_STATES[None if segment is None else segment.state]:
        # A repeated event, or that of a deposed leader.
        return
    if segment is not None:
        segment.state = state
        return
    assert isinstance(record, RemoteLogSegmentMetadataRecord), record
    where = record.remote_log_segment_id.topic_id_partition
    known[name] = KnownSegment(where.name, where.partition, record.start_offset, record.end_offset)


def _epochs_in(content: bytes) -> Iterator[tuple[int, int]]:
    try:
        for _, header in batches(content):
            for offset in range(header.base_offset, header.last_offset + 1):
                yield offset, header.producer_epoch
    except CorruptBatchError:
        return
