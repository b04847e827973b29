"""Selection of segments to delete, by age, size and log start (retention.ms, .bytes)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.storage.config import LogConfig
    from barnabas.storage.segment.segment import Segment
    from barnabas.storage.segment.segments import Segments


class Retained(Protocol):
    """The part of a log that retention uses."""

    config: LogConfig
    high_watermark: int
    log_end_offset: int
    log_start_offset: int

    @property
    def segments(self) -> Segments:
        """All segments."""
        ...


def expired_segments(log: Retained, now_ms: int) -> Iterator[list[Segment]]:
    """Yield the segments to delete, one list per rule.

    The caller deletes each list before requesting the next. Only the first segments of the log are
    deleted. Segments at or above the high watermark and an empty active segment stay.
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
    """Return whether all records are older, despite a possibly damaged time index."""
    if _age_timestamp(segment) >= oldest:
        return False
    timestamp = segment.trusted_max_timestamp()
    return timestamp < 0 or timestamp < oldest


def _age_timestamp(segment: Segment) -> int:
    """Return the largest record timestamp; without timestamps, the time of the last write."""
    timestamp = segment.max_timestamp
    return timestamp if timestamp >= 0 else segment.modified_ms()


def _prefix(
    log: Retained, goes: Callable[[Segment, int], bool], with_active: bool = True
) -> list[Segment]:
    """Return the first segments while `goes(segment, its end offset)` returns True."""
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
