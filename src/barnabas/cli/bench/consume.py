"""The consume load: read and decode the records of a topic as fast as possible."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from barnabas.client.errors import CorruptRecordsError
from barnabas.client.fetch.record_decoding import read_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.record.record import CorruptBatchError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.cli.bench.measurement import Measurement
    from barnabas.client.facade import Client
    from barnabas.client.fetch.record_set import RecordSet
    from barnabas.record.compiled import CompiledRecord

__all__ = ["run_consume"]

_POLL_MS = 100.0
_US_PER_S = 1_000_000


def run_consume(
    client: Client,
    topic: str,
    measurement: Measurement,
    *,
    records_max: int | None,
    seconds_max: float | None,
    idle_s: float,
) -> KeyboardInterrupt | None:
    """Read the topic from its beginning.

    The run ends after `records_max` records, after `seconds_max` seconds, or when no records arrive
    for `idle_s` seconds. Without the first two limits, it ends at the current end of the topic. A
    latency is the time from one record set to the next.

    Returns:
        The interrupt that ended the reading, if any.

    Raises:
        CorruptRecordsError: Records cannot be decoded.
    """
    numbers = client.partitions_for([topic])[topic]
    partitions = [TopicPartition(topic, number) for number in numbers]
    starts = client.list_offsets(dict.fromkeys(partitions, "earliest"))
    ends = client.list_offsets(dict.fromkeys(partitions, "latest"))
    is_bounded = records_max is None and seconds_max is None
    ranges = {tp: (starts[tp].offset, ends[tp].offset if is_bounded else None) for tp in partitions}
    measurement.start()
    last = time.perf_counter()
    try:
        with client.stream(ranges) as stream:
            while not stream.is_finished:
                found = stream.poll(_POLL_MS)
                now = time.perf_counter()
                measurement.maybe_end_interval()
                if found is not None:
                    records = _decoded(found)
                    if records_max is not None:
                        records = records[: records_max - measurement.records]
                    size = sum(len(each.key or b"") + len(each.value or b"") for each in records)
                    measurement.add(len(records), size, int((now - last) * _US_PER_S))
                    last = time.perf_counter()
                if records_max is not None and measurement.records >= records_max:
                    break
                if seconds_max is not None and now - measurement.started_s >= seconds_max:
                    break
                if now - last >= idle_s:
                    break
    except KeyboardInterrupt as interrupt:
        return interrupt
    finally:
        measurement.end()
    return None


def _decoded(found: RecordSet) -> Sequence[CompiledRecord]:
    try:
        return read_records(found)
    except CorruptBatchError as error:
        tp = TopicPartition(found.topic, found.partition)
        raise CorruptRecordsError(tp, found.first_offset, str(error), found.end_offset) from error
