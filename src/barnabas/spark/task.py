"""Reads one range of offsets in a Spark task."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.client.errors import OffsetOutOfRangeError, RangeStalledError, UnknownTopicError
from barnabas.spark.clients import reading_client
from barnabas.spark.errors import DataLossError
from barnabas.spark.rows import RowBatches
from barnabas.spark.worker_python import freeze_imports

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import RecordBatch
    from pyspark.sql.types import StructType

    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.spark.options import SourceOptions
    from barnabas.spark.ranges import OffsetRange
    from barnabas.spark.value_reader import ValueReader

logger = logging.getLogger(__name__)


def read_range(
    options: SourceOptions, wanted: OffsetRange, schema: StructType
) -> Iterator[RecordBatch]:
    """Yield the records of a range as Arrow batches; each call yields the same records.

    The range is complete when its last offset is passed. Offsets without a record (compaction,
    transaction markers) do not count as data loss.

    Raises:
        DataLossError: records of the range were deleted, and failOnDataLoss is on.
        ValueDecodeError: a value cannot be decoded, and valueErrors is `fail`.
        RegistryError: the schema registry was not reached, or refused a request.
        DeadLetterError: a record that cannot be decoded was not written to its topic.
    """
    freeze_imports()
    client = reading_client(options.client | _poll_timeout(options))
    tp = wanted.topic_partition
    rows = RowBatches(wanted.topic, wanted.partition, schema, _value_reader(options, tp))
    position: int | None = wanted.start
    while position is not None and position < wanted.end:
        try:
            for part in client.fetch_range({tp: (position, wanted.end)}):
                records = bytes(part.data)
                yield from rows.add(records, part.first_offset, part.end_offset, part.aborted)
                position = part.end_offset
        except (OffsetOutOfRangeError, RangeStalledError, UnknownTopicError) as problem:
            if options.fail_on_data_loss:
                raise DataLossError(
                    f"Offsets {position} to {wanted.end} of {tp} cannot be read: {problem}."
                ) from problem
            position = _after_gap(client, tp, position, wanted.end)
    yield from rows.rest()


def _value_reader(options: SourceOptions, tp: TopicPartition) -> ValueReader | None:
    """Return the reader of values; None if values are bytes."""
    given = options.value_format
    if given is None:
        return None
    from barnabas.spark.dead_letters import DeadLetters
    from barnabas.spark.value_reader import ValueReader

    return ValueReader(given, tp, DeadLetters(options) if given.dead_letter_topic else None)


def _poll_timeout(options: SourceOptions) -> dict[str, str]:
    """Return the client's timeout for a stalled range, if kafkaConsumer.pollTimeoutMs is set."""
    timeout_ms = options.poll_timeout_ms
    return {} if timeout_ms is None else {"default.api.timeout.ms": str(timeout_ms)}


def _after_gap(client: Client, tp: TopicPartition, position: int, end: int) -> int | None:
    """Return the offset after lost records; None if no record of the range is left."""
    try:
        earliest = client.list_offsets({tp: "earliest"})[tp].offset
    except UnknownTopicError:
        earliest = end
    if position < earliest < end:
        logger.warning("%s: records from %d to %d are lost and skipped", tp, position, earliest)
        return earliest
    logger.warning("%s: records from %d to %d are lost and skipped", tp, position, end)
    return None
