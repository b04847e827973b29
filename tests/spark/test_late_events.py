"""The example of late events over two weeks: legs and late events match the direct computation."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from barnabas import Client, Producer
from examples.flights.demo import committed_end
from examples.late_events import job, network, run

pytestmark = pytest.mark.spark

DAYS, EVERY = 12, 20
STORE = "spark.sql.streaming.stateStore.providerClass"
PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.fixture
def topics(client: Client) -> Iterator[None]:
    names = {"events": run.PARTITIONS, network.LEGS: 1, network.TOO_LATE: 1}
    for name, partitions in names.items():
        client.create_topic(name, partitions, 1)
    yield
    client.delete_topics(names)


@pytest.fixture
def query(
    spark: SparkSession, bootstrap: str, topics: None, tmp_path: Path
) -> Iterator[StreamingQuery]:
    spark.conf.set(STORE, job.STATE_STORE)
    started = job.start(spark, bootstrap, tmp_path, job.EVENTS_PER_TRIGGER // EVERY)
    spark.conf.unset(STORE)
    yield started
    started.stop()


def results(bootstrap: str) -> Counter[network.Row]:
    seen = run.Results()
    with Client(bootstrap, isolation_level="read_committed") as client:
        ends = {place: (0, committed_end(client, place)) for place in run.RESULTS}
        with client.stream(ends) as stream:
            for record in stream.records():
                seen.add(record)
    return seen.rows


@pytest.mark.nightly
def test_every_leg_and_every_late_event_is_written_once(
    query: StreamingQuery, bootstrap: str
) -> None:
    events = network.events(DAYS, EVERY)
    with Producer(bootstrap) as producer:
        for event in events:
            producer.send("events", event.value(), key=event.flight.encode())
    dropped = 0
    for batch in job.batches(query):
        dropped += batch["dropped"]
        if batch["events"] == len(events):
            run.close(bootstrap)
    expected = network.expected(events)
    assert run.differences(results(bootstrap), expected) == []
    assert {row[2] for row in expected} == {
        "landed", "missing arrival", "missing departure", "too late",
    }  # fmt: skip
    assert dropped == 0


@pytest.mark.nightly
def test_the_run_with_a_kill_passes_its_check(tmp_path: Path) -> None:
    example = run.Run(tmp_path / "out", DAYS, EVERY, seconds=10)
    assert run.judge(example, example.run()) == 0
    assert example.killed


def test_a_missing_row_and_a_repeated_row_are_differences() -> None:
    first, second = ((network.LEGS, name, "landed", "a", "b") for name in ("UA1", "UA2"))
    problems = run.differences(Counter({first: 2}), Counter([first, second]))
    assert [line for line in problems if not line.startswith(" ")] == [
        "1 rows are missing:",
        "1 rows are not expected:",
    ]


def test_the_picture_names_the_topics_and_the_outcomes() -> None:
    (picture,) = re.findall(r"```mermaid\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names = {row[2] for row in network.expected(network.events(DAYS, EVERY))}
    assert [name for name in names | {network.LEGS, network.TOO_LATE} if name not in picture] == []
