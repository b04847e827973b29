"""Records as JSON lines, in the format that `barnabas produce --from-json` reads."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.cli.consume.templates import Reading, Render, field

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.cli.common.record_formats import Format
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.compiled import CompiledRecord

__all__ = ["json_lines"]

_TIMESTAMP_TYPES = {0: "create", 1: "log_append"}


def json_lines(reading: Reading) -> Callable[[TopicPartition], Render]:
    """Return a function that creates the renderer of a partition.

    Bytes that are not UTF-8 are in `key_base64` and `value_base64`.
    """
    encode = msgspec.json.Encoder().encode_lines

    def of_partition(tp: TopicPartition) -> Render:
        place = {"topic": tp.topic, "partition": tp.partition}

        def one(record: CompiledRecord) -> dict[str, Any]:
            return {
                **place,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "timestamp_type": _TIMESTAMP_TYPES.get(record.timestamp_type, "none"),
                **_member(record, tp, "key", reading.key),
                **_member(record, tp, "value", reading.value),
                "headers": [[name, _header(value)] for name, value in record.headers],
            }

        def render(records: Sequence[CompiledRecord]) -> bytes:
            return encode(map(one, records))

        return render

    return of_partition


def _member(
    record: CompiledRecord, tp: TopicPartition, what: str, how: Format | None
) -> dict[str, Any]:
    value = field(record, tp, what, how)
    if not isinstance(value, bytes):
        return {what: value}
    try:
        return {what: value.decode()}
    except UnicodeDecodeError:
        return {f"{what}_base64": base64.b64encode(value).decode()}


def _header(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
