"""Compares what the pipeline wrote with what pandas computes straight from the data set.

Spark is not used here: each table is read as its users read it.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pandas as pd

from barnabas import Client
from examples.flights import events
from examples.flights.demo import committed_end
from examples.flights.proof import table_files

ALERTS = ("alerts", 0)
LATE_MINUTES, ALERT_MINUTES = 15, 180
# The last hours of the year are closed by the closing event.
COLUMNS = [
    "time", "origin", "carrier", "flight", "tailnum", "dest", "dep_delay", "distance", "known",
]  # fmt: skip


def problems(project: Path, bootstrap: str) -> list[str]:
    """Return a line for each table or topic that differs from the data; none if all are equal."""
    departures = expected_departures()
    tables = project / "storage" / "tables"
    lake = project / "lake"
    found = [
        difference("departures", read_stream_table(tables / "departures"), departures),
        difference("visibility", read_view(tables / "visibility"), expected_visibility(departures)),
        difference("lake/departures", read_delta(lake / "departures"), departures),
        difference("lake/hours", read_delta(lake / "hours"), expected_hours(departures)),
    ]
    missing, extra = unequal(read_alerts(bootstrap), expected_alerts(departures))
    if missing or extra:
        found.append(f"alerts: {missing} records are missing, {extra} are not expected")
    return [each for each in found if each]


def expected_departures() -> pd.DataFrame:
    """Return all departures of the data set, as a record had them."""
    table = events.flights().rename(columns={"scheduled": "time"})
    return table[COLUMNS]


def expected_hours(departures: pd.DataFrame) -> pd.DataFrame:
    """Return the departures of each airport in each hour."""
    table = departures.assign(
        hour=departures["time"].dt.floor("h"), late=departures["dep_delay"] > LATE_MINUTES
    )
    return table.groupby(["hour", "origin"], as_index=False).agg(
        flights=("flight", "count"), late=("late", "sum"), longest_delay=("dep_delay", "max")
    )


def expected_visibility(departures: pd.DataFrame) -> pd.DataFrame:
    """Return the departures by visibility; a cancelled one is late."""
    seen = events.weather().rename(columns={"observed": "hour"})
    hours = seen.groupby(["origin", "hour"], as_index=False)["visib"].min()
    delay = departures["dep_delay"]
    table = departures.assign(
        hour=departures["time"].dt.floor("h"), late=(delay > LATE_MINUTES) | delay.isna()
    ).merge(hours, on=["origin", "hour"])
    table["miles"] = table["visib"].astype(int)
    return table.groupby("miles", as_index=False).agg(
        flights=("flight", "size"), late=("late", "sum")
    )


def expected_alerts(departures: pd.DataFrame) -> Counter[tuple[str, str]]:
    """Return key and value of each record of the topic."""
    late = departures[departures["dep_delay"] >= ALERT_MINUTES]
    keys = (
        late["carrier"] + late["flight"].astype(str) + late["time"].dt.strftime(" %Y-%m-%d %H:%M")
    )
    values = late[["origin", "dest", "dep_delay"]].to_dict("records")
    return Counter(zip(keys, (json.dumps(v, separators=(",", ":")) for v in values), strict=True))


def read_stream_table(path: Path) -> pd.DataFrame:
    """Read a streaming table: the files that its manifest names."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    return pa.concat_tables([pq.read_table(file) for file in table_files(path)]).to_pandas()


def read_view(path: Path) -> pd.DataFrame:
    """Read a materialized view, which has the files of the last run only."""
    return pd.read_parquet(sorted(path.glob("*.parquet")))


def read_delta(path: Path) -> pd.DataFrame:
    """Read a Delta table."""
    from deltalake import DeltaTable

    return DeltaTable(path).to_pandas()


def read_alerts(bootstrap: str) -> Counter[tuple[str, str]]:
    """Return key and value of each record that a reader of committed transactions sees."""
    with Client(bootstrap, isolation_level="read_committed") as client:
        end = committed_end(client, ALERTS)
        with client.stream({ALERTS: (0, end)}) as stream:
            return Counter(
                ((each.key or b"").decode(), (each.value or b"").decode())
                for each in stream.records()
            )


def difference(name: str, actual: pd.DataFrame, expected: pd.DataFrame) -> str | None:
    """Return what differs between two tables, whose rows have no order; None if nothing does."""
    if set(actual.columns) != set(expected.columns):
        return f"{name}: the columns are {sorted(actual.columns)}, not {sorted(expected.columns)}"
    missing, extra = unequal(rows_of(actual[expected.columns]), rows_of(expected))
    if missing or extra:
        return f"{name}: {missing:,} rows are missing, {extra:,} are not expected"
    return None


def rows_of(table: pd.DataFrame) -> Counter[tuple[object, ...]]:
    """Return the rows; a time in milliseconds since 1970, a missing value as None."""
    plain = table.copy()
    for column in plain.select_dtypes(["datetime", "datetimetz"]):
        plain[column] = pd.to_datetime(plain[column], utc=True).astype("datetime64[ms, UTC]")
        plain[column] = plain[column].astype("int64")
    plain = plain.astype(object).where(plain.notna(), None)
    return Counter(plain.itertuples(index=False, name=None))


def unequal(actual: Counter[object], expected: Counter[object]) -> tuple[int, int]:
    """Return how many elements are missing, and how many are not expected."""
    return (expected - actual).total(), (actual - expected).total()
