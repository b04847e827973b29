"""The files of a segment that the remote tier stores: those of Apache Kafka and ours are the same.

Kafka copies the segments of a log to its LocalTieredStorage. Then it is stopped, and our log is
opened in its directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from msgspec.structs import replace

from barnabas.runtime.disk import RealDisk
from barnabas.storage.config import LogConfig
from barnabas.storage.files.checkpoint import RECOVERY_POINTS, OffsetCheckpoint
from barnabas.storage.log.log import Log
from barnabas.storage.log_dependencies import LogOpening
from barnabas.storage.topic_partition import TopicPartition
from jvm.directory_contents import create_topics
from jvm.directory_requests import RequestRouter
from jvm.tiered_kafka import TieredKafka
from unit.storage.storage_fixtures import Bench
from waiting import eventually

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

PARTITION = TopicPartition("copied", 0)
SEGMENT_BYTES = 1 << 20
VALUE = bytes(range(256)) * 40
# The suffixes of the parts of a copy, without that of aborted transactions, which is optional.
PARTS = ("log", "index", "timeindex", "snapshot", "leader_epoch_checkpoint")


def produce(bootstrap: str) -> None:
    """Fill some segments by an idempotent producer, and one with an aborted transaction."""
    options: dict[str, Any] = {"bootstrap.servers": bootstrap, "linger.ms": 5}
    plain = Producer({**options, "enable.idempotence": True})
    aborting = Producer({**options, "transactional.id": "aborting"})
    aborting.init_transactions(60)
    aborting.begin_transaction()
    aborting.produce(PARTITION.topic, b"never")
    aborting.flush(60)
    for _ in range(150):
        plain.produce(PARTITION.topic, VALUE)
    assert plain.flush(60) == 0
    aborting.abort_transaction(60)
    for _ in range(350):
        plain.produce(PARTITION.topic, VALUE)
    assert plain.flush(60) == 0


def is_whole(log: Path) -> bool:
    return all(log.with_suffix(f".{suffix}").exists() for suffix in PARTS)


def test_a_copy_has_the_same_bytes_as_kafkas(tmp_path: Path) -> None:
    kafka = TieredKafka(tmp_path / "kafka")
    directory = kafka.data_directory / PARTITION.directory_name
    kafka.start()
    try:
        send = RequestRouter(kafka.bootstrap)
        configs = {"segment.bytes": str(SEGMENT_BYTES), "remote.storage.enable": "true"}
        create_topics(send, {PARTITION.topic: configs}, replicas=1)
        produce(kafka.bootstrap)
        send.close()
        closed = len(list(directory.glob("*.log"))) - 1
        assert closed > 3
        eventually(
            lambda: len([p for p in kafka.stored(PARTITION.topic) if is_whole(p)]) == closed,
            "segments without a copy",
        )
        kafka.stop()
    finally:
        kafka.close()
    disk, data = RealDisk(), str(kafka.data_directory)
    point = OffsetCheckpoint(disk, data, RECOVERY_POINTS).read()[PARTITION]
    opening = LogOpening(PARTITION, recovery_point=point, clean_shutdown=True)
    config = LogConfig(segment_bytes=SEGMENT_BYTES, is_remote=True)
    log = Log.open(str(directory), config, replace(Bench().log_dependencies, disk=disk), opening)
    segments = log.copyable_segments(0, log.log_end_offset)
    stored = kafka.stored(PARTITION.topic)
    assert len(segments) == len(stored) == closed
    aborted = 0
    for segment, path in zip(segments, stored, strict=True):
        files = log.open_for_copy(segment.base_offset)
        assert files is not None
        assert int(path.name[:20]) == segment.base_offset
        assert path.stat().st_size == files.log_size == segment.size
        assert path.read_bytes() == Path(files.log_path).read_bytes()
        content = [path.with_suffix(f".{suffix}").read_bytes() for suffix in PARTS[1:]]
        assert content == [
            files.offset_index, files.time_index, files.producer_snapshot, files.leader_epochs
        ]  # fmt: skip
        transactions = path.with_suffix(".txnindex")
        theirs = transactions.read_bytes() if transactions.exists() else b""
        assert (files.transaction_index or b"") == theirs
        aborted += bool(theirs)
    assert aborted == 1
    log.close()
