"""Both connectors read a topic whose beginning is only in the remote tier of the broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Producer

from barnabas.testing.broker_process import BrokerProcess
from conformance.tiered_topics import (
    EARLIEST_LOCAL,
    await_all_copied,
    make_tiered_topic,
    offset_at,
    tier_settings,
    value_of,
)
from spark.conftest import SETTINGS
from spark.queries import Stream
from waiting import eventually_equal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.nightly, pytest.mark.usefixtures("connector")]

SOURCES = ("barnabas", "kafka")
RECORDS = 300
SECONDS = 60


class Tiered(NamedTuple):
    """A broker with a topic."""

    bootstrap: str
    topic: str
    # Timestamp of record 0 in ms. Record n has n ms more.
    start_ms: int
    # Records below this offset are only in the tier.
    local_start: int


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tiered]:
    settings = SETTINGS | tier_settings(tmp_path_factory.mktemp("tier"))
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        topic = "tiered"
        make_tiered_topic(broker.bootstrap, topic, local_retention_bytes="1")
        start_ms = int(time.time() * 1000) - 1_000_000
        producer = Producer({"bootstrap.servers": broker.bootstrap, "batch.num.messages": "3"})
        for number in range(RECORDS):
            producer.produce(topic, value_of(number), partition=0, timestamp=start_ms + number)
            producer.poll(0)
        assert producer.flush(SECONDS) == 0
        start = await_all_copied(broker.bootstrap, topic, broker.data_directory) + 1
        eventually_equal(lambda: offset_at(broker.bootstrap, topic, EARLIEST_LOCAL), start)
        assert start > RECORDS // 2
        yield Tiered(broker.bootstrap, topic, start_ms, start)
        assert "Traceback" not in broker.log()


def starts(tiered: Tiered) -> dict[str, tuple[dict[str, str], int]]:
    """Return options for the first offset, and the offset."""
    middle = tiered.local_start // 2
    return {
        "earliest": ({"startingOffsets": "earliest"}, 0),
        "offset": ({"startingOffsets": json.dumps({tiered.topic: {"0": middle}})}, middle),
        "time": ({"startingTimestamp": str(tiered.start_ms + middle)}, middle),
        "time of a partition": (
            {
                "startingOffsetsByTimestamp": json.dumps(
                    {tiered.topic: {"0": tiered.start_ms + middle}}
                )
            },
            middle,
        ),
    }


@pytest.mark.parametrize("source", SOURCES)
def test_a_batch_query_reads_both_tiers(spark: SparkSession, tiered: Tiered, source: str) -> None:
    for name, (options, first) in starts(tiered).items():
        reader = spark.read.format(source).option("kafka.bootstrap.servers", tiered.bootstrap)
        frame = reader.option("subscribe", tiered.topic).options(**options).load()
        rows = frame.select("offset", "value").orderBy("offset").collect()
        expected = [(number, value_of(number)) for number in range(first, RECORDS)]
        assert [(row.offset, bytes(row.value)) for row in rows] == expected, name


@pytest.mark.parametrize("source", SOURCES)
def test_a_stream_reads_both_tiers(
    spark: SparkSession, tiered: Tiered, source: str, tmp_path: Path
) -> None:
    for name, (options, first) in starts(tiered).items():
        stream = Stream(spark, tiered.bootstrap, tmp_path / name, source)
        # Five batches from the beginning.
        stream.run(tiered.topic, maxOffsetsPerTrigger=RECORDS // 5, **options)
        assert stream.offsets() == [(0, offset) for offset in range(first, RECORDS)], name
