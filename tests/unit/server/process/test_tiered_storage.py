"""The remote tier of a whole broker in virtual time, with a directory as the store."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.metrics import names
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.server.metrics.remote_metrics import remote_families
from barnabas.storage.errors import StorageError
from unit.server.process.tiered_topic import TOPIC, fill, log_of, tiered_broker
from unit.server.simulated_broker import SimulatedBroker

BROKER_RESOURCE, SET = 4, 0


def stored(broker: SimulatedBroker) -> list[str]:
    """Return the paths of all logs in the tier."""
    disk = broker.host.disk
    found: list[str] = []
    waiting = ["/tier"]
    while waiting:
        path = waiting.pop()
        for name in disk.list(path):
            child = f"{path}/{name}"
            if disk.is_directory(child):
                waiting.append(child)
            elif name.endswith(".log"):
                found.append(name)
    return sorted(found)


def alter_broker(broker: SimulatedBroker, key: str, value: str) -> int:
    """Set a dynamic key of all brokers; return the error code."""
    resource = AlterConfigsResource(
        resource_type=BROKER_RESOURCE,
        resource_name="",
        configs=[AlterableConfig(name=key, config_operation=SET, value=value)],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    code: int = broker.ask(request, 1).responses[0].error_code
    return code


def test_closed_segments_move_to_the_tier() -> None:
    broker = tiered_broker()
    fill(broker, 5)
    assert broker.world.run_until(lambda: log_of(broker).local_log_start_offset == 4)
    assert log_of(broker).log_start_offset == 0
    assert len(stored(broker)) == 4


def test_a_restart_goes_on_where_it_was() -> None:
    broker = tiered_broker()
    fill(broker, 5)
    assert broker.world.run_until(lambda: log_of(broker).local_log_start_offset == 4)
    broker.stop()
    broker.restart()
    assert (log_of(broker).log_start_offset, log_of(broker).local_log_start_offset) == (0, 4)
    fill(broker, 3)
    assert broker.world.run_until(lambda: len(stored(broker)) == 7)


def test_a_kill_loses_nothing() -> None:
    broker = tiered_broker(barnabas_remote_orphan_age_ms="2000")
    fill(broker, 5)
    assert broker.world.run_until(lambda: bool(stored(broker)))
    broker.host.kill()
    broker.restart()
    fill(broker, 2)
    assert broker.world.run_until(lambda: log_of(broker).local_log_start_offset == 6)
    broker.world.run_for(10_000)
    bases = [int(name.partition("-")[0]) for name in stored(broker)]
    assert bases == [0, 1, 2, 3, 4, 5]


def test_a_deleted_topic_leaves_the_tier() -> None:
    broker = tiered_broker()
    fill(broker, 5)
    assert broker.world.run_until(lambda: len(stored(broker)) == 4)
    state = DeleteTopicState(name=TOPIC, topic_id=bytes(16))
    response = broker.ask(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6)
    assert response.responses[0].error_code == ErrorCode.NONE
    assert broker.world.run_until(lambda: not stored(broker))


def test_dynamic_keys_take_effect() -> None:
    broker = tiered_broker()
    tiering = broker.node.broker.tiering
    assert tiering is not None
    assert (tiering.copying.threads, tiering.reading.threads) == (4, 10)
    for key, value in (
        ("remote.log.reader.threads", "20"),
        ("remote.log.manager.copy.max.bytes.per.second", "1000"),
        ("remote.log.manager.fetch.max.bytes.per.second", "2000"),
        ("remote.fetch.max.wait.ms", "700"),
    ):
        assert alter_broker(broker, key, value) == ErrorCode.NONE, key
    broker.world.run_for(1_000)
    assert tiering.reading.threads == 20
    assert tiering.copy_quota.bytes_per_second == 1_000
    assert tiering.fetch_quota.bytes_per_second == 2_000
    assert tiering.reads.limits.fetch_max_wait_ms == 700


def test_the_metrics_have_kafkas_names_and_values() -> None:
    broker = tiered_broker()
    fill(broker, 5)
    assert broker.world.run_until(lambda: log_of(broker).local_log_start_offset == 4)
    broker.world.run_for(2_000)
    tiering = broker.node.broker.tiering
    assert tiering is not None
    found = {
        family.name: dict(family.samples)
        for family in remote_families(tiering.sources, broker.host.clock.monotonic_ms())
    }
    of_topic = (("topic", TOPIC),)
    assert found[names.REMOTE_COPY_REQUESTS][of_topic] == 4
    assert found[names.REMOTE_COPY_ERRORS][()] == 0
    assert found[names.REMOTE_LOG_METADATA_COUNT][of_topic] == 4
    size = found[names.REMOTE_LOG_SIZE_BYTES][of_topic]
    assert found[names.REMOTE_COPY_BYTES][of_topic] == size > 0
    assert found[names.REMOTE_COPY_LAG_SEGMENTS][of_topic] == 0


def test_a_store_that_cannot_be_used_ends_the_start() -> None:
    broker = tiered_broker()
    broker.stop()
    # Another cluster's mark in the directory of this one.
    (directory,) = broker.host.disk.list("/tier")
    broker.host.disk.write_atomically(f"/tier/{directory}/store.json", b"{}")
    broker.host.start()
    with pytest.raises(StorageError, match=r"store\.json"):
        broker.start()


def test_a_broker_without_a_tier_imports_nothing_of_it() -> None:
    program = (
        "import sys;"
        "sys.path.insert(0, 'tests');"
        "from unit.server.simulated_broker import SimulatedBroker;"
        "broker = SimulatedBroker();"
        "broker.make_topic('flights');"
        "broker.produce('flights', b'a');"
        "broker.world.run_for(500);"
        "assert broker.node.broker.tiering is None;"
        "parts = ('barnabas.storage.remote.', 'barnabas.replication.remote.',"
        " 'barnabas.server.remote.', 'barnabas.server.process.tiered_storage');"
        "print([name for name in sys.modules if name.startswith(parts)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
