"""Records of aborted transactions, which read_committed share groups do not deliver (KIP-932)."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from barnabas.server.share.records.acquisition import AcquiredRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.server.share.records.acquisition import FetchedBatch
    from barnabas.storage.results import AbortedTransaction


def aborted_ranges(
    batches: Iterable[FetchedBatch], aborted: Iterable[AbortedTransaction]
) -> list[tuple[int, int]]:
    """Return first and last offset of each record batch of an aborted transaction.

    A transaction of a producer ends with the abort marker of this producer.
    """
    pending = [(each.first_offset, each.producer_id) for each in aborted]
    heapq.heapify(pending)
    open_producers: set[int] = set()
    found: list[tuple[int, int]] = []
    for batch in batches:
        if batch.producer_id < 0:
            continue
        while pending and pending[0][0] <= batch.last:
            open_producers.add(heapq.heappop(pending)[1])
        if batch.is_abort_marker:
            open_producers.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in open_producers:
            found.append((batch.first, batch.last))
    return found


def without_ranges(
    acquired: Sequence[AcquiredRange], removed: Sequence[tuple[int, int]]
) -> list[AcquiredRange]:
    """Return the acquired offsets that are in no removed range. Both are in order."""
    left: list[AcquiredRange] = []
    index = 0
    for each in acquired:
        first = each.first
        while index < len(removed) and removed[index][1] < first:
            index += 1
        at = index
        while at < len(removed) and removed[at][0] <= each.last:
            if first < removed[at][0]:
                left.append(AcquiredRange(first, removed[at][0] - 1, each.delivery_count))
            first = removed[at][1] + 1
            at += 1
        if first <= each.last:
            left.append(AcquiredRange(first, each.last, each.delivery_count))
    return left
