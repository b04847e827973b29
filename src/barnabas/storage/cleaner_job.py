"""What the cleaner hands to the process that compacts a log, and what that tells: plain values."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.storage.config import LogConfig
    from barnabas.storage.transaction_index import AbortedEntry


class SourceSegment(NamedTuple):
    """A sealed segment to read."""

    base_offset: int
    size: int
    # Where the next segment begins.
    end_offset: int


class LastRecord(NamedTuple):
    """Where the state of an active producer stands in the log (Kafka's LastRecord)."""

    # Of its last data batch; -1 if only markers are known of it.
    last_data_offset: int
    producer_epoch: int


class CleaningJob(msgspec.Struct, frozen=True):
    """One pass over one log."""

    directory: str
    config: LogConfig
    # All segments below `first_uncleanable_offset`, from the first one on.
    sources: tuple[SourceSegment, ...]
    # Where the last pass ended: from here on keys are collected.
    first_dirty_offset: int
    # Where the first segment begins that must not be touched.
    first_uncleanable_offset: int
    # Every aborted transaction with a part below that.
    aborted: tuple[AbortedEntry, ...]
    # By producer id.
    active_producers: Mapping[int, LastRecord]
    now_ms: int
    # Keys that the offset map takes.
    map_capacity: int
    # What is read at once.
    buffer_bytes: int


class MapBuilt(NamedTuple):
    """The dirty part was read: told before any segment is written."""

    # Up to here the pass will clean.
    end_offset: int
    utilization: float


class CleanedSegment(NamedTuple):
    """A group of segments was written anew, with the suffix `.cleaned`, and synced.

    Told for each group in turn; a single segment that stays as it is, is not written and not told.
    """

    base_offset: int
    size: int
    # The segments in whose place it belongs, by their base offsets.
    replaced: tuple[int, ...]


class CleaningStats(msgspec.Struct):
    """What a pass did: told last."""

    records_read: int = 0
    records_kept: int = 0
    bytes_read: int = 0
    bytes_kept: int = 0
    # Records without a key, from before the topic was compacted; they go.
    keyless: int = 0
