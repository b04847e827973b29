"""The remote segments that a cluster knows, read from `__remote_log_metadata` as a client.

The metadata partitions are read one after the other, and each is replayed as brokers do it. So the
memory is that of the segments in the largest metadata partition, about 350 bytes for each.
"""

from __future__ import annotations

import heapq
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.output import fail
from barnabas.cli.remote.spooled_items import SpooledItems
from barnabas.client.errors import UnknownTopicError
from barnabas.client.fetch.record_set import read_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.record_frame import decode_remote_log_record
from barnabas.protocol.records.remote_log import (
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
)
from barnabas.storage.remote.remote_storage import RemoteSegment
from barnabas.storage.remote.segment_objects import segment_name
from barnabas.storage.remote.segment_states import RemoteLog
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from barnabas.storage.topic_partition import TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from barnabas.client.facade import Client

Event = RemoteLogSegmentMetadataRecord | RemoteLogSegmentMetadataUpdateRecord
_EVENTS = (RemoteLogSegmentMetadataRecord, RemoteLogSegmentMetadataUpdateRecord)


class SegmentsInOrder(NamedTuple):
    """The segments of a cluster in the order of their objects' names."""

    segment_count: int
    total_bytes: int
    # For one use.
    segments: Iterator[RemoteSegment]


class _Run(NamedTuple):
    """The segments of one metadata partition in the order of their objects' names."""

    items: SpooledItems[RemoteSegment]
    total_bytes: int


class ClusterSegments:
    """Reads the metadata of remote segments up to its end at the time of the first call."""

    def __init__(self, client: Client, topic: str | None, advance: Callable[[int], None]) -> None:
        """Look up the metadata partitions and their ends.

        Args:
            client: The client of the command.
            topic: Only the segments of this topic; None for all.
            advance: Called with the number of records that were read, for a progress bar.
        """
        self._client = client
        self._topic = topic
        self._advance = advance
        # Records that are no events of a segment. Brokers skip them too.
        self.skipped = 0
        try:
            found = client.partitions_for([REMOTE_LOG_TOPIC], may_be_new=False)
        except UnknownTopicError:
            fail(
                f"the cluster has no topic {REMOTE_LOG_TOPIC}: it never had a tiered topic; "
                "docs/tiered-storage.md tells how to begin"
            )
        keys = [TopicPartition(REMOTE_LOG_TOPIC, number) for number in found[REMOTE_LOG_TOPIC]]
        self._starts = self._offsets(keys, "earliest")
        # Where the next read of a metadata partition begins.
        self._ends = self._offsets(keys, "latest")
        self.events = sum(self._ends[key] - self._starts[key] for key in keys)

    def logs(self) -> Iterator[dict[TopicIdPartition, RemoteLog]]:
        """Yield the segments of one metadata partition after the other."""
        for key, start in self._starts.items():
            logs: dict[TopicIdPartition, RemoteLog] = {}
            for event in self._events(key, start, self._ends[key]):
                entry = event.remote_log_segment_id.topic_id_partition
                where = TopicIdPartition(bytes(entry.id), entry.name, entry.partition)
                log = logs.get(where)
                if log is None:
                    log = logs[where] = RemoteLog(where)
                log.apply(event)
            yield logs

    def in_order(self) -> SegmentsInOrder:
        """Return the segments in the order of their objects' names."""
        return spooled_in_order(self.logs())

    def changed(self) -> set[bytes]:
        """Return what has events since the last read: ids of segments, and keys of partitions."""
        ends = self._offsets(list(self._ends), "latest")
        found: set[bytes] = set()
        for key, end in ends.items():
            for event in self._events(key, self._ends[key], end):
                segment = event.remote_log_segment_id
                where = segment.topic_id_partition
                found.add(bytes(segment.id))
                found.add(partition_key(bytes(where.id), where.partition))
        self._ends = ends
        return found

    def _offsets(self, keys: list[TopicPartition], spec: str) -> dict[TopicPartition, int]:
        specs: Mapping[TopicPartition, str | int] = dict.fromkeys(keys, spec)
        found = self._client.list_offsets(specs, isolation_level="read_uncommitted")
        return {key: found[key].offset for key in keys}

    def _events(self, key: TopicPartition, start: int, end: int) -> Iterator[Event]:
        if start >= end:
            return
        with self._client.stream({key: (start, end)}) as stream:
            for found in stream.sets():
                records = read_records(found)
                for record in records:
                    event = self._event(record.value)
                    if event is not None:
                        yield event
                self._advance(len(records))

    def _event(self, value: bytes | None) -> Event | None:
        """Return an event of the wanted topics; None for other records."""
        try:
            if value is None:
                raise ProtocolError("the value is null")
            event = decode_remote_log_record(value)
        except ProtocolError:
            self.skipped += 1
            return None
        if not isinstance(event, _EVENTS):
            return None
        name = event.remote_log_segment_id.topic_id_partition.name
        return event if self._topic in (None, name) else None


def spooled_in_order(found: Iterable[dict[TopicIdPartition, RemoteLog]]) -> SegmentsInOrder:
    """Return segments in the order of their objects' names.

    Args:
        found: The segments of one metadata partition after the other. They are kept in temporary
            files.
    """
    runs = [_spooled(logs) for logs in found]
    merged = heapq.merge(*(_named(run.items) for run in runs), key=itemgetter(0))
    return SegmentsInOrder(
        sum(run.items.count for run in runs),
        sum(run.total_bytes for run in runs),
        (segment for _, segment in merged),
    )


def _spooled(logs: dict[TopicIdPartition, RemoteLog]) -> _Run:
    """Return the segments of one metadata partition."""
    items = SpooledItems(RemoteSegment)
    total = 0
    # The order of partitions follows from any segment's name.
    for log in sorted((log for log in logs.values() if log.count), key=_first_name):
        total += log.finished_bytes
        for segment in sorted(log.iterate(), key=segment_name):
            items.add(segment)
    return _Run(items, total)


def _first_name(log: RemoteLog) -> str:
    return segment_name(next(log.iterate()))


def _named(items: SpooledItems[RemoteSegment]) -> Iterator[tuple[str, RemoteSegment]]:
    for segment in items.read():
        yield segment_name(segment), segment


def partition_key(topic_id: bytes, partition: int) -> bytes:
    """Return the key of a partition among ids of segments, which have 16 bytes."""
    return topic_id + partition.to_bytes(4, signed=True)
