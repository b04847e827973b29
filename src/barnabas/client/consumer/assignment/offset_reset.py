"""Where reading begins without a position: auto.offset.reset and seeks (by_duration: KIP-1106)."""

from __future__ import annotations

import re
from typing import NamedTuple

from barnabas.client.errors import ClientConfigError
from barnabas.client.fetch.list_offsets import EARLIEST, LATEST

__all__ = ["OffsetReset"]

_BY_DURATION = "by_duration:"
# ISO 8601 durations as Java's Duration parses them: days, hours, minutes and decimal seconds.
_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?"
    r"(?:(?P<seconds>\d+(?:\.\d{1,9})?)S)?)?",
    re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1000}


class OffsetReset(NamedTuple):
    """A strategy to choose the first offset of a partition."""

    # EARLIEST or LATEST; 0 for a duration.
    spec: int
    # For a duration: how far before the current time reading begins (ms).
    duration_ms: int = 0
    # auto.offset.reset=none: a missing offset is an error.
    is_none: bool = False

    @classmethod
    def earliest(cls) -> OffsetReset:
        """Begin at the first available record."""
        return cls(EARLIEST)

    @classmethod
    def latest(cls) -> OffsetReset:
        """Begin after the last record."""
        return cls(LATEST)

    @classmethod
    def parse(cls, text: str) -> OffsetReset:
        """Parse "earliest", "latest", "none" or "by_duration:PnDTnHnMn.nS".

        Raises:
            ClientConfigError: The text is none of these.
        """
        lowered = text.strip().lower()
        if lowered in ("earliest", "smallest"):
            return cls.earliest()
        if lowered in ("latest", "largest"):
            return cls.latest()
        if lowered == "none":
            return cls(0, is_none=True)
        if lowered.startswith(_BY_DURATION):
            found = _DURATION.fullmatch(text.strip()[len(_BY_DURATION) :])
            if found is not None and any(found.groups()):
                parts = found.groupdict()
                total = sum(float(parts[unit] or 0) * size for unit, size in _UNITS_MS.items())
                return cls(0, int(total))
        raise ClientConfigError(
            f"auto.offset.reset={text} is not one of: earliest, latest, none, "
            f"by_duration:PnDTnHnMn.nS"
        )

    def timestamp(self, now_ms: int) -> int:
        """Return the ListOffsets timestamp: EARLIEST, LATEST or ms since the epoch."""
        assert not self.is_none
        return self.spec or max(0, now_ms - self.duration_ms)
