"""Which segments may go: by age, by size, and below the log start (Kafka: retention.ms, .bytes)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.storage.config import LogConfig
    from barnabas.storage.segment import Segment
    from barnabas.storage.segments import Segments


class Retained(Protocol):
    """What retention needs to know of a log."""

    config: LogConfig
    high_watermark: int
    log_end_offset: int
    log_start_offset: int

    @property
    def segments(self) -> Segments:
        """All segments."""
        ...


def expired_segments(log: Retained, now_ms: int) -> Iterator[list[Segment]]:
    """The segments to delete, one rule after the other.

    The caller deletes each list before it asks for the next. Only a prefix of the log goes, never
    anything at or above the high watermark, never an empty active segment.
    """
    config = log.config
    if config.deletes and config.retention_ms >= 0:
        oldest = now_ms - config.retention_ms
        yield _prefix(log, lambda segment, _: _is_older(segment, oldest))
    if config.deletes and config.retention_bytes >= 0:
        surplus = log.segments.size - config.retention_bytes

        def exceeds(segment: Segment, _: int) -> bool:
            nonlocal surplus
            if surplus < segment.size:
                return False
            surplus -= segment.size
            return True

        yield _prefix(log, exceeds)
    start = log.log_start_offset
    yield _prefix(log, lambda _, end: end <= start, with_active=False)


def _is_older(segment: Segment, oldest: int) -> bool:
    """Whether all its records are older; a damaged time index must not delete what is not."""
    if _age_timestamp(segment) >= oldest:
        return False
    timestamp = segment.trusted_max_timestamp()
    return timestamp < 0 or timestamp < oldest


def _age_timestamp(segment: Segment) -> int:
    """The largest timestamp of the records, or the time of the last write if they have none."""
    timestamp = segment.max_timestamp
    return timestamp if timestamp >= 0 else segment.modified_ms()


def _prefix(
    log: Retained, goes: Callable[[Segment, int], bool], with_active: bool = True
) -> list[Segment]:
    """The first segments for which `goes(segment, its end offset)` holds without a gap."""
    found: list[Segment] = []
    segments = list(log.segments)
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if following is None and (segment.size == 0 or not with_active):
            break
        end = log.log_end_offset if following is None else following.base_offset
        if log.high_watermark < end or not goes(segment, end):
            break
        found.append(segment)
    return found
