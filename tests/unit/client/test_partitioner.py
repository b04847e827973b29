"""Records go to the partitions that Kafka's own client chooses."""

from __future__ import annotations

import pytest

from barnabas.client.partitioner import StickyPartitioner, murmur2, partition_for_key
from barnabas.runtime.rng import SeededRng

# Published with Kafka's client: the hash as a signed number.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("data", "expected"), VECTORS.items())
def test_murmur2_gives_the_published_hashes(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


def test_a_key_is_placed_by_the_hash_without_its_sign() -> None:
    assert partition_for_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10


def test_records_without_a_key_stick_to_a_partition_until_a_batch_is_full() -> None:
    partitioner = StickyPartitioner(SeededRng(1), sticky_bytes=100)
    first = [partitioner.choose(50, range(4)) for _ in range(2)]
    assert first[0] == first[1]
    assert partitioner.choose(50, range(4)) != first[0]


def test_a_partition_that_lost_its_leader_is_left() -> None:
    partitioner = StickyPartitioner(SeededRng(1), sticky_bytes=10_000)
    first = partitioner.choose(1, [0, 1])
    other = 1 - first
    assert partitioner.choose(1, [other]) == other
