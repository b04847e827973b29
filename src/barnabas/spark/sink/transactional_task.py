"""Writes the rows of one task in a transaction that the driver ends.

InitProducerId aborts the transaction of an earlier attempt, and fences that attempt. Then
the marker tells whether an earlier run of the batch has committed the slice.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError
from barnabas.runtime.clock import SystemClock
from barnabas.spark.clients import transactional_client
from barnabas.spark.errors import RowError
from barnabas.spark.sink.errors import ReplayError, explained
from barnabas.spark.sink.markers import Marker, read_marker
from barnabas.spark.sink.rows import SinkRows
from barnabas.spark.sink.slices import Slice, WrittenSlice

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyarrow import RecordBatch

    from barnabas.client.producer.producer import SharedProducer
    from barnabas.spark.options import SinkOptions
    from barnabas.spark.sink.columns import SinkColumns

__all__ = ["write_slice"]

_UINT64 = (1 << 64) - 1
# How long a failed task tries to abort its transaction; the next attempt aborts it otherwise.
_ABORT_TIMEOUT_S = 5.0


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
