"""Start, stop and death of a complete broker in virtual time."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.nodes import UnregisterBrokerRequest
from barnabas.record.legacy import read_records
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.process.node import Node
from barnabas.storage.errors import DirectoryInUseError, InconsistentDirectoryError
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient


def values_of(broker: SimulatedBroker, topic: str) -> list[bytes | None]:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=[partition])]
    )
    records = broker.ask(request, 11).responses[0].partitions[0].records
    return [record.value for record in read_records(bytes(records))]


def test_an_empty_directory_is_formatted_and_served() -> None:
    broker = SimulatedBroker()
    assert broker.ready == ["broker:9092"]
    response = broker.metadata()
    assert [(each.node_id, each.host, each.port) for each in response.brokers] == [
        (1, "broker", 9092)
    ]
    assert broker.host.disk.exists("/data/meta.properties")


def test_a_clean_stop_writes_a_marker_and_keeps_all_data() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t", 3, retention_ms="12345")
    broker.produce("t", b"a", b"b")
    cluster_id = broker.metadata("t").cluster_id
    broker.stop()
    assert broker.host.disk.exists("/data/.kafka_cleanshutdown")
    broker.restart()
    assert not broker.host.disk.exists("/data/.kafka_cleanshutdown")
    assert broker.metadata("t").cluster_id == cluster_id
    assert len(broker.metadata("t").topics[0].partitions) == 3
    assert values_of(broker, "t") == [b"a", b"b"]


def test_acknowledged_records_survive_a_kill() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    for number in range(20):
        broker.produce("t", b"%d" % number)
    broker.host.kill()
    broker.restart()
    assert values_of(broker, "t") == [b"%d" % number for number in range(20)]
    assert broker.produce("t", b"next").base_offset == 20


@pytest.mark.parametrize("seed", range(5))
def test_records_acknowledged_after_a_sync_survive_a_power_loss(seed: int) -> None:
    broker = SimulatedBroker(seed)
    broker.make_topic("t", flush_messages="1")
    for number in range(20):
        assert broker.produce("t", b"%d" % number).error_code == ErrorCode.NONE
    broker.host.lose_power()
    broker.restart()
    assert values_of(broker, "t") == [b"%d" % number for number in range(20)]


def test_a_restart_keeps_the_leader_epoch_and_raises_the_broker_epoch() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    before = broker.node.shared.cluster.image.brokers[1].epoch
    broker.stop()
    broker.restart()
    assert broker.node.shared.cluster.image.brokers[1].epoch > before


def test_committed_offsets_survive_a_kill() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    commit = OffsetCommitRequest(
        group_id="g",
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=7, committed_metadata="note"
                    )
                ],
            )
        ],
    )
    find = FindCoordinatorRequest(coordinator_keys=["g"], key_type=0)

    def coordinator() -> int:
        return broker.ask(find, 4).coordinators[0].error_code

    assert coordinator() == ErrorCode.COORDINATOR_NOT_AVAILABLE
    while coordinator() != ErrorCode.NONE:
        broker.world.run_for(10)
    broker.world.run_for(100)
    committed = broker.ask(commit, 8).topics[0].partitions[0]
    assert committed.error_code == ErrorCode.NONE
    broker.host.kill()
    broker.restart()
    broker.world.run_for(1000)
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
    found = broker.ask(fetch, 8).groups[0].topics[0].partitions[0]
    assert (found.committed_offset, found.metadata) == (7, "note")


def test_a_directory_in_use_is_refused() -> None:
    broker = SimulatedBroker()
    other = Node(
        read_configuration({**broker.settings, "listeners": "PLAINTEXT://broker:9093"}),
        broker.host.runtime,
        broker.ready.append,
        broker.failures.append,
    )
    with pytest.raises(DirectoryInUseError, match="used by another process"):
        other.start()


def test_the_directory_of_another_node_is_refused() -> None:
    broker = SimulatedBroker()
    broker.stop()
    broker.settings["node.id"] = "2"
    with pytest.raises(InconsistentDirectoryError, match=r"node\.id=1"):
        broker.restart()


def test_directories_of_two_clusters_are_refused() -> None:
    first = SimulatedBroker()
    first.stop()
    text = first.host.disk.read("/data/meta.properties").decode()
    first.host.disk.make_directory("/other")
    first.host.disk.write_atomically(
        "/other/meta.properties", text.replace("cluster.id=", "cluster.id=x").encode()
    )
    first.settings["log.dirs"] = "/data,/other"
    with pytest.raises(InconsistentDirectoryError, match="several clusters"):
        first.restart()


def test_partitions_spread_over_data_directories() -> None:
    broker = SimulatedBroker(log_dirs="/one,/two")
    broker.make_topic("t", 4)
    for directory in ("/one", "/two"):
        held = [name for name in broker.host.disk.list(directory) if name.startswith("t-")]
        assert len(held) == 2


def test_a_connection_made_before_the_broker_is_ready_is_served_afterwards() -> None:
    broker = SimulatedBroker()
    broker.stop()
    broker.host.start()
    broker.node = Node(
        read_configuration(broker.settings),
        broker.host.runtime,
        broker.ready.append,
        broker.failures.append,
    )
    broker.ready.clear()
    broker.node.start()
    early = SimulatedClient(broker.world, "early")
    outcome = early.send(ApiVersionsRequest(), 0)
    assert broker.world.run_until(lambda: bool(outcome))
    assert broker.ready
    assert outcome[0][1] is None


def test_a_stop_requests_a_controlled_shutdown_first() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    broker.stop()
    image = broker.node.shared.cluster.image
    assert image.brokers[1].fenced
    assert image.brokers[1].in_controlled_shutdown
    partition = image.topics.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.elr) == (-1, (1,))
    broker.restart()
    assert broker.produce("t", b"x").error_code == 0


def test_a_stop_skips_the_controlled_shutdown_if_it_is_disabled() -> None:
    broker = SimulatedBroker(controlled_shutdown_enable="false")
    broker.stop()
    assert not broker.node.shared.cluster.image.brokers[1].fenced


def test_the_controller_registers_again_in_each_process() -> None:
    broker = SimulatedBroker()
    first = broker.node.shared.cluster.image.controllers[1]
    assert first.supported_features["metadata.version"].max_level == 33
    broker.stop()
    broker.restart()
    second = broker.node.shared.cluster.image.controllers[1]
    assert second.incarnation_id != first.incarnation_id


def test_an_unregistered_single_broker_registers_again_and_keeps_its_records() -> None:
    broker = SimulatedBroker()
    broker.make_topic("t")
    assert broker.produce("t", b"before").error_code == 0
    epoch = broker.node.broker.registration.epoch  # type: ignore[union-attr]
    assert broker.ask(UnregisterBrokerRequest(broker_id=1), 0).error_code == 0
    assert broker.world.run_until(lambda: len(broker.metadata("t").brokers) == 1)
    assert broker.world.run_until(
        lambda: broker.metadata("t").topics[0].partitions[0].leader_id == 1
    )
    assert broker.node.broker.registration.epoch > epoch  # type: ignore[union-attr]
    assert broker.produce("t", b"after").error_code == 0
    assert values_of(broker, "t") == [b"before", b"after"]
    # Once more, and into a stop.
    assert broker.ask(UnregisterBrokerRequest(broker_id=1), 0).error_code == 0
    broker.stop()
    broker.restart()
    assert values_of(broker, "t") == [b"before", b"after"]
    assert not broker.failures
