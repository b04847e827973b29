"""Feature levels are read from a metadata directory without opening it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.records.metadata_log import NoOpRecord
from barnabas.protocol.records.nodes import FeatureLevelRecord
from barnabas.raft.core.messages import ControlRecords
from barnabas.raft.listener import SnapshotId
from barnabas.raft.log.metadata_batch import encode_control_records, encode_metadata_batch
from barnabas.raft.log.metadata_log import finalized_features, format_metadata_directory
from barnabas.raft.log.snapshot import SnapshotWriter, write_snapshot
from barnabas.record.batch import set_crc
from barnabas.sim.world import SimWorld
from unit.metadata.clusters import topic

if TYPE_CHECKING:
    from barnabas.protocol.schema import Record
    from barnabas.sim.disk import SimDisk

DATA = "/data"
METADATA = f"{DATA}/__cluster_metadata-0"


def level(name: str, number: int) -> tuple[Record, int]:
    return FeatureLevelRecord(name=name, feature_level=number), 0


def formatted(**features: int) -> SimDisk:
    disk = SimWorld(1).host("a").disk
    levels = {name.replace("_", "."): number for name, number in features.items()}
    format_metadata_directory(disk, METADATA, {"metadata.version": 33, **levels}, 0)
    return disk


def append(disk: SimDisk, segment: int, base_offset: int, *records: tuple[Record, int]) -> None:
    file = disk.open(f"{METADATA}/{segment:020d}.log")
    file.append(encode_metadata_batch(records, base_offset, 1, 0))
    file.close()


def test_an_unformatted_directory_has_no_levels() -> None:
    assert finalized_features(SimWorld(1).host("a").disk, DATA) == {}


def test_before_the_first_start_the_levels_of_the_bootstrap_checkpoint_apply() -> None:
    disk = formatted(transaction_version=2, group_version=0)
    assert finalized_features(disk, DATA) == {"metadata.version": 33, "transaction.version": 2}


def test_the_last_level_in_the_log_applies_and_level_0_removes_a_feature() -> None:
    disk = formatted(group_version=1, share_version=1)
    append(disk, 0, 0, level("share.version", 2), (topic("a", 1), 0))
    append(disk, 0, 2, (NoOpRecord(), 0))
    append(disk, 3, 3, level("group.version", 0))
    assert finalized_features(disk, DATA) == {"metadata.version": 33, "share.version": 2}


def test_records_covered_by_a_snapshot_are_not_read() -> None:
    disk = formatted(group_version=1)
    append(disk, 0, 0, level("streams.version", 1))
    append(disk, 0, 1, level("transaction.version", 1))
    append(disk, 0, 2, level("share.version", 1))
    snapshot = SnapshotWriter(disk, METADATA, SnapshotId(2, 1), 0, 0)
    write_snapshot(snapshot, [level("metadata.version", 30)])
    assert finalized_features(disk, DATA) == {"metadata.version": 30, "share.version": 1}


def test_a_torn_or_damaged_tail_is_ignored() -> None:
    disk = formatted()
    append(disk, 0, 0, level("group.version", 1))
    for damage in (lambda batch: batch[:-3], lambda batch: batch[:-1] + b"\x07"):
        bad = damage(bytes(encode_metadata_batch([level("group.version", 0)], 1, 1, 0)))
        file = disk.open(f"{METADATA}/{0:020d}.log")
        size = file.size()
        file.append(bad)
        assert finalized_features(disk, DATA)["group.version"] == 1
        file.truncate(size)
        file.close()


def test_the_quorums_own_level_is_in_a_control_record() -> None:
    disk = formatted()
    file = disk.open(f"{METADATA}/{0:020d}.log")
    file.append(encode_control_records(ControlRecords(1, None, 2, None), 0, 0))
    file.close()
    assert finalized_features(disk, DATA) == {"metadata.version": 33, "kraft.version": 2}


def test_records_of_unknown_types_are_ignored() -> None:
    disk = formatted()
    record = NoOpRecord()
    batch = encode_metadata_batch([(record, 0), level("group.version", 1)], 0, 1, 0)
    # The NoOpRecord's type, 20, becomes an unknown type.
    unknown = bytes(batch).replace(b"\x01\x14\x00", b"\x01\x7e\x00", 1)
    assert unknown != batch
    file = disk.open(f"{METADATA}/{0:020d}.log")
    whole = bytearray(unknown)
    set_crc(whole, 0, len(whole))
    file.append(whole)
    file.close()
    assert finalized_features(disk, DATA)["group.version"] == 1


def test_a_bootstrap_checkpoint_of_kafka_3_is_found_beside_the_logs() -> None:
    disk = SimWorld(1).host("a").disk
    disk.make_directory(DATA)
    snapshot = SnapshotWriter(disk, DATA, SnapshotId(0, 0), 0, 0)
    write_snapshot(snapshot, [level("metadata.version", 21)])
    disk.rename(f"{DATA}/{0:020d}-{0:010d}.checkpoint", f"{DATA}/bootstrap.checkpoint")
    assert finalized_features(disk, DATA) == {"metadata.version": 21}
    assert not format_metadata_directory(disk, METADATA, {"metadata.version": 33}, 0)
    append(disk, 0, 0, level("metadata.version", 25))
    assert finalized_features(disk, DATA) == {"metadata.version": 25}
