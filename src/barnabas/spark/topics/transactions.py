"""Writes each batch exactly once: a transaction for each task, which the driver ends.

A *slice* is the rows of one task in one batch. InitProducerId aborts the transaction of an earlier
attempt of the task, and fences that attempt. The transaction of a slice commits, together with the
rows, a *marker*: an offset in a group of the slice's own, which is the batch id plus one. The
metadata of the offset holds the number of rows and their digest. A replayed batch reads the marker
and omits committed slices.

Before the driver ends the first transaction of a batch, it commits such an offset in a group of the
query. Its metadata holds the number of tasks. A driver that dies between two ends leaves a batch
that is partly committed. The replay leaves the committed slices out and writes the others again. A
replay with another number of tasks would distribute the rows differently, so it is refused.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage

from barnabas.client.errors import BrokerError, ClientError
from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.clock import SystemClock
from barnabas.spark.errors import OptionError, RowError
from barnabas.spark.topics.clients import transactional_client
from barnabas.spark.topics.sink_rows import SinkRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyarrow import RecordBatch

    from barnabas.client.facade import Client
    from barnabas.client.producer.producer import SharedProducer
    from barnabas.client.transactions.state import OpenTransaction
    from barnabas.spark.topics.options import SinkOptions
    from barnabas.spark.topics.sink_rows import SinkColumns

_MS_PER_S = 1000
# The coordinator or a leader no longer accepts this producer.
_FENCED = frozenset({
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
})  # fmt: skip
_UINT64 = (1 << 64) - 1
# How long a failed task tries to abort its transaction; the next attempt aborts it otherwise.
_ABORT_TIMEOUT_S = 5.0
logger = logging.getLogger(__name__)


class ReplayError(RuntimeError):
    """A replayed batch differs from its first attempt, parts of which may be committed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Parts of the batch may already be committed, so that writing the rest "
            "could lose or repeat rows. Finish this batch with the query, options and number of "
            "tasks it had before; a query without random values repeats its rows. If that is not "
            "possible, finish the batch with exactlyOnce=false, which writes its rows again"
        )


class TransactionError(RuntimeError):
    """The transaction of a slice ended before the batch; Spark must run the batch again."""


def explained(error: ClientError, of: Slice, open_ms: float, timeout_ms: int) -> Exception:
    """Return an error that says why a transaction failed and what to do; others unchanged.

    Args:
        error: the client's error.
        of: the slice.
        open_ms: how long the transaction was open.
        timeout_ms: the transaction timeout.
    """
    if not isinstance(error, BrokerError):
        return error
    if error.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return OptionError(
            f"kafka.transaction.timeout.ms={timeout_ms} is more than the brokers' "
            "transaction.max.timeout.ms: lower the option, or raise the broker's setting"
        )
    if error.error_code not in _FENCED:
        return error
    if open_ms >= timeout_ms:
        return TransactionError(
            f"{of}: its transaction was open for {open_ms / _MS_PER_S:.0f} s, longer than "
            f"kafka.transaction.timeout.ms={timeout_ms}, and the coordinator aborted it. Raise "
            "this option (up to the brokers' transaction.max.timeout.ms), or make batches smaller "
            "with maxOffsetsPerTrigger. No row was committed twice; restart the query"
        )
    return TransactionError(
        f"{of}: another producer has taken over transactional.id={of.transactional_id}: another "
        "attempt of the task, or another run of the query. Set spark.speculation=false, and run "
        f"a checkpoint in one process at a time. No row was committed twice ({error})"
    )


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of one task; all attempts of the task have the same slice."""

    transactional_id: str
    partition: int
    # In a streaming query: the batch, and the group of the query's marker.
    batch_id: int | None = None
    query_group: str = ""

    def __str__(self) -> str:
        """Name the slice in messages."""
        batch = "" if self.batch_id is None else f" of batch {self.batch_id}"
        return f"slice {self.partition}{batch}"


@dataclass
class WrittenSlice(WriterCommitMessage):
    """Result of a task: its transaction, which the driver ends."""

    slice: Slice
    records: int
    # None if the task has no rows, or an earlier run of the batch committed the slice.
    transaction: OpenTransaction | None = None
    # A topic of the rows; None without rows.
    topic: str | None = None
    # When the transaction began, in ms since 1970.
    began_ms: int = 0


def slice_of_task(prefix: str, job: str) -> Slice:
    """Return the slice of the running task.

    Args:
        prefix: option transactionalIdPrefix.
        job: identifies a batch write; a streaming query is identified by its id.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None, "a writer runs in a task"
    partition = context.partitionId()
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        return Slice(f"{prefix}-{job}-{partition}", partition)
    group = f"{prefix}-{query}"
    return Slice(f"{group}-{partition}", partition, int(batch), group)


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch of a slice or a query, and facts that a replay of the batch must repeat.

    A committed offset needs an existing partition. Any topic of the rows is valid: readers of a
    marker look at all offsets of the group.
    """

    batch_id: int
    facts: dict[str, int]
    # An existing topic; its partition 0 holds the offset.
    topic: str

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the offset to commit."""
        committed = CommittedOffset(self.batch_id + 1, metadata=json.dumps(self.facts))
        return {TopicPartition(self.topic, 0): committed}


def read_marker(client: Client, group: str) -> Marker | None:
    """Return the group's last marker; None before the first one.

    Raises:
        ClientError: the coordinator refused, or did not respond in time.
    """
    found = client.committed(group)
    if not found:
        return None
    tp, committed = max(found.items(), key=lambda item: item[1].offset)
    return Marker(committed.offset - 1, _facts(committed.metadata), tp.topic)


def _facts(metadata: str) -> dict[str, int]:
    """Return the facts; none if another program committed the offset."""
    try:
        found = json.loads(metadata)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


class _Rows:
    """Counts and sums up the rows of a task while they pass."""

    def __init__(self, options: SinkOptions, columns: SinkColumns) -> None:
        self._columns = columns
        self._topic = options.topic
        self.records = 0
        self._digest = 0
        # The topic of the first row; None before it.
        self.topic: str | None = None

    def add(self, batch: RecordBatch) -> SinkRows:
        rows = SinkRows.read(self._columns, batch)
        self.records += rows.count
        self._digest = (self._digest + rows.digest()) & _UINT64
        if self.topic is None and rows.count:
            self.topic = self._topic if rows.topics is None else rows.topics[0]
        return rows

    def facts(self) -> dict[str, int]:
        """Return the facts that a replay of the slice must repeat."""
        return {"rows": self.records, "digest": self._digest}


def write_slice(
    options: SinkOptions, columns: SinkColumns, of: Slice, batches: Iterable[RecordBatch]
) -> WrittenSlice:
    """Produce the rows and leave their transaction open, unless they are already committed.

    Raises:
        RowError: a row has no topic.
        ReplayError: the slice is committed with other rows.
        TransactionError: another attempt has fenced this one, or the transaction timed out.
        ClientError: a record was not acknowledged.
    """
    clock = SystemClock()
    rows = _Rows(options, columns)
    client = transactional_client(options.client)
    producer = client.producer(transactional_id=of.transactional_id)
    began_ms = clock.wall_ms()
    try:
        producer.init_transactions()
        marker = None if of.batch_id is None else read_marker(client, of.transactional_id)
        if marker is not None and of.batch_id is not None and marker.batch_id >= of.batch_id:
            written = _compare(of, marker, rows, batches)
        else:
            began_ms = clock.wall_ms()
            written = _produce(producer, options, of, rows, batches)
            written.began_ms = began_ms
        producer.close(flush=False)
    except ClientError as error:
        _give_up(producer)
        timeout_ms = client.config.transaction_timeout_ms
        raise explained(error, of, clock.wall_ms() - began_ms, timeout_ms) from error
    except BaseException:
        _give_up(producer)
        raise
    return written


def _produce(
    producer: SharedProducer,
    options: SinkOptions,
    of: Slice,
    rows: _Rows,
    batches: Iterable[RecordBatch],
) -> WrittenSlice:
    producer.begin_transaction()
    for batch in batches:
        rows.add(batch).send(producer, options.topic)
    if rows.records and of.batch_id is not None:
        if rows.topic is None:
            raise RowError("a row has no topic: its column 'topic' is null")
        marker = Marker(of.batch_id, rows.facts(), rows.topic)
        producer.send_offsets_to_transaction(marker.offsets(), of.transactional_id)
    transaction = producer.detach_transaction()
    return WrittenSlice(of, rows.records, transaction, rows.topic)


def _compare(
    of: Slice, marker: Marker, rows: _Rows, batches: Iterable[RecordBatch]
) -> WrittenSlice:
    """Check that the committed slice has these rows; write nothing."""
    assert of.batch_id is not None, of
    if marker.batch_id > of.batch_id:
        raise ReplayError(
            f"{of} comes after batch {marker.batch_id} of the same query is committed: the "
            "checkpoint was set back"
        )
    for batch in batches:
        rows.add(batch)
    if rows.facts() != marker.facts:
        raise ReplayError(
            f"{of} is committed with {marker.facts.get('rows')} rows, and its replay has "
            f"{rows.records} rows or other values"
        )
    return WrittenSlice(of, rows.records, topic=marker.topic)


def _give_up(producer: SharedProducer) -> None:
    with suppress(ClientError):
        producer.close(_ABORT_TIMEOUT_S, flush=False)


def commit_slices(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Commit the transactions of all tasks; does nothing for tasks that wrote without them.

    Raises:
        ReplayError: the batch had another number of tasks before, and may be partly committed.
        TransactionError: a transaction was fenced or timed out; the batch must be replayed.
        ClientError: a coordinator did not respond in time; the batch must be replayed.
    """
    slices = _slices(messages)
    if not slices:
        return
    client = transactional_client(options.client)
    if slices[0].slice.batch_id is not None:
        _check_tasks(client, slices, len(messages))
    transactions = [each.transaction for each in slices if each.transaction is not None]
    results = client.admin.end_transactions(transactions, committed=True, raise_errors=False)
    now = SystemClock().wall_ms()
    for each in slices:
        error = results.get(each.slice.transactional_id)
        if isinstance(error, ClientError):
            timeout_ms = client.config.transaction_timeout_ms
            raise explained(error, each.slice, now - each.began_ms, timeout_ms) from error


def abort_slices(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Abort the transactions of the tasks that succeeded.

    Errors are only logged: the next attempt or the timeout aborts open transactions. Spark
    also calls this after a failed commit, which may have committed some of the transactions.
    """
    transactions = [each.transaction for each in _slices(messages) if each.transaction is not None]
    if not transactions:
        return
    client = transactional_client(options.client)
    results = client.admin.end_transactions(transactions, committed=False, raise_errors=False)
    for name, result in results.items():
        if isinstance(result, ClientError):
            logger.warning("Transaction not aborted: transactional.id=%s error=%s", name, result)


def _slices(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenSlice]:
    return [each for each in messages if isinstance(each, WrittenSlice)]


def _check_tasks(client: Client, slices: list[WrittenSlice], tasks: int) -> None:
    """Compare the number of tasks with an earlier attempt's, or record it before the first end."""
    topic = next((each.topic for each in slices if each.topic is not None), None)
    if topic is None:
        # No task had rows.
        return
    batch_id, group = slices[0].slice.batch_id, slices[0].slice.query_group
    assert batch_id is not None, slices[0]
    before = read_marker(client, group)
    facts = {"tasks": tasks}
    if before is None or before.batch_id < batch_id:
        client.commit_offsets(group, Marker(batch_id, facts, topic).offsets())
    elif before.batch_id > batch_id:
        raise ReplayError(
            f"batch {batch_id} comes after batch {before.batch_id} of the same query: the "
            "checkpoint was set back, or another run of the query is ahead"
        )
    elif before.facts != facts:
        raise ReplayError(
            f"batch {batch_id} had {before.facts.get('tasks')} tasks, and its replay has {tasks}"
        )
