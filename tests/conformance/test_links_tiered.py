"""Mirrors of topics that are mostly in the remote tier of the source; and tiered mirrors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from barnabas.testing.broker_process import BROKER_SETTINGS, BrokerProcess
from conformance.linked_clusters import LINK, SECONDS, Linked, read_all
from conformance.tiered_topics import (
    EARLIEST_LOCAL,
    alter,
    await_all_copied,
    consume,
    end_of,
    make_tiered_topic,
    offset_at,
    produce,
    stored_bases,
    tier_settings,
)
from jvm.tiered_kafka import TieredKafka
from waiting import eventually, eventually_equal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SETTINGS = {**BROKER_SETTINGS, "offsets.topic.num.partitions": "2"}
TOPIC = "orders"
RECORDS = 100


@pytest.fixture(params=["barnabas", "kafka"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BrokerProcess | TieredKafka]:
    process: BrokerProcess | TieredKafka
    if request.param == "kafka":
        jars: Callable[[str], str] = request.getfixturevalue("kafka_jars")
        jars("kafka-tiered")
        process = TieredKafka(tmp_path / "source", SETTINGS)
    else:
        settings = {**SETTINGS, **tier_settings(tmp_path / "source-tier")}
        process = BrokerProcess(tmp_path / "source", settings)
    try:
        process.start()
        yield process
    finally:
        process.close()


@pytest.fixture
def target(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {**SETTINGS, **tier_settings(tmp_path / "target-tier")}
    with BrokerProcess(tmp_path / "target", settings) as process:
        yield process


def await_local_start(process: BrokerProcess | TieredKafka) -> int:
    """Wait until all closed segments are only in the tier; return the first local offset."""
    start = await_all_copied(process.bootstrap, TOPIC, process.data_directory) + 1
    eventually_equal(lambda: offset_at(process.bootstrap, TOPIC, EARLIEST_LOCAL), start)
    return start


def write(linked: Linked, numbers: range) -> None:
    """Append numbered records, and an aborted transaction after them."""
    produce(linked.source, TOPIC, numbers)
    aborted = ["-1:" + "." * 1000] * 5
    linked.produce_in_transaction(TOPIC, aborted, commit=False)


def test_a_mirror_has_what_is_only_in_the_tier_of_its_source(
    source: BrokerProcess | TieredKafka, target: BrokerProcess, tmp_path: Path
) -> None:
    linked = Linked(source.bootstrap, target.bootstrap, tmp_path)
    make_tiered_topic(linked.source, TOPIC, local_retention_bytes="1")
    write(linked, range(RECORDS))
    write(linked, range(RECORDS, 2 * RECORDS))
    assert await_local_start(source) > RECORDS
    linked.create_link(TOPIC)
    linked.await_mirrored(TOPIC)
    committed = read_all(linked.source, TOPIC)
    assert len(committed) == 2 * RECORDS
    assert read_all(linked.target, TOPIC) == committed
    everything = read_all(linked.source, TOPIC, "read_uncommitted")
    assert len(everything) == 2 * RECORDS + 10
    assert read_all(linked.target, TOPIC, "read_uncommitted") == everything

    # The mirror gets a tier of its own, and goes on.
    assert stored_bases(tmp_path / "target-tier", TOPIC) == []
    alter(linked.target, TOPIC, remote_storage_enable="true")
    write(linked, range(2 * RECORDS, 3 * RECORDS))
    linked.await_mirrored(TOPIC)
    assert await_local_start(target) > 2 * RECORDS
    assert stored_bases(tmp_path / "target-tier", TOPIC)[0] == 0
    everything = read_all(linked.source, TOPIC, "read_uncommitted")
    assert read_all(linked.target, TOPIC, "read_uncommitted") == everything

    # Without a link, the topic is one like any other, in both tiers.
    linked.shell.ok("links", "promote", LINK)
    eventually(lambda: is_written(linked.target), "the promoted topic accepts no records")
    end = end_of(linked.target, TOPIC)
    produce(linked.target, TOPIC, range(RECORDS))
    assert await_local_start(target) > end
    found = consume(linked.target, TOPIC, end, RECORDS)
    assert found == [(end + number, number) for number in range(RECORDS)]


def is_written(bootstrap: str) -> bool:
    """Return whether a record is accepted."""
    producer = Producer({"bootstrap.servers": bootstrap})
    errors: list[object] = []
    producer.produce(TOPIC, b"0:", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(SECONDS) == 0
    return errors == [None]
