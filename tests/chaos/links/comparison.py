"""Compares mirrors with their sources, after the clients have stopped.

- Topics of the load: the same bytes on all replicas of both clusters, but for the leader epochs.
- A topic with retention: the same log start offset, and the same records.
- A compacted topic: both clusters may have removed different records. Records at the same offset
  are the same, and so is the last record of each key.
- A topic whose unclean elections are followed: the same records.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from chaos.judgment import holders_of
from chaos.links.ledger import LEDGER, PARTITIONS as LEDGER_PARTITIONS
from chaos.links.link_stress import (
    COMPACTED,
    PARTITIONS,
    RETAINED,
    TRUNCATED,
    LinkStress,
    await_ranges,
)
from chaos.stress import HEAL_TIMEOUT_S, TOPIC
from conformance.linked_clusters import batch_bytes, read_all
from waiting import eventually


def differences(clusters: LinkStress) -> list[str]:
    """Return what differs between the clusters."""
    clusters.await_mirrored()
    found: list[str] = []
    for topic, partitions in ((TOPIC, PARTITIONS), (LEDGER, LEDGER_PARTITIONS)):
        for number in range(partitions):
            found += awaited(
                lambda topic=topic, number=number: _files(clusters, topic, number),
                f"files of {topic}-{number}",
            )
    found += awaited(lambda: _read(clusters, TRUNCATED), TRUNCATED)
    found += awaited(lambda: _ranges(clusters), RETAINED)
    found += awaited(lambda: _read(clusters, RETAINED), RETAINED)
    return found + awaited(lambda: _compacted(clusters), COMPACTED)


def awaited(look: Callable[[], str], name: str) -> list[str]:
    """Wait until `look` finds no difference; else return its last one."""
    seen = [""]

    def is_same() -> bool:
        seen[0] = look()
        return not seen[0]

    try:
        eventually(is_same, "", HEAL_TIMEOUT_S, pause_s=1.0)
    except AssertionError:
        return [f"{name}: {seen[0]}"]
    return []


def _files(clusters: LinkStress, topic: str, partition: int) -> str:
    sums: dict[str, tuple[int, str]] = {}
    for side in clusters.sides:
        for node in holders_of(side.cluster, topic, partition):
            found = batch_bytes(node.data_directory, topic, partition)
            total = hashlib.sha256(b"".join(found)).hexdigest()
            sums[f"{side.name} {node.node_id}"] = len(found), total
    is_same = len(sums) == 6 and len(set(sums.values())) == 1
    return "" if is_same else f"batches and sums {sums}"


def _read(clusters: LinkStress, topic: str) -> str:
    first, second = (read_all(side.bootstrap, topic) for side in clusters.sides)
    if first == second:
        return ""
    pairs = enumerate(zip(first, second, strict=False))
    at = next((number for number, (one, other) in pairs if one != other), -1)
    ends = [[record[0] for record in each[-1:]] for each in (first, second)]
    return f"{len(first)} and {len(second)} records, the first difference at {at}, ends {ends}"


def _ranges(clusters: LinkStress) -> str:
    first, second = (await_ranges(side.bootstrap, {RETAINED: 1}) for side in clusters.sides)
    return "" if first == second else f"{first} and {second}"


def _compacted(clusters: LinkStress) -> str:
    return compacted_difference(*(read_all(side.bootstrap, COMPACTED) for side in clusters.sides))


def compacted_difference(first: list[tuple[Any, ...]], second: list[tuple[Any, ...]]) -> str:
    """Return the difference of two compacted logs; empty if compaction alone explains it."""
    one, other = ({record[0]: record for record in each} for each in (first, second))
    different = [offset for offset in one.keys() & other.keys() if one[offset] != other[offset]]
    if different:
        return f"other records at the offsets {sorted(different)[:10]}"
    last_one, last_other = ({record[2]: record for record in each} for each in (first, second))
    keys = [
        key
        for key in last_one.keys() | last_other.keys()
        if last_one.get(key) != last_other.get(key)
    ]
    return f"other last records of the keys {sorted(keys)[:10]}" if keys else ""
