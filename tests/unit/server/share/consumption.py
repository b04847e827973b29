"""A broker in virtual time with share groups, and members of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.metadata.broker_registration import SupportedLevels
from barnabas.metadata.metadata_version import SHARE_VERSION
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from barnabas.protocol.messages.nodes import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.protocol.messages.share_acknowledge import (
    AcknowledgementBatch as AcknowledgeBatch,
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.protocol.messages.share_consumers import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from barnabas.server.startup.features import BOOTSTRAP_FEATURES, SUPPORTED_FEATURES
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

GROUP_CONFIG = 32
UPGRADE, SAFE_DOWNGRADE = 1, 2
TOPIC = "work"
GROUP = "workers"
Acknowledged = tuple[int, int, "Sequence[int]"]


def share_broker(monkeypatch: pytest.MonkeyPatch, **settings: str) -> SimulatedBroker:
    """Start a broker with share groups and a topic, which the group reads from its beginning."""
    monkeypatch.setitem(SUPPORTED_FEATURES, SHARE_VERSION, SupportedLevels(0, 2))
    monkeypatch.setitem(BOOTSTRAP_FEATURES, SHARE_VERSION, 2)
    broker = SimulatedBroker(
        share_coordinator_state_topic_num_partitions="1",
        share_coordinator_state_topic_replication_factor="1",
        share_coordinator_state_topic_min_isr="1",
        **settings,
    )
    broker.make_topic(TOPIC)
    configure_group(broker, share_auto_offset_reset="earliest")
    initialize(broker)
    return broker


def initialize(broker: SimulatedBroker) -> None:
    """Create the state of the share partition, as the group coordinator does."""
    partition = PartitionData(partition=0, state_epoch=1, start_offset=-1)
    topic_id = broker.metadata(TOPIC).topics[0].topic_id
    topics = [InitializeStateData(topic_id=topic_id, partitions=[partition])]
    request = InitializeShareGroupStateRequest(group_id=GROUP, topics=topics)
    done: list[ErrorCode] = []
    broker.node.broker.persister.initialize(
        request,
        lambda response: done.append(ErrorCode(response.results[0].partitions[0].error_code)),
    )
    assert broker.world.run_until(lambda: bool(done))
    assert done == [ErrorCode.NONE]


def configure_group(broker: SimulatedBroker, **configs: str) -> None:
    """Set configs of the group."""
    resource = AlterConfigsResource(
        resource_type=GROUP_CONFIG,
        resource_name=GROUP,
        configs=[
            AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
            for name, value in configs.items()
        ],
    )
    answer = broker.ask(
        IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1
    )
    assert answer.responses[0].error_code == ErrorCode.NONE


def set_share_version(broker: SimulatedBroker, level: int) -> None:
    """Raise or lower share.version at run time."""
    current = broker.node.shared.cluster.image.features.finalized.get(SHARE_VERSION, 0)
    update = FeatureUpdateKey(
        feature=SHARE_VERSION,
        max_version_level=level,
        upgrade_type=UPGRADE if level > current else SAFE_DOWNGRADE,
    )
    answer = broker.ask(UpdateFeaturesRequest(timeout_ms=1000, feature_updates=[update]), 2)
    assert answer.error_code == ErrorCode.NONE, answer


class Member:
    """A member of the group with a connection of its own."""

    def __init__(self, broker: SimulatedBroker, name: str) -> None:
        self.broker = broker
        self.name = name
        self.epoch = 0
        self.client = SimulatedClient(broker.world, f"{name}-{broker.world.scheduler.now_ms}")

    def fetch_request(self, *acknowledged: Acknowledged, **fields: Any) -> ShareFetchRequest:
        """Return the next request of the session."""
        batches = [
            AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=list(types)
            )
            for first, last, types in acknowledged
        ]
        partition = FetchPartition(partition_index=0, acknowledgement_batches=batches)
        topic_id = self.broker.metadata(TOPIC).topics[0].topic_id
        values = {
            "group_id": GROUP,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "max_wait_ms": 500,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "topics": [FetchTopic(topic_id=topic_id, partitions=[partition])],
            "forgotten_topics_data": [],
            **fields,
        }
        if values["share_session_epoch"] >= 0:
            self.epoch = values["share_session_epoch"] + 1
        return ShareFetchRequest(**values)

    def fetch(self, *acknowledged: Acknowledged, **fields: Any) -> list[tuple[int, int, int]]:
        """Return the acquired ranges: first offset, last offset, deliveries."""
        return acquired(self.client.ask(self.fetch_request(*acknowledged, **fields), 2))

    def acknowledge(self, *acknowledged: Acknowledged, **fields: Any) -> str:
        """Return the name of the error of the partition, or of the request."""
        batches = [
            AcknowledgeBatch(first_offset=first, last_offset=last, acknowledge_types=list(types))
            for first, last, types in acknowledged
        ]
        partition = AcknowledgePartition(partition_index=0, acknowledgement_batches=batches)
        topic_id = self.broker.metadata(TOPIC).topics[0].topic_id
        values = {
            "group_id": GROUP,
            "member_id": self.name,
            "share_session_epoch": self.epoch,
            "topics": [AcknowledgeTopic(topic_id=topic_id, partitions=[partition])],
            **fields,
        }
        self.epoch += 1
        answer = self.client.ask(ShareAcknowledgeRequest(**values), 2)
        if answer.error_code:
            return ErrorCode(answer.error_code).name
        return ErrorCode(answer.responses[0].partitions[0].error_code).name


def acquired(answer: Any) -> list[tuple[int, int, int]]:
    """Return the acquired ranges of a response without errors."""
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code)
    found = []
    for topic in answer.responses:
        for partition in topic.partitions:
            assert partition.error_code == ErrorCode.NONE, ErrorCode(partition.error_code)
            assert partition.acknowledge_error_code == ErrorCode.NONE
            found += [
                (each.first_offset, each.last_offset, each.delivery_count)
                for each in partition.acquired_records
            ]
    return found
