"""A directory as a store: kills, power losses, errors of the file system, and foreign files."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec
import pytest

from barnabas.runtime.disk import RealDisk
from barnabas.sim.disk import DiskFault, FailingCall, SimDisk
from barnabas.sim.world import SimWorld
from barnabas.storage.remote.directory_storage import DirectoryStorage
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteFullError,
    RemoteMissingError,
    RemoteRefusedError,
    RemoteSegment,
    RemoteStorageError,
    RemoteUnavailableError,
    TopicDescription,
)
from barnabas.storage.remote.segment_objects import SUFFIXES, segment_name, topic_directory
from unit.storage.remote.stored_segments import TOPIC_ID, finished, local_segment, segment_at

CLUSTER = "cluster"
ROOT = f"/tier/{CLUSTER}"


def opened(disk: SimDisk) -> DirectoryStorage:
    return DirectoryStorage(disk, "/tier", CLUSTER)


@pytest.fixture
def disk() -> SimDisk:
    made = SimWorld(8).host("a").disk
    made.make_directory("/local")
    return made


def path_of(segment: RemoteSegment, suffix: str) -> str:
    return f"{ROOT}/{segment_name(segment)}{suffix}"


def copied(disk: SimDisk, storage: DirectoryStorage, segment: RemoteSegment) -> RemoteSegment:
    files = local_segment(disk, segment, "/local").files
    return finished(segment, storage.copy_segment(segment, files))


def recorded_calls(seed: int) -> int:
    """Return the number of system calls of a copy that can fail."""
    disk = SimWorld(seed).host("a").disk
    disk.make_directory("/local")
    storage = opened(disk)
    local = local_segment(disk, segment_at(size=50_000), "/local")
    disk.call_log = []
    storage.copy_segment(local.segment, local.files)
    return len(disk.call_log)


CALLS = recorded_calls(1)


@pytest.mark.parametrize("number", range(CALLS))
@pytest.mark.parametrize("has_power", [True, False], ids=["kill", "power loss"])
def test_a_copy_that_stops_at_any_call_is_repeated(number: int, has_power: bool) -> None:
    world = SimWorld(100 + number)
    host = world.host("a")
    host.disk.make_directory("/local")
    storage = opened(host.disk)
    local = local_segment(host.disk, segment_at(size=50_000), "/local")
    host.disk.sync_everything()
    host.disk.call_log = []
    host.disk.failing_call = FailingCall(number, written_share=0.5, lasts=True)
    with pytest.raises(RemoteStorageError):
        storage.copy_segment(local.segment, local.files)
    host.disk.call_log = host.disk.failing_call = None
    if has_power:
        host.kill()
    else:
        host.lose_power()
    storage = opened(host.disk)
    # An incomplete copy never looks like a whole one.
    size = storage.size_of(local.segment)
    assert size in (None, 50_000)
    if size is not None:
        assert storage.read(local.segment, 0, 50_000) == local.content
        storage.read_indexes(local.segment)
    assert all(found.is_whole for found in storage.list_segments(None))
    segment = finished(local.segment, storage.copy_segment(local.segment, local.files))
    assert storage.read(segment, 0, 50_000) == local.content
    host.lose_power()
    # What `copy_segment` has reported survives a power failure.
    storage = opened(host.disk)
    assert storage.size_of(segment) == 50_000
    assert storage.read(segment, 0, 50_000) == local.content
    assert storage.read_indexes(segment).offset_index == local.files.offset_index
    storage.delete_segment(segment)
    assert host.disk.list(f"{ROOT}/{segment_name(segment).rpartition('/')[0]}") == []


@pytest.mark.parametrize("seed", range(20))
def test_copies_of_several_segments_survive_a_power_failure(seed: int) -> None:
    host = SimWorld(seed).host("a")
    host.disk.make_directory("/local")
    storage = opened(host.disk)
    segments = [
        copied(host.disk, storage, segment_at(start, topic, partition))
        for topic in ("a", "b")
        for partition in (0, 1)
        for start in (0, 50)
    ]
    host.lose_power()
    storage = opened(host.disk)
    assert [storage.size_of(segment) for segment in segments] == [1000] * 8


@pytest.mark.parametrize("seed", range(20))
def test_a_directory_of_a_killed_process_is_made_durable(seed: int) -> None:
    """The killed process has made the directory, but has not synced its parent."""
    host = SimWorld(seed).host("a")
    host.disk.make_directory("/local")
    opened(host.disk)
    segment = segment_at()
    host.disk.make_directory(f"{ROOT}/{segment_name(segment).rpartition('/')[0]}")
    host.kill()
    storage = opened(host.disk)
    segment = copied(host.disk, storage, segment)
    host.lose_power()
    assert opened(host.disk).size_of(segment) == 1000


@pytest.mark.parametrize("seed", range(10))
def test_a_delete_that_loses_power_leaves_the_whole_segment_or_none(seed: int) -> None:
    host = SimWorld(seed).host("a")
    host.disk.make_directory("/local")
    storage = opened(host.disk)
    segment = copied(host.disk, storage, segment_at())
    host.disk.call_log = []
    host.disk.failing_call = FailingCall(seed % 5, lasts=True)
    with pytest.raises(RemoteStorageError):
        storage.delete_segment(segment)
    host.disk.call_log = host.disk.failing_call = None
    host.lose_power()
    storage = opened(host.disk)
    assert all(found.is_whole for found in storage.list_segments(None))
    storage.delete_segment(segment)
    assert storage.size_of(segment) is None


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, RemoteFullError),
        (errno.EDQUOT, RemoteFullError),
        (errno.EACCES, RemoteRefusedError),
        (errno.EROFS, RemoteRefusedError),
        (errno.EIO, RemoteUnavailableError),
        (errno.ESTALE, RemoteUnavailableError),
        (errno.EMFILE, RemoteUnavailableError),
    ],
)
def test_errors_of_the_file_system_have_their_meaning(
    disk: SimDisk, number: int, kind: type[RemoteStorageError]
) -> None:
    storage = opened(disk)
    local = local_segment(disk, segment_at(), "/local")
    disk.faults.append(DiskFault(ROOT, ("write", "open"), number))
    with pytest.raises(kind, match=ROOT):
        storage.copy_segment(local.segment, local.files)
    disk.faults.clear()
    segment = finished(local.segment, storage.copy_segment(local.segment, local.files))
    disk.faults.append(DiskFault(ROOT, ("open", "read", "remove"), number))
    for call in (
        lambda: storage.read(segment, 0, 10),
        lambda: storage.read_indexes(segment),
        lambda: storage.delete_segment(segment),
        lambda: list(storage.list_segments(None)),
    ):
        with pytest.raises(kind):
            call()


def test_a_full_disk_leaves_no_object_and_the_copy_succeeds_later(disk: SimDisk) -> None:
    storage = opened(disk)
    local = local_segment(disk, segment_at(size=100_000), "/local")
    disk.capacity_bytes = 150_000
    with pytest.raises(RemoteFullError, match="free space"):
        storage.copy_segment(local.segment, local.files)
    assert storage.size_of(local.segment) is None
    disk.capacity_bytes = None
    storage.copy_segment(local.segment, local.files)
    assert storage.size_of(local.segment) == 100_000


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_segment_without_one_of_its_parts_is_not_whole(disk: SimDisk, suffix: str) -> None:
    storage = opened(disk)
    segment = copied(disk, storage, segment_at())
    disk.remove(path_of(segment, suffix))
    assert storage.size_of(segment) is None
    listed = list(storage.list_segments(None))
    assert [found.is_whole for found in listed] == ([] if suffix == ".json" else [False])
    storage.delete_segment(segment)


def test_a_cut_log_is_found_by_its_size_and_by_reads(disk: SimDisk) -> None:
    storage = opened(disk)
    segment = copied(disk, storage, segment_at())
    disk.open(path_of(segment, ".log"), create=False).truncate(400)
    assert storage.size_of(segment) == 400
    assert [found.is_whole for found in storage.list_segments(None)] == [False]
    assert len(storage.read(segment, 0, 400)) == 400
    with pytest.raises(RemoteDamagedError, match="ends at 400"):
        storage.read(segment, 300, 500)


@pytest.mark.parametrize("size", [0, 5, 40])
def test_cut_indexes_are_damaged(disk: SimDisk, size: int) -> None:
    storage = opened(disk)
    segment = copied(disk, storage, segment_at())
    disk.open(path_of(segment, ".indexes"), create=False).truncate(size)
    for known in (segment, msgspec.structs.replace(segment, custom=None)):
        with pytest.raises(RemoteDamagedError, match=r"\.indexes"):
            storage.read_indexes(known)
    assert storage.size_of(segment) is None


def test_flipped_bits_of_indexes_are_found(disk: SimDisk) -> None:
    storage = opened(disk)
    segment = copied(disk, storage, segment_at())
    disk.flip_bit(path_of(segment, ".indexes"))
    with pytest.raises(RemoteDamagedError):
        storage.read_indexes(segment)


def test_longer_indexes_are_damaged(disk: SimDisk) -> None:
    storage = opened(disk)
    segment = copied(disk, storage, segment_at())
    disk.open(path_of(segment, ".indexes"), create=False).append(bytes(1000))
    with pytest.raises(RemoteDamagedError):
        storage.read_indexes(segment)


def test_an_unmounted_directory_is_not_an_empty_store(disk: SimDisk) -> None:
    storage = opened(disk)
    local = local_segment(disk, segment_at(), "/local")
    segment = finished(local.segment, storage.copy_segment(local.segment, local.files))
    disk.rename("/tier", "/unmounted")
    disk.make_directory("/tier")
    for call in (
        lambda: storage.size_of(segment),
        lambda: storage.read(segment, 0, 1),
        lambda: storage.read_indexes(segment),
        lambda: storage.delete_segment(segment),
        lambda: storage.copy_segment(segment, local.files),
        lambda: list(storage.list_segments(None)),
        lambda: list(storage.list_topics()),
        lambda: storage.write_topic(TopicDescription("orders", TOPIC_ID, 1, 1, {})),
    ):
        with pytest.raises(RemoteUnavailableError, match="mount"):
            call()
    assert disk.list("/tier") == []
    disk.remove_tree("/tier")
    disk.rename("/unmounted", "/tier")
    assert storage.size_of(segment) == 1000


def test_each_cluster_has_its_own_directory(disk: SimDisk) -> None:
    segment = copied(disk, opened(disk), segment_at())
    other = DirectoryStorage(disk, "/tier", "other")
    assert other.size_of(segment) is None
    assert list(other.list_segments(None)) == []


def test_the_directory_of_another_cluster_is_refused(disk: SimDisk) -> None:
    opened(disk)
    disk.rename(ROOT, "/tier/other")
    with pytest.raises(RemoteRefusedError, match="cluster cluster"):
        DirectoryStorage(disk, "/tier", "other")


def test_a_damaged_mark_is_refused(disk: SimDisk) -> None:
    opened(disk)
    disk.write_atomically(f"{ROOT}/store.json", b"{}")
    with pytest.raises(RemoteDamagedError):
        opened(disk)


def test_foreign_files_and_damaged_manifests_are_left_out_of_listings(disk: SimDisk) -> None:
    storage = opened(disk)
    good = copied(disk, storage, segment_at(100))
    bad = copied(disk, storage, segment_at(150))
    disk.write_atomically(path_of(bad, ".json"), b'{"format": 1}')
    directory = f"{ROOT}/{topic_directory('orders', TOPIC_ID)}"
    disk.write_atomically(f"{directory}/3/notes.json", b"{}")
    disk.write_atomically(f"{directory}/notes.txt", b"")
    disk.make_directory(f"{directory}/03")
    disk.make_directory(f"{ROOT}/lost+found")
    disk.write_atomically(f"{ROOT}/notes.txt", b"")
    disk.write_atomically(f"{directory}/topic.json", b"[]")
    assert [found.segment for found in storage.list_segments(None)] == [good]
    assert list(storage.list_topics()) == []


def test_a_read_only_directory_is_still_read(disk: SimDisk) -> None:
    segment = copied(disk, opened(disk), segment_at())
    changes = ("write", "sync", "rename", "remove")
    disk.faults.append(DiskFault("/tier", changes, errno.EROFS))
    # A restarted broker writes nothing when it opens the store.
    storage = opened(disk)
    assert storage.size_of(segment) == len(storage.read(segment, 0, 1000))
    with pytest.raises(RemoteRefusedError, match="rights"):
        storage.delete_segment(segment)


def test_objects_are_readable_by_the_broker_only(tmp_path: Path) -> None:
    disk = RealDisk()
    storage = DirectoryStorage(disk, str(tmp_path / "tier"), CLUSTER)
    local = local_segment(disk, segment_at(), str(tmp_path))
    storage.copy_segment(local.segment, local.files)
    found = [path for path in (tmp_path / "tier").rglob("*") if path.is_file()]
    assert len(found) == 4
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}


def test_a_missing_local_segment_is_an_error_that_names_it(disk: SimDisk) -> None:
    storage = opened(disk)
    local = local_segment(disk, segment_at(), "/local")
    disk.remove(local.files.log_path)
    with pytest.raises(RemoteMissingError, match=local.files.log_path):
        storage.copy_segment(local.segment, local.files)


def test_a_missing_mark_is_created_in_a_new_store_only(disk: SimDisk) -> None:
    """A broker whose cluster has remote segments meets a file system that is not mounted."""
    is_new = False
    storage = DirectoryStorage(disk, "/tier", CLUSTER, lambda: is_new)
    local = local_segment(disk, segment_at(), "/local")
    for call in (
        lambda: storage.delete_objects(()),
        lambda: storage.copy_segment(local.segment, local.files),
        lambda: storage.size_of(local.segment),
        lambda: storage.read(local.segment, 0, 1),
        lambda: storage.write_topic(TopicDescription("orders", TOPIC_ID, 1, 1, {})),
    ):
        with pytest.raises(RemoteUnavailableError, match="remote format"):
            call()
    assert not disk.exists(f"{ROOT}/store.json")
    # The file system is mounted now.
    opened(disk)
    assert storage.size_of(local.segment) is None
    storage.copy_segment(local.segment, local.files)


def test_the_first_call_marks_a_store_that_has_become_new(disk: SimDisk) -> None:
    """The broker knows only later that its cluster has no remote segments."""
    is_new = False
    storage = DirectoryStorage(disk, "/tier", CLUSTER, lambda: is_new)
    is_new = True
    storage.delete_objects(())
    assert disk.exists(f"{ROOT}/store.json")


@pytest.fixture
def tier(tmp_path: Path) -> DirectoryStorage:
    (tmp_path / "local").mkdir()
    return DirectoryStorage(RealDisk(), str(tmp_path / "tier"), CLUSTER)


def copied_to(tmp_path: Path, tier: DirectoryStorage, start_offset: int = 100) -> RemoteSegment:
    local = local_segment(RealDisk(), segment_at(start_offset), str(tmp_path / "local"))
    return finished(local.segment, tier.copy_segment(local.segment, local.files))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["pipe", "directory", "loop"])
def test_an_object_that_is_no_file_is_damaged(
    tmp_path: Path, tier: DirectoryStorage, suffix: str, kind: str
) -> None:
    """A read of a pipe without a writer would hold its thread for ever."""
    segment = copied_to(tmp_path, tier)
    path = Path(tier.root, segment_name(segment) + suffix)
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(path)
    assert not any(each.is_whole for each in tier.list_segments(None))
    if suffix == ".log":
        with pytest.raises(RemoteDamagedError, match=r"\.log: "):
            tier.read(segment, 0, 10)
    elif suffix == ".indexes":
        with pytest.raises(RemoteDamagedError, match=r"\.indexes: "):
            tier.read_indexes(segment)


@pytest.mark.parametrize("is_pipe", [True, False], ids=["pipe", "link"])
def test_nothing_is_written_outside_of_the_store(
    tmp_path: Path, tier: DirectoryStorage, is_pipe: bool
) -> None:
    """A user with rights in the store may give a link or a pipe the name of a temporary file."""
    outside = tmp_path / "outside"
    outside.write_text("as before")
    segment = segment_at()
    topic = TopicDescription("orders", TOPIC_ID, 4, 1, {})
    name = segment_name(segment)
    for each in (f"{name}.log", f"{topic_directory('orders', TOPIC_ID)}/topic.json"):
        path = Path(tier.root, each + ".tmp")
        path.parent.mkdir(parents=True, exist_ok=True)
        if is_pipe:
            os.mkfifo(path)
        else:
            path.symlink_to(outside)
    local = local_segment(RealDisk(), segment, str(tmp_path / "local"))
    with pytest.raises(RemoteDamagedError, match=r"\.log\.tmp: "):
        tier.copy_segment(segment, local.files)
    with pytest.raises(RemoteDamagedError, match=r"topic\.json\.tmp: "):
        tier.write_topic(topic)
    assert outside.read_text() == "as before"


def test_exchanged_indexes_are_damaged(tmp_path: Path, tier: DirectoryStorage) -> None:
    """Each has the size and the checksum that belong to its content."""
    first, second = copied_to(tmp_path, tier, 100), copied_to(tmp_path, tier, 200)
    paths = [Path(tier.root, segment_name(each) + ".indexes") for each in (first, second)]
    contents = [path.read_bytes() for path in paths]
    assert len(contents[0]) == len(contents[1])
    for path, content in zip(paths, reversed(contents), strict=True):
        path.write_bytes(content)
    with pytest.raises(RemoteDamagedError, match="not the one that was stored"):
        tier.read_indexes(first)
