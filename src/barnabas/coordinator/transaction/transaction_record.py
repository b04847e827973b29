"""Records of `__transaction_state` (Kafka's TransactionLog)."""

from __future__ import annotations

from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
from barnabas.coordinator.transaction.transaction_metadata import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    TransactionMetadata,
    TransactionState,
)
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.record_frame import decode_coordinator_key, decode_coordinator_value
from barnabas.protocol.records.coordinator_logs import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from barnabas.storage.topic_partition import TopicPartition

# Since this level of the feature transaction.version, values have tagged fields.
_FLEXIBLE_SINCE = 1
# Largest version of transactions that WriteTxnMarkers can carry.
_VERSION_MAX = 0x7F


def transaction_record(
    metadata: TransactionMetadata, transaction_version: int
) -> CoordinatorRecord:
    """Return the record of a transactional id.

    Args:
        metadata: the state to write.
        transaction_version: level of the feature transaction.version.
    """
    is_flexible = transaction_version >= _FLEXIBLE_SINCE
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=int(metadata.state),
        transaction_partitions=_by_topic(metadata),
        transaction_last_update_timestamp_ms=metadata.update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if is_flexible:
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
        value.next_producer_epoch = metadata.next_producer_epoch
        value.client_transaction_version = metadata.client_version
    key = TransactionLogKey(transactional_id=metadata.transactional_id)
    return CoordinatorRecord.of(key, value, int(is_flexible))


def transaction_tombstone(transactional_id: str) -> CoordinatorRecord:
    """Return the record that removes a transactional id."""
    return CoordinatorRecord.of(TransactionLogKey(transactional_id=transactional_id), None)


def _by_topic(metadata: TransactionMetadata) -> list[PartitionsSchema] | None:
    if metadata.state is TransactionState.EMPTY:
        return None
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(metadata.partitions):
        topics.setdefault(topic, []).append(partition)
    return [PartitionsSchema(topic=topic, partition_ids=ids) for topic, ids in topics.items()]


def read_transactional_id(key: bytes) -> str:
    """Return the transactional id of a record's key. Raises ProtocolError."""
    return decode_coordinator_key(TransactionLogKey, key).transactional_id


def read_transaction(transactional_id: str, content: bytes) -> TransactionMetadata:
    """Return the state in a record's value.

    Raises:
        ProtocolError: the value is unreadable, its state is unknown, or no coordinator writes it.
    """
    value = decode_coordinator_value(TransactionLogValue, content)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        status = value.transaction_status
        raise ProtocolError(f"the transaction status {status} is unknown") from None
    version = value.client_transaction_version
    if value.producer_id < 0 or value.producer_epoch < 0 or not 0 <= version <= _VERSION_MAX:
        raise ProtocolError(
            f"the producer id {value.producer_id}, its epoch {value.producer_epoch} or the "
            f"transaction version {version} is invalid"
        )
    partitions: frozenset[TopicPartition] = frozenset()
    if state is not TransactionState.EMPTY:
        partitions = frozenset(
            TopicPartition(each.topic, partition)
            for each in value.transaction_partitions or ()
            for partition in each.partition_ids
        )
    # Only a transaction that is open or ending has a next producer.
    has_next = state.has_transaction and value.next_producer_id >= 0
    return TransactionMetadata(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        partitions,
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id if has_next else NO_PRODUCER_ID,
        client_version=version,
        next_producer_epoch=value.next_producer_epoch if has_next else NO_EPOCH,
    )
