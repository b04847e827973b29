"""The offsets of partitions that `why` compares with the positions of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.client.connections.metadata_cache import TopicInfo
    from barnabas.client.facade import Client
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["LogOffsets", "log_offsets"]


class LogOffsets(NamedTuple):
    """The offsets of one partition; None for those that its leader does not report."""

    # -1 if there is none.
    leader: int
    log_start: int | None = None
    last_stable_offset: int | None = None
    high_watermark: int | None = None
    # The leader's log end offset.
    end: int | None = None


def log_offsets(
    client: Client, topics: Mapping[str, TopicInfo], partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, LogOffsets]:
    """Return the offsets of partitions of existing topics."""
    leaders = {tp: _leader(topics, tp) for tp in partitions}
    led = [tp for tp, leader in leaders.items() if leader >= 0]
    admin = client.admin
    starts = admin.list_offsets(dict.fromkeys(led, "earliest"))
    watermarks = admin.list_offsets(dict.fromkeys(led, "latest"))
    stable = admin.list_offsets(dict.fromkeys(led, "latest"), read_committed=True)
    ends = _ends(client, {tp: leaders[tp] for tp in led})
    return {
        tp: LogOffsets(
            leader,
            _offset(starts.get(tp)),
            _offset(stable.get(tp)),
            _offset(watermarks.get(tp)),
            ends.get(tp),
        )
        for tp, leader in leaders.items()
    }


def _leader(topics: Mapping[str, TopicInfo], tp: TopicPartition) -> int:
    partition = topics[tp.topic].partitions.get(tp.partition)
    return -1 if partition is None else partition.leader


def _ends(client: Client, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the leaders' log end offsets."""
    wanted: dict[int, dict[TopicPartition, str | int]] = {}
    for tp, leader in leaders.items():
        wanted.setdefault(leader, {})[tp] = "latest"
    found = {}
    for answer in client.admin.list_replica_offsets(wanted).values():
        for tp, each in {} if isinstance(answer, ClientError) else answer.items():
            if not isinstance(each, ClientError):
                found[tp] = each.offset
    return found


def _offset(found: ListedOffset | ClientError | None) -> int | None:
    return None if found is None or isinstance(found, ClientError) else found.offset
