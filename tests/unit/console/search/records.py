"""Records, and a consumer over logs in memory, for tests of searches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.forms import Fields
from barnabas.console.messages.formats import Decoders
from barnabas.console.messages.masking import MaskRule, Masks
from barnabas.console.messages.record_view import DecodedRecord, RecordView
from barnabas.console.search.conditions import Conditions
from barnabas.console.search.expressions import ExpressionFilter, Verdicts

TOPIC = "t"
# Records of one poll.
POLLED = 7


class Part(list[ConsumerRecord]):
    """The records of a partition in a poll. No batch is known, and none is in a transaction."""

    pieces = ()

    def transactional_ranges(self) -> list[tuple[int, int]]:
        return []


def raw(
    value: bytes | None,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    *,
    offset: int = 0,
    partition: int = 0,
    timestamp: int = 0,
) -> ConsumerRecord:
    return ConsumerRecord(TOPIC, partition, offset, timestamp, 0, key, value, tuple(headers))


def view(*rules: MaskRule) -> RecordView:
    return RecordView(Decoders(), Masks(rules, b"secret"))


def decoded(value: bytes | None, *rules: MaskRule, **fields: Any) -> DecodedRecord:
    return view(*rules).decode(raw(value, **fields))


def conditions(**fields: str) -> Conditions:
    """The conditions in an address with these fields."""
    return Conditions.of(Fields(fields.items()))


class Partition(NamedTuple):
    """A partition as the metadata has it."""

    partition: int
    leader: int = 1


class LogConsumer:
    """A consumer over logs in memory. Offsets without a record are gaps, as after compaction.

    Args:
        logs: The records of each partition.
        ends: The end offset of each partition.
    """

    def __init__(
        self, logs: Mapping[int, Sequence[ConsumerRecord]], ends: Mapping[int, int]
    ) -> None:
        self._logs = logs
        self._ends = ends
        self._positions: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        # Set: polls return nothing new until the event is set.
        self.stuck: asyncio.Event | None = None

    async def close(self, _seconds: float = 0) -> None:
        self._positions.clear()

    async def partitions_for(self, _topic: str) -> list[Partition]:
        return [Partition(number) for number in self._logs]

    async def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[Any, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[Any, int]:
        return {tp: self._ends[tp.partition] for tp in partitions}

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self._positions = dict.fromkeys(partitions, 0)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._positions[tp] = offset

    def pause(self, *partitions: TopicPartition) -> None:
        self._paused |= set(partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        self._paused -= set(partitions)

    async def position(self, tp: TopicPartition) -> int:
        return self._positions[tp]

    async def poll(self, _timeout: float, *, max_records: int) -> ConsumerRecords:
        await asyncio.sleep(0)
        if self.stuck is not None:
            await self.stuck.wait()
        parts: dict[Any, Any] = {}
        for tp, position in self._positions.items():
            if tp in self._paused:
                continue
            rest = [each for each in self._logs[tp.partition] if each.offset >= position]
            part = Part(rest[: min(POLLED, max_records)])
            if part:
                parts[tp] = part
                self._positions[tp] = part[-1].offset + 1
            else:
                self._positions[tp] = self._ends[tp.partition]
        offsets = {tp: CommittedOffset(part[-1].offset + 1) for tp, part in parts.items()}
        return ConsumerRecords(parts, offsets)


def evaluated(expression: str, *records: DecodedRecord, limit_s: float = 60.0) -> Verdicts:
    """Return what a filter says of records."""

    async def run() -> Verdicts:
        evaluating = ExpressionFilter(limit_s)
        try:
            await evaluating.check(expression)
            return await evaluating.evaluate(expression, records)
        finally:
            evaluating.close()

    return asyncio.run(run())
