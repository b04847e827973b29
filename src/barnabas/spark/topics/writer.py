"""`df.write` and `df.writeStream` with `format("barnabas")`: at least once or exactly once.

A row has a `value` and optionally `key`, `topic`, `partition` and `headers`; other columns are
ignored. A task returns when all its records are acknowledged. With transactions the driver then
commits the tasks' records, see `transactions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from barnabas.protocol.api_keys import ApiKey
from barnabas.spark.errors import OptionError
from barnabas.spark.topics.sink_rows import SinkRows
from barnabas.spark.worker_process import freeze_imports, message_first

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from pyarrow import RecordBatch

    from barnabas.spark.topics.options import SinkOptions
    from barnabas.spark.topics.sink_rows import SinkColumns

    Messages = list[WriterCommitMessage | None]

_NEEDED = (ApiKey.INIT_PRODUCER_ID, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT)


def is_transactional(options: SinkOptions, *, default: bool) -> bool:
    """Return whether to write in transactions.

    Args:
        options: the checked options.
        default: without the option exactlyOnce, whether to use transactions where brokers have
            them.

    Raises:
        OptionError: exactlyOnce=true, and the brokers have no transactions.
        ClientError: no broker responded.
    """
    if options.exactly_once is False or (options.exactly_once is None and not default):
        return False
    from barnabas.spark.topics.clients import transactional_client

    apis = transactional_client(options.client).admin.describe_versions().apis
    return has_transactions(options, apis)


def has_transactions(options: SinkOptions, apis: Container[int]) -> bool:
    """Return whether brokers that serve these APIs have transactions.

    Raises:
        OptionError: exactlyOnce=true, and the brokers do not have transactions.
    """
    missing = [key.name for key in _NEEDED if key not in apis]
    if missing and options.exactly_once:
        raise OptionError(
            f"exactlyOnce=true needs transactions, and the brokers at "
            f"{options.client['bootstrap.servers']} do not serve {', '.join(missing)}: use brokers "
            "with transactions. With exactlyOnce=false, tasks that Spark repeats write their rows "
            "twice"
        )
    return not missing


@dataclass
class WrittenRecords(WriterCommitMessage):
    """Result of a task that writes without transactions: the number of its records."""

    records: int


@message_first
class _TopicWriter:
    """Writes rows to topics.

    Args:
        options: the checked options.
        columns: where the rows have the parts of a record.
        job: part of the transactional ids of a job, empty for a stream; None writes without
            transactions.
    """

    def __init__(self, options: SinkOptions, columns: SinkColumns, job: str | None) -> None:
        self._options = options
        self._columns = columns
        self._job = job

    def write(self, iterator: Iterator[RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows and wait for their acknowledgement."""
        freeze_imports()
        options = self._options
        if self._job is None:
            return write_rows(options, self._columns, iterator)
        from barnabas.spark.topics.transactions import slice_of_task, write_slice

        of = slice_of_task(options.transactional_id_prefix, self._job)
        return write_slice(options, self._columns, of, iterator)

    def commit(self, messages: Messages, batchId: int | None = None) -> None:
        """Commit the transactions of all tasks; Spark gives the batch of a stream."""
        from barnabas.spark.topics.transactions import commit_slices

        commit_slices(self._options, messages)

    def abort(self, messages: Messages, batchId: int | None = None) -> None:
        """Abort the transactions of all tasks after one of them, or the commit, failed."""
        from barnabas.spark.topics.transactions import abort_slices

        abort_slices(self._options, messages)


class TopicWriter(_TopicWriter, DataSourceArrowWriter):
    """Writes a DataFrame to topics."""


class TopicStreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """Writes micro-batches; without transactions, a repeated batch is written again."""


def write_rows(
    options: SinkOptions, columns: SinkColumns, batches: Iterable[RecordBatch]
) -> WrittenRecords:
    """Produce all rows and wait for their acknowledgement.

    Raises:
        RowError: a row has no topic.
        ClientError: a record was not acknowledged.
    """
    from barnabas.spark.topics.clients import discard_producer, producer

    sender = producer(options.client)
    count = 0
    try:
        for batch in batches:
            SinkRows.read(columns, batch).send(sender, options.topic)
            count += batch.num_rows
        sender.flush()
    except BaseException:
        # The producer's pending records belong to the failed task; the next task must not send
        # them.
        discard_producer(options.client)
        raise
    return WrittenRecords(count)
