"""Decoder of pushed metrics: OpenTelemetry's MetricsData in protobuf, as in KIP-714.

Only names, labels and values of metrics are decoded. Unknown fields are skipped, as protobuf
requires. A dependency for these few messages would cost more than it saves.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    Field = tuple[int, int, "int | memoryview"]

_VARINT, _FIXED_64, _BYTES, _FIXED_32 = 0, 1, 2, 5
_VARINT_BYTES_MAX = 10

# Kinds of data in a Metric by field number. Each kind is a message with data points in field 1.
_NUMBERS = {5: "gauge", 7: "sum"}
_DISTRIBUTIONS = {9: "histogram", 10: "exponential_histogram", 11: "summary"}


class OtlpError(ValueError):
    """The bytes are not a valid MetricsData message."""


class MetricPoint(NamedTuple):
    """One data point of a metric."""

    name: str
    # "gauge", "sum", "histogram", "exponential_histogram" or "summary".
    kind: str
    # For distributions: count and sum.
    value: float | dict[str, float]
    labels: dict[str, str]


def read_metrics(data: bytes | memoryview) -> Iterator[MetricPoint]:
    """Yield the data points of a MetricsData message in order.

    Raises:
        OtlpError: the message is malformed.
    """
    for resource_metrics in _messages(memoryview(data), 1):
        for scope_metrics in _messages(resource_metrics, 2):
            for metric in _messages(scope_metrics, 2):
                yield from _points(metric)


def _points(metric: memoryview) -> Iterator[MetricPoint]:
    name = ""
    for number, kind, value in _fields(metric):
        if number == 1 and kind == _BYTES:
            name = _text(value)
    for number, kind, value in _fields(metric):
        if kind != _BYTES or isinstance(value, int):
            continue
        if number in _NUMBERS:
            for point in _messages(value, 1):
                yield MetricPoint(name, _NUMBERS[number], _number(point), _labels(point, 7))
        elif number in _DISTRIBUTIONS:
            labels = 9 if _DISTRIBUTIONS[number] == "histogram" else 7
            if _DISTRIBUTIONS[number] == "exponential_histogram":
                labels = 1
            for point in _messages(value, 1):
                yield MetricPoint(
                    name, _DISTRIBUTIONS[number], _distribution(point), _labels(point, labels)
                )


def _number(point: memoryview) -> float:
    for number, kind, value in _fields(point):
        if kind == _FIXED_64 and isinstance(value, int):
            if number == 4:
                return _double(value)
            if number == 6:
                return value - (1 << 64) if value >> 63 else value
    return 0.0


def _distribution(point: memoryview) -> dict[str, float]:
    found: dict[str, float] = {"count": 0, "sum": 0.0}
    for number, kind, value in _fields(point):
        if kind == _FIXED_64 and isinstance(value, int):
            if number == 4:
                found["count"] = value
            elif number == 5:
                found["sum"] = _double(value)
    return found


def _labels(point: memoryview, field: int) -> dict[str, str]:
    """Return the KeyValue messages in a field as text."""
    labels: dict[str, str] = {}
    for pair in _messages(point, field):
        key, text = "", ""
        for number, kind, value in _fields(pair):
            if number == 1 and kind == _BYTES:
                key = _text(value)
            elif number == 2 and kind == _BYTES and not isinstance(value, int):
                text = _any_value(value)
        labels[key] = text
    return labels


def _any_value(message: memoryview) -> str:
    for number, kind, value in _fields(message):
        if number == 1 and kind == _BYTES:
            return _text(value)
        if number == 2 and kind == _VARINT:
            return "true" if value else "false"
        if number == 3 and isinstance(value, int):
            return str(value - (1 << 64) if value >> 63 else value)
        if number == 4 and kind == _FIXED_64 and isinstance(value, int):
            return str(_double(value))
    return ""


def _messages(message: memoryview, field: int) -> Iterator[memoryview]:
    for number, kind, value in _fields(message):
        if number == field and kind == _BYTES and not isinstance(value, int):
            yield value


def _fields(message: memoryview) -> Iterator[Field]:
    """Yield number, wire type and value of each field."""
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == _VARINT:
            value, position = _varint(message, position)
            yield tag >> 3, kind, value
            continue
        if kind == _BYTES:
            size, position = _varint(message, position)
        else:
            size = {_FIXED_64: 8, _FIXED_32: 4}.get(kind, -1)
        if not 0 <= size <= end - position:
            raise OtlpError(f"a field of type {kind} is invalid or truncated")
        part = message[position : position + size]
        position += size
        yield tag >> 3, kind, part if kind == _BYTES else int.from_bytes(part, "little")


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        if position >= len(message):
            break
        byte = message[position]
        position += 1
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, position
    raise OtlpError("a number is cut off or too long")


def _double(bits: int) -> float:
    value: float = struct.unpack("<d", bits.to_bytes(8, "little"))[0]
    return value


def _text(value: int | memoryview) -> str:
    if isinstance(value, int):
        raise OtlpError("a string field has a number")
    try:
        return str(value, "utf-8")
    except UnicodeDecodeError as error:
        raise OtlpError("a string field is not UTF-8") from error
