"""Formats the metadata directory of a new cluster (Kafka's `kafka-storage format`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.records.feature_level_record import FeatureLevelRecord
from barnabas.raft.core.effects import ControlRecords
from barnabas.raft.log.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    SnapshotWriter,
    list_snapshots,
    old_bootstrap_path,
    write_snapshot,
)
from barnabas.raft.voter_set import KRAFT_VERSION_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.protocol.schema import Record
    from barnabas.raft.voter_set import VoterSet
    from barnabas.runtime.disk import Disk

_METADATA_VERSION = "metadata.version"


class FirstContent(msgspec.Struct, frozen=True):
    """Content of the checkpoint besides features."""

    # The first voters of a dynamic quorum (KIP-853), each with its directory id. None for static
    # voters, or if other nodes of the cluster hold the voters.
    voters: VoterSet | None = None
    # Whether the voters are dynamic although `voters` is None.
    is_dynamic: bool = False
    # Records that follow the features, in version 0.
    records: Sequence[Record] = ()


def format_metadata_directory(
    disk: Disk,
    directory: str,
    features: Mapping[str, int],
    now_ms: int,
    first: FirstContent | None = None,
) -> bool:
    """Write the bootstrap checkpoint unless the directory already has a snapshot or a log.

    Args:
        disk: the disk of the directory.
        directory: the directory of the metadata partition; created if missing.
        features: finalized level of each feature, including `metadata.version`. Features at level 0
            are left out.
        now_ms: wall clock time, ms.
        first: voters and records besides the features; None for neither.

    Returns:
        Whether the checkpoint was written.
    """
    if not disk.exists(directory):
        disk.make_directory(directory)
        # Sync the parent: the directory's entry must survive a power failure as the votes in it do.
        disk.sync_directory(directory.rpartition("/")[0] or "/")
    is_formatted = list_snapshots(disk, directory) or disk.exists(old_bootstrap_path(directory))
    if is_formatted or any(name.endswith(".log") for name in disk.list(directory)):
        return False
    assert _METADATA_VERSION in features, features
    names = sorted(features, key=lambda name: (name != _METADATA_VERSION, name))
    records: list[tuple[Record, int]] = [
        (FeatureLevelRecord(name=name, feature_level=features[name]), 0)
        for name in names
        if features[name] > 0
    ]
    first = first or FirstContent()
    records += [(record, 0) for record in first.records]
    control = None
    if first.is_dynamic or first.voters is not None:
        control = ControlRecords(0, None, KRAFT_VERSION_MAX, first.voters)
    writer = SnapshotWriter(disk, directory, BOOTSTRAP_SNAPSHOT, now_ms, now_ms, control)
    write_snapshot(writer, records)
    return True
