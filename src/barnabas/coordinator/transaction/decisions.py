"""Effects of requests on a transactional id: pure functions from a state to a state or an error.

The checks and their order are Kafka's (TransactionCoordinator; KIP-98, KIP-360, KIP-890). The shard
has checked before that no other change of the id is pending, and that no markers are being written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.transaction.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Producer,
    TransactionMetadata,
    TransactionState,
    is_epoch_exhausted,
)
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.storage.topic_partition import TopicPartition

_ENDED = (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


class Initialization(msgspec.Struct, frozen=True):
    """An InitProducerId request with a transactional id."""

    transactional_id: str
    timeout_ms: int
    # The producer that continues after an error (KIP-360).
    expected: Producer
    # Whether the producer uses two-phase commit: its transactions have no timeout (KIP-939).
    has_two_phases: bool = False
    # Whether the producer takes over an open transaction instead of aborting it (KIP-939).
    keeps_prepared: bool = False

    @property
    def transaction_timeout_ms(self) -> int:
        """The timeout of the producer's transactions."""
        return NO_TIMEOUT_MS if self.has_two_phases else self.timeout_ms


class EndRequest(msgspec.Struct, frozen=True):
    """An EndTxn request."""

    transactional_id: str
    producer: Producer
    is_commit: bool
    # Transaction version of the client: 2 from EndTxn version 5 on, else 0.
    client_version: int


# The timeout of transactions that never time out.
NO_TIMEOUT_MS = 0x7FFF_FFFF


class NeedsProducerIdError(Exception):
    """The decision needs a new producer id."""


def initialize(
    metadata: TransactionMetadata | None,
    request: Initialization,
    new_producer_id: int | None,
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """Return the state after InitProducerId. For an open transaction, see `is_open`.

    Args:
        metadata: the current state; None for a new id.
        request: the request.
        new_producer_id: an unused producer id, if one was reserved.
        now_ms: the wall clock.

    Raises:
        NeedsProducerIdError: an unused producer id is needed.
    """
    if metadata is None:
        if new_producer_id is None:
            raise NeedsProducerIdError
        metadata = TransactionMetadata(
            request.transactional_id, new_producer_id, NO_EPOCH, request.transaction_timeout_ms
        )
    expected = request.expected
    if expected.is_given and not _is_expected(metadata, expected):
        return ErrorCode.PRODUCER_FENCED
    assert metadata.state in (TransactionState.EMPTY, *_ENDED), f"{metadata}"
    epoch = metadata.producer_epoch
    # The last epoch is that of a fenced producer: a retry, which usually gets the current epoch,
    # must not get it.
    is_retry_of_fenced = epoch == EPOCH_MAX and expected.epoch == metadata.last_producer_epoch
    if metadata.is_epoch_exhausted and (
        not expected.is_given or expected.epoch == epoch or is_retry_of_fenced
    ):
        if new_producer_id is None:
            raise NeedsProducerIdError
        last_epoch = expected.epoch if expected.is_given else NO_EPOCH
        timeout_ms = request.transaction_timeout_ms
        return metadata.initialized(new_producer_id, 0, last_epoch, timeout_ms, now_ms)
    if not expected.is_given:
        following = (epoch + 1, NO_EPOCH)
    elif epoch in (NO_EPOCH, expected.epoch):
        following = (epoch + 1, epoch)
    elif expected.epoch == metadata.last_producer_epoch:
        # A retry: its first response was lost.
        following = (epoch, metadata.last_producer_epoch)
    else:
        return ErrorCode.PRODUCER_FENCED
    timeout_ms = request.transaction_timeout_ms
    return metadata.initialized(metadata.producer_id, *following, timeout_ms, now_ms)


def keep_prepared(
    metadata: TransactionMetadata,
    request: Initialization,
    new_producer_id: int | None,
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """Return the state after a producer has taken over the open transaction (KIP-939).

    The producer gets a new epoch, which fences earlier producers of the id. It may only send EndTxn
    until the transaction has ended.

    Raises:
        NeedsProducerIdError: the epoch is exhausted, and an unused producer id is needed.
    """
    assert metadata.state is TransactionState.ONGOING, f"{metadata}"
    current = metadata.client_producer
    if request.expected.is_given and request.expected != current:
        return ErrorCode.PRODUCER_FENCED
    following = Producer(current.producer_id, current.epoch + 1)
    if is_epoch_exhausted(current.epoch):
        if new_producer_id is None:
            raise NeedsProducerIdError
        following = Producer(new_producer_id, 0)
    return metadata.kept(following, request.transaction_timeout_ms, now_ms)


def _is_expected(metadata: TransactionMetadata, expected: Producer) -> bool:
    return (
        metadata.producer_epoch == NO_EPOCH
        or expected.producer_id == metadata.producer_id
        or (
            # A retry after a change of the producer id.
            expected.producer_id == metadata.previous_producer_id
            and is_epoch_exhausted(expected.epoch)
        )
    )


def is_fenced_by(metadata: TransactionMetadata, request: Initialization) -> bool:
    """Return whether the request ends an open transaction of an earlier producer."""
    expected = request.expected
    if metadata.state is not TransactionState.ONGOING:
        return False
    if metadata.is_kept:
        return not expected.is_given or expected == metadata.client_producer
    return not expected.is_given or _is_expected(metadata, expected)


def check_producer(metadata: TransactionMetadata | None, producer: Producer) -> ErrorCode:
    """Return whether the producer may change its transaction."""
    if metadata is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    current = Producer(metadata.producer_id, metadata.producer_epoch)
    if metadata.is_kept:
        current = metadata.client_producer
    if current.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if current.epoch == producer.epoch else ErrorCode.PRODUCER_FENCED


def add_partitions(
    metadata: TransactionMetadata,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionMetadata | ErrorCode:
    """Return the state after partitions were added; NONE if the transaction has all of them."""
    assert not metadata.state.is_prepared, f"{metadata}"
    if metadata.is_kept:
        # A prepared transaction accepts no partitions; it can only end.
        return ErrorCode.INVALID_TXN_STATE
    if metadata.state is TransactionState.ONGOING and partitions <= metadata.partitions:
        return ErrorCode.NONE
    return metadata.with_partitions(partitions, client_version, now_ms)


def verify_partitions(
    metadata: TransactionMetadata | None,
    producer: Producer,
    partitions: frozenset[TopicPartition],
) -> dict[TopicPartition, ErrorCode]:
    """Return for each partition whether the producer's transaction has it (KIP-890)."""
    error = check_producer(metadata, producer)
    if metadata is None or error is not ErrorCode.NONE:
        return dict.fromkeys(partitions, error)
    if metadata.state.is_prepared:
        return dict.fromkeys(partitions, ErrorCode.CONCURRENT_TRANSACTIONS)
    if metadata.is_kept:
        return dict.fromkeys(partitions, ErrorCode.INVALID_TXN_STATE)
    return {
        each: ErrorCode.NONE if each in metadata.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def check_ending(metadata: TransactionMetadata | None, request: EndRequest) -> ErrorCode:
    """Return whether the producer may end a transaction; a retry of version 2 may be late."""
    if metadata is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    producer = request.producer
    if request.client_version < EPOCH_BUMP_VERSION:
        return check_producer(metadata, producer)
    if metadata.is_kept:
        metadata = _as_client_sees(metadata)
    if metadata.producer_id != producer.producer_id and not _is_retry_after_new_id(
        metadata, producer
    ):
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert not metadata.state.is_prepared, f"{metadata}"
    is_current = metadata.producer_epoch == producer.epoch
    if metadata.state in _ENDED:
        # The last epoch belongs to fenced producers: no response may contain it.
        has_last_epoch = metadata.producer_epoch == EPOCH_MAX
        is_valid = not has_last_epoch and (is_current or _is_retry(metadata, producer))
    else:
        is_valid = is_current
    return ErrorCode.NONE if is_valid else ErrorCode.PRODUCER_FENCED


def _as_client_sees(metadata: TransactionMetadata) -> TransactionMetadata:
    """Return the state of a kept transaction with the identity of the producer that may end it."""
    client = metadata.client_producer
    return msgspec.structs.replace(
        metadata, producer_id=client.producer_id, producer_epoch=client.epoch
    )


def _is_retry_after_new_id(metadata: TransactionMetadata, producer: Producer) -> bool:
    return (
        metadata.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_MAX - 1
        and metadata.producer_epoch == 0
    )


def _is_retry(metadata: TransactionMetadata, producer: Producer) -> bool:
    is_after_bump = metadata.producer_epoch == producer.epoch + 1
    return is_after_bump or _is_retry_after_new_id(metadata, producer)


def end(
    metadata: TransactionMetadata, request: EndRequest, new_producer_id: int | None, now_ms: int
) -> TransactionMetadata | ErrorCode:
    """Return the state after EndTxn; NONE if the transaction already ended with this result.

    `check_ending` has accepted the producer.

    Raises:
        NeedsProducerIdError: the epoch is exhausted, and an unused producer id is needed.
    """
    is_commit, state = request.is_commit, metadata.state
    bumps = request.client_version >= EPOCH_BUMP_VERSION
    assert not state.is_prepared, f"{metadata}"
    if state in _ENDED:
        was_commit = state is TransactionState.COMPLETE_COMMIT
        if not bumps or _is_retry(metadata, request.producer):
            return ErrorCode.NONE if is_commit == was_commit else ErrorCode.INVALID_TXN_STATE
    if state is not TransactionState.ONGOING and (is_commit or not bumps):
        return ErrorCode.INVALID_TXN_STATE
    next_producer_id = NO_PRODUCER_ID
    if bumps and is_epoch_exhausted(metadata.client_producer.epoch):
        if new_producer_id is None:
            raise NeedsProducerIdError
        next_producer_id = new_producer_id
    return metadata.ended(
        is_commit=is_commit,
        client_version=request.client_version,
        next_producer_id=next_producer_id,
        now_ms=now_ms,
    )
