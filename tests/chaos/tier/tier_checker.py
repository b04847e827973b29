"""Checks the remote tier at the end of a campaign, when all faults are healed.

orphan      the store has files of a segment that no event describes as copied
missing     a copied segment has not all of its files in the store
unfinished  a copy or a deletion has begun, and does not end
hole        an offset of the log is neither on the leader's disk nor in the tier
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from chaos.cluster_view import NoAnswerError, await_that
from chaos.tier.tier_store import COPY_FINISHED, DELETE_FINISHED, PARTS, known_segments
from chaos.verdict import Verdict

if TYPE_CHECKING:
    from chaos.cluster_view import ClusterView
    from chaos.tier.tier_store import ChaosTier, KnownSegment, StoredSegment

KINDS = ("orphan", "missing", "unfinished", "hole")
EARLIEST, EARLIEST_LOCAL = -2, -4
# After a failure, copies and deletions wait for at most half a minute. Then orphans have their age.
QUIET_TIMEOUT_S = 300.0
_VERSION = 8


@dataclass(frozen=True)
class LogRange:
    """The first offset of a log, and the first one on its leader's disk."""

    start: int
    local_start: int


def check_tier(
    known: Mapping[str, KnownSegment],
    stored: Iterable[StoredSegment],
    logs: Mapping[tuple[str, int], LogRange],
) -> Verdict:
    """Return what is wrong with a store without running copies and deletions.

    Args:
        known: the segments by their ids, from the metadata topic.
        stored: the segments of which the store has files.
        logs: the logs by topic and partition.
    """
    verdict = Verdict(KINDS)
    parts = {each.id: each for each in stored}
    for name, segment in known.items():
        words = f"{segment.topic}-{segment.partition}: {name} at {segment.start_offset}"
        has = parts.get(name)
        if segment.state == COPY_FINISHED and (has is None or has.parts != PARTS):
            found = sorted(has.parts) if has is not None else []
            verdict.add("missing", f"{words} has only {found}")
        elif segment.state not in (COPY_FINISHED, DELETE_FINISHED):
            verdict.add("unfinished", f"{words} has the state {segment.state}")
    for name, has in parts.items():
        if name not in known or known[name].state != COPY_FINISHED:
            words = f"{has.topic}-{has.partition}: {name} at {has.start_offset}"
            verdict.add("orphan", f"{words} has {sorted(has.parts)}")
    for place, log in logs.items():
        _check_coverage(place, log, known.values(), verdict)
    return verdict


def _check_coverage(
    place: tuple[str, int], log: LogRange, known: Iterable[KnownSegment], verdict: Verdict
) -> None:
    spans = sorted(
        (each.start_offset, each.end_offset)
        for each in known
        if (each.topic, each.partition) == place and each.state == COPY_FINISHED
    )
    offset = log.start
    for start, end in spans:
        if start > offset:
            break
        offset = max(offset, end + 1)
    if offset < log.local_start:
        text = f"offset {offset} is not in the tier, local records begin at {log.local_start}"
        verdict.add("hole", f"{place[0]}-{place[1]}: {text}")


def await_clean_tier(tier: ChaosTier, view: ClusterView, bootstrap: str) -> list[str]:
    """Wait until copies and deletions are done. Return what is wrong if that does not happen."""

    def look() -> Verdict:
        logs = dict(log_ranges(view, tier.topics))
        return check_tier(known_segments(bootstrap), tier.stored(), logs)

    try:
        await_that(look, lambda found: found.is_clean, QUIET_TIMEOUT_S, "a clean tier")
    except AssertionError as error:
        return [str(error)]
    return []


def log_ranges(
    view: ClusterView, topics: Iterable[str]
) -> Iterable[tuple[tuple[str, int], LogRange]]:
    """Yield the ranges of all partitions of topics, from their leaders."""
    for topic in sorted(topics):
        for index, partition in view.partitions(topic).items():
            start, local = (
                _offset(view, partition.leader, (topic, index), timestamp)
                for timestamp in (EARLIEST, EARLIEST_LOCAL)
            )
            yield (topic, index), LogRange(start, local)


def _offset(view: ClusterView, leader: int, place: tuple[str, int], timestamp: int) -> int:
    partition = ListOffsetsPartition(partition_index=place[1], timestamp=timestamp)
    topic = ListOffsetsTopic(name=place[0], partitions=[partition])
    answer = view.ask(leader, ListOffsetsRequest(replica_id=-1, topics=[topic]), _VERSION)
    told = answer.topics[0].partitions[0]
    if told.error_code:
        raise NoAnswerError(f"{place[0]}-{place[1]}: error {told.error_code} for {timestamp}")
    return int(told.offset)
