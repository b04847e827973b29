"""Damaged files at the start: the damage of one log affects only this log."""

from __future__ import annotations

from zlib import crc32

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import DeleteTopicsRequest
from barnabas.storage.errors import DamageKind
from barnabas.storage.files.metadata_files import encode_topic_id, read_topic_id
from barnabas.storage.topic_partition import TopicPartition
from unit.server.simulated_broker import SimulatedBroker

DAMAGED = "/data/damaged-0"
IDENTITY = f"{DAMAGED}/partition.metadata"


def stopped(*, cleanly: bool = True) -> SimulatedBroker:
    broker = SimulatedBroker()
    for name in ("damaged", "sound"):
        broker.make_topic(name)
        assert broker.produce(name, b"value").error_code == 0
    if cleanly:
        broker.stop()
    else:
        broker.host.kill()
    return broker


def told(broker: SimulatedBroker) -> list[DamageKind]:
    return [
        kind for kind, count in broker.node.shared.log_dependencies.damage.counts.items() if count
    ]


def log_end(broker: SimulatedBroker, topic: str) -> int:
    return broker.node.broker.logs.logs[TopicPartition(topic, 0)].log_end_offset


def test_a_log_that_cannot_be_opened_takes_only_its_partition_offline() -> None:
    broker = stopped()
    # An old message of Kafka's before 0.11, intact: nothing that may be cut off.
    body = bytes(2) + b"\xff\xff\xff\xff" + (40).to_bytes(4, "big") + bytes(40)
    message = bytes(8) + (4 + len(body)).to_bytes(4, "big") + crc32(body).to_bytes(4, "big") + body
    broker.host.disk.write_atomically(f"{DAMAGED}/00000000000000000000.log", message)
    broker.restart()
    assert told(broker) == [DamageKind.LOG]
    assert broker.produce("damaged", b"more").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.produce("sound", b"more").base_offset == 1
    # The topic can be deleted, and is gone then.
    deleted = broker.ask(DeleteTopicsRequest(topic_names=["damaged"], timeout_ms=1000), 5)
    assert deleted.responses[0].error_code == 0
    broker.world.run_for(120_000)
    assert not broker.host.disk.exists(DAMAGED)


@pytest.mark.parametrize("cleanly", [True, False])
def test_no_flipped_bit_of_a_topic_id_takes_a_log_from_its_topic(cleanly: bool) -> None:
    broker = stopped(cleanly=cleanly)
    whole = broker.host.disk.read(IDENTITY)
    for bit in range(0, len(whole) * 8, 5):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        broker.host.disk.write_atomically(IDENTITY, bytes(flipped))
        broker.restart()
        assert log_end(broker, "damaged") == 1, bit
        topic_id = broker.node.shared.cluster.image.topics.by_name("damaged").id
        assert read_topic_id(broker.host.disk, DAMAGED) == topic_id, bit
        assert told(broker) in ([DamageKind.IDENTITY], []), bit
        if cleanly:
            broker.stop()
        else:
            broker.host.kill()


@pytest.mark.parametrize("content", [None, b"", b"version: 0\n"])
def test_a_log_whose_topic_id_is_gone_after_a_clean_stop_is_offline_and_kept(
    content: bytes | None,
) -> None:
    broker = stopped()
    if content is None:
        broker.host.disk.remove(IDENTITY)
    else:
        broker.host.disk.write_atomically(IDENTITY, content)
    broker.restart()
    assert DamageKind.IDENTITY in told(broker)
    assert broker.produce("damaged", b"more").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.produce("sound", b"more").base_offset == 1
    # As the log line says: write the file.
    topic_id = broker.node.shared.cluster.image.topics.by_name("damaged").id
    broker.stop()
    broker.host.disk.write_atomically(IDENTITY, encode_topic_id(topic_id))
    broker.restart()
    assert broker.produce("damaged", b"more").base_offset == 1


def test_records_stay_readable_after_a_damaged_checkpoint() -> None:
    broker = stopped()
    path = "/data/recovery-point-offset-checkpoint"
    broker.host.disk.write_atomically(path, b"0\n1\nsound 0 99\n \n")
    broker.restart()
    assert told(broker) == [DamageKind.CHECKPOINT]
    assert (log_end(broker, "damaged"), log_end(broker, "sound")) == (1, 1)
