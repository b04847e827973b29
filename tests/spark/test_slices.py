"""Transactions of tasks without Spark: fencing, and replays that differ from the first attempt."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.client.fetch.record_set import read_records
from barnabas.spark.errors import OptionError
from barnabas.spark.topics.clients import transactional_client
from barnabas.spark.topics.options import SinkOptions, parse_sink_options
from barnabas.spark.topics.sink_rows import sink_columns
from barnabas.spark.topics.transactions import (
    ReplayError,
    Slice,
    TransactionError,
    WrittenSlice,
    abort_slices,
    commit_slices,
    write_slice,
)
from barnabas.spark.topics.writer import is_transactional
from barnabas.testing.broker_process import BrokerProcess
from jvm.kafka_process import KafkaProcess
from waiting import eventually

pytestmark = pytest.mark.spark

EitherBroker = BrokerProcess | KafkaProcess


class Query:
    """A streaming query whose tasks the test runs itself."""

    def __init__(self, bootstrap: str, topic: str, **keys: str) -> None:
        self._name = f"query-{uuid.uuid4().hex[:8]}"
        given = {"kafka.bootstrap.servers": bootstrap, "topic": topic}
        self.options: SinkOptions = parse_sink_options({**given, **keys})

    def task(self, partition: int, batch: int, *values: str) -> WrittenSlice:
        """Run a task to its end; its transaction stays open."""
        of = Slice(f"{self._name}-{partition}", partition, batch, self._name)
        columns = sink_columns(StructType().add("value", StringType()), self.options)
        batches = [pa.record_batch([pa.array([value])], names=["value"]) for value in values]
        return write_slice(self.options, columns, of, batches)

    def commit(self, *slices: WrittenSlice) -> None:
        commit_slices(self.options, slices)


@pytest.fixture(scope="module")
def client(either_broker: EitherBroker) -> Iterator[Client]:
    with Client(either_broker.bootstrap, isolation_level="read_committed") as made:
        yield made


@pytest.fixture
def topic(client: Client) -> str:
    name = f"slices-{uuid.uuid4().hex[:8]}"
    client.create_topic(name, 1, 1)
    return name


@pytest.fixture
def query(either_broker: EitherBroker, topic: str) -> Query:
    return Query(either_broker.bootstrap, topic)


def committed(client: Client, topic: str) -> list[bytes | None]:
    """Values that a read_committed reader sees once no transaction is open, in order of value."""
    place = (topic, 0)

    def end(level: str) -> int:
        return client.list_offsets({place: "latest"}, isolation_level=level)[place].offset

    eventually(lambda: end("read_committed") == end("read_uncommitted"), "an open transaction")
    found: list[bytes | None] = []
    for batch in client.fetch_range({place: (0, end("read_committed"))}):
        found += [record.value for record in read_records(batch)]
    return sorted(found, key=str)


def test_an_earlier_attempt_of_a_task_cannot_be_committed(
    query: Query, client: Client, topic: str
) -> None:
    first = query.task(0, 0, "a", "b")
    second = query.task(0, 0, "a", "b")
    with pytest.raises(TransactionError, match=r"slice 0 of batch 0.*speculation"):
        query.commit(first)
    query.commit(second)
    assert committed(client, topic) == [b"a", b"b"]


def test_an_attempt_that_comes_after_the_commit_writes_nothing(
    query: Query, client: Client, topic: str
) -> None:
    query.commit(query.task(0, 0, "a"))
    late = query.task(0, 0, "a")
    assert late.transaction is None
    query.commit(late)
    assert committed(client, topic) == [b"a"]


def test_a_driver_that_another_one_replaced_cannot_commit(
    query: Query, client: Client, topic: str
) -> None:
    before = [query.task(0, 0, "a"), query.task(1, 0, "b")]
    after = [query.task(0, 0, "a"), query.task(1, 0, "b")]
    query.commit(*after)
    with pytest.raises(TransactionError):
        query.commit(*before)
    assert committed(client, topic) == [b"a", b"b"]


def test_a_replay_writes_only_slices_that_are_not_committed(
    query: Query, client: Client, topic: str
) -> None:
    first, second = query.task(0, 0, "a"), query.task(1, 0, "b")
    # The driver dies after the first of two ends.
    query.commit(first, WrittenSlice(second.slice, 0))
    again = [query.task(0, 0, "a"), query.task(1, 0, "b")]
    assert [each.transaction is None for each in again] == [True, False]
    query.commit(*again)
    query.commit(query.task(0, 1, "c"), query.task(1, 1))
    assert committed(client, topic) == [b"a", b"b", b"c"]


def test_rows_of_a_slice_may_be_replayed_in_another_order(query: Query) -> None:
    query.commit(query.task(0, 0, "a", "b"))
    assert query.task(0, 0, "b", "a").transaction is None


@pytest.mark.parametrize("values", [("a",), ("a", "c"), ("a", "b", "b"), ()])
def test_a_replay_with_other_rows_is_refused(query: Query, values: tuple[str, ...]) -> None:
    query.commit(query.task(0, 0, "a", "b"))
    with pytest.raises(ReplayError, match="slice 0 of batch 0 is committed with 2 rows"):
        query.task(0, 0, *values)


def test_a_replay_with_another_number_of_tasks_is_refused(
    query: Query, client: Client, topic: str
) -> None:
    first, second = query.task(0, 0, "a"), query.task(1, 0, "b")
    query.commit(WrittenSlice(first.slice, 0), second)
    again = query.task(0, 0, "a", "b")
    with pytest.raises(ReplayError, match="batch 0 had 2 tasks, and its replay has 1"):
        query.commit(again)
    abort_slices(query.options, [again])
    # The number of tasks that it had before finishes the batch.
    query.commit(query.task(0, 0, "a"), query.task(1, 0, "b"))
    assert committed(client, topic) == [b"a", b"b"]


def test_a_checkpoint_that_was_set_back_is_refused(query: Query) -> None:
    for batch in (0, 1):
        query.commit(query.task(0, batch, "a"))
    with pytest.raises(ReplayError, match=r"batch 0 comes after batch 1.*set back"):
        query.task(0, 0, "a")


def test_an_aborted_batch_is_not_seen(query: Query, client: Client, topic: str) -> None:
    abort_slices(query.options, [query.task(0, 0, "a"), None])
    assert committed(client, topic) == []


def test_the_error_of_a_timed_out_transaction_names_the_batch(
    client: Client, either_broker: EitherBroker, topic: str
) -> None:
    query = Query(either_broker.bootstrap, topic, **{"kafka.transaction.timeout.ms": "5000"})
    written = query.task(0, 0, "a")
    # The coordinator looks every ten seconds. The timeout is longer than a slow task.
    eventually(
        lambda: (
            client.list_offsets({(topic, 0): "latest"})[topic, 0].offset
            > client.list_offsets({(topic, 0): "earliest"})[topic, 0].offset
        ),
        "the coordinator has not aborted",
    )
    with pytest.raises(TransactionError, match=r"longer than kafka\.transaction\.timeout\.ms=5000"):
        query.commit(written)
    assert committed(client, topic) == []


def test_the_error_names_a_timeout_above_the_brokers_limit(
    either_broker: EitherBroker, topic: str
) -> None:
    query = Query(either_broker.bootstrap, topic, **{"kafka.transaction.timeout.ms": "999999999"})
    with pytest.raises(OptionError, match=r"999999999 is more than.*transaction\.max\.timeout\.ms"):
        query.task(0, 0, "a")


def test_a_stream_uses_transactions_where_brokers_have_them(either_broker: EitherBroker) -> None:
    options = Query(either_broker.bootstrap, "any").options
    assert is_transactional(options, default=True)
    assert not is_transactional(options, default=False)
    asked = Query(either_broker.bootstrap, "any", exactlyOnce="true").options
    assert is_transactional(asked, default=False)
    refused = Query(either_broker.bootstrap, "any", exactlyOnce="false").options
    assert not is_transactional(refused, default=True)


def test_records_for_an_impossible_topic_are_an_error(either_broker: EitherBroker) -> None:
    query = Query(either_broker.bootstrap, "no/such/topic", **{"kafka.max.block.ms": "2000"})
    with pytest.raises(ClientError):
        query.task(0, 0, "a")
    # The failed task leaves its client usable.
    transactional_client(query.options.client).admin.describe_versions()
