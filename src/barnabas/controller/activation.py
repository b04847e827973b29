"""The records that a controller writes when it becomes active (ActivationRecordsGenerator)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.metadata.configs.configs_image import ALL_BROKERS, BROKER
from barnabas.protocol.records.begin_transaction_record import BeginTransactionRecord
from barnabas.protocol.records.config_record import ConfigRecord
from barnabas.protocol.records.end_transaction_record import EndTransactionRecord
from barnabas.protocol.records.feature_level_record import FeatureLevelRecord
from barnabas.raft.driver.opening import bootstrap_records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.controller.config import ControllerConfig
    from barnabas.controller.result import VersionedRecord
    from barnabas.metadata.broker_registration import ControllerRegistration
    from barnabas.metadata.image import ClusterImage
    from barnabas.raft.driver.raft_driver import RaftDriver

_ELR_FEATURE = "eligible.leader.replicas.version"
_MIN_INSYNC_REPLICAS = "min.insync.replicas"


def activation_records(
    image: ClusterImage,
    driver: RaftDriver,
    config: ControllerConfig,
    registration: ControllerRegistration | None,
) -> Iterator[list[VersionedRecord]]:
    """Yield batches of records to append, in order."""
    if not image.features.finalized:
        yield _bootstrap(driver, config)
    known = image.controllers.get(config.node_id)
    if registration is not None and known != registration:
        yield [registration.to_record()]


def _bootstrap(driver: RaftDriver, config: ControllerConfig) -> list[VersionedRecord]:
    """Return the formatter's records as one metadata transaction, which applies all or none."""
    records: list[VersionedRecord] = [(BeginTransactionRecord(name="Bootstrap records"), 0)]
    formatted = bootstrap_records(driver)
    records += formatted
    if any(
        isinstance(record, FeatureLevelRecord) and record.name == _ELR_FEATURE
        for record, _ in formatted
    ):
        # KIP-966 needs one minimum for all brokers, so the current value is stored in the log.
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
