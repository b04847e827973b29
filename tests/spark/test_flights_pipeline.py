"""The demo's pipeline over some days, with `format("barnabas")` and with Spark's own connector."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from barnabas.client.admin.topics import NewTopic
from barnabas.client.facade import Client
from jvm.maven import class_path

sys.path.insert(0, str(Path(__file__).parents[2]))

from examples.flights import demo, events, pipeline, produce, proof

pytestmark = pytest.mark.spark

DAYS_END = pd.Timestamp("2013-01-04T00:00Z")


@pytest.fixture(scope="module")
def some_days(client: Client) -> Iterator[None]:
    """The topics, with the first days of the year and the closing events."""
    kept = {"retention.ms": "-1"}
    topics = [NewTopic("flights", 3, 1, kept), NewTopic("weather", 3, 1, kept)]
    assert set(client.create_topics(topics).values()) == {None}
    closing = [
        (name, event) for name in ("flights", "weather") for event in events.closing_events()
    ]
    first = [pair for pair in produce.in_order() if pair[1].timestamp_ms < DAYS_END.value // 10**6]
    with client.producer() as producer:
        produce.send(producer, first + closing)
    yield
    client.delete_topics(["flights", "weather"])


@pytest.mark.usefixtures("some_days")
def test_both_connectors_fill_the_same_table_and_write_the_same_alerts(
    spark: SparkSession, bootstrap: str, client: Client, tmp_path: Path
) -> None:
    class_path("spark-kafka")
    tables, alerts = [], []
    for source in ("kafka", "barnabas"):
        client.create_topic("alerts", 1, 1)
        output = tmp_path / source
        pipeline.run(spark, pipeline.Topics(bootstrap, source), output)
        tables.append(proof.read_table(output / "airport_hours"))
        alerts.append(demo.alert_keys(bootstrap))
        client.delete_topics(["alerts"])
    pd.testing.assert_frame_equal(tables[0], tables[1])
    assert alerts[0] == alerts[1]
    assert len(tables[0]) > 100
