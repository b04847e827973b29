"""Values exchanged between the cleaner and the process that compacts a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.storage.config import LogConfig
    from barnabas.storage.segment.transaction_index import AbortedEntry


class SourceSegment(NamedTuple):
    """A sealed segment to read."""

    base_offset: int
    size: int
    # Base offset of the next segment.
    end_offset: int


class LastRecord(NamedTuple):
    """Last entry of an active producer in the log (Kafka's LastRecord)."""

    # Last offset of its last data batch; -1 if only markers are known.
    last_data_offset: int
    producer_epoch: int


class CleaningJob(msgspec.Struct, frozen=True):
    """Input of one pass over one log."""

    directory: str
    config: LogConfig
    # All segments below `first_uncleanable_offset`, from the first one on.
    sources: tuple[SourceSegment, ...]
    # End of the last pass; keys are collected from here on.
    first_dirty_offset: int
    # Base offset of the first segment that must not change.
    first_uncleanable_offset: int
    # Every aborted transaction that lies at least partly below that offset.
    aborted: tuple[AbortedEntry, ...]
    # Key: producer id.
    active_producers: Mapping[int, LastRecord]
    now_ms: int
    # Maximum number of keys in the offset map.
    map_capacity: int
    # Size of a read in bytes.
    buffer_bytes: int


class MapBuilt(NamedTuple):
    """Report after the dirty part was read, before any segment is written."""

    # Exclusive end of the range that the pass compacts.
    end_offset: int
    utilization: float


class CleanedSegment(NamedTuple):
    """Report that a group of segments was rewritten, with suffix `.cleaned`, and synced.

    There is one report per group. An unchanged single segment is neither rewritten nor reported.
    """

    base_offset: int
    size: int
    # Base offsets of the segments that it replaces.
    replaced: tuple[int, ...]


class CleaningStats(msgspec.Struct):
    """Totals of a pass, reported last."""

    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    # Removed records without a key, written before the topic was compacted.
    keyless: int = 0
