"""Places in a log as users type them, and their offsets in each partition."""

from __future__ import annotations

import re
import time
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.common.output import moment_ms
from barnabas.cli.common.units import duration_ms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["BEGINNING", "END", "Place", "PlaceKind", "check_end", "parse_place", "resolve"]

Offsets = dict["TopicPartition", int]


class PlaceKind(Enum):
    """The kind of a place."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    BEFORE_END = "before the end"
    TIME = "time"


class Place(NamedTuple):
    """A place, specified in the same way for every partition."""

    kind: PlaceKind
    # An offset, a number of records before the end, or ms since 1970.
    number: int = 0


BEGINNING = Place(PlaceKind.BEGINNING)
END = Place(PlaceKind.END)

_WORDS = {"beginning": BEGINNING, "earliest": BEGINNING, "end": END, "latest": END}


def parse_place(text: str, option: str) -> Place:
    """Parse a place: a word, N, -N, a time, a duration before now, or @ms as in kcat.

    Raises:
        click.UsageError: The text has none of these formats.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text.isdigit():
        return Place(PlaceKind.OFFSET, int(text))
    if re.fullmatch(r"-\d+", text):
        return Place(PlaceKind.BEFORE_END, int(text[1:]))
    kcat = re.fullmatch(r"[se]?@(\d+)", text)
    if kcat:
        return Place(PlaceKind.TIME, int(kcat[1]))
    ago = duration_ms(text)
    if ago is not None:
        return Place(PlaceKind.TIME, _now_ms() - ago)
    try:
        return Place(PlaceKind.TIME, moment_ms(text.removeprefix("@"), option))
    except click.UsageError:
        raise click.UsageError(
            f"{option} {text}: write beginning, end, an offset, -N, an ISO time such as "
            "2026-01-31T12:00, @MILLISECONDS, or a duration before the current time: "
            "90s, 15m, 2h, 7d"
        ) from None


def resolve(
    client: Client, wanted: Sequence[TopicPartition], place: Place, ends: Offsets
) -> Offsets:
    """Return the offsets of a place; a time after all records gives the end.

    Args:
        client: Looks up offsets.
        wanted: The partitions.
        place: The place to resolve.
        ends: Recent log end offsets (or last stable offsets) of the partitions.
    """
    match place.kind:
        case PlaceKind.OFFSET:
            return dict.fromkeys(wanted, place.number)
        case PlaceKind.END:
            return {tp: ends[tp] for tp in wanted}
        case PlaceKind.BEFORE_END:
            first = client.list_offsets(dict.fromkeys(wanted, "earliest"))
            return {tp: max(first[tp].offset, ends[tp] - place.number) for tp in wanted}
        case PlaceKind.BEGINNING:
            first = client.list_offsets(dict.fromkeys(wanted, "earliest"))
            return {tp: first[tp].offset for tp in wanted}
        case PlaceKind.TIME:
            found = client.list_offsets(dict.fromkeys(wanted, place.number))
            # Later records may have older timestamps. A time after all records gives the end.
            return {tp: found[tp].offset if found[tp].offset >= 0 else ends[tp] for tp in wanted}


def check_end(place: Place) -> Place:
    """Return a place for the end of reading, whose offset must be known now.

    Raises:
        click.UsageError: The time is in the future.
    """
    if place.kind is PlaceKind.TIME and place.number > _now_ms():
        raise click.UsageError("--to: that time is in the future; omit --to, and end with Ctrl-C")
    return place


def _now_ms() -> int:
    return int(time.time() * 1000)
