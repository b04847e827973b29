"""Compares the pipeline's output with a direct computation over the data set.

The table is read without Spark here: its manifest `_spark_metadata` names the files that belong to
it (files that a killed task left behind are in the directory, but not in the manifest).
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from examples.flights import events
from examples.flights.pipeline import DELAYED_MINUTES

KEYS = ["hour", "origin"]


def expected_hours() -> pd.DataFrame:
    """The table as pandas computes it straight from the data set."""
    table = events.flights().copy()
    table["hour"] = table["scheduled"].dt.floor("h")
    table["delayed"] = table["dep_delay"] > DELAYED_MINUTES
    table["cancelled"] = table["dep_delay"].isna()
    grouped = table.groupby(KEYS)
    hours = grouped.agg(
        flights=("flight", "count"),
        delayed=("delayed", "sum"),
        cancelled=("cancelled", "sum"),
        delay_minutes=("dep_delay", lambda delays: delays.sum(min_count=1)),
        miles=("distance", "sum"),
    ).reset_index()
    hours = hours.merge(_latest(table), on=KEYS, how="left")
    weather = events.weather().rename(columns={"observed": "hour"})
    weather = weather.groupby(KEYS, as_index=False).agg(
        {"temp": "max", "wind_speed": "max", "precip": "max", "visib": "min"}
    )
    return hours.merge(weather, on=KEYS, how="left").sort_values(KEYS, ignore_index=True)


def _latest(flights: pd.DataFrame) -> pd.DataFrame:
    """Airline and minutes of each airport hour's latest departure (ties: by name, then number)."""
    left = flights[flights["dep_delay"].notna()].merge(events.airlines(), on="carrier")
    ordered = left.sort_values([*KEYS, "dep_delay", "name", "flight"])
    last = ordered.groupby(KEYS).tail(1)[[*KEYS, "name", "dep_delay"]]
    return last.rename(columns={"name": "latest_airline", "dep_delay": "latest_minutes"})


def table_files(table: Path) -> list[Path]:
    """The Parquet files that the table's manifest lists, oldest first."""
    manifest = table / "_spark_metadata"
    logs = {int(p.name.split(".")[0]): p for p in manifest.iterdir() if p.name[0].isdigit()}
    compacted = [n for n, path in logs.items() if path.suffix == ".compact"]
    start = max(compacted, default=0)
    lines = [
        json.loads(line)
        for number in sorted(n for n in logs if n >= start)
        for line in logs[number].read_text().splitlines()[1:]
    ]
    return [table / Path(line["path"]).name for line in lines if line["action"] == "add"]


def read_table(table: Path) -> pd.DataFrame:
    """The table as a data frame, sorted by hour and airport."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    parts = [pq.read_table(path) for path in table_files(table)]
    frame = pa.concat_tables(parts).to_pandas()
    frame["hour"] = (
        frame["hour"].dt.tz_localize("UTC") if frame["hour"].dt.tz is None else frame["hour"]
    )
    return frame.sort_values(KEYS, ignore_index=True)


def differences(actual: pd.DataFrame, expected: pd.DataFrame) -> list[str]:
    """Return descriptions of missing, duplicate and different rows; empty for a correct table."""
    problems = []
    doubles = int(actual.duplicated(KEYS).sum())
    if doubles:
        problems.append(f"{doubles} airport hours are in the table more than once")
    for name, left, right in (("missing", expected, actual), ("unexpected", actual, expected)):
        only = left[KEYS].merge(right[KEYS], how="left", indicator=True)["_merge"] == "left_only"
        if only.any():
            first = left[only.to_numpy()].iloc[0]
            problems.append(f"{int(only.sum())} hours {name}, first {first.hour} {first.origin}")
    both = expected.merge(actual.drop_duplicates(KEYS), on=KEYS, suffixes=("_expected", ""))
    for column in [name for name in expected.columns if name not in KEYS]:
        wrong = ~_equal(both[column], both[f"{column}_expected"])
        if wrong.any():
            row = both[wrong].iloc[0]
            problems.append(
                f"{column} differs in {int(wrong.sum())} hours, first {row.hour} {row.origin}: "
                f"{row[column]!r} instead of {row[f'{column}_expected']!r}"
            )
    return problems


def _equal(left: pd.Series, right: pd.Series) -> pd.Series:
    same = left == right
    if pd.api.types.is_float_dtype(left) or pd.api.types.is_float_dtype(right):
        same = (left - right).abs() < 1e-6
    return same | (left.isna() & right.isna())


def expected_alerts(hours: pd.DataFrame) -> set[str]:
    """The keys of the alerts that the topic must hold."""
    bad = hours[(hours.flights >= 10) & (hours.delayed + hours.cancelled >= 0.5 * hours.flights)]
    return set(bad.origin + "@" + bad.hour.dt.strftime("%Y-%m-%dT%H"))
