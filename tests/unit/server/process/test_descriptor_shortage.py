"""A broker whose process has no free file descriptor refuses operations; nothing goes offline."""

from __future__ import annotations

import errno
import logging

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.sim.disk import DiskFault
from barnabas.storage.topic_partition import TopicPartition
from unit.server.simulated_broker import SimulatedBroker

ROOT = "/"
SHORTAGE = DiskFault(ROOT, ("open",), errno.EMFILE)


def log_directory(broker: SimulatedBroker, topic: str) -> str:
    return broker.node.broker.logs.logs[TopicPartition(topic, 0)].directory


def test_an_append_without_a_free_descriptor_is_refused_and_succeeds_later() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    broker.host.disk.faults.append(DiskFault(log_directory(broker, "t"), ("open",), errno.EMFILE))
    for _ in range(3):
        assert broker.produce("t", b"1").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    logs = broker.node.broker.logs
    assert not logs.has_offline_directories
    assert logs.descriptor_relief.shortages >= 3
    broker.host.disk.faults.clear()
    assert broker.produce("t", b"1").base_offset == 0
    assert not broker.failures


def test_the_operator_is_warned_once_of_a_shortage(caplog: pytest.LogCaptureFixture) -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    broker.host.disk.faults.append(DiskFault(log_directory(broker, "t"), ("open",), errno.ENFILE))
    with caplog.at_level(logging.WARNING, "barnabas"):
        for _ in range(5):
            broker.produce("t", b"1")
    found = [each.getMessage() for each in caplog.records if "descriptor" in each.getMessage()]
    assert len(found) == 1
    assert "ulimit -n" in found[0]


def test_a_broker_survives_a_time_without_free_descriptors() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    assert broker.produce("t", b"1").base_offset == 0
    broker.host.disk.faults.append(SHORTAGE)
    # Long enough for retention, checkpoints and releases of idle files.
    for offset in range(1, 13):
        broker.world.run_for(60_000)
        assert broker.produce("t", b"2").base_offset in (offset, -1)
    assert not broker.failures
    assert not broker.node.broker.logs.has_offline_directories
    broker.host.disk.faults.clear()
    broker.world.run_for(5_000)
    broker.produce("t", b"3")
    broker.stop()
    broker.restart()
    assert broker.produce("t", b"4").error_code == 0


def test_unused_files_are_closed_during_a_shortage() -> None:
    broker = SimulatedBroker()
    for topic in ("idle", "busy", "new"):
        broker.make_topic(topic)
    for topic in ("idle", "busy"):
        broker.produce(topic, b"1")
    fault = DiskFault(log_directory(broker, "new"), ("open",), errno.EMFILE)
    broker.host.disk.faults.append(fault)
    broker.produce("new", b"1")
    broker.world.run_for(1_000)
    broker.produce("busy", b"2")
    broker.world.run_for(3_000)
    logs = broker.node.broker.logs.logs
    is_open = {
        topic: logs[TopicPartition(topic, 0)].segments.active.is_open for topic in ("idle", "busy")
    }
    assert is_open == {"idle": False, "busy": True}
    assert broker.produce("idle", b"2").base_offset == 1
