"""How pages show numbers, sizes, rates, times and names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.units import utc_text

if TYPE_CHECKING:
    from barnabas.client.topic_partition import TopicPartition

_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SIZE_STEP = 1024
# Longer names may break anywhere.
_NAME_LENGTH = 20


def name_class(name: str) -> str:
    """Return the style classes of a cell with a name."""
    return "name long" if len(name) > _NAME_LENGTH else "name"


def searched_partition(partition: TopicPartition) -> str:
    """Return the texts of a partition in which filters look: as lists and as previews show it."""
    return f"{partition.topic}:{partition.partition} {partition}"


def number(value: float | None) -> str:
    """Return a whole number with thin spaces between thousands; a dash for None."""
    return "–" if value is None else f"{round(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def signed(value: int) -> str:
    """Return a difference of two whole numbers, with its sign."""
    return f"{value:+,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def size(value: float | None) -> str:
    """Return a number of bytes with a unit; a dash for None and negative numbers."""
    if value is None or value < 0:
        return "–"
    step = 0
    while value >= _SIZE_STEP and step < len(_SIZES) - 1:
        value /= _SIZE_STEP
        step += 1
    digits = 0 if step == 0 or value >= 100 else 1
    return f"{value:.{digits}f} {_SIZES[step]}"


def rate(value: float | None) -> str:
    """Return a number per second; a dash for None."""
    if value is None:
        return "–"
    return f"{value:.1f}" if 0 < value < 10 else number(value)


def moment(time_ms: int) -> str:
    """Return a time in UTC; a dash for -1, which means unknown."""
    return "–" if time_ms < 0 else utc_text(time_ms).replace("T", " ")
