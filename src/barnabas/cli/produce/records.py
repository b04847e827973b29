"""Conversion of lines, JSON lines and whole files to records."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.cli.common.record_formats import Format

__all__ = ["Options", "Record", "Run", "json_record", "runs"]

_INT32_MAX = (1 << 31) - 1
_INT64_MAX = (1 << 63) - 1
# Part of an invalid line that an error message shows.
_SHOWN_BYTES = 80

# Key, value, headers, and timestamp in ms or None.
Record = tuple[bytes | None, bytes | None, "Sequence[tuple[str, bytes | None]]", int | None]


class Options(NamedTuple):
    """The options for the conversion of input to records."""

    # Separator between key and value in a line.
    separator: bytes | None = None
    # Defaults for records that do not specify these themselves.
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp: int | None = None
    empty_is_null: bool = False
    from_json: bool = False
    key_format: Format | None = None
    value_format: Format | None = None


class Run(NamedTuple):
    """Records for one partition; None: the partitioner chooses by key."""

    partition: int | None
    records: list[Record]


def runs(lines: Sequence[bytes], options: Options, first: int = 1) -> Iterator[Run]:
    """Yield the records of some lines, in order. Records before an invalid line are yielded first.

    Args:
        lines: Lines of the input, without their delimiters.
        options: The conversion to records.
        first: Number of the first line, for error messages.

    Raises:
        ValueError: A line cannot be converted; the message shows the number and the line.
    """
    if not options.from_json:
        yield from _plain_runs(lines, options, first)
        return
    run = Run(None, [])
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            record, partition = json_record(line, options)
        except ValueError as error:
            yield run
            raise _at_line(number, error, line) from None
        if partition != run.partition and run.records:
            yield run
            run = Run(partition, [])
        run = run if partition == run.partition else Run(partition, run.records)
        run.records.append(record)
    yield run


def _at_line(number: int, error: ValueError, line: bytes) -> ValueError:
    shown = line[:_SHOWN_BYTES].decode(errors="replace") + "…" * (len(line) > _SHOWN_BYTES)
    return ValueError(f"line {number}: {error}: {shown}")


def _plain_runs(lines: Sequence[bytes], options: Options, first: int) -> Iterator[Run]:
    headers, timestamp, partition = options.headers, options.timestamp, options.partition
    plain = options.separator is None and options.value_format is None
    if plain and not options.empty_is_null:
        yield Run(partition, [(options.key, line, headers, timestamp) for line in lines])
        return
    records: list[Record] = []
    for number, line in enumerate(lines, first):
        try:
            key, value = _key_and_value(line, options)
        except ValueError as error:
            yield Run(partition, records)
            raise _at_line(number, error, line) from None
        records.append((key, value, headers, timestamp))
    yield Run(partition, records)


def _key_and_value(line: bytes, options: Options) -> tuple[bytes | None, bytes | None]:
    key, value = options.key, line
    if options.separator is not None:
        before, found, after = line.partition(options.separator)
        if found:
            key, value = before, after
            if options.key_format is not None and (key or not options.empty_is_null):
                key = _written(key, options.key_format, "key")
    if options.empty_is_null and not value:
        return key or None, None
    if options.value_format is not None:
        return key, _written(value, options.value_format, "value")
    return (key or None if options.empty_is_null else key), value


def _written(data: bytes, how: Format, what: str) -> bytes | None:
    try:
        return how.write(data.decode())
    except (TypeError, ValueError) as error:
        raise ValueError(f"the {what} cannot be encoded: {error}") from None


# JSON lines


def json_record(line: bytes, options: Options) -> tuple[Record, int | None]:
    """Return the record of a JSON line, and its partition.

    Raises:
        ValueError: The line is invalid; the message shows the reason.
    """
    try:
        fields = json.loads(line)
    except ValueError as error:
        raise ValueError(f"not a JSON line ({error})") from None
    if not isinstance(fields, dict) or not ("value" in fields or "value_base64" in fields):
        raise ValueError('a JSON line is an object with "value"')
    try:
        headers = [*options.headers, *_json_headers(fields.get("headers"))]
        key = _json_member(fields, "key", options.key_format)
        value = _json_member(fields, "value", options.value_format)
        timestamp = _json_number(fields, "timestamp", _INT64_MAX)
        partition = _json_number(fields, "partition", _INT32_MAX)
    except TypeError as error:
        raise ValueError(str(error)) from None
    record = (
        options.key if key is None else key,
        value,
        headers,
        options.timestamp if timestamp is None else timestamp,
    )
    return record, partition if options.partition is None else options.partition


def _json_headers(given: Any) -> list[tuple[str, bytes | None]]:
    """Return headers from an object, or from a list of pairs, which may repeat a name."""
    pairs = list(given.items()) if isinstance(given, dict) else given or []
    if not isinstance(pairs, list) or any(
        not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs
    ):
        raise ValueError('"headers" is neither an object nor a list of [name, value]')
    return [(str(name), _json_value(value)) for name, value in pairs]


def _json_number(fields: dict[str, Any], name: str, most: int) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= most:
        raise ValueError(f'"{name}" is not an integer from 0 to {most}')
    return number


def _json_member(fields: dict[str, Any], name: str, how: Format | None) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return _decoded(encoded)
    value = fields.get(name)
    if how is None:
        return _json_value(value)
    return None if value is None else how.write(value)


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        raise ValueError(f"{text!r} is not base64") from None


def _json_value(value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and list(value) == ["base64"]:
        return _decoded(value["base64"])
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
