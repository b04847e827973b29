"""Times as text, for people and for programs."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["utc_text"]


def utc_text(time_ms: int, timespec: str = "milliseconds") -> str:
    """Return a time as ISO 8601 in UTC; the number itself if it is no date.

    Args:
        time_ms: Milliseconds since 1970. A peer sends it, so that it may have any value.
        timespec: Precision, as for `datetime.isoformat`.
    """
    try:
        found = datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec=timespec)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return found.replace("+00:00", "Z")
