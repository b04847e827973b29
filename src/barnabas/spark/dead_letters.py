"""Sends records that cannot be decoded to another topic, with the reason in their headers.

The names of the headers, the key, the value and the timestamp are those of Kafka Connect's dead
letter queue (KIP-298), so that the same tools read both. A letter is sent at least once: Spark may
run a task again, and each run sends the letters of its range.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError
from barnabas.record.reader import read_headers
from barnabas.spark.errors import DeadLetterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.record.decoded_columns import DecodedRecords
    from barnabas.spark.options import SourceOptions

    Header = tuple[str, bytes | None]
    BatchRecord = tuple[bytes | None, bytes | None, list[Header], int | None]

_PREFIX = "__connect.errors."
# Kafka Connect's name of the step that decodes values.
_STAGE = "VALUE_CONVERTER"
_MESSAGE_CHARACTERS = 1000


class DeadLetters:
    """Sends the dead letters of a task.

    Args:
        options: The options of the read, with a topic for dead letters.
    """

    def __init__(self, options: SourceOptions) -> None:
        assert options.value_format is not None
        self._client = options.client
        self._topic = options.value_format.dead_letter_topic
        # The same for all letters of the query.
        self._of_query = [
            _header("connector.name", options.group_id),
            _header("stage", _STAGE),
            _header("class.name", f"{__package__}:{options.value_format.format.value}"),
        ]

    def send(
        self,
        tp: TopicPartition,
        records: DecodedRecords,
        columns: tuple[pa.Array, pa.Array],
        failures: Mapping[int, Exception],
    ) -> None:
        """Queue the records that failed.

        Args:
            tp: The partition of the records.
            records: The records.
            columns: Their keys and values.
            failures: The error of each failed record, by row.

        Raises:
            DeadLetterError: The topic does not exist, or a record is too large.
        """
        from barnabas.spark.clients import dead_letter_producer

        try:
            dead_letter_producer(self._client).send_batch(
                self._topic, self._letters(tp, records, columns, failures)
            )
        except ClientError as error:
            self._fail(error)

    def flush(self) -> None:
        """Wait until the brokers have all letters.

        Raises:
            DeadLetterError: A letter was not acknowledged.
        """
        from barnabas.spark.clients import dead_letter_producer

        try:
            dead_letter_producer(self._client).flush()
        except ClientError as error:
            self._fail(error)

    def _fail(self, error: ClientError) -> None:
        from barnabas.spark.clients import discard_dead_letters

        # The pending letters belong to the failed task; the next task must not report their errors.
        discard_dead_letters(self._client)
        raise DeadLetterError(self._topic, error) from error

    def _letters(
        self,
        tp: TopicPartition,
        records: DecodedRecords,
        columns: tuple[pa.Array, pa.Array],
        failures: Mapping[int, Exception],
    ) -> Iterator[BatchRecord]:
        keys, values = columns
        for row, error in sorted(failures.items()):
            start, end = int(records.header_starts[row]), int(records.ends[row])
            timestamp = int(records.timestamps[row])
            headers = [
                *read_headers(records.buffer, start, end),
                _header("topic", tp.topic),
                _header("partition", str(tp.partition)),
                _header("offset", str(records.offsets[row])),
                *self._of_query,
                _header("exception.class.name", type(error).__qualname__),
                _header("exception.message", str(error)[:_MESSAGE_CHARACTERS]),
            ]
            yield (
                keys[row].as_py(),
                values[row].as_py(),
                headers,
                timestamp if timestamp >= 0 else None,
            )


def _header(name: str, value: str) -> Header:
    return _PREFIX + name, value.encode(errors="replace")
