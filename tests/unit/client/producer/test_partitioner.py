"""Partitioners, and their names in the configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import barnabas
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError
from barnabas.client.facade import Client
from barnabas.client.producer.partitioner import (
    CallablePartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    check_partitioner,
    murmur2,
    partition_for_key,
    partitioner_for_topic,
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
JAVA = "org.apache.kafka.clients.producer"
NOWHERE = "127.0.0.1:1"
KEYS = [b"%d" % number for number in range(50)]


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


def last(_key: bytes | None, partitions: Any, _available: Any) -> int:
    return int(partitions[-1])


def made(given: object) -> Any:
    """The partitioner of a topic with 64 partitions."""
    config = ClientConfig.parse({"bootstrap.servers": NOWHERE, "partitioner.class": given})
    found = partitioner_for_topic(
        check_partitioner(config), SeededRng(1), lambda asked: [0] * len(asked)
    )
    found.renew(64, range(64))
    return found


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (f"{JAVA}.RoundRobinPartitioner", RoundRobinPartitioner),
        ("round_robin", RoundRobinPartitioner),
        (f"{JAVA}.internals.DefaultPartitioner", StickyPartitioner),
        ("murmur2_random", StickyPartitioner),
        ("", StickyPartitioner),
        (None, StickyPartitioner),
        (last, CallablePartitioner),
    ],
)
def test_a_name_or_a_function_selects_the_partitioner(given: object, kind: type) -> None:
    assert type(made(given)) is kind


def test_uniform_sticky_ignores_keys_and_the_default_does_not() -> None:
    default = made(f"{JAVA}.internals.DefaultPartitioner")
    assert [default.choose(key, b"x") for key in KEYS] == [partition_for_key(k, 64) for k in KEYS]
    sticky = made(f"{JAVA}.UniformStickyPartitioner")
    assert len({sticky.choose(key, b"x") for key in KEYS}) == 1


def from_client(keys: dict[str, Any]) -> Any:
    return Client(NOWHERE, **keys).producer()


def from_clients_producer(keys: dict[str, Any]) -> Any:
    return Client(NOWHERE).producer(**keys)


def new_producer(keys: dict[str, Any]) -> Any:
    return barnabas.Producer(NOWHERE, **keys)


WAYS = [from_client, from_clients_producer, new_producer]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("key", ["partitioner.class", "partitioner_class", "partitioner"])
def test_every_producer_has_the_partitioner_of_its_keys_and_of_its_client(
    way: Callable[[dict[str, Any]], Any], key: str
) -> None:
    with way({key: f"{JAVA}.RoundRobinPartitioner"}) as producer:
        partitioner = producer._core._partitioner("t")
    assert isinstance(partitioner, RoundRobinPartitioner)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("given", ["com.example.Mine", 7])
def test_another_class_is_refused_by_producers(
    way: Callable[[dict[str, Any]], Any], given: object
) -> None:
    with pytest.raises(ClientConfigError, match=f"partitioner.class={given} is neither one of"):
        way({"partitioner.class": given})


def test_the_file_of_all_clients_may_name_a_class_for_the_producers_of_java() -> None:
    with barnabas.Consumer(bootstrap_servers=NOWHERE, **{"partitioner.class": "com.example.M"}):
        pass
