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

# Larger data points are left out.
POINT_BYTES_MAX = 4096
# Field numbers from MetricsData to a metric: resource metrics, scope metrics, metric.
_METRIC_PATH = (1, 2, 2)
# Field number from the data of a metric to its points.
_POINT_PATH = (1,)
_NOTHING = memoryview(b"")


class _Kind(NamedTuple):
    """A kind of data."""

    name: str
    # Field number of the labels in a point.
    labels_field: int
    is_distribution: bool


# Kinds of data by their field numbers in a metric.
_KINDS = {
    5: _Kind("gauge", 7, False),
    7: _Kind("sum", 7, False),
    9: _Kind("histogram", 9, True),
    10: _Kind("exponential_histogram", 1, True),
    11: _Kind("summary", 7, True),
}


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


class MetricsReader:
    """Reads one MetricsData message, in small steps and without recursion."""

    __slots__ = ("visits",)

    def __init__(self) -> None:
        # Number of visited fields. A visit takes about a microsecond.
        self.visits = 0

    def points(self, metrics: bytes | memoryview) -> Iterator[MetricPoint | None]:
        """Yield the data points in order, and None at least once for any other field.

        Large data points are left out, so that each step visits a limited number of fields.

        Raises:
            OtlpError: the message is malformed.
        """
        for metric in self._nested(memoryview(metrics), _METRIC_PATH):
            yield None
            if metric is None:
                continue
            # The name may come after the data, of which a metric has one kind.
            name, made, data = "", None, _NOTHING
            for number, kind, value in self._fields(metric):
                if kind == _BYTES and not isinstance(value, int):
                    if number == 1:
                        name = _text(value)
                    elif number in _KINDS:
                        made, data = _KINDS[number], value
                yield None
            for point in self._nested(data, _POINT_PATH):
                if made is None or point is None or len(point) > POINT_BYTES_MAX:
                    yield None
                else:
                    yield self._point(name, made, point)

    def _point(self, name: str, kind: _Kind, point: memoryview) -> MetricPoint:
        labels: dict[str, str] = {}
        count, total, number_value = 0, 0.0, 0.0
        for number, wire, value in self._fields(point):
            if number == kind.labels_field and not isinstance(value, int):
                key, text = self._label(value)
                labels[key] = text
            elif wire == _FIXED_64 and isinstance(value, int):
                if number == 4:
                    count, number_value = value, _double(value)
                elif number == 5:
                    total = _double(value)
                elif number == 6:
                    number_value = _signed(value)
        if kind.is_distribution:
            return MetricPoint(name, kind.name, {"count": count, "sum": total}, labels)
        return MetricPoint(name, kind.name, number_value, labels)

    def _label(self, pair: memoryview) -> tuple[str, str]:
        """Return the key and the value of a KeyValue message, both as text."""
        key, text = "", ""
        for number, kind, value in self._fields(pair):
            if number == 1 and kind == _BYTES:
                key = _text(value)
            elif number == 2 and not isinstance(value, int):
                text = self._any_value(value)
        return key, text

    def _any_value(self, message: memoryview) -> str:
        for number, kind, value in self._fields(message):
            if number == 1 and kind == _BYTES:
                return _text(value)
            if number == 2 and kind == _VARINT:
                return "true" if value else "false"
            if number == 3 and isinstance(value, int):
                return str(_signed(value))
            if number == 4 and kind == _FIXED_64 and isinstance(value, int):
                return str(_double(value))
        return ""

    def _nested(self, message: memoryview, path: tuple[int, ...]) -> Iterator[memoryview | None]:
        """Yield the messages at a path of field numbers, and None after any other field."""
        levels = [self._fields(message)]
        while levels:
            field = next(levels[-1], None)
            if field is None:
                levels.pop()
                continue
            number, _, value = field
            if number != path[len(levels) - 1] or isinstance(value, int):
                yield None
            elif len(levels) == len(path):
                yield value
            else:
                levels.append(self._fields(value))
                yield None

    def _fields(self, message: memoryview) -> Iterator[Field]:
        """Yield number, wire type and value of each field. Only type 2 has bytes as value."""
        position, end = 0, len(message)
        while position < end:
            self.visits += 1
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


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


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
