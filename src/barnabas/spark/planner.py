"""Finds partitions and offsets on the driver: where reading starts and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import UnknownTopicError
from barnabas.client.topic_partition import TopicPartition
from barnabas.settings.java_pattern import compile_java_pattern
from barnabas.spark.errors import OptionError
from barnabas.spark.offsets import EARLIEST, LATEST, Offsets
from barnabas.spark.options import BoundKind, OffsetBound, SourceOptions

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client


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
