"""Records are sent to the partitions that Kafka's client chooses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.client.producer.partitioner import (
    CallablePartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    murmur2,
    partition_for_key,
)
from barnabas.runtime.rng import SeededRng

# Published with Kafka's client: the hash as a signed number.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
    # Every remainder of four bytes, and bytes over 127: asked of Kafka's own Utils.murmur2.
    b"": 275646681,
    bytes.fromhex("00"): 375494588,
    bytes.fromhex("ff"): -311467685,
    bytes.fromhex("0001"): -2112343979,
    bytes.fromhex("fffe"): 1717632651,
    bytes.fromhex("000102"): 51419311,
    bytes.fromhex("fffefd"): 998637092,
    bytes.fromhex("00010203"): 1916244640,
    bytes.fromhex("fffefdfc"): 2136149935,
    bytes.fromhex("0001020304"): -1916494074,
    bytes.fromhex("ff80ff80ff80ff"): 1072620854,
    bytes.fromhex("4b8a6d1200ff7fc3a1b2"): -727600788,
}


@pytest.mark.parametrize(("data", "expected"), VECTORS.items())
def test_murmur2_gives_the_published_hashes(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF


def test_a_key_selects_its_partition_by_the_positive_hash() -> None:
    assert partition_for_key(b"21", 10) == (-973932308 & 0x7FFFFFFF) % 10


def sticky(sticky_bytes: int, count: int, **options: Any) -> StickyPartitioner:
    made = StickyPartitioner(SeededRng(1), sticky_bytes, **options)
    made.renew(count, list(range(count)))
    return made


def test_records_without_a_key_stick_to_a_partition_until_a_batch_is_full() -> None:
    partitioner = sticky(100, 4)
    first = [partitioner.choose(None, b"x" * 50) for _ in range(2)]
    assert first[0] == first[1]
    assert partitioner.choose(None, b"x" * 50) != first[0]


def test_a_partition_without_a_leader_is_not_chosen() -> None:
    partitioner = sticky(10_000, 2)
    first = partitioner.choose(None, b"x")
    partitioner.renew(2, [1 - first])
    assert partitioner.choose(None, b"x") == 1 - first


def test_without_any_leader_all_partitions_are_chosen() -> None:
    partitioner = sticky(10_000, 2)
    partitioner.renew(2, [])
    assert partitioner.choose(None, b"x") in (0, 1)


def test_keys_are_hashed_over_all_partitions_whether_they_have_leaders_or_not() -> None:
    partitioner = sticky(10_000, 10)
    partitioner.renew(10, [0])
    assert partitioner.choose(b"21", b"x") == partition_for_key(b"21", 10)


def test_keys_can_be_ignored() -> None:
    partitioner = sticky(10_000, 64, ignore_keys=True)
    assert len({partitioner.choose(b"%d" % number, b"x") for number in range(50)}) == 1


def share(loads: list[int]) -> list[float]:
    """How often each partition is chosen, by the lengths of their queues."""
    partitioner = sticky(1, len(loads), loads=lambda asked: [loads[each] for each in asked])
    found = Counter(partitioner.choose(None, b"x") for _ in range(6_000))
    return [found[number] / 6_000 for number in range(len(loads))]


def test_partitions_with_short_queues_are_chosen_more_often() -> None:
    short, longer, longest = share([0, 4, 5])
    # The one in use is never chosen again at once, so that even the shortest has at most half.
    assert 0.5 >= short > longer + 0.1 > longest + 0.2


def test_equal_queues_are_chosen_equally_often() -> None:
    assert all(abs(each - 0.25) < 0.03 for each in share([7, 7, 7, 7]))


def test_a_partition_whose_broker_accepts_no_records_is_not_chosen() -> None:
    assert share([0, -1, 0])[1] == 0


def test_all_partitions_are_chosen_when_no_broker_accepts_records() -> None:
    assert min(share([-1, -1, -1])) > 0


def test_round_robin_uses_partitions_with_leaders_in_turn_for_any_key() -> None:
    partitioner = RoundRobinPartitioner()
    partitioner.renew(4, [0, 2, 3])
    assert [partitioner.choose(b"same", None) for _ in range(4)] == [0, 2, 3, 0]


def test_a_partition_function_receives_the_key_and_all_partitions() -> None:
    seen: list[tuple[bytes | None, list[int], list[int]]] = []

    def last(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
        seen.append((key, list(partitions), list(available)))
        return partitions[-1]

    partitioner = CallablePartitioner(last)
    partitioner.renew(3, [1])
    assert partitioner.choose(b"k", b"v") == 2
    assert seen == [(b"k", [0, 1, 2], [1])]


def test_an_invalid_result_of_a_partition_function_is_an_error() -> None:
    partitioner = CallablePartitioner(lambda _key, _partitions, _available: 3)
    partitioner.renew(3, [1])
    with pytest.raises(ValueError, match="chose 3"):
        partitioner.choose(None, None)


@pytest.mark.parametrize("key", VECTORS)
def test_a_key_of_any_type_selects_the_partition_of_its_hash(key: bytes) -> None:
    partitioner = StickyPartitioner(SeededRng(1), 100)
    partitioner.renew(7, range(7))
    wanted = partition_for_key(key, 7)
    given: list[Any] = [key, bytearray(key), memoryview(key)]
    assert [partitioner.choose(each, b"v") for each in given] == [wanted] * 3
