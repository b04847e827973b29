"""Keys, values and headers as people read them: JSON, text, or a dump of bytes.

Records can be large, and any producer can write anything. All output is bounded. Only messages that
are shown are decoded. Values with a schema are shown as JSON: the console asks the schema registry,
and never waits long for it. What cannot be decoded is shown as bytes, with the reason.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.serializers.any_schema import AnyDeserializer
from barnabas.serializers.caches import BoundedCache
from barnabas.serializers.errors import RegistryError, SchemaError
from barnabas.serializers.lookups import SchemaLookup
from barnabas.serializers.schema import schema_id_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.client.fetch.record_set import ConsumerRecord
    from barnabas.runtime.clock import Clock
    from barnabas.serializers.registry import SchemaRegistry

# Lookups for one set of records; a record with any other id is shown as bytes.
_LOOKUPS_MAX = 20
# A failed lookup is not repeated for this time (ms).
_FAILURE_MS = 10_000
_FAILURES_MAX = 1000
# The event loop decodes. After a record that took longer (ms), those of its schema stay bytes for
# the same time.
_SLOW_MS = 1000
_REASON_CHARACTERS = 200


# Bytes of a value in a list of messages, and on a message's own page.
LISTED_BYTES = 2 * 1024
FULL_BYTES = 64 * 1024


class Shown:
    """Shows keys and values as bytes; the base of the decoder, for consoles without a registry."""

    async def look_up(self, records: Iterable[ConsumerRecord]) -> None:
        """Look up the schemas of these records."""

    def show(self, data: bytes | None, limit: int) -> ShownBytes:
        """Return a key or a value as a page shows it."""
        return shown_bytes(data, limit)


class MessageDecoder(Shown):
    """Decodes keys and values by their schemas.

    Args:
        registry: The registry.
        clock: Measures the time since a failure.
    """

    def __init__(self, registry: SchemaRegistry, clock: Clock) -> None:
        self._deserializer = AnyDeserializer(registry)
        self._clock = clock
        # By schema id: the time (ms) of a failed lookup or a slow record, and the reason.
        self._failures: BoundedCache[int, tuple[float, str]] = BoundedCache(_FAILURES_MAX)

    async def look_up(self, records: Iterable[ConsumerRecord]) -> None:
        """Look up the schemas of these records in a thread; failures are kept as reasons."""
        missing: dict[int, SchemaLookup] = {}
        for record in records:
            for data in (record.key, record.value):
                found = self._missing(data)
                if found is not None and len(missing) < _LOOKUPS_MAX:
                    missing.setdefault(*found)
        if missing:
            await asyncio.get_running_loop().run_in_executor(None, self._run, missing)

    def show(self, data: bytes | None, limit: int) -> ShownBytes:
        """Return a key or a value as JSON, or as bytes with the reason if it cannot be decoded."""
        plain = shown_bytes(data, limit)
        if data is None or not _may_have_schema(data):
            return plain
        schema_id = schema_id_of(data)
        started_ms = self._clock.monotonic_ms()
        failure = self._recent_failure(schema_id)
        if failure:
            return plain._replace(note=failure)
        try:
            value = self._deserializer.without_blocking(data)
            text = value if isinstance(value, str) else None
            content = msgspec.json.encode(value) if text is None else text.encode()
        except SchemaLookup:
            known = self._failures.get(schema_id)
            reason = "its schema was not looked up" if known is None else known[1]
            return plain._replace(note=reason)
        except (SchemaError, TypeError, ValueError, RecursionError) as error:
            return plain._replace(note=str(error)[:_REASON_CHARACTERS])
        finally:
            ended_ms = self._clock.monotonic_ms()
            if ended_ms - started_ms > _SLOW_MS:
                reason = f"records of schema {schema_id} take too long to decode: wait ten seconds"
                self._failures.put(schema_id, (ended_ms, reason))
        shown = shown_bytes(content, limit)
        return shown._replace(size=len(data), note=f"schema {schema_id}")

    def _recent_failure(self, schema_id: int) -> str:
        """Return why records of this schema are not decoded now; "" if they are."""
        failure = self._failures.get(schema_id)
        is_recent = failure is not None and self._clock.monotonic_ms() - failure[0] < _FAILURE_MS
        return failure[1] if failure is not None and is_recent else ""

    def _missing(self, data: bytes | None) -> tuple[int, SchemaLookup] | None:
        """Return the schema id of a key or value, and its lookup if it is needed."""
        if data is None or not _may_have_schema(data):
            return None
        schema_id = schema_id_of(data)
        if self._recent_failure(schema_id):
            return None
        if self._deserializer.knows(schema_id):
            return None
        return schema_id, SchemaLookup(lambda: self._deserializer.look_up(schema_id))

    def _run(self, missing: dict[int, SchemaLookup]) -> None:
        """Run lookups in a thread. After an error of the registry, the others fail like it."""
        unreachable = ""
        for schema_id, lookup in missing.items():
            reason = unreachable
            if not unreachable:
                try:
                    lookup.run()
                    continue
                except RegistryError as error:
                    unreachable = reason = str(error)
                except (SchemaError, ModuleNotFoundError) as error:
                    reason = str(error)
            failed_at = self._clock.monotonic_ms()
            self._failures.put(schema_id, (failed_at, reason[:_REASON_CHARACTERS]))


def _may_have_schema(data: bytes) -> bool:
    """Return whether bytes may begin with a schema id, and are few enough to decode on the loop."""
    return 5 <= len(data) <= FULL_BYTES and data[0] == 0 and data[1] < 0x80


# In a list, JSON up to this size is shown on one line.
_LINE_BYTES = 300
_DUMPED_BYTES = 512
_DUMP_WIDTH = 16
# Indented JSON grows with its depth.
_DEPTH_MAX = 32
_HEADERS_MAX = 50
_HEADER_BYTES = 256
# A character in UTF-8 has up to four bytes, so a cut leaves up to three.
_CHARACTER_BYTES = 3


class ShownBytes(NamedTuple):
    """Bytes as text, and what they are."""

    # "null", "empty", "json", "text" or "bytes".
    kind: str
    text: str
    # Number of bytes, including those that are not shown.
    size: int
    is_cut: bool
    # The schema by which the bytes were decoded, or why they were not; "" for bytes without one.
    note: str = ""


def shown_bytes(data: bytes | None, limit: int) -> ShownBytes:
    """Return the text for a key or a value.

    Args:
        data: The bytes; None for null.
        limit: Number of bytes that are shown.
    """
    if data is None:
        return ShownBytes("null", "", 0, is_cut=False)
    size = len(data)
    if not size:
        return ShownBytes("empty", "", 0, is_cut=False)
    part = bytes(data[:limit])
    text = _decoded(part, is_cut=size > limit)
    if text is None:
        part = part[:_DUMPED_BYTES]
        return ShownBytes("bytes", _dump(part), size, is_cut=size > len(part))
    if size <= limit:
        is_short = limit <= LISTED_BYTES and size <= _LINE_BYTES
        json_text = _json_text(part, indent=0 if is_short else 2)
        if json_text is not None:
            return ShownBytes("json", json_text, size, is_cut=False)
    return ShownBytes("text", text, size, is_cut=size > limit)


def shown_headers(headers: Sequence[tuple[str, bytes | None]]) -> list[tuple[str, ShownBytes]]:
    """Return the first headers of a record."""
    return [
        (name[:_HEADER_BYTES], shown_bytes(value, _HEADER_BYTES))
        for name, value in headers[:_HEADERS_MAX]
    ]


def _decoded(data: bytes, *, is_cut: bool) -> str | None:
    """Return the text if the bytes are UTF-8 without NUL, else None."""
    if b"\0" in data:
        return None
    for left_out in range(_CHARACTER_BYTES + 1 if is_cut else 1):
        try:
            return data[: len(data) - left_out].decode()
        except UnicodeDecodeError:
            continue
    return None


def _json_text(data: bytes, indent: int) -> str | None:
    """Return an object or an array as readable JSON; None for anything else.

    Args:
        data: The bytes.
        indent: Spaces per level; 0 for all on one line.
    """
    if data.lstrip()[:1] not in (b"{", b"[") or _depth(data) > _DEPTH_MAX:
        return None
    try:
        # Unlike a decoder, this keeps numbers, the order of members, and repeated names.
        msgspec.json.decode(data, type=msgspec.Raw)
        return msgspec.json.format(data, indent=indent).decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _depth(data: bytes) -> int:
    """Return at least the depth of a JSON text: brackets inside strings count too."""
    deepest = depth = 0
    for byte in data:
        if byte in b"{[":
            depth += 1
            deepest = max(deepest, depth)
        elif byte in b"}]":
            depth -= 1
    return deepest


def _dump(data: bytes) -> str:
    """Return offsets, hexadecimal digits and printable characters."""
    lines = []
    for start in range(0, len(data), _DUMP_WIDTH):
        row = data[start : start + _DUMP_WIDTH]
        letters = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:04x}  {row.hex(' '):<{3 * _DUMP_WIDTH}} {letters}")
    return "\n".join(lines)
