"""Finds partitions and offsets on the driver, and remembers lost topics in the checkpoint.

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

from barnabas.client.errors import UnknownTopicError
from barnabas.client.topic_partition import TopicPartition
from barnabas.settings.java_pattern import compile_java_pattern
from barnabas.spark.errors import DataLossError, OptionError
from barnabas.spark.topics.offsets import EARLIEST, LATEST, Offsets
from barnabas.spark.topics.options import BoundKind, OffsetBound, SourceOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping

    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client

    # Returns the ids of those of the given topics that exist. It is called for lost topics only.
    IdsOf: TypeAlias = Callable[[Iterable[str]], Mapping[str, bytes]]

logger = logging.getLogger(__name__)
# The layout: bit 62, then the digest of the topic's id, then the position in the lowest bits.
_LOST = 1 << 62
_POSITION_BITS = 44
_POSITION_MAX = (1 << _POSITION_BITS) - 1
_DIGEST_MAX = (1 << 18) - 1


class Planner:
    """Finds the partitions and offsets of the selected topics."""

    def __init__(self, client: Client, options: SourceOptions) -> None:
        self._client = client
        self._options = options
        pattern = options.selection.pattern
        self._pattern = None if pattern is None else compile_java_pattern(pattern)
        # Last known id of each topic; a recreated topic has another id.
        self._ids: dict[str, bytes] = {}
        # Ids that recreated topics had before, until `recreated` returns them.
        self._recreated: dict[str, bytes] = {}
        # Whether topics were missing at the last request. If so, the next request lists all topics,
        # because a lookup of missing topics takes a second.
        self._has_missing_topics = False
        self._is_dead_letter_topic_known = False

    def partitions(self, may_be_gone: Container[str] = ()) -> list[TopicPartition]:
        """Return all partitions selected now, sorted; a pattern may match new topics each time.

        Args:
            may_be_gone: topics whose partitions are omitted if they do not exist.

        Raises:
            UnknownTopicError: another selected topic or partition does not exist.
            OptionError: the topic for dead letters does not exist, or is read.
        """
        selection = self._options.selection
        topics = selection.named_topics
        if self._pattern is not None:
            topics = [name for name in self._client.topics() if self._pattern.search(name)]
        self._check_dead_letters(topics)
        found = {
            TopicPartition(topic, partition)
            for topic, partitions in self._described(topics, may_be_gone).items()
            for partition in partitions
        }
        if selection.partitions is None:
            return sorted(found)
        for tp in selection.partitions:
            if tp not in found and tp.topic not in may_be_gone:
                raise UnknownTopicError(f"partition {tp} of option assign")
        return [tp for tp in selection.partitions if tp in found]

    def _check_dead_letters(self, topics: Container[str]) -> None:
        given = self._options.value_format
        if given is None or not given.dead_letter_topic:
            return
        name = given.dead_letter_topic
        if name in topics:
            raise OptionError(
                f"deadLetterTopic={name!r} is also read: each dead letter would make another one; "
                f"choose a name that subscribePattern does not match"
            )
        if self._is_dead_letter_topic_known:
            return
        try:
            self._client.describe_topics([name])
        except UnknownTopicError:
            raise OptionError(
                f"deadLetterTopic={name!r} does not exist: create it, for instance with "
                f"`barnabas topics create {name}`"
            ) from None
        self._is_dead_letter_topic_known = True

    def _described(
        self, topics: list[str], may_be_gone: Container[str]
    ) -> dict[str, Iterable[int]]:
        infos = self._existing(topics, may_be_gone)
        for name, info in infos.items():
            before = self._ids.setdefault(name, info.topic_id)
            if before != info.topic_id:
                self._ids[name] = info.topic_id
                self._recreated[name] = before
        return {name: info.partitions for name, info in infos.items()}

    def _existing(self, topics: list[str], may_be_gone: Container[str]) -> dict[str, TopicInfo]:
        if not self._has_missing_topics:
            try:
                return self._client.describe_topics(topics)
            except UnknownTopicError:
                if not any(topic in may_be_gone for topic in topics):
                    raise
        every = self._client.describe_topics()
        missing = [topic for topic in topics if topic not in every]
        self._has_missing_topics = bool(missing)
        for topic in missing:
            if topic not in may_be_gone:
                raise UnknownTopicError(topic)
        return {topic: every[topic] for topic in topics if topic in every}

    def recreated(self) -> dict[str, bytes]:
        """Return topics that were deleted and recreated, with their old ids; each once."""
        found, self._recreated = self._recreated, {}
        return found

    def last_id(self, topic: str) -> bytes | None:
        """Return the id that a topic had when it was last seen; None if it was not seen."""
        return self._ids.get(topic)

    def current_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        """Return the ids of those topics that exist."""
        names = list(topics)
        return {name: info.topic_id for name, info in self._existing(names, names).items()}

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the end of each partition.

        This is the high watermark, or the last stable offset with `isolation.level=read_committed`.
        """
        return self._listed(dict.fromkeys(partitions, LATEST))

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the log start offset of each partition."""
        return self._listed(dict.fromkeys(partitions, EARLIEST))

    def starting(self, partitions: list[TopicPartition]) -> Offsets:
        """Return the offsets at which reading starts.

        Raises:
            OptionError: the option lacks a partition, or no record is at or after its timestamp.
        """
        found = self._resolve(self._options.starting, partitions)
        unmatched = [tp for tp, offset in found.items() if offset < 0]
        if unmatched and not self._options.latest_if_no_match:
            raise OptionError(
                f"{self._options.starting.option}: {_named(unmatched)} has no record at or after "
                "its timestamp; set startingOffsetsByTimestampStrategy=latest to start at the end"
            )
        return found | self.latest(unmatched)

    def ending(self, partitions: list[TopicPartition]) -> Offsets:
        """Return the exclusive end offsets; for a timestamp after all records the current end.

        Raises:
            OptionError: the option lacks a partition, or gives an offset after its end.
        """
        found = self._resolve(self._options.ending, partitions)
        if self._options.ending.kind is BoundKind.LATEST:
            return found
        latest = self.latest(partitions)
        for tp, offset in found.items():
            if offset > latest[tp]:
                raise OptionError(
                    f"{self._options.ending.option} has {offset} for {tp}, which ends at "
                    f"{latest[tp]}"
                )
        return {tp: latest[tp] if offset < 0 else offset for tp, offset in found.items()}

    def _resolve(self, bound: OffsetBound, partitions: list[TopicPartition]) -> Offsets:
        match bound.kind:
            case BoundKind.EARLIEST:
                return self.earliest(partitions)
            case BoundKind.LATEST:
                return self.latest(partitions)
            case BoundKind.TIMESTAMP:
                return self._listed(dict.fromkeys(partitions, bound.timestamp))
            case BoundKind.TIMESTAMPS:
                _check_cover(bound, partitions)
                return self._listed(bound.numbers)
            case BoundKind.OFFSETS:
                _check_cover(bound, partitions)
                special = {tp: n for tp, n in bound.numbers.items() if n < 0}
                return bound.numbers | self._listed(special)

    def _listed(self, specs: dict[TopicPartition, int]) -> Offsets:
        if not specs:
            return {}
        return {tp: found.offset for tp, found in self._client.list_offsets(specs).items()}


def _check_cover(bound: OffsetBound, partitions: list[TopicPartition]) -> None:
    """Require an entry for every partition, so that no partition starts at a guessed offset."""
    missing = [tp for tp in partitions if tp not in bound.numbers]
    extra = sorted(set(bound.numbers) - set(partitions))
    if missing:
        raise OptionError(
            f"{bound.option} does not name {_named(missing)}; it must name every partition that "
            "is read (offsets: -2 for earliest, -1 for latest)"
        )
    if extra:
        raise OptionError(f"{bound.option} names {_named(extra)}, which is not read")


def _named(partitions: list[TopicPartition]) -> str:
    shown = ", ".join(str(tp) for tp in partitions[:5])
    return shown if len(partitions) <= 5 else f"{shown} and {len(partitions) - 5} more"


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
