"""A store in the layout of Apache Kafka's LocalTieredStorage: files, checks and listings."""

from __future__ import annotations

import logging
from pathlib import Path
from struct import pack
from typing import NamedTuple

import msgspec
import pytest

from barnabas.protocol.primitives import uuid_to_string
from barnabas.record.builder import BatchBuilder
from barnabas.runtime.disk import RealDisk
from barnabas.settings.definition import ConfigError
from barnabas.storage.remote.config import KAFKA_LAYOUT, StorageUrl, parse_storage_url
from barnabas.storage.remote.local_tiered_layout import LocalTieredStorage
from barnabas.storage.remote.opening import list_clusters, open_remote_storage
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteMissingError,
    RemoteRefusedError,
    RemoteSegment,
    RemoteUnavailableError,
    SegmentFiles,
    SegmentIndexes,
)
from barnabas.storage.remote.segment_objects import STORE_FILE
from unit.storage.remote.stored_segments import finished, segment_at

NOW_MS = 1_700_000_000_000
START = 100
# Offsets 100 to 149 in batches of five.
BATCHES, RECORDS = 10, 5
PARTS = ("index", "leader_epoch_checkpoint", "log", "snapshot", "timeindex")


class Local(NamedTuple):
    """A segment of batches, its local files, and its log."""

    segment: RemoteSegment
    files: SegmentFiles
    log: bytes


def local_segment(directory: Path, start: int = START, topic: str = "orders") -> Local:
    """Return a segment whose indexes have an entry for one of its last batches."""
    log, positions = bytearray(), []
    for number in range(BATCHES):
        builder = BatchBuilder(base_offset=start + number * RECORDS)
        for record in range(RECORDS):
            builder.append(NOW_MS + number * 10 + record, None, b"v")
        positions.append(len(log))
        log += builder.build()
    path = directory / f"{topic}-{start}.log"
    path.write_bytes(log)
    segment = msgspec.structs.replace(
        segment_at(start, topic, size=len(log)),
        leader_epochs=((4, start), (7, start + 20)),
        max_timestamp=NOW_MS + 94,
    )
    files = SegmentFiles(
        log_path=str(path),
        log_size=len(log),
        offset_index=pack(">ii", 39, positions[7]),
        time_index=pack(">qi", NOW_MS + 74, 39),
        transaction_index=None,
        producer_snapshot=b"producers",
        leader_epochs=b"0\n3\n2 0\n4 50\n7 %d\n" % (start + 20),
    )
    return Local(segment, files, bytes(log))


@pytest.fixture
def storage(tmp_path: Path) -> LocalTieredStorage:
    return LocalTieredStorage(RealDisk(), str(tmp_path / "tier"), "cluster")


@pytest.fixture
def local(tmp_path: Path) -> Local:
    return local_segment(tmp_path)


def files_in(tmp_path: Path) -> dict[str, bytes]:
    root = tmp_path / "tier" / "kafka-tiered-storage"
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def name_of(segment: RemoteSegment) -> str:
    directory = f"{segment.topic}-{segment.partition}-{uuid_to_string(segment.topic_id)}"
    return f"{directory}/{segment.start_offset:020d}-{uuid_to_string(segment.id)}"


def test_the_files_have_the_names_and_contents_of_kafkas(
    storage: LocalTieredStorage, local: Local, tmp_path: Path
) -> None:
    storage.copy_segment(local.segment, local.files)
    name, files = name_of(local.segment), local.files
    assert files_in(tmp_path) == {
        f"{name}.log": local.log,
        f"{name}.index": files.offset_index,
        f"{name}.timeindex": files.time_index,
        f"{name}.snapshot": files.producer_snapshot,
        f"{name}.leader_epoch_checkpoint": files.leader_epochs,
    }


def test_a_transaction_index_is_stored_if_there_is_one(
    storage: LocalTieredStorage, local: Local, tmp_path: Path
) -> None:
    files = msgspec.structs.replace(local.files, transaction_index=b"aborted")
    custom = storage.copy_segment(local.segment, files)
    assert files_in(tmp_path)[f"{name_of(local.segment)}.txnindex"] == b"aborted"
    found = storage.read_indexes(finished(local.segment, custom))
    assert found.transaction_index == b"aborted"
    (listed,) = storage.list_segments(None)
    assert listed.segment.has_transactions


def test_a_copy_of_kafka_is_read_without_custom_metadata(
    storage: LocalTieredStorage, local: Local
) -> None:
    storage.copy_segment(local.segment, local.files)
    size, files = local.segment.size, local.files
    assert storage.size_of(local.segment) == size
    assert storage.read(local.segment, 10, size) == local.log[10:]
    assert storage.read_indexes(local.segment) == SegmentIndexes(
        files.offset_index, files.time_index, b"", files.producer_snapshot, files.leader_epochs
    )


def test_a_changed_index_of_our_copy_is_damaged(
    storage: LocalTieredStorage, local: Local, tmp_path: Path
) -> None:
    custom = storage.copy_segment(local.segment, local.files)
    segment = finished(local.segment, custom)
    assert storage.read_indexes(segment).producer_snapshot == b"producers"
    path = tmp_path / "tier" / "kafka-tiered-storage" / f"{name_of(segment)}.snapshot"
    path.write_bytes(b"Producers")
    with pytest.raises(RemoteDamagedError, match="checksum"):
        storage.read_indexes(segment)
    path.write_bytes(b"producer")
    assert storage.size_of(segment) is None


class MountingDisk(RealDisk):
    """A disk on which a hidden file appears when the mark of the store is looked at."""

    hidden: Path | None = None

    def size(self, path: str) -> int:
        if self.hidden is not None and path.endswith(STORE_FILE):
            self.hidden.rename(self.hidden.with_suffix(".log"))
            self.hidden = None
        return super().size(path)


def test_a_segment_that_is_mounted_between_the_look_and_the_check_is_whole(
    local: Local, tmp_path: Path
) -> None:
    disk = MountingDisk()
    storage = LocalTieredStorage(disk, str(tmp_path / "tier"), "cluster")
    storage.copy_segment(local.segment, local.files)
    path = tmp_path / "tier" / "kafka-tiered-storage" / f"{name_of(local.segment)}.log"
    disk.hidden = path.rename(path.with_suffix(".hidden"))
    assert storage.size_of(local.segment) == local.segment.size


@pytest.mark.parametrize("part", PARTS)
def test_a_segment_without_a_part_is_not_whole(
    storage: LocalTieredStorage, local: Local, tmp_path: Path, part: str
) -> None:
    storage.copy_segment(local.segment, local.files)
    (tmp_path / "tier" / "kafka-tiered-storage" / f"{name_of(local.segment)}.{part}").unlink()
    assert storage.size_of(local.segment) is None
    if part != "log":
        with pytest.raises(RemoteMissingError):
            storage.read_indexes(local.segment)
    assert not any(each.is_whole for each in storage.list_segments(None))


def test_a_deleted_segment_leaves_no_file(
    storage: LocalTieredStorage, tmp_path: Path, local: Local
) -> None:
    files = msgspec.structs.replace(local.files, transaction_index=b"aborted")
    storage.copy_segment(local.segment, files)
    other = local_segment(tmp_path, 150)
    storage.copy_segment(other.segment, other.files)
    storage.delete_segment(local.segment)
    storage.delete_segment(local.segment)
    assert {name.partition(".")[0] for name in files_in(tmp_path)} == {name_of(other.segment)}


def test_a_listing_takes_offsets_times_and_epochs_from_the_files(
    storage: LocalTieredStorage, local: Local
) -> None:
    storage.copy_segment(local.segment, local.files)
    (found,) = storage.list_segments("orders")
    assert found.is_whole
    expected = msgspec.structs.replace(
        local.segment, broker_id=-1, event_ms=found.segment.event_ms, state=found.segment.state
    )
    assert found.segment == expected
    assert list(storage.list_segments("others")) == []


def test_a_listing_continues_after_a_name(storage: LocalTieredStorage, tmp_path: Path) -> None:
    for topic in ("a", "a-b", "a-0", "b"):
        for start in (0, 50, 100):
            made = local_segment(tmp_path, start, topic)
            epochs = b"0\n1\n0 0\n"
            files = msgspec.structs.replace(made.files, leader_epochs=epochs)
            storage.copy_segment(made.segment, files)
    found = [each.name for each in storage.list_segments(None)]
    assert len(found) == 12
    assert found == sorted(found)
    for index, name in enumerate(found):
        assert [each.name for each in storage.list_segments(None, name)] == found[index + 1 :]
    topics = [each.segment.topic for each in storage.list_segments("a")]
    assert topics == ["a"] * 3


def test_a_listing_leaves_out_what_is_damaged(
    storage: LocalTieredStorage, local: Local, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage.copy_segment(local.segment, local.files)
    root = tmp_path / "tier" / "kafka-tiered-storage"
    (root / "no-partition").mkdir()
    (root / name_of(local.segment)).with_name("other.log").write_bytes(b"")
    path = root / f"{name_of(local.segment)}.log"
    for content in (local.log[:-1], local.log[:-40], b"", b"\xff" * len(local.log)):
        path.write_bytes(content)
        with caplog.at_level(logging.WARNING):
            assert list(storage.list_segments(None)) == []
        assert "Stored segment is damaged" in caplog.text
        caplog.clear()


def test_a_directory_that_has_lost_its_mark_is_not_the_store(
    storage: LocalTieredStorage, local: Local, tmp_path: Path
) -> None:
    storage.copy_segment(local.segment, local.files)
    (tmp_path / "tier" / "store.json").unlink()
    with pytest.raises(RemoteUnavailableError, match="mount"):
        storage.delete_segment(local.segment)
    (tmp_path / "tier" / "kafka-tiered-storage").rename(tmp_path / "unmounted")
    with pytest.raises(RemoteUnavailableError, match="mount"):
        storage.size_of(local.segment)
    with pytest.raises(RemoteUnavailableError, match="mount"):
        storage.read(local.segment, 0, 1)


def test_the_store_of_another_cluster_is_refused(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/tier?layout=kafka-local"
    assert list_clusters(url, RealDisk()) == []
    open_remote_storage(url, "first", RealDisk()).close()
    assert list_clusters(url, RealDisk()) == ["first"]
    with pytest.raises(RemoteRefusedError, match="cluster first"):
        open_remote_storage(url, "second", RealDisk())


def test_the_url_names_the_layout() -> None:
    url = parse_storage_url("file:///mnt/tier/?layout=kafka-local")
    assert url == StorageUrl("file", "/mnt/tier", layout=KAFKA_LAYOUT)
    for text in ("?layout=other", "?layout=kafka-local&x=1", "?x", "?layout=kafka-local#a"):
        with pytest.raises(ConfigError, match="without parameters other than"):
            parse_storage_url(f"file:///mnt/tier{text}")
