"""What the data directories of a node contain, and their lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.runtime.disk import RealDisk
from barnabas.server.startup.node_folders import (
    check_no_node,
    lock_node_directories,
    read_node_directories,
)
from barnabas.storage.errors import DirectoryInUseError, InconsistentDirectoryError
from barnabas.storage.files.metadata_files import MetaProperties
from barnabas.storage.topic_partition import TopicPartition

CLUSTER, OTHER = "MkU3OEVBNTcwNTJENDM2Qg", "JEXY6aqzQY-32P5TStzaFg"


def write_identity(path: Path, node_id: int, cluster: str = CLUSTER) -> None:
    path.mkdir(parents=True)
    MetaProperties(cluster, node_id, bytes(15) + b"i").write(RealDisk(), str(path))


def test_the_folders_of_processes_name_the_brokers_and_the_cluster(tmp_path: Path) -> None:
    for kind, node_id in (("broker", 101), ("broker", 102), ("controller", 1)):
        write_identity(tmp_path / f"{kind}.{node_id}", node_id)
        (tmp_path / f"{kind}.{node_id}" / "orders-0").mkdir()
    # A partition of a topic, and a broker that has not been formatted.
    write_identity(tmp_path / "broker.103-4", 9, OTHER)
    (tmp_path / "broker.104").mkdir()
    found = read_node_directories(RealDisk(), [str(tmp_path), str(tmp_path / "missing")])
    assert found.broker_ids == {101, 102}
    assert (found.is_single, found.cluster_id) == (False, CLUSTER)


def test_a_broker_whose_partitions_have_moved_away_is_not_needed(tmp_path: Path) -> None:
    write_identity(tmp_path / "broker.101", 101)
    deleted = TopicPartition("orders", 0).deleted_directory_name(bytes(16))
    stray = TopicPartition("orders", 1).stray_directory_name(bytes(16))
    for name in ("__cluster_metadata-0", deleted, stray):
        (tmp_path / "broker.101" / name).mkdir()
    assert read_node_directories(RealDisk(), [str(tmp_path)]).broker_ids == set()
    (tmp_path / "broker.101" / "orders-2").mkdir()
    assert read_node_directories(RealDisk(), [str(tmp_path)]).broker_ids == {101}


def test_a_formatted_directory_is_that_of_one_process(tmp_path: Path) -> None:
    write_identity(tmp_path / "data", 1)
    found = read_node_directories(RealDisk(), [str(tmp_path / "data")])
    assert (found.is_single, found.cluster_id) == (True, CLUSTER)


def test_directories_of_two_clusters_are_refused(tmp_path: Path) -> None:
    write_identity(tmp_path / "broker.101", 101)
    write_identity(tmp_path / "broker.102", 102, OTHER)
    with pytest.raises(InconsistentDirectoryError, match="several clusters"):
        read_node_directories(RealDisk(), [str(tmp_path)])


def test_a_single_process_may_not_use_the_directory_of_a_node(tmp_path: Path) -> None:
    check_no_node(RealDisk(), [str(tmp_path), str(tmp_path / "missing")])
    write_identity(tmp_path / "controller.1", 1)
    with pytest.raises(InconsistentDirectoryError, match=r"controller\.1.*--brokers"):
        check_no_node(RealDisk(), [str(tmp_path)])


def test_two_nodes_cannot_lock_one_directory(tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    locks = lock_node_directories(RealDisk(), [second])
    with pytest.raises(DirectoryInUseError, match="another node"):
        lock_node_directories(RealDisk(), [first, second])
    # The lock of the first directory was released.
    locks += lock_node_directories(RealDisk(), [first])
    for lock in locks:
        lock.release()
