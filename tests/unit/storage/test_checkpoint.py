"""Checkpoint files, meta.properties and the marker of a clean stop."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import pytest

from barnabas.runtime.rng import SeededRng
from barnabas.storage.errors import DirectoryInUseError, InconsistentDirectoryError
from barnabas.storage.files.checkpoint import (
    RECOVERY_POINTS,
    CheckpointError,
    Collection,
    OffsetCheckpoint,
    collected,
)
from barnabas.storage.files.log_directory import LogDirectory
from barnabas.storage.files.metadata_files import MetaProperties, take_marker, write_marker
from barnabas.storage.topic_partition import TopicPartition, parse_directory_name
from unit.storage.storage_fixtures import Bench, LaterExecutor


def test_the_checkpoint_has_kafkas_format() -> None:
    disk = Bench().disk
    checkpoint = OffsetCheckpoint(disk, "/data", RECOVERY_POINTS)
    offsets = {TopicPartition("a.b", 0): 5, TopicPartition("c-d", 12): 1 << 40}
    checkpoint.write(offsets)
    # White space at the end of a line is nothing to Kafka.
    lines = [line.rstrip() for line in disk.read(f"/data/{RECOVERY_POINTS}").split(b"\n")]
    assert lines == [b"0", b"2", b"a.b 0 5", b"c-d 12 1099511627776", b""]
    assert checkpoint.read() == offsets


def test_every_flipped_bit_of_a_checkpoint_is_detected() -> None:
    disk = Bench().disk
    checkpoint = OffsetCheckpoint(disk, "/data", RECOVERY_POINTS)
    checkpoint.write({TopicPartition("a", 0): 5, TopicPartition("b", 1): 900})
    whole = disk.read(checkpoint.path)
    for bit in range(len(whole) * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        disk.write_atomically(checkpoint.path, bytes(flipped))
        with pytest.raises(CheckpointError):
            checkpoint.read()
    for size in range(1, len(whole)):
        disk.write_atomically(checkpoint.path, whole[:size])
        with pytest.raises(CheckpointError):
            checkpoint.read()


@pytest.mark.parametrize("content", [b"", b"0\n0\n"])
def test_an_absent_or_empty_checkpoint_has_no_offsets(content: bytes) -> None:
    disk = Bench().disk
    checkpoint = OffsetCheckpoint(disk, "/data", RECOVERY_POINTS)
    assert checkpoint.read() == {}
    disk.write_atomically(checkpoint.path, content)
    assert checkpoint.read() == {}


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n2\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na x 1\n", b"0"]
)
def test_a_damaged_checkpoint_is_detected(content: bytes) -> None:
    disk = Bench().disk
    checkpoint = OffsetCheckpoint(disk, "/data", RECOVERY_POINTS)
    disk.write_atomically(checkpoint.path, content)
    with pytest.raises(CheckpointError):
        checkpoint.read()


def test_asynchronous_writes_do_not_overlap_and_the_last_values_win() -> None:
    executor = LaterExecutor()
    checkpoint = OffsetCheckpoint(Bench().disk, "/data", RECOVERY_POINTS)
    partition = TopicPartition("a", 0)
    values = iter((1, 2, 3))
    for _ in range(3):
        checkpoint.write_async(
            executor, lambda: collected({partition: next(values)}), lambda _: None
        )
    assert len(executor.waiting) == 1
    executor.run()
    executor.run()
    assert checkpoint.read() == {partition: 2}
    assert executor.waiting == []
    assert not checkpoint.is_writing


def test_combined_calls_end_with_the_write_that_follows_them() -> None:
    executor, ended = LaterExecutor(), list[int]()
    checkpoint = OffsetCheckpoint(Bench().disk, "/data", RECOVERY_POINTS)
    for number in range(3):
        checkpoint.write_async(
            executor,
            lambda: collected({TopicPartition("a", 0): 1}),
            lambda _: None,
            partial(ended.append, number),
        )
    executor.run()
    assert ended == [0]
    # No other write may begin meanwhile.
    assert checkpoint.is_writing
    executor.run()
    assert ended == [0, 1, 2]


def test_partitions_may_be_named_while_their_offsets_are_collected() -> None:
    executor = LaterExecutor()
    checkpoint = OffsetCheckpoint(Bench().disk, "/data", RECOVERY_POINTS)
    partition, unwritten = TopicPartition("a", 0), TopicPartition("a", 1)
    deliveries: list[Callable[[Mapping[TopicPartition, int]], None]] = []
    collection = Collection({partition, unwritten}, deliveries.append)
    checkpoint.write_async(executor, lambda: collection, lambda _: None)
    assert checkpoint.may_name(partition)
    deliveries.pop()({partition: 1})
    assert checkpoint.may_name(unwritten)
    executor.run()
    assert checkpoint.may_name(partition)
    assert not checkpoint.may_name(unwritten)


def test_the_clean_shutdown_marker_is_consumed_once() -> None:
    disk = Bench().disk
    assert take_marker(disk, "/data") is None
    write_marker(disk, "/data", 42)
    assert disk.read("/data/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":42}'
    assert take_marker(disk, "/data") == 42
    assert take_marker(disk, "/data") is None


@pytest.mark.parametrize("content", [b"", b"{}", b"nonsense", b"[]"])
def test_a_marker_without_an_epoch_is_valid(content: bytes) -> None:
    disk = Bench().disk
    disk.write_atomically("/data/.kafka_cleanshutdown", content)
    assert take_marker(disk, "/data") == -1


def test_an_unformatted_directory_is_formatted_and_belongs_to_its_node() -> None:
    disk = Bench().disk
    opened = LogDirectory.open(disk, "/fresh", 3, "cluster", SeededRng(1))
    assert opened.meta.node_id == 3
    text = disk.read("/fresh/meta.properties").decode()
    assert "version=1\n" in text
    assert MetaProperties.read(disk, "/fresh") == opened.meta


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (b"node.id=3", b"node.id=three", "node.id is 'three', but must be a number"),
        (b"node.id=3", b"", "lacks node.id"),
        (b"directory.id=", b"directory.id=!", "directory.id is '!.*', but must be 22 characters"),
        (b"version=1", b"version=x", "has version 'x', but this broker reads version 1"),
        (b"cluster.id=", b"cluster.id=\xff", "the file is not text"),
    ],
)
def test_damage_of_meta_properties_names_the_wrong_line(
    before: bytes, after: bytes, said: str
) -> None:
    disk = Bench().disk
    LogDirectory.open(disk, "/fresh", 3, "cluster", SeededRng(1)).close()
    text = disk.read("/fresh/meta.properties")
    assert before in text
    disk.write_atomically("/fresh/meta.properties", text.replace(before, after))
    with pytest.raises(InconsistentDirectoryError, match=f"^/fresh/meta.properties .*{said}"):
        MetaProperties.read(disk, "/fresh")


@pytest.mark.parametrize(("node", "cluster"), [(4, "cluster"), (3, "other")])
def test_a_directory_of_another_node_or_cluster_is_refused(node: int, cluster: str) -> None:
    disk = Bench().disk
    LogDirectory.open(disk, "/fresh", 3, "cluster", SeededRng(1)).close()
    with pytest.raises(InconsistentDirectoryError):
        LogDirectory.open(disk, "/fresh", node, cluster, SeededRng(1))
    LogDirectory.open(disk, "/fresh", 3, "cluster", SeededRng(1)).close()


def test_a_directory_in_use_is_refused() -> None:
    disk = Bench().disk
    held = LogDirectory.open(disk, "/fresh", 3, "cluster", SeededRng(1))
    with pytest.raises(DirectoryInUseError):
        LogDirectory.open(disk, "/fresh", 3, "cluster", SeededRng(1))
    held.close()
    LogDirectory.open(disk, "/fresh", 3, "cluster", SeededRng(1)).close()


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("a-0", TopicPartition("a", 0)),
        ("a-b-12", TopicPartition("a-b", 12)),
        ("a", None),
        ("-1", None),
        ("a-x", None),
        ("a-0.0123456789abcdef0123456789abcdef-delete", None),
    ],
)
def test_directory_names_contain_the_partition(name: str, partition: TopicPartition | None) -> None:
    assert parse_directory_name(name) == partition


def test_the_name_of_a_deleted_directory_fits_the_file_system() -> None:
    name = TopicPartition("t" * 249, 99999).deleted_directory_name(bytes(16))
    assert len(name) == 255
    assert name.endswith("-delete")
