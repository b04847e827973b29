"""Committed offsets that record which batches are written.

A slice is the rows of one task in one batch. The transaction of a slice commits, together with the
rows, an offset in a group of the slice's own: the batch id plus one. The metadata of the offset
holds the number of rows and their digest. A replayed batch reads it and omits committed slices.

The driver commits such an offset in a group of the query before it ends the first transaction of a
batch. Its metadata holds the number of tasks.

A committed offset needs an existing partition. Any topic of the rows is valid: readers of a marker
look at all offsets of the group.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.client.facade import Client

__all__ = ["Marker", "read_marker"]


@dataclass(frozen=True, slots=True)
class Marker:
    """The last batch of a slice or a query, and facts that a replay of the batch must repeat."""

    batch_id: int
    facts: dict[str, int]
    # An existing topic; its partition 0 holds the offset.
    topic: str

    def offsets(self) -> dict[TopicPartition, CommittedOffset]:
        """Return the offset to commit."""
        committed = CommittedOffset(self.batch_id + 1, metadata=json.dumps(self.facts))
        return {TopicPartition(self.topic, 0): committed}


def read_marker(client: Client, group: str) -> Marker | None:
    """Return the group's last marker; None before the first one.

    Raises:
        ClientError: the coordinator refused, or did not respond in time.
    """
    found = client.committed(group)
    if not found:
        return None
    tp, committed = max(found.items(), key=lambda item: item[1].offset)
    return Marker(committed.offset - 1, _facts(committed.metadata), tp.topic)


def _facts(metadata: str) -> dict[str, int]:
    """Return the facts; none if another program committed the offset."""
    try:
        found = json.loads(metadata)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
