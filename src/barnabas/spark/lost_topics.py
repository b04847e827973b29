"""Offsets that note in a checkpoint that a topic was deleted, or deleted and created again.

A checkpoint holds names and offsets only. A running query knows a topic by its id, and fails when
the topic is recreated. A restarted query would continue at the old offset of the new topic, and
never read the records before it. Therefore a query does not fail at once: it ends its batch at a
*lost offset*. Spark writes the end of a batch into the checkpoint and then plans the batch. The
planning fails, and it fails again after each restart, until someone decides:

- With failOnDataLoss=false the batch is empty, and the next batch starts at offset 0 of the new
  topic.
- With another checkpoint the query starts again.

A broker may also fail to name a topic that still exists. When the topic is there again with the
same id, the batch is empty, and the query continues where it was.

A lost offset is larger than any offset of a record. It holds the position of the query and a digest
of the topic's id.
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, TypeAlias

from barnabas.spark.errors import DataLossError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.client.topic_partition import TopicPartition
    from barnabas.spark.offsets import Offsets

    # Returns the ids of those of the given topics that exist. It is called for lost topics only.
    IdsOf: TypeAlias = Callable[[Iterable[str]], Mapping[str, bytes]]

__all__ = ["lost_offset", "without_lost_ends", "without_lost_starts"]

logger = logging.getLogger(__name__)

# The layout: bit 62, then the digest of the topic's id, then the position in the lowest bits.
_LOST = 1 << 62
_POSITION_BITS = 44
_POSITION_MAX = (1 << _POSITION_BITS) - 1
_DIGEST_MAX = (1 << 18) - 1


def lost_offset(position: int, topic_id: bytes | None) -> int | None:
    """Return the lost offset of a partition; None if it has no room for the position.

    Args:
        position: the offset up to which the query has read.
        topic_id: the id of the lost topic; None if it is not known.
    """
    if topic_id is None or position > _POSITION_MAX:
        return None
    return _LOST | _digest(topic_id) << _POSITION_BITS | position


def without_lost_starts(begin: Offsets, ids_of: IdsOf) -> Offsets:
    """Return the start of a batch with an offset to read for each lost offset.

    This is 0 in a new topic, and the query's position in a topic that was not lost after all.
    """
    returned = _returned(begin, ids_of)
    return {
        tp: (_position(offset) if tp in returned else 0) if _is_lost(offset) else offset
        for tp, offset in begin.items()
    }


def without_lost_ends(until: Offsets, ids_of: IdsOf, *, fail_on_data_loss: bool) -> Offsets:
    """Return the end of a batch without partitions whose end is a lost offset.

    Raises:
        DataLossError: a topic is lost, and fail_on_data_loss is set.
    """
    returned = _returned(until, ids_of)
    lost = {tp: offset for tp, offset in until.items() if _is_lost(offset)}
    problems = [
        f"Topic {tp.topic} was deleted, or deleted and created again, after the query had read "
        f"{tp} up to offset {_position(offset)}."
        for tp, offset in sorted(lost.items())
        if tp not in returned
    ]
    if problems and fail_on_data_loss:
        raise DataLossError(
            f"{problems[0]} With failOnDataLoss=false these records are lost, and the query "
            "reads the new topic from its beginning."
        )
    for problem in problems:
        logger.warning(
            "%s These records are lost: the query continues, because failOnDataLoss=false", problem
        )
    return {tp: offset for tp, offset in until.items() if tp not in lost}


def _returned(offsets: Offsets, ids_of: IdsOf) -> set[TopicPartition]:
    """Return the partitions with a lost offset whose topic has the same id as before."""
    lost = {tp: offset for tp, offset in offsets.items() if _is_lost(offset)}
    if not lost:
        return set()
    ids = ids_of({tp.topic for tp in lost})
    return {
        tp
        for tp, offset in lost.items()
        if tp.topic in ids and (offset >> _POSITION_BITS) & _DIGEST_MAX == _digest(ids[tp.topic])
    }


def _is_lost(offset: int) -> bool:
    return offset >= _LOST


def _position(offset: int) -> int:
    return offset & _POSITION_MAX


def _digest(topic_id: bytes) -> int:
    return zlib.crc32(topic_id) & _DIGEST_MAX
