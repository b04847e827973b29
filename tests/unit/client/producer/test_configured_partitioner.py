"""`partitioner.class`: Kafka's own partitioners by their names; others are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import barnabas
from barnabas.client.config import ClientConfig
from barnabas.client.errors import ClientConfigError
from barnabas.client.facade import Client
from barnabas.client.producer.configured_partitioner import (
    check_partitioner,
    partitioner_for_topic,
)
from barnabas.client.producer.partitioner import (
    CallablePartitioner,
    RoundRobinPartitioner,
    StickyPartitioner,
    partition_for_key,
)
from barnabas.runtime.rng import SeededRng

JAVA = "org.apache.kafka.clients.producer"
NOWHERE = "127.0.0.1:1"
KEYS = [b"%d" % number for number in range(50)]


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
