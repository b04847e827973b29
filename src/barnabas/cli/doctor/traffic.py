"""Diagnosis of the records of a cluster: partitions that take most of a topic, and wrong times."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.admin.group_lag import known_offsets
from barnabas.cli.common.advice import Advice
from barnabas.cli.common.units import amount
from barnabas.cli.why.reasons import duration
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client
    from barnabas.client.fetch.offset_lookups import ListedOffset

Offsets = dict[TopicPartition, int]

# A partition is hot if it takes records at this rate at least, half of the topic's, and twice its
# share. The records of the whole log must show it too: producers without keys write to one
# partition after the other.
_HOT_RATE_MIN = 100.0
_HOT_PART_MIN = 0.5
_HOT_FACTOR = 2.0
# Time over which rates are measured (s).
_WINDOW_S = 1.0
# Records may be this much ahead of our clock (ms).
_AHEAD_MS_MAX = 2_000
_REPORTED_MAX = 5


def partitions_of(topics: Mapping[str, TopicInfo]) -> list[TopicPartition]:
    """Return all partitions that have a leader."""
    return [
        TopicPartition(topic, number)
        for topic, info in topics.items()
        for number, partition in info.partitions.items()
        if partition.leader >= 0
    ]


class Ends(NamedTuple):
    """The end offsets of all partitions at one moment."""

    # Seconds of the monotonic clock.
    at: float
    offsets: Offsets


def read_ends(client: Client) -> Ends:
    """Return the current end offsets; empty if they cannot be read."""
    try:
        wanted = partitions_of(client.describe_topics())
        return Ends(time.monotonic(), known_offsets(client, wanted, "latest"))
    except ClientError:
        return Ends(time.monotonic(), {})


def examine_traffic(client: Client, first: Ends, diagnosis: Diagnosis) -> None:
    """Report partitions that take most of the records of their topic, and times in the future.

    Args:
        first: The end offsets at an earlier moment. If nothing was written since, no time is spent
            on rates.
    """
    topics = client.describe_topics()
    wanted = partitions_of(topics)
    ends = Ends(time.monotonic(), known_offsets(client, wanted, "latest"))
    # Brokers choose the keys of internal topics.
    written = {
        tp.topic
        for tp, end in ends.offsets.items()
        if end > first.offsets.get(tp, end) and not topics[tp.topic].is_internal
    }
    if written:
        time.sleep(max(0.0, _WINDOW_S - (ends.at - first.at)))
        of_written = [tp for tp in wanted if tp.topic in written]
        last = Ends(time.monotonic(), known_offsets(client, of_written, "latest"))
        starts = known_offsets(client, of_written, "earliest")
        _report_hot(list(_hot(first, last, starts)), diagnosis)
    _examine_times(client, topics, ends.offsets, diagnosis)


class _Hot(NamedTuple):
    """A partition that takes most of the records of its topic."""

    partition: TopicPartition
    # Records per second, and the part of the topic's records.
    rate: float
    part: float
    partitions: int


def _hot(first: Ends, last: Ends, starts: Offsets) -> Iterator[_Hot]:
    """Yield the hot partitions, by the records of the window and those of the whole log."""
    topics: dict[str, list[TopicPartition]] = {}
    for tp in last.offsets:
        topics.setdefault(tp.topic, []).append(tp)
    seconds = last.at - first.at
    for partitions in topics.values():
        least = max(_HOT_PART_MIN, _HOT_FACTOR / len(partitions))
        moved = {
            tp: last.offsets[tp] - first.offsets.get(tp, last.offsets[tp]) for tp in partitions
        }
        kept = {tp: last.offsets[tp] - starts.get(tp, 0) for tp in partitions}
        hottest = max(partitions, key=lambda tp: moved[tp])
        rate = moved[hottest] / seconds
        part = moved[hottest] / max(1, sum(moved.values()))
        if (
            len(partitions) > 2
            and rate >= _HOT_RATE_MIN
            and min(part, kept[hottest] / max(1, sum(kept.values()))) >= least
        ):
            yield _Hot(hottest, rate, part, len(partitions))


def _report_hot(found: list[_Hot], diagnosis: Diagnosis) -> None:
    for each in sorted(found, key=lambda hot: -hot.rate)[:_REPORTED_MAX]:
        tp = each.partition
        show = Advice.SHOW_KEYS.text(topic=tp.topic, partition=tp.partition)
        diagnosis.note(
            f"{tp} is hot: it takes {each.part:.0%} of the records of {tp.topic}, "
            f"{amount(each.rate)} a second, although the topic has {each.partitions} partitions",
            f"its producers use too few keys, or a partitioner of their own: {show} shows the keys",
        )


def _examine_times(
    client: Client, topics: Mapping[str, TopicInfo], ends: Offsets, diagnosis: Diagnosis
) -> None:
    """Report records whose timestamp is ahead of our clock: a wrong clock wrote them."""
    wanted = [tp for tp, end in ends.items() if end > 0]
    try:
        found = client.admin.list_offsets(dict.fromkeys(wanted, "max-timestamp")) if wanted else {}
    except ClientError as error:
        # Brokers before 3.0 do not have this request.
        diagnosis.note(f"the timestamps of records were not read: {error}")
        return
    limit = time.time() * 1000 + _AHEAD_MS_MAX
    ahead = [
        (tp, each)
        for tp, each in sorted(found.items())
        if not isinstance(each, ClientError) and each.timestamp > limit
    ]
    reported: set[int | str] = set()
    for tp, each in ahead:
        source, clock = _clock(topics[tp.topic], tp, each)
        # One record shows the wrong clock of its source.
        if source not in reported and len(reported) < _REPORTED_MAX:
            reported.add(source)
            _report_ahead(tp, each, clock, diagnosis)


def _clock(topic: TopicInfo, tp: TopicPartition, record: ListedOffset) -> tuple[int | str, str]:
    """Return the source of a record's timestamp, and words for it.

    The source is a broker id, or the topic's name for producers and for brokers that no longer
    lead the partition.
    """
    if not topic.is_internal:
        return tp.topic, "its producer"
    # Leaders write the records of internal topics.
    partition = topic.partitions[tp.partition]
    if record.leader_epoch in (-1, partition.leader_epoch):
        return partition.leader, f"its leader, broker {partition.leader},"
    return tp.topic, f"an earlier leader (epoch {record.leader_epoch})"


def _report_ahead(
    tp: TopicPartition, record: ListedOffset, clock: str, diagnosis: Diagnosis
) -> None:
    """Report a record from the future."""
    ahead = duration(record.timestamp - time.time() * 1000)
    diagnosis.note(
        f"{tp}: the timestamp of offset {record.offset} is {ahead} ahead of our clock: the clock "
        f"of {clock} is wrong, or was wrong",
        "compare the clocks (timedatectl), and set them by NTP (timedatectl set-ntp true); "
        "retention by time keeps the segment until that time has come",
    )
