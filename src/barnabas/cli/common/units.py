"""Numbers, durations, sizes and times, as users type them (15m, 7d, 128MiB) and as they are shown.

Brokers and Kafka's tools take plain numbers only, in the unit of each key. The commands convert
values before they send them, so that the units also work with Apache Kafka.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from typing import Any

import click

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
# Units of durations that are shown, the longest first.
_SHOWN_UNITS_S = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))
_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
# Units of sizes in lower case; users may write them in any case.
_SIZES = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?([a-zA-Z]*)")
# A number with letters behind it, which a user means as a unit.
_WITH_UNIT = re.compile(r"\d+(?:\.\d+)? ?[a-zA-Z]+")
# Kafka's value for "no limit" in configs without -1.
_LONG_MAX = (1 << 63) - 1
# The last word of a key -> milliseconds of its unit.
_KEYS_OF_TIMES = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}
_WORDS_OF_SIZES = {"bytes", "byte"}


class NumberRange(click.FloatRange):
    """The type of an option that is a number in a range: click's type also accepts nan and inf."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number. Raises click.BadParameter."""
        found = float(super().convert(value, param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value} is not a number.", param, ctx)
        return found


class Size(click.IntRange):
    """The type of an option that is a number of bytes, with or without a unit: 512, 64MiB."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the bytes. Raises click.BadParameter."""
        found = size_bytes(value) if isinstance(value, str) else value
        if found is None:
            self.fail(f"{value} is not a size: write bytes, or 100kB, 64MiB, 1GiB.", param, ctx)
        return int(super().convert(found, param, ctx))


class Seconds(NumberRange):
    """The type of an option that is a number of seconds, with or without a unit: 5, 500ms, 2m."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds. Raises click.BadParameter."""
        length = duration_ms(value) if isinstance(value, str) else None
        return super().convert(value if length is None else length / 1000, param, ctx)


def duration_ms(text: str) -> int | None:
    """Return the milliseconds of a duration like 90s, 15m, 2h, 7d or PnDTnHnMnS, else None."""
    simple = re.fullmatch(r"(\d+) ?(ms|s|m|h|d|w)", text)
    if simple is not None:
        return int(simple[1]) * _UNITS_MS[simple[2]]
    parts = _ISO_DURATION.fullmatch(text)
    if parts is None or not any(parts.groups()):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


def size_bytes(text: str) -> int | None:
    """Return the bytes of a size like 512, 100kB, 128MiB or 1GiB, else None."""
    found = _SIZE.fullmatch(text)
    unit = None if found is None else _SIZES.get(found[2].lower())
    if found is None or unit is None:
        return None
    size = Decimal(found[1]) * unit
    return int(size) if size == int(size) else None


def amount(value: float | None) -> str:
    """Return a number in at most six characters: 950, 12.3k, 4.56M."""
    if value is None:
        return "-"
    for unit in ("", "k", "M", "G"):
        if value < 999.5:
            digits = 0 if not unit and value == int(value) else 1 if value < 100 else 0
            return f"{value:.{digits}f}{unit}"
        value /= 1000
    return f"{value:.0f}T"


def size(value: float | None) -> str:
    """Return a size in at most eight characters: 512 B, 1.2 MiB."""
    if value is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1023.5:
            return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def short_time(time_ms: float | None) -> str:
    """Return a time in at most seven characters: 0.3 ms, 12 ms, 1.2 s, 5 min, 3 h, 2 d."""
    if time_ms is None:
        return "-"
    if time_ms < 999.5:
        return f"{time_ms:.1f} ms" if 0 < time_ms < 9.95 else f"{time_ms:.0f} ms"
    value, unit = in_largest_unit(time_ms / 1000)
    return f"{value:.1f} {unit}" if value < 9.95 and unit != "d" else f"{value:.0f} {unit}"


def in_largest_unit(seconds: float) -> tuple[float, str]:
    """Return a time in s, min, h or d: in the largest unit of which it has at least two."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return seconds / length, unit
    return seconds, "s"


def config_text(key: str, text: str) -> str:
    """Return the value of a config as brokers read it; without a unit, the text is unchanged.

    The words of the key tell its unit, such as `retention.ms` and `segment.bytes`.

    Raises:
        click.UsageError: The duration is not a whole number in the unit of the key.
    """
    words = re.split(r"[._]", key)
    unit_ms = _KEYS_OF_TIMES.get(words[-1])
    if unit_ms is not None:
        length = duration_ms(text)
        if length is None:
            return _checked(key, text, "90s, 15m, 12h or 7d")
        if length % unit_ms:
            raise click.UsageError(f"{key}={text}: the value must be whole {words[-1]}")
        return str(length // unit_ms)
    if _WORDS_OF_SIZES.isdisjoint(words):
        return text
    size = size_bytes(text)
    return _checked(key, text, "100kB, 64MiB or 1GiB") if size is None else str(size)


def _checked(key: str, text: str, examples: str) -> str:
    """Return a value without a known unit, which the broker checks.

    Raises:
        click.UsageError: The value has a unit that does not exist.
    """
    if _WITH_UNIT.fullmatch(text):
        raise click.UsageError(f"{key}={text}: unknown unit; write {examples}")
    return text


def config_meaning(key: str, text: str | None) -> str:
    """Return the value of a config in larger units, such as 7d or 1.0 GiB; empty if it has none."""
    if text is None or not re.fullmatch(r"-?\d+", text):
        return ""
    number = int(text)
    words = re.split(r"[._]", key)
    unit_ms = _KEYS_OF_TIMES.get(words[-1])
    is_size = not _WORDS_OF_SIZES.isdisjoint(words)
    if unit_ms is None and not is_size:
        return ""
    if number == _LONG_MAX or (number == -1 and "retention" in words):
        return "no limit"
    if unit_ms is not None:
        seconds = number * unit_ms / 1000
        return duration_text(seconds) if seconds >= 1 else ""
    return size(number) if number >= 1024 else ""


def duration_text(seconds: float) -> str:
    """Return a duration in one or two units: 45s, 3m 20s, 7d."""
    left = round(seconds)
    words: list[str] = []
    for name, length in _SHOWN_UNITS_S:
        count, left = divmod(left, length)
        if count:
            words.append(f"{count}{name}")
        if words and (len(words) == 2 or not count):
            break
    return " ".join(words[:2]) or "0s"


def moment_of(time_ms: float, zone: tzinfo = UTC) -> datetime:
    """Return the moment of milliseconds since 1970.

    Raises:
        OverflowError: It is no date.
        ValueError: It is no date.
    """
    return (_EPOCH + timedelta(milliseconds=time_ms)).astimezone(zone)


def time_ms_of(text: str, zone: tzinfo) -> int:
    """Return the milliseconds since 1970 of a time in ISO 8601; one without a zone is in `zone`.

    Raises:
        ValueError: It has another format.
        OverflowError: It is no date.
    """
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def utc_ms(text: str) -> int | None:
    """Return the milliseconds since 1970 of a time in ISO 8601, else None; UTC without a zone."""
    try:
        return time_ms_of(text, UTC)
    except (OverflowError, ValueError):
        return None


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
