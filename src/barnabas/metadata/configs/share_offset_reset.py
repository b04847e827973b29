"""Where a share group begins to read a partition: `share.auto.offset.reset` (KIP-932)."""

from __future__ import annotations

import re

import msgspec

_EARLIEST, _LATEST = -2, -1
_WORDS = {"earliest": _EARLIEST, "latest": _LATEST}
_BY_DURATION = "by_duration:"
# ISO 8601 durations as Java's Duration.parse reads them. Each part may have a sign.
_DURATION = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?[0-9]+)D)?"
    r"(?:T(?=[-+0-9])(?:(?P<hours>[-+]?[0-9]+)H)?(?:(?P<minutes>[-+]?[0-9]+)M)?"
    r"(?:(?P<seconds>[-+]?[0-9]+)(?:[.,](?P<fraction>[0-9]{0,9}))?S)?)?",
    re.IGNORECASE,
)
_UNITS_MS = {"days": 86_400_000, "hours": 3_600_000, "minutes": 60_000, "seconds": 1_000}
# Java counts the seconds in 64 bits.
_MS_MAX = ((1 << 63) - 1) * 1_000


class ShareOffsetReset(msgspec.Struct, frozen=True):
    """The strategy that chooses the first offset of a share partition."""

    # Timestamp for ListOffsets: -2 earliest, -1 latest. None if it depends on the current time.
    fixed_timestamp: int | None
    # How far before the current time reading begins, in ms.
    duration_ms: int = 0

    @classmethod
    def parse(cls, text: str) -> ShareOffsetReset:
        """Parse "earliest", "latest" or "by_duration:PnDTnHnMn.nS".

        Raises:
            ValueError: the text is none of these, or the duration is negative.
        """
        if text in _WORDS:
            return cls(_WORDS[text])
        if text.startswith(_BY_DURATION):
            return cls(None, _duration_ms(text.removeprefix(_BY_DURATION)))
        raise ValueError(f"{text!r} is no offset reset strategy of share groups")

    def timestamp(self, now_ms: int) -> int:
        """Return the timestamp for ListOffsets: -2, -1 or ms since the epoch."""
        return now_ms - self.duration_ms if self.fixed_timestamp is None else self.fixed_timestamp


def is_offset_reset(text: object) -> bool:
    """Return whether the text is an offset reset strategy of share groups."""
    try:
        ShareOffsetReset.parse(str(text))
    except ValueError:
        return False
    return True


def _duration_ms(text: str) -> int:
    found = _DURATION.fullmatch(text)
    parts = {} if found is None else found.groupdict()
    if not any(parts.get(unit) for unit in _UNITS_MS):
        raise ValueError(f"{text!r} is no duration of the form PnDTnHnMn.nS")
    total = sum(int(parts[unit] or 0) * size for unit, size in _UNITS_MS.items())
    fraction_ms = int((parts["fraction"] or "").ljust(9, "0")) // 1_000_000
    total += -fraction_ms if (parts["seconds"] or "").startswith("-") else fraction_ms
    if parts["sign"] == "-":
        total = -total
    if not 0 <= total <= _MS_MAX:
        raise ValueError(f"the duration {text!r} is negative or too long")
    return total
