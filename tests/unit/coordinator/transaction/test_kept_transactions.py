"""Two-phase commit (KIP-939): the next producer takes over a prepared transaction."""

from __future__ import annotations

import pytest

from barnabas.coordinator.transaction import decisions
from barnabas.coordinator.transaction.decisions import (
    NO_TIMEOUT_MS,
    EndRequest,
    Initialization,
    NeedsProducerIdError,
)
from barnabas.coordinator.transaction.transaction_metadata import (
    EPOCH_MAX,
    Producer,
    TransactionMetadata,
    TransactionState,
)
from barnabas.coordinator.transaction.transaction_record import read_transaction, transaction_record
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.topic_partition import TopicPartition

ID, PRODUCER_ID, EPOCH, NOW_MS = "t", 7, 3, 1_000
LAST = EPOCH_MAX - 1
FIRST = Producer(PRODUCER_ID, EPOCH)
P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)
FENCED = ErrorCode.PRODUCER_FENCED
OTHER_ID = ErrorCode.INVALID_PRODUCER_ID_MAPPING


def opened(epoch: int = EPOCH) -> TransactionMetadata:
    ongoing = TransactionState.ONGOING
    return TransactionMetadata(
        ID, PRODUCER_ID, epoch, NO_TIMEOUT_MS, ongoing, frozenset([P0]), 500, 600
    )


def keep(
    metadata: TransactionMetadata, new_id: int | None = None, expected: Producer | None = None
) -> TransactionMetadata:
    request = Initialization(
        ID, 60_000, expected or Producer(), has_two_phases=True, keeps_prepared=True
    )
    found = decisions.keep_prepared(metadata, request, new_id, NOW_MS)
    assert isinstance(found, TransactionMetadata)
    return found


def ended(
    metadata: TransactionMetadata,
    producer: Producer,
    version: int = 2,
    new_id: int | None = None,
    *,
    is_commit: bool = True,
) -> TransactionMetadata | ErrorCode:
    request = EndRequest(ID, producer, is_commit, version)
    error = decisions.check_ending(metadata, request)
    if error is not ErrorCode.NONE:
        return error
    return decisions.end(metadata, request, new_id, NOW_MS)


def identity(metadata: TransactionMetadata) -> Producer:
    return Producer(metadata.producer_id, metadata.producer_epoch)


def test_the_next_producer_gets_an_epoch_and_the_transaction_keeps_its_own() -> None:
    kept = keep(opened())
    assert kept.state is TransactionState.ONGOING
    assert (kept.partitions, kept.start_ms, kept.timeout_ms) == ({P0}, 500, NO_TIMEOUT_MS)
    assert identity(kept) == FIRST
    assert kept.client_producer == Producer(PRODUCER_ID, EPOCH + 1)
    # The next producer crashes as well.
    again = keep(kept)
    assert identity(again) == FIRST
    assert again.client_producer == Producer(PRODUCER_ID, EPOCH + 2)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("is_commit", [True, False])
def test_only_the_last_producer_may_end_a_kept_transaction(version: int, is_commit: bool) -> None:
    kept = keep(keep(opened()))
    for producer in (FIRST, Producer(PRODUCER_ID, EPOCH + 1), Producer(PRODUCER_ID, EPOCH + 3)):
        assert ended(kept, producer, version, is_commit=is_commit) is FENCED
    assert ended(kept, Producer(PRODUCER_ID + 1, EPOCH + 2), version) is OTHER_ID
    current = Producer(PRODUCER_ID, EPOCH + 2)
    prepared = ended(kept, current, version, is_commit=is_commit)
    assert isinstance(prepared, TransactionMetadata)
    # The markers have the id of the transaction's records, and fence their producer.
    bump = 1 if version == 2 else 0
    assert identity(prepared) == Producer(PRODUCER_ID, EPOCH + bump)
    following = Producer(PRODUCER_ID, EPOCH + 2 + bump)
    assert prepared.client_producer == following
    completed = prepared.completed(NOW_MS)
    assert identity(completed) == following
    assert not completed.is_kept
    assert ended(completed, current, version, is_commit=is_commit) is ErrorCode.NONE
    assert ended(completed, current, version, is_commit=not is_commit) is (
        ErrorCode.INVALID_TXN_STATE
    )
    assert ended(completed, FIRST, version, is_commit=is_commit) is FENCED


def test_an_exhausted_epoch_is_followed_by_a_new_producer_id() -> None:
    with pytest.raises(NeedsProducerIdError):
        keep(opened(LAST))
    kept = keep(opened(LAST), 70)
    assert identity(kept) == Producer(PRODUCER_ID, LAST)
    assert kept.client_producer == Producer(70, 0)
    assert ended(kept, Producer(PRODUCER_ID, LAST)) is FENCED
    prepared = ended(kept, Producer(70, 0))
    assert isinstance(prepared, TransactionMetadata)
    assert identity(prepared) == Producer(PRODUCER_ID, EPOCH_MAX)
    completed = prepared.completed(NOW_MS)
    assert identity(completed) == Producer(70, 1)
    assert ended(completed, Producer(70, 0)) is ErrorCode.NONE


def test_the_end_needs_a_new_producer_id_when_the_last_producer_has_an_exhausted_epoch() -> None:
    kept = keep(opened(LAST - 1))
    current = Producer(PRODUCER_ID, LAST)
    assert kept.client_producer == current
    with pytest.raises(NeedsProducerIdError):
        ended(kept, current)
    prepared = ended(kept, current, new_id=70)
    assert isinstance(prepared, TransactionMetadata)
    assert identity(prepared) == Producer(PRODUCER_ID, LAST)
    assert prepared.client_producer == Producer(70, 0)
    completed = prepared.completed(NOW_MS)
    assert identity(completed) == Producer(70, 0)
    assert ended(completed, current) is ErrorCode.NONE


def test_a_kept_transaction_gets_no_more_partitions() -> None:
    kept, current = keep(opened()), Producer(PRODUCER_ID, EPOCH + 1)
    assert decisions.check_producer(kept, FIRST) is FENCED
    assert decisions.check_producer(kept, current) is ErrorCode.NONE
    for partitions in (frozenset([P0]), frozenset([P1])):
        added = decisions.add_partitions(kept, partitions, 2, NOW_MS)
        assert added is ErrorCode.INVALID_TXN_STATE
        verified = decisions.verify_partitions(kept, current, partitions)
        assert set(verified.values()) == {ErrorCode.INVALID_TXN_STATE}
        assert set(decisions.verify_partitions(kept, FIRST, partitions).values()) == {FENCED}


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_without_keep_prepared_fences_all_earlier_producers(version: int) -> None:
    kept, current = keep(opened()), Producer(PRODUCER_ID, EPOCH + 1)
    assert decisions.is_fenced_by(kept, Initialization(ID, 1, Producer()))
    assert decisions.is_fenced_by(kept, Initialization(ID, 1, current))
    assert not decisions.is_fenced_by(kept, Initialization(ID, 1, FIRST))
    aborted = kept.fenced(version, NOW_MS).completed(NOW_MS)
    assert aborted.state is TransactionState.COMPLETE_ABORT
    assert aborted.producer_epoch > current.epoch
    # In version 2, the abort by the coordinator answers a late abort of the producer.
    late_abort = ended(aborted, current, version, is_commit=False)
    assert late_abort is (ErrorCode.NONE if version == 2 else FENCED)
    assert ended(aborted, current, version) is not ErrorCode.NONE
    assert ended(aborted, FIRST, version, is_commit=False) is FENCED
    found = decisions.initialize(aborted, Initialization(ID, 1, FIRST), None, NOW_MS)
    assert found is FENCED
    found = decisions.initialize(aborted, Initialization(ID, 1, Producer()), None, NOW_MS)
    assert isinstance(found, TransactionMetadata)
    assert found.producer_epoch == aborted.producer_epoch + 1


def test_only_the_last_producer_may_continue() -> None:
    kept = keep(opened())
    request = Initialization(ID, 1, FIRST, has_two_phases=True, keeps_prepared=True)
    assert decisions.keep_prepared(kept, request, None, NOW_MS) is FENCED
    continued = keep(kept, expected=kept.client_producer)
    assert continued.client_producer == Producer(PRODUCER_ID, EPOCH + 2)


def test_the_record_has_the_identity_of_both_producers() -> None:
    kept = keep(opened(LAST), 70)
    record = transaction_record(kept, 2)
    assert record.value is not None
    assert read_transaction(ID, record.value) == kept
    # Nothing but an epoch without its producer id is no identity.
    bare = transaction_record(
        TransactionMetadata(ID, 7, 3, 1, TransactionState.ONGOING, next_producer_epoch=5), 2
    )
    assert bare.value is not None
    assert not read_transaction(ID, bare.value).is_kept
