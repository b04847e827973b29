"""Blocking reads over a fetcher: raw record sets or records, bounded or endless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.connections.lookups import TopicLookup
from barnabas.client.errors import RangeStalledError
from barnabas.client.fetch.fetch_buffer import FetchState
from barnabas.client.fetch.fetcher import Fetcher
from barnabas.client.fetch.record_set import (
    ConsumerRecord,
    FetchFailure,
    RecordSet,
    decode_record_set,
    iter_record_set,
)
from barnabas.client.session.lifetime import WithBlock
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.errors import ClientError
    from barnabas.client.retries import OnDone
    from barnabas.client.session.session import Waiter

__all__ = ["RecordStream"]


class RecordStream(WithBlock):
    """Reads partitions; the next fetches are in flight while the caller processes records."""

    def __init__(
        self,
        cluster: Cluster,
        waiter: Waiter,
        ranges: Mapping[TopicPartition, tuple[int, int | None]],
        on_closed: Callable[[RecordStream], None],
    ) -> None:
        self._cluster = cluster
        self._waiter = waiter
        self._on_closed = on_closed
        self._partitions = {tp: FetchState(tp, bounds[1]) for tp, bounds in ranges.items()}
        self._fetcher = Fetcher(cluster, self._partitions)
        # For each partition the offset after the last record set returned to the caller.
        self._positions = {tp: bounds[0] for tp, bounds in ranges.items()}
        self._closed = False
        self._fetch_metadata({tp.topic for tp in ranges if ranges[tp][1] != ranges[tp][0]})
        for tp, state in self._partitions.items():
            self._fetcher.start(state, self._positions[tp])
        self._fetcher.send_fetches()

    def _fetch_metadata(self, topics: set[str]) -> None:
        """Fetch metadata of the topics, so that a misspelled name raises here."""
        missing = [name for name in topics if name not in self._cluster.metadata.topics]
        if not missing:
            return
        timeout_ms = self._cluster.config.default_api_timeout_ms

        def start(on_done: OnDone[dict[str, TopicInfo]]) -> None:
            TopicLookup(self._cluster, missing, timeout_ms, on_done).start()

        self._waiter.wait(start, "the metadata request")

    def close(self) -> None:
        """Stop reading; a second call does nothing."""
        if not self._closed:
            self._closed = True
            self._fetcher.close()
            self._on_closed(self)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """For each partition the offset after the last returned record: the offset to commit."""
        return dict(self._positions)

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermark of each partition in its last fetch response."""
        known = ((tp, state.high_watermark) for tp, state in self._partitions.items())
        return {tp: offset for tp, offset in known if offset is not None}

    @property
    def is_finished(self) -> bool:
        """Whether every partition has reached its end offset."""
        return self._fetcher.is_finished

    @property
    def trouble(self) -> ClientError | None:
        """The error of a broker that does not respond, else None; reading resumes with it."""
        return self._fetcher.trouble

    def poll(self, timeout_ms: float) -> RecordSet | None:
        """Return the next record set; None after `timeout_ms` or at the end of all partitions.

        Raises:
            ClientError: a partition failed; later calls continue with the other partitions.
        """
        fetcher = self._fetcher
        if fetcher.buffer or fetcher.is_finished:
            self._waiter.check_usable()
        else:
            self._waiter.run_until(self._has_output, timeout_ms)
        item = fetcher.take()
        if item is None:
            return None
        if isinstance(item, FetchFailure):
            raise item.error
        self._positions[TopicPartition(item.topic, item.partition)] = item.end_offset
        return item

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Continue a partition of this stream at another offset; works after a failure too."""
        self._waiter.check_usable()
        self._positions[tp] = offset
        self._fetcher.start(self._partitions[tp], offset)
        self._fetcher.send_fetches()

    def partition_of(self, record: ConsumerRecord) -> TopicPartition:
        """Return the partition of a record."""
        return TopicPartition(record.topic, record.partition)

    def _has_output(self) -> bool:
        return bool(self._fetcher.buffer) or self._fetcher.is_finished

    def sets(self) -> Iterator[RecordSet]:
        """Yield record sets until every partition is at its end.

        Raises:
            RangeStalledError: no data arrived for `default.api.timeout.ms`.
            ClientError: a partition failed.
        """
        timeout_ms = self._cluster.config.default_api_timeout_ms
        is_bounded = all(
            state.end is not None for state in self._partitions.values() if not state.is_stopped
        )
        while not self.is_finished:
            item = self.poll(timeout_ms)
            if item is not None:
                yield item
            elif is_bounded and not self.is_finished:
                unfinished = (s for s in self._partitions.values() if not s.is_stopped)
                state = next(unfinished)
                assert state.end is not None, state.tp
                raise RangeStalledError(state.tp, state.fetch_offset, state.end, timeout_ms / 1000)

    def records(self) -> Iterator[ConsumerRecord]:
        """Yield single records until every partition is at its end; raises as `sets` does."""
        for item in self.sets():
            yield from iter_record_set(item)

    def poll_records(self, timeout_ms: float) -> list[ConsumerRecord]:
        """Return the records of the next record set; empty if none arrived in `timeout_ms`."""
        item = self.poll(timeout_ms)
        return [] if item is None else decode_record_set(item)
