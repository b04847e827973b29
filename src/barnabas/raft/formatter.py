"""What a new cluster's metadata directory begins with (Kafka's `kafka-storage format`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.records.feature_level_record import FeatureLevelRecord
from barnabas.raft.effects import ControlRecords
from barnabas.raft.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    SnapshotWriter,
    list_snapshots,
    old_bootstrap_path,
    write_snapshot,
)
from barnabas.raft.voter_set import KRAFT_VERSION_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.raft.voter_set import VoterSet
    from barnabas.runtime.disk import Disk

_METADATA_VERSION = "metadata.version"


def format_metadata_directory(
    disk: Disk,
    directory: str,
    features: Mapping[str, int],
    now_ms: int,
    voters: VoterSet | None = None,
    *,
    is_dynamic: bool = False,
) -> bool:
    """Write the bootstrap checkpoint unless the directory already has a snapshot or a log.

    Args:
        disk: where the directory is, or is to be made.
        directory: of the metadata partition.
        features: finalised level of each feature, `metadata.version` among them; level 0 is left
            out.
        now_ms: wall clock.
        voters: the first voters of a dynamic quorum (KIP-853), each with its directory id; None
            where they are static, or where other nodes of the cluster have them.
        is_dynamic: whether voters are dynamic though none are named here.

    Returns:
        Whether it was written.
    """
    if not disk.exists(directory):
        disk.make_directory(directory)
        # Its name has to outlive the loss of power as surely as the votes that go into it.
        disk.sync_directory(directory.rpartition("/")[0] or "/")
    is_formatted = list_snapshots(disk, directory) or disk.exists(old_bootstrap_path(directory))
    if is_formatted or any(name.endswith(".log") for name in disk.list(directory)):
        return False
    assert _METADATA_VERSION in features, features
    names = sorted(features, key=lambda name: (name != _METADATA_VERSION, name))
    records = [
        (FeatureLevelRecord(name=name, feature_level=features[name]), 0)
        for name in names
        if features[name] > 0
    ]
    control = None
    if is_dynamic or voters is not None:
        control = ControlRecords(0, None, KRAFT_VERSION_MAX, voters)
    writer = SnapshotWriter(disk, directory, BOOTSTRAP_SNAPSHOT, now_ms, now_ms, control)
    write_snapshot(writer, records)
    return True
