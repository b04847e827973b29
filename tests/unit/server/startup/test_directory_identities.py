"""The identity of data directories is checked before any is changed; each has an id (KIP-858)."""

from __future__ import annotations

import pytest

from barnabas.protocol.schema import ZERO_UUID
from barnabas.runtime.rng import SeededRng
from barnabas.server.startup.log_directories import DirectoryPaths, open_data_directories
from barnabas.sim.disk import SimDisk
from barnabas.sim.world import SimWorld
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.files.metadata_files import MetaProperties

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"
PATHS = DirectoryPaths(["/one", "/two"])
NODE_ID = 1


def disk_with(*paths: str, node_id: int = NODE_ID) -> SimDisk:
    """Formatted directories, as a Kafka before 3.7 leaves them: without ids."""
    disk = SimWorld(1).host("a").disk
    for path in paths:
        disk.make_directory(path)
        MetaProperties(CLUSTER, node_id, ZERO_UUID).write(disk, path)
    return disk


def test_directories_without_ids_get_permanent_ids() -> None:
    disk = disk_with("/one", "/two")
    opened = open_data_directories(disk, PATHS, NODE_ID, SeededRng(1))
    ids = [each.id for each in opened.logs]
    assert len({ZERO_UUID, *ids}) == 3
    opened.close()
    again = open_data_directories(disk, PATHS, NODE_ID, SeededRng(2))
    assert [each.id for each in again.logs] == ids
    assert opened.cluster_id == CLUSTER


def test_a_missing_metadata_directory_is_not_recreated() -> None:
    disk = disk_with("/two")
    with pytest.raises(InconsistentDirectoryError, match=r"/one.* is not formatted, and /two is"):
        open_data_directories(disk, PATHS, NODE_ID, SeededRng(1))
    assert not disk.exists("/one")
    assert disk.list("/two") == ["meta.properties"]


def test_a_directory_for_logs_alone_may_be_new() -> None:
    disk = disk_with("/one")
    opened = open_data_directories(disk, PATHS, NODE_ID, SeededRng(1))
    assert [each.was_formatted for each in opened.logs] == [False, True]


def test_a_metadata_log_in_another_directory_is_detected() -> None:
    disk = disk_with("/one", "/two")
    disk.make_directory("/two/__cluster_metadata-0")
    with pytest.raises(InconsistentDirectoryError, match=r"set metadata\.log\.dir=/two"):
        open_data_directories(disk, PATHS, NODE_ID, SeededRng(1))
    there = DirectoryPaths(["/one", "/two"], metadata="/two")
    assert open_data_directories(disk, there, NODE_ID, SeededRng(1)).metadata.path == "/two"


def test_another_nodes_directory_is_found_before_the_first_is_locked() -> None:
    disk = disk_with("/one")
    disk.make_directory("/two")
    MetaProperties(CLUSTER, 7, ZERO_UUID).write(disk, "/two")
    with pytest.raises(InconsistentDirectoryError, match="/two belongs to node 7"):
        open_data_directories(disk, PATHS, NODE_ID, SeededRng(1))
    assert disk.list("/one") == ["meta.properties"]
