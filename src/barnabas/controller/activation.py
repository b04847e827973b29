"""What a controller writes when it becomes active (Kafka's ActivationRecordsGenerator)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.protocol.records.begin_transaction_record import BeginTransactionRecord
from barnabas.protocol.records.config_record import ConfigRecord
from barnabas.protocol.records.end_transaction_record import EndTransactionRecord
from barnabas.protocol.records.feature_level_record import FeatureLevelRecord
from barnabas.raft.opening import bootstrap_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import VersionedRecord
    from barnabas.metadata.broker_registration import ControllerRegistration
    from barnabas.metadata.image import ClusterImage
    from barnabas.raft.driver import RaftDriver

_ELR_FEATURE = "eligible.leader.replicas.version"
_MIN_INSYNC_REPLICAS = "min.insync.replicas"


def activation_records(
    image: ClusterImage,
    driver: RaftDriver,
    config: ControllerConfig,
    registration: ControllerRegistration | None,
) -> Iterator[list[VersionedRecord]]:
    """Batches to append, in order."""
    if not image.features.finalized:
        yield _bootstrap(driver, config)
    known = image.controllers.get(config.node_id)
    if registration is not None and known != registration:
        yield [registration.to_record()]


def _bootstrap(driver: RaftDriver, config: ControllerConfig) -> list[VersionedRecord]:
    """What the formatter left, as one metadata transaction: a new cluster begins whole."""
    records: list[VersionedRecord] = [(BeginTransactionRecord(name="Bootstrap records"), 0)]
    formatted = bootstrap_records(driver)
    records += formatted
    if any(
        isinstance(record, FeatureLevelRecord) and record.name == _ELR_FEATURE
        for record, _ in formatted
    ):
        # Under KIP-966 the minimum has to be the same for all brokers: it is pinned in the log.
        minimum = config.broker.text(_MIN_INSYNC_REPLICAS)
        record = ConfigRecord(
            resource_type=BROKER,
            resource_name=ALL_BROKERS,
            name=_MIN_INSYNC_REPLICAS,
            value=minimum,
        )
        records.append((record, 0))
    records.append((EndTransactionRecord(), 0))
    return records
