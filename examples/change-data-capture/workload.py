"""Random transactions of an airline's business day, in one connection.

Each kind is here for what it asks of change data capture; its docstring says what.
"""

from __future__ import annotations

import random
from collections import Counter

from postgres import Postgres, SqlSession

FLIGHT_COLUMNS = "time_hour, origin, carrier, flight, tailnum, dest, distance, dep_delay"
# New columns: with a default that no event has, and without one. PostgreSQL describes a table's
# columns anew before the next change of the table.
SCHEMA_CHANGE = """
ALTER TABLE planes ADD COLUMN range_km int NOT NULL DEFAULT 5000;
ALTER TABLE flights ADD COLUMN gate text DEFAULT 'to be announced';
ALTER TABLE airports ADD COLUMN surveyed date;
UPDATE planes SET range_km = 9000 WHERE engines > 2;
UPDATE flights SET gate = 'A1' WHERE dest = 'ORD' AND flight < 300;
UPDATE airports SET surveyed = '2013-01-31' WHERE alt > 7000;
"""
LATER_SCHEMA_CHANGE = """
ALTER TABLE airlines ADD COLUMN founded date NOT NULL DEFAULT '1990-01-01';
UPDATE airlines SET founded = '1926-04-15' WHERE name LIKE 'American%';
"""
REPLACE_AIRPORTS = """
CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM airports WHERE random() < 0.9;
TRUNCATE airports;
INSERT INTO airports SELECT * FROM kept;
UPDATE airports SET name = name || ' (renewed)' WHERE random() < 0.1;
"""


def _some(table: str, count: int, condition: str = "true") -> str:
    """Return the condition of random rows."""
    return f"ctid IN (SELECT ctid FROM {table} WHERE {condition} ORDER BY random() LIMIT {count})"


class Workload:
    """Commits random transactions; the seed decides their kinds and sizes."""

    def __init__(self, server: Postgres, seed: int) -> None:
        self._session = SqlSession(server)
        self._random = random.Random(seed)
        self._session.run(f"SELECT setseed({self._random.random()});")
        self._serial = 0
        self.done: Counter[str] = Counter()
        self._kinds = {
            self.depart: 8, self.delay: 6, self.cancel: 3, self.refit: 4, self.reregister: 3,
            self.renumber: 2, self.rename_airline: 1, self.charter: 2, self.retire: 1,
            self.survey: 1, self.change_mind: 1, self.correct_twice: 2, self.lose_logbook: 1,
        }  # fmt: skip
        # Whether primary keys stay as they are.
        self.is_calm = False

    def step(self) -> None:
        """Run one transaction."""
        kinds = self._kinds
        if self.is_calm:
            kinds = {kind: kinds[kind] for kind in (self.depart, self.delay, self.cancel)}
        (kind,) = self._random.choices(list(kinds), list(kinds.values()))
        self._run(kind.__name__, kind())

    def change_schema(self) -> None:
        """Add columns to three tables."""
        self._run("change_schema", SCHEMA_CHANGE)

    def change_schema_again(self) -> None:
        """Add a column to the fourth table."""
        self._run("change_schema", LATER_SCHEMA_CHANGE)

    def rename_large_airline(self) -> None:
        """Change the primary keys of thousands of rows in one transaction."""
        self._run(
            "rename_large_airline",
            self._rename("(SELECT carrier FROM flights GROUP BY 1 ORDER BY count(*) DESC LIMIT 1)"),
        )

    def replace_airports(self) -> None:
        """TRUNCATE, and most of the rows once more."""
        self._run("replace_airports", REPLACE_AIRPORTS)

    def load_airfields(self) -> None:
        """COPY: PostgreSQL logs many rows in one record, so they have one position in its log."""
        rows = "\n".join(f"COPY-{number},Field {number}," for number in range(500))
        sql = f"COPY airports (faa, name, tzone) FROM STDIN (FORMAT csv);\n{rows}\n\\."
        self._run("load_airfields", sql)

    def close(self) -> None:
        """End the connection."""
        self._session.close()

    def _run(self, name: str, sql: str) -> None:
        self._session.run(f"BEGIN;\n{sql}\nCOMMIT;")
        self.done[name] += 1

    def _count(self) -> int:
        return self._random.choice((1, 1, 2, 3, 5, 10, 40))

    def _number(self) -> int:
        self._serial += 1
        return self._serial

    def depart(self) -> str:
        """Several tables in a transaction; large values that change."""
        return f"""
            WITH gone AS (
                DELETE FROM schedule WHERE ctid IN
                (SELECT ctid FROM schedule ORDER BY time_hour LIMIT {self._count()}) RETURNING *
            ), new AS (
                INSERT INTO flights ({FLIGHT_COLUMNS}) SELECT {FLIGHT_COLUMNS} FROM gone
                RETURNING tailnum, time_hour, origin, dest
            ), lines AS (
                SELECT tailnum, string_agg(time_hour || ' ' || origin || '-' || dest, chr(10)) line
                FROM new GROUP BY tailnum
            )
            UPDATE planes SET logbook = coalesce(logbook, '') || line FROM lines
            WHERE planes.tailnum = lines.tailnum;"""

    def delay(self) -> str:
        """Plain updates."""
        minutes = self._random.randrange(5, 90)
        return (
            f"UPDATE flights SET dep_delay = coalesce(dep_delay, 0) + {minutes}"
            f" WHERE {_some('flights', self._count())};"
        )

    def cancel(self) -> str:
        """Deletions."""
        return f"DELETE FROM flights WHERE {_some('flights', self._count())};"

    def refit(self) -> str:
        """Updates of rows with a large value that does not change."""
        return f"UPDATE planes SET seats = seats + 1 WHERE {_some('planes', self._count())};"

    def reregister(self) -> str:
        """A new primary key, or two, for a row with a large value that does not change."""
        plane = _some("planes", 1, "length(logbook) > 4000")
        first, second = (f"N{self._number()}TMP" for _ in range(2))
        sql = f"UPDATE planes SET tailnum = '{first}' WHERE {plane};"
        if self._random.random() < 0.5:
            sql += f"UPDATE planes SET tailnum = '{second}', seats = seats + 2"
            sql += f" WHERE tailnum = '{first}';"
        return sql

    def renumber(self) -> str:
        """New composite primary keys."""
        shift = 10_000 * self._number()
        return (
            f"UPDATE flights SET flight = flight % 10000 + {shift}"
            f" WHERE {_some('flights', self._count())};"
        )

    def rename_airline(self) -> str:
        """A new primary key that a foreign key carries into the primary keys of another table."""
        small = "(SELECT carrier FROM flights GROUP BY 1 HAVING count(*) < 100"
        return self._rename(f"{small} ORDER BY random() LIMIT 1)")

    def _rename(self, carrier: str) -> str:
        return f"UPDATE airlines SET carrier = 'R{self._number()}' WHERE carrier = {carrier};"

    def charter(self) -> str:
        """New rows of several tables that depend on each other, some gone before the commit."""
        number = self._number()
        carrier, tailnum = f"C{number}", f"N{number}CH"
        return f"""
            INSERT INTO airlines (carrier, name) VALUES ('{carrier}', 'Charter {number} Äir');
            INSERT INTO planes (tailnum, seats, logbook)
            VALUES ('{tailnum}', 20, repeat('{tailnum} ', 800));
            INSERT INTO flights ({FLIGHT_COLUMNS})
            SELECT time_hour, origin, '{carrier}', flight, '{tailnum}', dest, distance, NULL
            FROM flights WHERE {_some("flights", 3)} ON CONFLICT DO NOTHING;
            DELETE FROM flights WHERE {_some("flights", 1, f"carrier = '{carrier}'")};
            UPDATE planes SET tailnum = '{tailnum}2' WHERE tailnum = '{tailnum}';"""

    def retire(self) -> str:
        """A deletion that sets a column of another table to NULL."""
        return f"DELETE FROM planes WHERE {_some('planes', 1)};"

    def survey(self) -> str:
        """A table that seldom changes; NULL values."""
        return f"UPDATE airports SET alt = alt + 1, tz = NULL WHERE {_some('airports', 2)};"

    def change_mind(self) -> str:
        """Changes that are rolled back, whole and in part."""
        return f"""
            {self.refit()}
            SAVEPOINT before;
            {self.cancel()}
            ROLLBACK TO before;
            {self.delay()}
            COMMIT; BEGIN;
            {self.cancel()}
            ROLLBACK; BEGIN;"""

    def correct_twice(self) -> str:
        """A row that is deleted and inserted again, and then changed, in one transaction."""
        return f"""
            CREATE TEMP TABLE held ON COMMIT DROP AS
            SELECT * FROM flights WHERE {_some("flights", 2)};
            DELETE FROM flights USING held WHERE
            (flights.time_hour, flights.origin, flights.carrier, flights.flight)
            = (held.time_hour, held.origin, held.carrier, held.flight);
            INSERT INTO flights SELECT * FROM held;
            UPDATE flights SET dep_delay = 7 FROM held WHERE
            (flights.time_hour, flights.origin, flights.carrier, flights.flight)
            = (held.time_hour, held.origin, held.carrier, held.flight);"""

    def lose_logbook(self) -> str:
        """A large value that becomes NULL."""
        return f"UPDATE planes SET logbook = NULL WHERE {_some('planes', 1)};"
