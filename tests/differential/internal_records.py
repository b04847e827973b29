"""Records of internal topics, with generated and time-dependent values normalized."""

from __future__ import annotations

import difflib
import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import (
    decode_coordinator_key,
    decode_coordinator_value,
    encode_coordinator_key,
    encode_coordinator_value,
    read_prefix,
)
from barnabas.protocol.records.classic_groups import OffsetCommitKey, OffsetCommitValue
from barnabas.protocol.records.coordinator_logs import TransactionLogKey, TransactionLogValue
from barnabas.record.batch import batches
from barnabas.record.reader import records_of
from differential.rules import HOUR_MS
from differential.scene import exchange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.record.batch import BatchHeader
    from differential.side import Side

TRANSACTION_TOPIC, OFFSETS_TOPIC = "__transaction_state", "__consumer_offsets"
# Replaces times of the test's run in the comparison.
NOW = 1


def differing(kafka: list[str], ours: list[str]) -> str:
    """Return the lines that only one of two lists contains."""
    lines = difflib.unified_diff(kafka, ours, "Kafka", "Barnabas", lineterm="", n=0)
    return "\n".join(lines)


class Stored(NamedTuple):
    """A record of an internal topic, with the header of its batch."""

    partition: int
    header: BatchHeader
    key: bytes
    value: bytes | None

    def batch(self) -> str:
        """Return the fields of the batch that do not depend on other records of the log.

        The sequence of a batch without producer is ignored: Kafka's group coordinator writes 0, all
        others write -1.
        """
        header = self.header
        sequence = header.base_sequence if header.has_producer_id else None
        epoch = header.producer_epoch
        return f"attributes={header.attributes:#x} epoch={epoch} sequence={sequence}"


class Producers:
    """Numbers producer ids in the order in which records name them."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}

    def number(self, producer_id: int) -> int:
        """Return the number of a producer id, which is the same for each occurrence; -1 for -1."""
        if producer_id < 0:
            return producer_id
        return self._numbers.setdefault(producer_id, len(self._numbers))


def stored(side: Side, topic: str, partitions: int) -> Iterator[Stored]:
    """Yield all records of an internal topic, partition by partition."""
    for partition in range(partitions):
        offset = 0
        while True:
            requested = {"partition": partition, "fetch_offset": offset}
            topics = [
                {"topic": topic, "partitions": [{**requested, "partition_max_bytes": 1 << 24}]}
            ]
            fetch = {"max_wait_ms": 0, "min_bytes": 0, "session_epoch": -1, "topics": topics}
            (response,) = exchange(side, ApiKey.FETCH, 12, fetch).responses[0].partitions
            assert response.error_code == ErrorCode.NONE, f"{side.name}: {response}"
            data = bytes(response.records or b"")
            before = offset
            for position, header in batches(data):
                for record in records_of(data, position, header):
                    if record.offset >= before:
                        value = None if record.value is None else bytes(record.value)
                        yield Stored(partition, header, bytes(record.key or b""), value)
                offset = header.next_offset
            if offset == before:
                break


def transactions(side: Side, ids: list[str], partitions: int) -> list[str]:
    """Return the records of these transactional ids as comparable text, id by id."""
    found: dict[str, list[Stored]] = {each: [] for each in ids}
    for each in stored(side, TRANSACTION_TOPIC, partitions):
        transactional_id = decode_coordinator_key(TransactionLogKey, each.key).transactional_id
        if transactional_id in found:
            found[transactional_id].append(each)
    producers = Producers()
    lines = []
    for transactional_id, records in found.items():
        lines += [f"{transactional_id}: {len(records)} records"]
        for each in records:
            words = "tombstone" if each.value is None else _transaction(each.value, producers)
            lines.append(f"partition={each.partition} {each.batch()} {each.key.hex()} {words}")
    return lines


def _transaction(content: bytes, producers: Producers) -> str:
    """Return the bytes of a value and its fields as text."""
    value = decode_coordinator_value(TransactionLogValue, content)
    version = read_prefix(content)
    assert encode_coordinator_value(value, version) == content, f"{value} {content.hex()}"
    value.producer_id = producers.number(value.producer_id)
    value.previous_producer_id = producers.number(value.previous_producer_id)
    value.next_producer_id = producers.number(value.next_producer_id)
    value.transaction_last_update_timestamp_ms = _time(value.transaction_last_update_timestamp_ms)
    value.transaction_start_timestamp_ms = _time(value.transaction_start_timestamp_ms)
    # Kafka writes partitions in the order of a hash table.
    for topic in value.transaction_partitions or ():
        topic.partition_ids.sort()
    if value.transaction_partitions:
        value.transaction_partitions.sort(key=lambda each: each.topic)
    return f"{encode_coordinator_value(value, version).hex()} v{version} {value}"


def offsets(side: Side, groups: list[str], partitions: int) -> list[str]:
    """Return the offset records of these groups, and the transaction markers between them."""
    producers = Producers()
    mine: dict[str, list[str]] = {each: [] for each in groups}
    of_producer: dict[int, str] = {}
    for each in stored(side, OFFSETS_TOPIC, partitions):
        header = each.header
        if header.is_control:
            group = of_producer.get(header.producer_id)
            if group is not None:
                value = (each.value or b"").hex()
                producer = producers.number(header.producer_id)
                mine[group].append(f"marker {each.batch()} {producer} {each.key.hex()} {value}")
            continue
        if read_prefix(each.key) > 1:
            continue
        key = decode_coordinator_key(OffsetCommitKey, each.key)
        if key.group not in mine:
            continue
        of_producer[header.producer_id] = key.group
        words = "tombstone" if each.value is None else _offset(each.value, side)
        key_bytes = encode_coordinator_key(key)
        assert key_bytes == each.key, each
        producer = producers.number(header.producer_id)
        mine[key.group].append(f"{each.batch()} {producer} {each.key.hex()} {words}")
    return [line for group, lines in mine.items() for line in (group, *lines)]


def _offset(content: bytes, side: Side) -> str:
    value = decode_coordinator_value(OffsetCommitValue, content)
    version = read_prefix(content)
    assert encode_coordinator_value(value, version) == content, f"{value} {content.hex()}"
    value.commit_timestamp = _time(value.commit_timestamp)
    value.expire_timestamp = _time(value.expire_timestamp)
    known = side.name_of(value.topic_id)
    value.topic_id = bytes(16)
    return f"{encode_coordinator_value(value, version).hex()} v{version} {value} {known!r}"


def _time(value: int) -> int:
    return NOW if abs(value - time.time() * 1000) < HOUR_MS else value
