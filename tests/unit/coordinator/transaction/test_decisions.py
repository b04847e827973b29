"""Decisions for each request in each state of a transactional id, for both protocol versions."""

from __future__ import annotations

import pytest

from barnabas.coordinator.transaction.decisions import (
    EndRequest,
    Initialization,
    NeedsProducerIdError,
    add_partitions,
    check_ending,
    check_producer,
    end,
    initialize,
    is_fenced_by,
    verify_partitions,
)
from barnabas.coordinator.transaction.transaction_metadata import (
    EPOCH_MAX,
    Producer,
    TransactionMetadata,
    TransactionState,
)
from barnabas.coordinator.transaction.transaction_record import (
    read_transaction,
    read_transactional_id,
    transaction_record,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.storage.topic_partition import TopicPartition

ID, PRODUCER_ID, EPOCH, NOW_MS = "t", 7, 3, 1_000
P0, P1 = TopicPartition("a", 0), TopicPartition("a", 1)
EMPTY, ONGOING = TransactionState.EMPTY, TransactionState.ONGOING
PREPARE_COMMIT, PREPARE_ABORT = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
COMPLETE_COMMIT, COMPLETE_ABORT = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT
BUMPED, FENCED = "bumped", ErrorCode.PRODUCER_FENCED
INVALID, CONCURRENT = ErrorCode.INVALID_TXN_STATE, ErrorCode.CONCURRENT_TRANSACTIONS
SAME = ErrorCode.NONE


def metadata_in(state: TransactionState, epoch: int = EPOCH) -> TransactionMetadata:
    partitions = frozenset() if state is EMPTY else frozenset([P0])
    return TransactionMetadata(ID, PRODUCER_ID, epoch, 60_000, state, partitions, 500, 600)


def ending(metadata: TransactionMetadata, epoch: int, is_commit: bool, version: int) -> object:
    """Return the new state, BUMPED for a state with a higher epoch, or the error."""
    request = EndRequest(ID, Producer(PRODUCER_ID, epoch), is_commit, version)
    error = check_ending(metadata, request)
    if error is not ErrorCode.NONE:
        return error
    found = end(metadata, request, None, NOW_MS)
    if isinstance(found, ErrorCode):
        return found
    wanted = PREPARE_COMMIT if is_commit else PREPARE_ABORT
    assert found.state is wanted
    return BUMPED if found.producer_epoch == metadata.producer_epoch + 1 else found.state


@pytest.mark.parametrize(
    ("state", "abort", "commit"),
    [
        (EMPTY, INVALID, INVALID),
        (ONGOING, PREPARE_ABORT, PREPARE_COMMIT),
        (COMPLETE_COMMIT, INVALID, SAME),
        (COMPLETE_ABORT, SAME, INVALID),
    ],
)
def test_end_txn_of_clients_before_version_2_follows_the_table(
    state: TransactionState, abort: object, commit: object
) -> None:
    metadata = metadata_in(state)
    assert ending(metadata, EPOCH, False, 0) is abort
    assert ending(metadata, EPOCH, True, 0) is commit
    for epoch in (EPOCH - 1, EPOCH + 1):
        assert ending(metadata, epoch, True, 0) is FENCED


@pytest.mark.parametrize(
    ("state", "retried_abort", "abort", "retried_commit", "commit"),
    [
        (EMPTY, FENCED, BUMPED, FENCED, INVALID),
        (ONGOING, FENCED, BUMPED, FENCED, BUMPED),
        (COMPLETE_COMMIT, INVALID, BUMPED, SAME, INVALID),
        (COMPLETE_ABORT, SAME, BUMPED, INVALID, INVALID),
    ],
)
def test_end_txn_of_clients_of_version_2_follows_the_table(
    state: TransactionState,
    retried_abort: object,
    abort: object,
    retried_commit: object,
    commit: object,
) -> None:
    metadata = metadata_in(state)
    assert ending(metadata, EPOCH - 1, False, 2) is retried_abort
    assert ending(metadata, EPOCH, False, 2) is abort
    assert ending(metadata, EPOCH - 1, True, 2) is retried_commit
    assert ending(metadata, EPOCH, True, 2) is commit
    assert ending(metadata, EPOCH + 1, True, 2) is FENCED


def test_another_producer_id_and_an_unknown_transactional_id_are_refused() -> None:
    for version in (0, 2):
        request = EndRequest(ID, Producer(PRODUCER_ID + 1, EPOCH), True, version)
        for metadata in (None, metadata_in(ONGOING)):
            assert check_ending(metadata, request) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert check_producer(None, Producer(1, 1)) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert check_producer(metadata_in(EMPTY), Producer(PRODUCER_ID, 9)) is FENCED


def test_an_exhausted_epoch_ends_with_a_new_producer_id() -> None:
    metadata = metadata_in(ONGOING, EPOCH_MAX - 1)
    request = EndRequest(ID, Producer(PRODUCER_ID, EPOCH_MAX - 1), True, 2)
    with pytest.raises(NeedsProducerIdError):
        end(metadata, request, None, NOW_MS)
    prepared = end(metadata, request, 99, NOW_MS)
    assert isinstance(prepared, TransactionMetadata)
    assert (prepared.producer_epoch, prepared.next_producer_id) == (EPOCH_MAX, 99)
    completed = prepared.completed(NOW_MS + 1)
    assert (completed.producer_id, completed.producer_epoch) == (99, 0)
    assert completed.previous_producer_id == PRODUCER_ID
    # The retry of the client names its old id and epoch.
    assert check_ending(completed, request) is ErrorCode.NONE
    assert end(completed, request, None, NOW_MS) is ErrorCode.NONE


def initialized(
    metadata: TransactionMetadata | None, expected: Producer, new_id: int | None = None
) -> object:
    found = initialize(metadata, Initialization(ID, 5_000, expected), new_id, NOW_MS)
    if isinstance(found, ErrorCode):
        return found
    assert (found.state, found.timeout_ms, found.partitions) == (EMPTY, 5_000, frozenset())
    return found.producer_id, found.producer_epoch, found.last_producer_epoch


def test_a_new_transactional_id_gets_a_producer_id_and_epoch_0() -> None:
    with pytest.raises(NeedsProducerIdError):
        initialized(None, Producer())
    assert initialized(None, Producer(), 11) == (11, 0, -1)
    assert initialized(None, Producer(5, 5), 11) == (11, 0, -1)


@pytest.mark.parametrize("state", [EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_a_producer_without_expectations_raises_the_epoch(state: TransactionState) -> None:
    assert initialized(metadata_in(state), Producer()) == (PRODUCER_ID, EPOCH + 1, -1)


def test_a_producer_that_continues_must_send_its_id_and_epoch() -> None:
    metadata = metadata_in(EMPTY)
    current = Producer(PRODUCER_ID, EPOCH)
    after = initialize(metadata, Initialization(ID, 1, current), None, NOW_MS)
    assert isinstance(after, TransactionMetadata)
    assert (after.producer_epoch, after.last_producer_epoch) == (EPOCH + 1, EPOCH)
    # A retry does not raise it again.
    assert initialized(after, current) == (PRODUCER_ID, EPOCH + 1, EPOCH)
    assert initialized(after, Producer(PRODUCER_ID, EPOCH - 1)) is FENCED
    assert initialized(after, Producer(PRODUCER_ID + 1, EPOCH)) is FENCED


def test_an_exhausted_epoch_gets_a_new_producer_id() -> None:
    metadata = metadata_in(EMPTY, EPOCH_MAX - 1)
    with pytest.raises(NeedsProducerIdError):
        initialized(metadata, Producer())
    assert initialized(metadata, Producer(), 11) == (11, 0, -1)
    assert initialized(metadata, Producer(PRODUCER_ID, EPOCH_MAX - 1), 11) == (
        11,
        0,
        EPOCH_MAX - 1,
    )


def test_an_open_transaction_is_fenced_before_the_next_producer_begins() -> None:
    metadata = metadata_in(ONGOING)
    assert is_fenced_by(metadata, Initialization(ID, 1, Producer()))
    assert not is_fenced_by(metadata, Initialization(ID, 1, Producer(PRODUCER_ID + 1, 0)))
    for version, epoch, last_epoch in ((0, EPOCH + 1, -1), (2, EPOCH + 1, EPOCH)):
        fenced = metadata.fenced(version, NOW_MS)
        assert fenced.state is PREPARE_ABORT
        assert (fenced.producer_epoch, fenced.last_producer_epoch) == (epoch, last_epoch)


def test_no_client_gets_the_last_epoch_of_a_fenced_producer() -> None:
    aborted = metadata_in(ONGOING, EPOCH_MAX - 1).fenced(2, NOW_MS).completed(NOW_MS)
    assert aborted.producer_epoch == EPOCH_MAX
    for epoch in (EPOCH_MAX - 1, EPOCH_MAX):
        assert ending(aborted, epoch, False, 2) is FENCED
    assert initialized(aborted, Producer(), 11) == (11, 0, -1)
    # The producer that continues asks again after the abort of its transaction.
    fenced = Producer(PRODUCER_ID, EPOCH_MAX - 1)
    assert initialized(aborted, fenced, 11) == (11, 0, EPOCH_MAX - 1)
    assert initialized(aborted, Producer(PRODUCER_ID, EPOCH_MAX - 2)) is FENCED
    before = metadata_in(ONGOING, EPOCH_MAX - 2).fenced(2, NOW_MS).completed(NOW_MS)
    expected = Producer(PRODUCER_ID, EPOCH_MAX - 2)
    assert initialized(before, expected) == (PRODUCER_ID, EPOCH_MAX - 1, EPOCH_MAX - 2)


def test_partitions_are_added_to_a_new_or_to_the_open_transaction() -> None:
    committed = metadata_in(PREPARE_COMMIT).completed(NOW_MS)
    aborted = metadata_in(PREPARE_ABORT).completed(NOW_MS)
    for ended in (metadata_in(EMPTY), committed, aborted):
        found = add_partitions(ended, frozenset([P1]), 2, NOW_MS)
        assert isinstance(found, TransactionMetadata)
        assert (found.state, found.partitions, found.start_ms) == (ONGOING, {P1}, NOW_MS)
    opened = metadata_in(ONGOING)
    assert add_partitions(opened, frozenset([P0]), 2, NOW_MS) is ErrorCode.NONE
    more = add_partitions(opened, frozenset([P1]), 2, NOW_MS)
    assert isinstance(more, TransactionMetadata)
    assert (more.partitions, more.start_ms) == ({P0, P1}, opened.start_ms)


def test_only_partitions_of_the_transaction_are_verified() -> None:
    producer, partitions = Producer(PRODUCER_ID, EPOCH), frozenset([P0, P1])
    assert verify_partitions(metadata_in(ONGOING), producer, partitions) == {
        P0: ErrorCode.NONE,
        P1: ErrorCode.TRANSACTION_ABORTABLE,
    }
    fenced = verify_partitions(metadata_in(ONGOING), Producer(PRODUCER_ID, 0), partitions)
    assert set(fenced.values()) == {FENCED}
    ended = verify_partitions(metadata_in(PREPARE_ABORT), producer, partitions)
    assert set(ended.values()) == {CONCURRENT}


@pytest.mark.parametrize("state", list(TransactionState))
def test_a_record_is_decoded_as_it_was_encoded(state: TransactionState) -> None:
    metadata = TransactionMetadata(
        ID,
        PRODUCER_ID,
        EPOCH,
        60_000,
        state,
        frozenset() if state is EMPTY else frozenset([P0, P1]),
        500,
        600,
        previous_producer_id=6,
        next_producer_id=8 if state.has_transaction else -1,
        client_version=2,
    )
    record = transaction_record(metadata, 2)
    assert record.value is not None
    assert read_transactional_id(record.key) == ID
    assert read_transaction(ID, record.value) == metadata
    # Version 0 of the value has no tagged fields.
    old = transaction_record(metadata, 0)
    assert old.value is not None
    found = read_transaction(ID, old.value)
    assert (found.previous_producer_id, found.next_producer_id, found.client_version) == (-1, -1, 0)
