"""Rules by which a log rolls to a new segment (Kafka: LogSegment.shouldRoll, RollParams)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.storage.segment.offset_index import RELATIVE_OFFSET_MAX

if TYPE_CHECKING:
    from barnabas.runtime.rng import Rng
    from barnabas.storage.append_info import AppendInfo
    from barnabas.storage.config import LogConfig
    from barnabas.storage.segment.segment import Segment

# Positions in the offset index have 31 bits.
_BYTES_MAX = 0x7FFF_FFFF


def should_roll(segment: Segment, info: AppendInfo, now_ms: int, config: LogConfig) -> bool:
    """Return whether an append needs a new segment, by its size or by the segment's age."""
    if segment.size > config.segment_bytes - info.size:
        return True
    if segment.size:
        # The age counts by record timestamps, if there are any.
        first = segment.first_batch_timestamp
        if first is None:
            first = segment.first_timestamp()
        age_ms = info.max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        if age_ms > config.segment_ms_max - segment.roll_jitter_ms:
            return True
    return must_roll(segment, info)


def must_roll(segment: Segment, info: AppendInfo) -> bool:
    """Return whether the append cannot fit into the segment, regardless of the configuration."""
    return (
        segment.offset_index.is_full
        or segment.time_index.is_full
        or info.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        or segment.size + info.size > _BYTES_MAX
    )


def roll_jitter(config: LogConfig, rng: Rng) -> int:
    """Return a random part of segment.jitter.ms, for one segment."""
    limit = min(config.segment_jitter_ms, config.segment_ms_max)
    return rng.randint(0, limit - 1) if limit > 0 else 0
