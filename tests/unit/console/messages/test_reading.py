"""Readers that hold large fetches one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import pytest

from barnabas.client.consumer.consumer_records import ConsumerRecords
from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.messages.reading import LARGE_BYTES, BusyError, LargeReads, RecordReader
from barnabas.record.batch import HEADER_SIZE, MAGIC_V2
from barnabas.record.compression import compress
from unit.console.search.records import TOPIC, LogConsumer, Part, raw

TP = TopicPartition(TOPIC, 0)
SECONDS = 60.0
LARGE = bytes(LARGE_BYTES)


class Span(NamedTuple):
    start: int
    end: int
    attributes: int = 0
    magic: int = MAGIC_V2


class Batch(NamedTuple):
    data: bytes
    span: Span


class Piece(NamedTuple):
    batch: Batch


class BatchPart(Part):
    """The records of a poll, in one batch."""

    def __init__(self, value: bytes, batch: bytes, attributes: int) -> None:
        super().__init__([raw(value)])
        self.pieces = (Piece(Batch(batch, Span(0, len(batch), attributes))),)


class Consumer(LogConsumer):
    """A consumer of which each poll returns one record."""

    def __init__(self, value: bytes, batch: bytes = b"", attributes: int = 0) -> None:
        super().__init__({0: []}, {0: 100})
        self._part = BatchPart(value, batch or value, attributes)
        self.is_open = True

    async def close(self, _seconds: float = 0) -> None:
        self.is_open = False

    async def poll(self, _timeout: float, *, max_records: int) -> ConsumerRecords:
        assert self.is_open
        await asyncio.sleep(0)
        return ConsumerRecords({TP: self._part}, {TP: CommittedOffset(1)})  # type: ignore[dict-item]


class Opened:
    """Consumers that were opened."""

    def __init__(self, *arguments: Any) -> None:
        self._arguments = arguments
        self.consumers: list[Consumer] = []

    def __call__(self, **_config: Any) -> Any:
        self.consumers.append(Consumer(*self._arguments))
        return self.consumers[-1]

    @property
    def open(self) -> int:
        return sum(each.is_open for each in self.consumers)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), SECONDS))


def test_readers_hold_large_fetches_in_turns_and_nothing_while_they_wait() -> None:
    async def test() -> None:
        turns = LargeReads()
        opened = [Opened(LARGE) for _ in range(4)]
        holding: list[int] = []

        async def read(number: int, *, is_careful: bool) -> None:
            reader = RecordReader(opened[number], turns, "read_uncommitted", is_careful=is_careful)
            for offset in range(3):
                async with reader.poll({TP: offset}, 0.5, 10) as fetched:
                    assert not holding
                    holding.append(number)
                    # It fetches nothing further while it holds this fetch.
                    assert opened[number].open == 0
                    for _ in range(5):
                        await asyncio.sleep(0)
                    assert len(fetched.parts) == 1
                    holding.pop()

        await asyncio.gather(*(read(number, is_careful=number < 2) for number in range(4)))

    run(test)


def test_small_fetches_need_no_turn_and_one_consumer() -> None:
    async def test() -> None:
        turns, opened = LargeReads(), Opened(b"small")
        reader = RecordReader(opened, turns, "read_uncommitted")
        async with reader.poll({TP: 0}, 0.5, 10):
            pass
        async with turns.turn():
            for offset in range(1, 5):
                async with reader.poll({TP: offset}, 0.5, 10) as fetched:
                    assert fetched.next_offsets == {TP: 1}
        assert len(opened.consumers) == 1
        await reader.aclose()
        assert opened.open == 0

    run(test)


@pytest.mark.parametrize("code", [1, 2, 3, 4], ids=["gzip", "snappy", "lz4", "zstd"])
def test_a_small_batch_that_decompresses_to_much_is_large(code: int) -> None:
    batch = bytes(HEADER_SIZE) + bytes(compress(code, LARGE))

    async def test() -> None:
        opened = Opened(b"", batch, code)
        reader = RecordReader(opened, LargeReads(), "read_uncommitted")
        async with reader.poll({TP: 0}, 0.5, 10):
            assert opened.open == 0

    assert len(batch) < LARGE_BYTES
    run(test)


def test_a_reader_whose_turn_does_not_come_fails_with_advice() -> None:
    async def test() -> None:
        turns, opened = LargeReads(turn_s=0.01), Opened(LARGE)
        reader = RecordReader(opened, turns, "read_uncommitted")
        async with turns.turn():
            with pytest.raises(BusyError, match="try again later"):
                async with reader.poll({TP: 0}, 0.5, 10):
                    pass
        # It held nothing meanwhile, and reads when it is asked again.
        assert opened.consumers == []
        async with reader.poll({TP: 0}, 0.5, 10) as fetched:
            assert len(fetched.parts) == 1

    run(test)
