"""An offset and its position (Kafka's LogOffsetMetadata)."""

from __future__ import annotations

import msgspec

UNKNOWN_SEGMENT = -1
UNKNOWN_POSITION = -1


class LogOffsetMetadata(msgspec.Struct, frozen=True, gc=False):
    """An offset with its segment and the byte position in it, if known."""

    message_offset: int
    segment_base_offset: int = UNKNOWN_SEGMENT
    relative_position: int = UNKNOWN_POSITION

    @property
    def is_known(self) -> bool:
        """Whether segment and position are known."""
        return self.relative_position != UNKNOWN_POSITION

    def on_older_segment(self, other: LogOffsetMetadata) -> bool:
        """Return whether this offset lies in an earlier segment; both must be known."""
        assert self.is_known
        assert other.is_known
        return self.segment_base_offset < other.segment_base_offset

    def on_same_segment(self, other: LogOffsetMetadata) -> bool:
        """Return whether both offsets lie in one segment. Both must be known."""
        assert self.is_known
        assert other.is_known
        return self.segment_base_offset == other.segment_base_offset

    def bytes_since(self, other: LogOffsetMetadata) -> int:
        """Return the bytes from `other` to this offset; both must lie in one segment."""
        assert self.on_same_segment(other)
        return self.relative_position - other.relative_position
