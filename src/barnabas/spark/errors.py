"""Errors of the sources, sinks and tables of Spark; the message of each says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client.topic_partition import TopicPartition


class OptionError(ValueError):
    """An option of `format("barnabas")` is unknown, missing or has an invalid value."""


class DataLossError(RuntimeError):
    """Records that the query must read no longer exist."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} Some data may have been lost: it was deleted by retention before it was "
            "read, or the topic was deleted or recreated. First check that the query reads the "
            "topics of its checkpoint, in the same order. To prevent this, raise retention.ms or "
            "retention.bytes of the topic. If the records are gone: failOnDataLoss=false "
            "continues without them, so the results lack them; another checkpoint location "
            "starts from startingOffsets, so the sink gets rows that it has already a second time."
        )


class RecordTimeError(ValueError):
    """The time of a record is beyond the timestamps of Spark."""

    def __init__(self, tp: TopicPartition, offset: int, time_ms: int) -> None:
        super().__init__(
            f"The record at offset {offset} of {tp} has the time {time_ms} ms, which Spark's "
            "timestamps in microseconds cannot hold. Its producer may have written microseconds "
            "or nanoseconds where Kafka expects milliseconds. To read the topic without this "
            "record, use startingOffsets and endingOffsets."
        )


class RowError(ValueError):
    """A row cannot be written to a topic."""


class ValueDecodeError(ValueError):
    """A record's value does not have the format of the option `valueFormat`."""

    def __init__(self, tp: TopicPartition, offset: int, reason: Exception) -> None:
        super().__init__(
            f"{tp}, offset {offset}: the value cannot be decoded: {reason}. To continue, set "
            f"deadLetterTopic to send such records to a topic, or valueErrors to null or drop."
        )


class DeadLetterError(RuntimeError):
    """A record for the option `deadLetterTopic` was not acknowledged."""

    def __init__(self, topic: str, reason: Exception) -> None:
        super().__init__(
            f"deadLetterTopic {topic}: a record that cannot be decoded was not written: {reason}. "
            f"The task fails, because the record would be lost. Check that the topic exists, and "
            f"that its max.message.bytes allows the records of the topics that are read."
        )


class DeltaTableError(RuntimeError):
    """The rows do not fit the table, or the table is newer than the query's checkpoint."""


class IcebergTableError(RuntimeError):
    """The rows do not fit the table, or the table is newer than the query's checkpoint."""


class MergeError(RuntimeError):
    """The rows of a batch cannot be merged into the table; the message says why."""


class MaintenanceError(RuntimeError):
    """A table cannot be opened or maintained; the message says why and what to do."""
