"""Bits that a campaign flips in files, and their repair by `barnabas log`."""

from __future__ import annotations

import random
from pathlib import Path

import confluent_kafka
import pytest

from barnabas.record.builder import build_batch
from barnabas.record.record import Record
from barnabas.testing.broker_process import BrokerProcess
from chaos.damage import Flip, delete_replica, flip_any, repair, verify
from scenario.segments import segments
from waiting import PATIENCE_S

TOPIC = "t"


def write_partition(directory: Path) -> Path:
    replica = directory / f"{TOPIC}-0"
    replica.mkdir()
    path = replica / f"{0:020}.log"
    batches = [build_batch([Record(n, 1000 + n, 0, None, b"value")]) for n in range(10)]
    path.write_bytes(b"".join(batches))
    return path


def test_a_flip_changes_one_bit_of_one_file(tmp_path: Path) -> None:
    path = write_partition(tmp_path)
    before = path.read_bytes()
    flip = flip_any(tmp_path, TOPIC, random.Random(1))
    assert flip.path == path
    assert flip.kind == "active segment"
    after = path.read_bytes()
    changed = int.from_bytes(before, "little") ^ int.from_bytes(after, "little")
    assert changed == 1 << flip.bit


@pytest.mark.conformance
def test_damage_is_found_and_repaired(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path) as broker:
        settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0}
        producer = confluent_kafka.Producer(settings)
        producer.produce(TOPIC, b"value" * 10, partition=0)
        assert producer.flush(PATIENCE_S) == 0
        broker.stop()
        (path,) = segments(broker.data_directory, TOPIC)
        before = path.read_bytes()
        assert verify(broker.data_directory) == ""
        content = bytearray(before)
        content[-3] ^= 4
        path.write_bytes(content)
        assert path.name in verify(broker.data_directory)
        repair(broker.data_directory)
        assert path.read_bytes() == before
        # Indexes are made anew by the next start.
        broker.start()
        broker.stop()
        assert verify(broker.data_directory) == ""


def test_every_kind_of_file_is_damaged(tmp_path: Path) -> None:
    path = write_partition(tmp_path)
    path.rename(path.with_name(f"{5:020}.log"))
    write_names = ("00000000000000000000.log", "00000000000000000000.index", "partition.metadata")
    for name in write_names:
        (path.parent / name).write_bytes(bytes(20))
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "__cluster_metadata-0" / "quorum-state").write_bytes(bytes(20))
    rng = random.Random(2)
    kinds = {flip_any(tmp_path, TOPIC, rng).kind for _ in range(100)}
    assert kinds == {
        "closed segment",
        "active segment",
        "offset index",
        "partition.metadata",
        "vote",
    }


def test_a_replica_directory_is_deleted(tmp_path: Path) -> None:
    path = write_partition(tmp_path)
    delete_replica(Flip("active segment", path, 3))
    assert list(tmp_path.iterdir()) == []
