"""Debezium's change events of one table, folded into the last state of each changed row.

Spark calls `fold` once for each table of a micro-batch, with all its events. The events are applied
in the order of their offsets, which is the order of PostgreSQL's log, as each topic has one
partition. What matters here:

- PostgreSQL does not log a large (TOASTed) value that did not change. The event has a placeholder.
  The last known value holds; if the batch has none, that of the Delta table.
- A new primary key is two events: a deletion, whose header names the new key, and a creation. Large
  values are placeholders in the creation too, so the new row takes them from the old one.
- A tombstone follows each deletion, for compaction of the topic. It says nothing new.
- Each event has the schema of its table. The last one holds.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

UNAVAILABLE = "__debezium_unavailable_value"
OLD_KEY, NEW_KEY = "__debezium.oldkey", "__debezium.newkey"
# The result of `fold`: a row for each table, with `TableChanges` in JSON.
RESULT = "topic string, changes binary"

Values = dict[str, Any]


class Column(msgspec.Struct, omit_defaults=True):
    """A field of a Kafka Connect schema."""

    # The name of the column.
    field: str
    # The stored type, such as int32.
    type: str
    # The meaning of the stored type, such as io.debezium.time.Date.
    name: str | None = None
    # The default of the column in PostgreSQL, if it is a constant.
    default: Any = None


class RowChange(msgspec.Struct):
    """The last state of a row, as far as the batch tells it."""

    key: Values
    # Columns whose values are known; the others keep the value that they have in the Delta table.
    values: Values
    # Position in PostgreSQL's log of the last change.
    lsn: int
    is_deleted: bool = False
    # All values are in `values`, except those of columns that PostgreSQL had not yet added.
    is_complete: bool = False
    # The key of the row in the Delta table from which the other values come; None: the same key.
    origin: Values | None = None


class TableChanges(msgspec.Struct):
    """All changes of a table in one batch."""

    key: list[str]
    columns: list[Column]
    rows: list[RowChange]
    events: int
    # TRUNCATE came before these changes: all other rows are gone.
    is_truncated: bool = False


class Source(msgspec.Struct):
    """The origin of an event."""

    # The commit's time, microseconds.
    ts_us: int
    lsn: int | None = None


class Payload(msgspec.Struct):
    """The event itself."""

    # r: snapshot, c: create, u: update, d: delete, t: truncate, m: message.
    op: str
    source: Source
    after: Values | None = None


class Event(msgspec.Struct):
    """The value of a record."""

    schema: msgspec.Raw
    payload: Payload


decode_event = msgspec.json.Decoder(Event).decode
_decode_key = msgspec.json.Decoder(Values).decode


def fold(events: pa.Table) -> pa.Table:
    """Fold the events of one topic; see `RESULT`."""
    ordered = events.sort_by("offset")
    folded = Fold()
    for record in ordered.to_pylist():
        if record["value"] is not None:
            headers = {each["key"]: each["value"] for each in record["headers"] or ()}
            folded.add(record["key"], headers, record["value"])
    changes = [msgspec.json.encode(folded.result())]
    return pa.table({"topic": [ordered["topic"][0].as_py()], "changes": pa.array(changes)})


class Fold:
    """The rows of one table while its events are applied."""

    def __init__(self) -> None:
        # By key, as JSON.
        self._rows: dict[bytes, RowChange] = {}
        self._schema = b""
        self._key: list[str] = []
        self._events = 0
        self._is_truncated = False

    def add(self, key: bytes | None, headers: dict[str, bytes], value: bytes) -> None:
        """Apply the next event."""
        event = decode_event(value)
        self._schema = bytes(event.schema)
        self._events += 1
        lsn = event.payload.source.lsn or 0
        match event.payload.op:
            case "t":
                self._rows.clear()
                self._is_truncated = True
            case "d":
                self._delete(_required(key), headers.get(NEW_KEY), lsn)
            case "r" | "c" | "u":
                after = event.payload.after or {}
                is_complete = event.payload.op != "u" and OLD_KEY not in headers
                self._write(_required(key), after, lsn, is_complete)
            case other:
                raise ValueError(f"change events of kind {other!r} are unknown")

    def result(self) -> TableChanges:
        """Return the last states."""
        columns = _columns(self._schema) if self._schema else []
        rows = list(self._rows.values())
        return TableChanges(self._key, columns, rows, self._events, self._is_truncated)

    def _write(self, key: bytes, after: Values, lsn: int, is_complete: bool) -> None:
        row = self._rows.get(key)
        if row is None or row.is_deleted or is_complete:
            row = self._rows[key] = RowChange(self._decoded(key), {}, lsn, is_complete=is_complete)
        row.lsn = lsn
        row.values.update({name: value for name, value in after.items() if value != UNAVAILABLE})

    def _delete(self, key: bytes, new_key: bytes | None, lsn: int) -> None:
        decoded = self._decoded(key)
        row = self._rows.get(key) or RowChange(decoded, {}, lsn)
        self._rows[key] = RowChange(decoded, dict(decoded), lsn, is_deleted=True)
        if new_key is None:
            return
        # The creation with the other new values may be in the next batch.
        moved = self._decoded(new_key)
        row.origin = row.origin or row.key
        row.key, row.lsn = moved, lsn
        row.values.update(moved)
        self._rows[new_key] = row

    def _decoded(self, key: bytes) -> Values:
        decoded = _decode_key(key)
        self._key = list(decoded)
        return decoded


def _required(key: bytes | None) -> bytes:
    if key is None:
        raise ValueError("the table has no primary key: its changes belong to no row")
    return key


class _Schema(msgspec.Struct):
    fields: list[dict[str, Any]]


def _columns(schema: bytes) -> list[Column]:
    fields = msgspec.json.decode(schema, type=_Schema).fields
    (after,) = (each for each in fields if each["field"] == "after")
    return msgspec.convert(after["fields"], list[Column])
