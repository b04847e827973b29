"""The example's pipeline over the first days of its year, with `format("barnabas")` and with
Spark's own connector: the same table and the same alerts, which are those that pandas computes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from barnabas import Client, Producer
from examples.flights import demo, events, pipeline, produce, proof

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("connector")]

DAYS_END = pd.Timestamp("2013-01-04T00:00Z")


@pytest.fixture
def some_days(client: Client, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A data set of the first days only, and the topics filled with it."""
    flights, weather = events.flights(), events.weather()
    monkeypatch.setattr(events, "flights", lambda: flights[flights["known"] < DAYS_END])
    monkeypatch.setattr(events, "weather", lambda: weather[weather["observed"] < DAYS_END])
    for name, partitions in demo.TOPICS.items():
        client.create_topic(name, partitions, 1, {"retention.ms": "-1"})
    with Producer(bootstrap) as producer:
        produce.send(producer, list(produce.in_order()))
    with closing_goes_on(bootstrap):
        yield
    client.delete_topics(demo.TOPICS)


@contextmanager
def closing_goes_on(bootstrap: str) -> Iterator[None]:
    """Closing events all the time, as the producer sends them: batches go on until the last."""
    ended = threading.Event()

    def send() -> None:
        with Producer(bootstrap) as producer:
            while not ended.wait(0.5):
                produce.send_closing(producer)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.usefixtures("some_days")
@pytest.mark.parametrize("source", ["barnabas", "kafka"])
def test_the_table_and_the_alerts_match_the_data_set(
    spark: SparkSession, bootstrap: str, tmp_path: Path, source: str
) -> None:
    pipeline.run(spark, pipeline.Topics(bootstrap, source), tmp_path)
    alerts = demo.alert_keys(bootstrap)
    expected = proof.expected_hours()
    assert len(expected) > 100
    assert proof.differences(proof.read_table(tmp_path / "airport_hours"), expected) == []
    assert alerts == dict.fromkeys(proof.expected_alerts(expected), 1)
    assert alerts
