"""Exactly once from topic to topic: processes are killed at each step of a batch."""

from __future__ import annotations

import itertools
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from barnabas.client.facade import Client
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess
from selection import nightly_rows_unless
from spark.copies import Copy, await_end, copy_of, each_row_once, write_records
from spark.stopping_sink import STEPS
from waiting import eventually_equal

pytestmark = pytest.mark.spark

EitherBroker = BrokerProcess | KafkaProcess
RECORDS = 600
JOB = Path(__file__).with_name("job_to_topic.py")
# 10 batches of the job.
JOB_RECORDS = 50_000


@pytest.fixture(scope="module")
def bootstrap(either_broker: EitherBroker) -> str:
    return either_broker.bootstrap


@pytest.fixture(scope="module")
def client(bootstrap: str) -> Iterator[Client]:
    with Client(bootstrap, isolation_level="read_committed") as made:
        yield made


@pytest.fixture
def copy(
    spark: SparkSession, client: Client, stopping: str, bootstrap: str, topic: str, tmp_path: Path
) -> Copy:
    write_records(client, topic)
    return copy_of(spark, bootstrap, topic, tmp_path)


def on_both(*selected: tuple[str, str]) -> pytest.MarkDecorator:
    """Run a test at each step on both brokers; `make check` runs the selected ones.

    The sink does the same on both brokers, and Kafka takes long to start again on the directory of
    a broker that is not yet fenced.
    """
    cases = nightly_rows_unless(
        selected.__contains__, itertools.product(("barnabas", "kafka"), STEPS)
    )
    return pytest.mark.parametrize(
        ("either_broker", "step"), cases, indirect=["either_broker"], scope="module"
    )


@on_both(
    ("barnabas", "between the ends"),
    ("kafka", "between the ends"),
)
def test_each_row_is_seen_once_after_a_process_is_killed(
    either_broker: EitherBroker,
    step: str,
    copy: Copy,
    copied: Callable[[], Counter[bytes]],
) -> None:
    query = copy.stop_at(step)
    os.kill(copy.point.stopped(), signal.SIGKILL)
    await_end(query)
    assert query.exception() is not None
    copy.finish()
    assert copied() == each_row_once()


@on_both(("barnabas", "between the ends"), ("barnabas", "before the init"))
def test_each_row_is_seen_once_after_the_broker_is_killed(
    step: str,
    copy: Copy,
    either_broker: EitherBroker,
    copied: Callable[[], Counter[bytes]],
) -> None:
    query = copy.stop_at(step)
    either_broker.kill()
    copy.point.release()
    either_broker.start()
    await_end(query)
    copy.finish()
    assert copied() == each_row_once()


def test_a_query_without_faults_shows_each_row_once_and_no_error(
    copy: Copy, client: Client, copied: Callable[[], Counter[bytes]]
) -> None:
    copy.finish()
    assert copied() == each_row_once()
    eventually_equal(
        lambda: {each.state for each in client.admin.list_transactions()} - {"CompleteAbort"},
        {"CompleteCommit"},
    )
