"""Snapshots are Kafka's checkpoint files; incomplete files are ignored."""

from __future__ import annotations

import pytest

from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.raft.listener import MetadataBatchTooLargeError, SnapshotError, SnapshotId
from barnabas.raft.log.metadata_batch import encode_metadata_batch
from barnabas.raft.log.metadata_log import format_metadata_directory
from barnabas.raft.log.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    SnapshotWriter,
    delete_unfinished,
    list_snapshots,
    read_snapshot,
    snapshot_name,
    write_snapshot,
)
from barnabas.record.batch import batches
from barnabas.sim.disk import SimDisk
from barnabas.sim.world import SimWorld
from unit.metadata.clusters import partition, topic

ID = SnapshotId(42, 3)


def disk_with(directory: str = "/m") -> SimDisk:
    disk = SimWorld(1).host("a").disk
    disk.make_directory(directory)
    return disk


def test_a_snapshot_is_named_as_kafka_names_it() -> None:
    assert snapshot_name(ID) == "00000000000000000042-0000000003.checkpoint"


def test_records_survive_with_the_timestamp_of_the_log() -> None:
    disk = disk_with()
    records = [(topic("a", 1), 0), *((partition(1, index), 2) for index in range(7))]
    write_snapshot(SnapshotWriter(disk, "/m", ID, 99, 1000), records, batch_records=3)
    disk.crash()
    assert list_snapshots(disk, "/m") == [ID]
    loaded = read_snapshot(disk, "/m", ID)
    assert (loaded.id, loaded.timestamp) == (ID, 99)
    assert list(loaded.records) == records


def test_offsets_count_from_zero_and_every_batch_has_the_snapshots_epoch() -> None:
    disk = disk_with()
    write_snapshot(SnapshotWriter(disk, "/m", ID, 99, 1000), [(topic("a", 1), 0)] * 4, 2)
    content = disk.read(f"/m/{snapshot_name(ID)}")
    found = [header for _, header in batches(content)]
    assert [header.base_offset for header in found] == [0, 1, 3, 5]
    assert [header.is_control for header in found] == [True, False, False, True]
    assert {header.partition_leader_epoch for header in found} == {3}


def test_an_incomplete_snapshot_is_ignored_and_deleted() -> None:
    disk = disk_with()
    SnapshotWriter(disk, "/m", ID, 99, 1000).append([(topic("a", 1), 0)])
    assert list_snapshots(disk, "/m") == []
    delete_unfinished(disk, "/m")
    assert disk.list("/m") == []


@pytest.mark.parametrize("cut", [1, 30, 76, 100])
def test_a_truncated_snapshot_is_an_error(cut: int) -> None:
    disk = disk_with()
    write_snapshot(SnapshotWriter(disk, "/m", ID, 99, 1000), [(topic("a", 1), 0)])
    path = f"/m/{snapshot_name(ID)}"
    content = disk.read(path)
    disk.write_atomically(path, content[:-cut])
    with pytest.raises(SnapshotError):
        read_snapshot(disk, "/m", ID)


def test_a_flipped_bit_is_an_error() -> None:
    disk = disk_with()
    write_snapshot(SnapshotWriter(disk, "/m", ID, 99, 1000), [(topic("a", 1), 0)])
    path = f"/m/{snapshot_name(ID)}"
    content = bytearray(disk.read(path))
    content[150] ^= 1
    disk.write_atomically(path, content)
    with pytest.raises(SnapshotError):
        read_snapshot(disk, "/m", ID)


def test_a_new_directory_gets_the_bootstrap_checkpoint_once() -> None:
    disk = disk_with()
    levels = {"b.version": 1, "metadata.version": 33, "off.version": 0}
    assert format_metadata_directory(disk, "/m", levels, 5)
    assert not format_metadata_directory(disk, "/m", levels, 5)
    loaded = read_snapshot(disk, "/m", BOOTSTRAP_SNAPSHOT)
    assert [record for record, _ in loaded.records] == [
        FeatureLevelRecord(name="metadata.version", feature_level=33),
        FeatureLevelRecord(name="b.version", feature_level=1),
    ]


def test_a_batch_beyond_eight_mebibytes_is_refused() -> None:
    record = topic("x" * 30_000, 1)
    with pytest.raises(MetadataBatchTooLargeError):
        encode_metadata_batch([(record, 0)] * 300, 0, 1, 0)
