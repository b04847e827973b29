"""The results of fetching a partition: record sets, and the failure that ends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.errors import ClientError
    from barnabas.client.fetch.record_scan import BatchSpan
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["FetchFailure", "RecordSet"]


class RecordSet(NamedTuple):
    """Fetched bytes of one partition: whole record batches, as stored in the log.

    The first batch may begin before `first_offset`, and the last batch may end after `end_offset`.
    Records outside [first_offset, end_offset) do not belong to the set.
    """

    topic: str
    partition: int
    first_offset: int
    # End offset (exclusive); the next set begins here.
    end_offset: int
    # Bytes, except in sets that only a consumer reads: it may have a view of a receive buffer.
    data: bytes | memoryview
    # High watermark as of this response.
    high_watermark: int
    # Start offset of the log as of this response.
    log_start_offset: int
    # (producer id, first offset) of aborted transactions; only with isolation.level=read_committed.
    aborted: tuple[tuple[int, int], ...]
    # The batches in `data`.
    batches: Sequence[BatchSpan] = ()
    # Last stable offset as of this response; -1 if unknown.
    last_stable_offset: int = -1


class FetchFailure(NamedTuple):
    """A partition that cannot be read further; it stays stopped until it is started again."""

    topic_partition: TopicPartition
    error: ClientError
