"""A controller's parts for tests: configs, views, requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.config import CONTROLLER_CONFIGS, ControllerConfig
from barnabas.controller.config_changes import ConfigControl
from barnabas.controller.config_rules import TopicConfigs
from barnabas.controller.partitions.elections import Elections
from barnabas.controller.partitions.new_partitions import PartitionControl
from barnabas.controller.partitions.placement import StripedPlacer
from barnabas.controller.partitions.topics import TopicControl
from barnabas.controller.policy_checks import PolicyChecks
from barnabas.controller.result import ControllerView
from barnabas.coordinator.group.group_config import DEFINITION as GROUP_KEYS
from barnabas.metadata.image import ClusterDelta, Provenance
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from barnabas.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.runtime.rng import SeededRng
from barnabas.sim.clock import SimClock, SimScheduler
from barnabas.storage.config import BROKER_CONFIGS
from unit.metadata.clusters import directory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.controller.result import VersionedRecord
    from barnabas.metadata.image import ClusterImage


CLUSTER_ID = "cluster"


def config_of(**properties: str) -> ControllerConfig:
    """Configuration with `__` for `.` in the keys."""
    given = {name.replace("__", "."): value for name, value in properties.items()}
    return ControllerConfig(
        1, CLUSTER_ID, (BROKER_CONFIGS | CONTROLLER_CONFIGS | GROUP_KEYS).parse(given)
    )


def view_of(image: ClusterImage, now_ms: float = 0.0) -> ControllerView:
    return ControllerView(image, image.provenance.offset + 1, now_ms)


def topics_of(**properties: str) -> TopicControl:
    config = config_of(**properties)
    rng = SeededRng(1)
    checks = PolicyChecks(SimClock(SimScheduler()))
    return TopicControl(config, TopicConfigs(config), StripedPlacer(rng), rng, checks)


def partitions_of() -> PartitionControl:
    return PartitionControl(StripedPlacer(SeededRng(1)))


def configs_of(**properties: str) -> ConfigControl:
    config = config_of(**properties)
    return ConfigControl(config, TopicConfigs(config), PolicyChecks(SimClock(SimScheduler())))


def elections_of(**properties: str) -> Elections:
    return Elections(TopicConfigs(config_of(**properties)))


def new_topic(
    name: str,
    partitions: int = 1,
    factor: int = 1,
    configs: Mapping[str, str | None] | None = None,
    assignments: Mapping[int, Sequence[int]] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
            for index, brokers in (assignments or {}).items()
        ],
        configs=[
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ],
    )


def creation(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), validate_only=validate_only)


def registration(
    broker_id: int = 1,
    incarnation: int = 1,
    previous_epoch: int = -1,
    cluster_id: str = CLUSTER_ID,
    max_metadata_version: int = 33,
) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=cluster_id,
        incarnation_id=bytes(15) + bytes([incarnation + 100]),
        listeners=[Listener(name="PLAINTEXT", host="h", port=9000, security_protocol=0)],
        features=[
            Feature(
                name="metadata.version",
                min_supported_version=7,
                max_supported_version=max_metadata_version,
            ),
            Feature(
                name="eligible.leader.replicas.version",
                min_supported_version=0,
                max_supported_version=1,
            ),
        ],
        rack=None,
        log_dirs=[directory(broker_id)],
        previous_broker_epoch=previous_epoch,
    )


def heartbeat(
    epoch: int,
    broker_id: int = 1,
    offset: int = 1 << 40,
    *,
    fence: bool = False,
    shut_down: bool = False,
) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=epoch,
        current_metadata_offset=offset,
        want_fence=fence,
        want_shut_down=shut_down,
    )


def applied(image: ClusterImage, records: Sequence[VersionedRecord]) -> ClusterImage:
    """Return the image after the records, each of which was encoded and decoded."""
    delta = ClusterDelta(image)
    for record, version in records:
        delta.replay(decode(type(record), version, encode_bytes(record, version)))
    last = image.provenance.offset + len(records)
    return delta.apply(Provenance(last, image.provenance.epoch, 0))


def kinds(records: Sequence[VersionedRecord]) -> list[tuple[str, int]]:
    return [(type(record).__name__, version) for record, version in records]
