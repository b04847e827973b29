"""Infers the columns of JSON values from a sample of a topic's newest records.

The types are those that Spark infers (`schema_of_json`, `spark.read.json`): integers are BIGINT, or
a decimal where they are longer; numbers of both kinds are DOUBLE; other conflicts become STRING.
Fields are sorted by name, and every field may be null. Text stays STRING unless the caller asks for
times.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.client.topic_partition import TopicPartition
from barnabas.spark.topics.offsets import limit_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.facade import Client


# The records that are sampled if the caller does not say how many.
SAMPLE_SIZE = 1000
# Objects with keys such as ids would make a column of each.
_FIELDS_MAX = 2000
_BIGINT_MAX = (1 << 63) - 1
# Spark's decimals have at most 38 digits; a BIGINT fits into 20.
_DECIMAL_DIGITS_MAX = 38
_BIGINT_DIGITS = 20
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class InferenceError(ValueError):
    """The sample has no columns."""


@dataclass(slots=True)
class _Node:
    """The types of the values at one place of the sample."""

    # The names of Spark's types without parts: BIGINT, DECIMAL(20,0), DOUBLE, BOOLEAN, STRING, …
    plain: set[str] = field(default_factory=set)
    # The fields of objects; None if no value is an object.
    fields: dict[str, _Node] | None = None
    # The items of arrays; None if no value is an array.
    items: _Node | None = None


@dataclass(frozen=True, slots=True)
class InferredColumns:
    """The columns of a sample."""

    # Name and type of each column, sorted by name.
    columns: tuple[tuple[str, str], ...]
    # Sampled values that are JSON objects.
    objects: int
    # Sampled values that are not; null values do not count.
    others: int
    # A sentence for each place whose values have several types.
    widened: tuple[str, ...]

    def ddl(self) -> str:
        """Return the columns as Spark's DDL."""
        return ", ".join(f"{_quoted(name)} {kind}" for name, kind in self.columns)


def infer_topic(
    client: Client, topic: str, sample: int, *, with_times: bool = False
) -> InferredColumns:
    """Return the columns of the newest records of a topic.

    Args:
        client: The client to read with.
        topic: The topic.
        sample: About how many records to read, from each partition in proportion to its size.
        with_times: Whether text in the form of ISO 8601 becomes DATE or TIMESTAMP.

    Raises:
        InferenceError: No sampled value is a JSON object, or the objects have too many fields.
        UnknownTopicError: The topic does not exist.
        ClientError: The records cannot be read.
    """
    try:
        return infer_columns(_newest(client, topic, sample), with_times=with_times)
    except InferenceError as error:
        raise InferenceError(f"topic {topic}: {error}") from None


def infer_columns(values: Iterable[bytes], *, with_times: bool = False) -> InferredColumns:
    """Return the columns of JSON values.

    Raises:
        InferenceError: No value is a JSON object, or the objects have too many fields.
    """
    inference = _Inference(with_times)
    objects = others = 0
    for data in values:
        try:
            value = msgspec.json.decode(data)
            if isinstance(value, dict):
                objects += 1
                inference.add(inference.root, value)
                continue
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass
        others += 1
    if not objects:
        raise InferenceError(
            f"none of {others} sampled values is a JSON object"
            if others
            else "there is no value to infer columns from"
        )
    widened: list[str] = []
    fields = inference.root.fields or {}
    named = ((name, _type(fields[name], _quoted(name), widened)) for name in sorted(fields))
    columns = tuple((name, kind) for name, kind in named if kind is not None)
    if not columns:
        raise InferenceError("the sampled objects have no fields")
    return InferredColumns(columns, objects, others, tuple(widened))


class _Inference:
    """Collects the types of the values of a sample."""

    def __init__(self, with_times: bool) -> None:
        self.root = _Node()
        self._with_times = with_times
        self._fields = 0

    def add(self, node: _Node, value: Any) -> None:
        """Add one value; null has no type."""
        if isinstance(value, dict):
            if node.fields is None:
                node.fields = {}
            for name, each in value.items():
                if name not in node.fields:
                    self._fields += 1
                    if self._fields > _FIELDS_MAX:
                        raise InferenceError(
                            f"the sampled objects have more than {_FIELDS_MAX} different fields; "
                            f"write valueSchema by hand, with MAP<STRING, …> for objects whose "
                            f"keys are data"
                        )
                    node.fields[name] = _Node()
                self.add(node.fields[name], each)
        elif isinstance(value, list):
            if node.items is None:
                node.items = _Node()
            for each in value:
                self.add(node.items, each)
        elif value is not None:
            node.plain.add(self._plain_type(value))

    def _plain_type(self, value: Any) -> str:
        if isinstance(value, bool):
            return "BOOLEAN"
        if isinstance(value, float):
            return "DOUBLE"
        if isinstance(value, int):
            if -_BIGINT_MAX - 1 <= value <= _BIGINT_MAX:
                return "BIGINT"
            digits = _digits(value)
            return f"DECIMAL({digits},0)" if digits <= _DECIMAL_DIGITS_MAX else "DOUBLE"
        return _time_type(value) if self._with_times else "STRING"


def _digits(value: int) -> int:
    size = abs(value)
    return next((n for n in range(1, _DECIMAL_DIGITS_MAX + 1) if size < 10**n), 1 << 10)


def _time_type(text: str) -> str:
    try:
        time = dt.datetime.fromisoformat(text)
    except ValueError:
        return "STRING"
    if re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return "DATE"
    if not re.match(r"\d{4}-\d\d-\d\dT\d\d:", text):
        return "STRING"
    return "TIMESTAMP_NTZ" if time.tzinfo is None else "TIMESTAMP"


def _type(node: _Node, path: str, widened: list[str]) -> str | None:
    """Return Spark's type of a place; None for objects that never have a field.

    Args:
        node: What was found there.
        path: The place, for `widened`.
        widened: Receives a sentence for each place whose values have several types.
    """
    found = [*sorted(node.plain)]
    if node.fields is not None:
        found.append("objects")
    if node.items is not None:
        found.append("arrays")
    if not node.plain and len(found) == 1:
        if node.fields is not None:
            return _struct_type(node.fields, path, widened)
        assert node.items is not None
        item = _type(node.items, f"{path}[]", widened)
        return None if item is None else f"ARRAY<{item}>"
    if not found:
        return "STRING"
    kind = found[0] if len(found) == 1 else _wider(found)
    if len(found) > 1:
        widened.append(f"{path} is {kind}, because its values are {' and '.join(found)}")
    return kind


def _struct_type(fields: dict[str, _Node], path: str, widened: list[str]) -> str | None:
    parts = []
    for name in sorted(fields):
        kind = _type(fields[name], f"{path}.{_quoted(name)}", widened)
        if kind is not None:
            parts.append(f"{_quoted(name)}: {kind}")
    return f"STRUCT<{', '.join(parts)}>" if parts else None


def _wider(kinds: list[str]) -> str:
    """Return the type that holds the values of several types."""
    decimals = [kind for kind in kinds if kind.startswith("DECIMAL")]
    numbers = {"BIGINT", "DOUBLE", *decimals}
    if not numbers.issuperset(kinds):
        return "STRING"
    if "DOUBLE" in kinds:
        return "DOUBLE"
    digits = max(_BIGINT_DIGITS, *(int(kind[8:-3]) for kind in decimals))
    return f"DECIMAL({digits},0)"


def _quoted(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _newest(client: Client, topic: str, sample: int) -> Iterable[bytes]:
    """Yield the values of the newest records of a topic, without null values."""
    partitions = client.describe_topics([topic])[topic].partitions
    targets = [TopicPartition(topic, each) for each in sorted(partitions)]
    found = client.list_offsets(dict.fromkeys(targets, "earliest"))
    first = {tp: each.offset for tp, each in found.items()}
    found = client.list_offsets(dict.fromkeys(targets, "latest"))
    last = {tp: each.offset for tp, each in found.items()}
    shares = limit_offsets(first, last, sample)
    ranges = {tp: (last[tp] - (shares[tp] - first[tp]), last[tp]) for tp in targets}
    wanted = {tp: each for tp, each in ranges.items() if each[0] < each[1]}
    if wanted:
        with client.stream(wanted) as stream:
            yield from (each.value for each in stream.records() if each.value is not None)
