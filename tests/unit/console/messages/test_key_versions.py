"""The search for the versions of a key: its order, and its progress with records of any size."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.client.fetch.record_set import ConsumerRecord
from barnabas.client.topic_partition import TopicPartition
from barnabas.console.messages.key_versions import VersionLimits, Versions, VersionSearch
from barnabas.console.messages.reading import LargeReads, RecordReader
from barnabas.runtime.clock import SystemClock
from unit.console.search.records import TOPIC, LogConsumer, raw

TP = TopicPartition(TOPIC, 0)
# Larger than a window of several records, and than the limit of bytes of one search.
LARGE = bytes(9 << 20)
LIMITS = VersionLimits(records=10_000, size=1 << 20, seconds=600.0)


def searched(
    log: Sequence[ConsumerRecord], like: ConsumerRecord, before: int, most: int = 50
) -> Versions:
    """Return what one search finds."""

    async def run() -> Versions:
        def opened(**_config: Any) -> Any:
            return LogConsumer({0: log}, {0: log[-1].offset + 1})

        reader = RecordReader(opened, LargeReads(), "read_uncommitted")
        try:
            search = VersionSearch(reader, SystemClock(), LIMITS, most)
            return await search.run(TP, like, 0, before)
        finally:
            await reader.aclose()

    return asyncio.run(run())


def all_searched(
    log: Sequence[ConsumerRecord], like: ConsumerRecord, most: int = 50
) -> tuple[list[int], int]:
    """Return the offsets that searches find one after the other, and the number of searches."""
    before, offsets, count = log[-1].offset + 1, [], 0
    while True:
        found = searched(log, like, before, most)
        count += 1
        offsets += [each.offset for each in found.records]
        if found.rest is None:
            return offsets, count
        assert found.rest < before
        before = found.rest


@pytest.mark.parametrize("like", [raw(b"small", b"k"), raw(LARGE, b"k")])
def test_each_search_goes_back_however_large_the_records_are(like: ConsumerRecord) -> None:
    log = [raw(LARGE, b"k" if number % 2 else b"other", offset=number) for number in range(12)]
    offsets, count = all_searched(log, like)
    assert offsets == [11, 9, 7, 5, 3, 1]
    assert count <= len(log)


def test_a_record_of_unexpected_size_is_examined_at_most_twice() -> None:
    log = [raw(LARGE, b"k", offset=number) for number in range(1000)]
    found = searched(log, log[0], before=1000)
    assert [each.offset for each in found.records] == [999]
    assert (found.rest, found.limit, found.examined) == (999, "1048576 bytes", 1)


@pytest.mark.parametrize("seed", range(6))
def test_searches_find_all_versions_in_order_in_logs_with_gaps(seed: int) -> None:
    rng = random.Random(seed)
    offset, log = 0, []
    for _ in range(rng.randint(1, 60)):
        offset += rng.choice((1, 1, 1, 2, 40))
        value = rng.choice((b"", b"small", b"small", bytes(1 << 19), LARGE))
        log.append(raw(value, rng.choice((b"k", b"other", None)), offset=offset))
    offsets, _ = all_searched(log, raw(rng.choice((b"", LARGE)), b"k"), rng.randint(1, 60))
    assert offsets == [each.offset for each in reversed(log) if each.key == b"k"]
