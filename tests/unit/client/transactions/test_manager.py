"""A transactional producer with a scripted coordinator: its requests, and effects of errors."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.errors import (
    ClientError,
    IllegalTransactionStateError,
    ProducerFencedError,
    TransactionAbortedError,
)
from barnabas.client.group.group_offsets import CommittedOffset
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.topic_partition import TopicPartition
from barnabas.client.transactions.state import TransactionState, check_transition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    AddPartitionsToTxnResponse,
    InitProducerIdResponse,
    TxnOffsetCommitResponse,
)
from unit.client.transactions.transactional_setup import Setup

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
S = TransactionState


def test_the_coordinator_is_looked_up_by_transactional_id() -> None:
    setup = Setup()
    setup.calls.initialize()
    request = setup.find()
    assert (request.key_type, request.coordinator_keys) == (1, ["id"])
    assert setup.initialized().transactional_id == "id"
    assert setup.manager.state is S.READY


def test_partitions_are_added_together_before_anything_is_produced() -> None:
    setup = Setup().begun()
    setup.core.enqueue("t", None, b"x", 0, {}, 0)
    setup.send(b"y", 1)
    assert setup.added() == [0, 1]
    assert len(setup.cluster.calls) == 1
    request, _answer = setup.next(ApiKey.PRODUCE, 11)
    assert [each.index for each in request.topic_data[0].partition_data] == [0, 1]


def test_in_version_2_a_produce_request_adds_the_partition() -> None:
    setup = Setup(version=2).begun()
    setup.send()
    assert setup.produced(version=13) == (0, 0, True)


def test_a_partition_is_added_once_per_transaction() -> None:
    setup = Setup().begun()
    for _ in range(2):
        setup.send()
        if not setup.manager._added:
            setup.added()
        setup.produced()
    outcome = setup.calls.commit()
    assert setup.ended()
    outcome.claim()
    setup.calls.begin()
    setup.send()
    assert setup.added() == [0]


def test_a_commit_ends_after_all_batches() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added()
    outcome = setup.calls.commit()
    assert [call.api_key for call in setup.cluster.calls] == [ApiKey.PRODUCE]
    setup.produced()
    assert setup.ended()
    assert outcome.is_done
    outcome.claim()
    assert setup.manager.state is S.READY


def test_in_version_1_sequences_continue_over_transactions() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added()
    assert setup.produced() == (0, 0, True)
    _ended(setup, setup.calls.commit()).claim()
    setup.calls.begin()
    setup.send()
    setup.added()
    assert setup.produced() == (0, 1, True)


def test_in_version_2_sequences_restart_in_a_new_epoch_after_each_end() -> None:
    setup = Setup(version=2).begun()
    setup.send()
    setup.produced(version=13)
    outcome = setup.calls.commit()
    setup.ended(version=5, epoch=1)
    outcome.claim()
    setup.calls.begin()
    setup.send()
    assert setup.produced(version=13) == (1, 0, True)


def _ended(setup: Setup, outcome: Any) -> Any:
    setup.ended()
    return outcome


def test_an_empty_transaction_ends_without_a_request() -> None:
    setup = Setup().begun()
    for end in (setup.calls.commit, setup.calls.abort):
        outcome = end()
        assert outcome.is_done
        outcome.claim()
        setup.calls.begin()
    assert not setup.cluster.calls


def test_a_transaction_waits_for_the_end_of_the_previous_transaction() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added(ErrorCode.CONCURRENT_TRANSACTIONS)
    assert not setup.cluster.calls
    setup.cluster.time.advance(20)
    assert setup.added() == [0]


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_moved_coordinator_is_looked_up(code: int) -> None:
    setup = Setup()
    setup.calls.initialize()
    setup.find()
    setup.initialized(code=code)
    setup.cluster.time.advance(200)
    setup.find()
    setup.initialized()
    assert setup.manager.state is S.READY


def test_a_closed_connection_starts_a_coordinator_lookup() -> None:
    setup = Setup().begun()
    setup.send()
    setup.cluster.disconnect()
    setup.cluster.time.advance(200)
    setup.find()
    assert setup.added() == [0]


def test_a_request_to_a_loading_coordinator_is_repeated() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added()
    setup.produced()
    outcome = setup.calls.commit()
    setup.ended(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    assert not outcome.is_done
    setup.cluster.time.advance(200)
    setup.ended()
    assert outcome.error is None


def test_a_failed_batch_requires_an_abort_that_raises_the_epoch() -> None:
    setup = Setup().begun()
    delivery = setup.send()
    setup.added()
    setup.produced(ErrorCode.INVALID_RECORD)
    assert setup.manager.state is S.ABORTABLE_ERROR
    assert delivery.done()
    with pytest.raises(ClientError, match="INVALID_RECORD"):
        setup.core.target("t")
    with pytest.raises(ClientError, match="INVALID_RECORD"):
        setup.calls.commit()
    outcome = setup.calls.abort()
    assert not setup.ended()
    request = setup.initialized(epoch=1)
    assert (request.producer_id, request.producer_epoch) == (9, 0)
    outcome.claim()
    setup.calls.begin()
    setup.send()
    setup.added()
    assert setup.produced() == (1, 0, True)


def test_in_version_2_only_end_txn_raises_the_epoch_after_a_failed_batch() -> None:
    setup = Setup(version=2).begun()
    setup.send()
    setup.produced(ErrorCode.INVALID_RECORD, version=13)
    outcome = setup.calls.abort()
    setup.ended(version=5, epoch=1)
    outcome.claim()
    assert not setup.cluster.calls
    assert setup.manager.identity == (9, 1)


def test_a_batch_that_fails_while_committing_fails_the_commit() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added()
    outcome = setup.calls.commit()
    setup.produced(ErrorCode.INVALID_RECORD)
    with pytest.raises(ClientError, match="INVALID_RECORD"):
        outcome.claim()
    assert setup.manager.state is S.ABORTABLE_ERROR


def test_invalid_producer_epoch_of_a_leader_is_confirmed_by_the_coordinator() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added()
    setup.produced(ErrorCode.INVALID_PRODUCER_EPOCH)
    assert setup.manager.state is S.ABORTABLE_ERROR
    outcome = setup.calls.abort()
    setup.ended(ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(ProducerFencedError, match="id"):
        outcome.claim()


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_every_call_of_a_fenced_producer_fails(code: int) -> None:
    setup = Setup().begun()
    delivery = setup.send()
    setup.added(code)
    assert setup.manager.state is S.FATAL_ERROR
    assert delivery.done()
    for call in (setup.calls.begin, setup.calls.commit, setup.calls.abort):
        with pytest.raises(ProducerFencedError):
            call()
    assert not setup.cluster.calls


def test_records_of_a_fenced_producer_are_fatal() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added()
    setup.produced(ErrorCode.PRODUCER_FENCED)
    with pytest.raises(ProducerFencedError):
        setup.calls.abort()


def test_an_id_without_permission_is_fatal() -> None:
    setup = Setup()
    outcome = setup.calls.initialize()
    setup.find()
    setup.initialized(code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    with pytest.raises(ClientError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        outcome.claim()
    assert setup.manager.state is S.FATAL_ERROR


def test_an_unauthorized_topic_is_an_abortable_error() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    outcome = setup.calls.abort()
    assert not setup.ended()
    outcome.claim()
    assert setup.manager.state is S.READY


def test_an_abort_drops_queued_batches_and_waits_for_those_in_flight() -> None:
    setup = Setup(max_in_flight_requests_per_connection=1).begun()
    first = setup.send(b"1")
    setup.added()
    second = setup.send(b"2")
    outcome = setup.calls.abort()
    assert isinstance(second._error(), TransactionAbortedError)
    assert not first.done()
    setup.produced()
    assert first._error() is None
    assert not setup.ended()
    assert outcome.is_done


def test_an_abort_does_not_retry_failed_batches() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added()
    setup.calls.abort()
    setup.produced(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert not setup.ended()
    setup.initialized(epoch=1)
    assert setup.manager.state is S.READY


def test_an_abort_waits_for_partitions_that_are_being_added() -> None:
    setup = Setup().begun()
    setup.send()
    outcome = setup.calls.abort()
    assert setup.added(ErrorCode.TOPIC_AUTHORIZATION_FAILED) == [0]
    assert not setup.ended()
    assert outcome.error is None


def test_a_producer_unknown_to_the_coordinator_initializes_again() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    outcome = setup.calls.abort()
    setup.initialized(epoch=5)
    outcome.claim()
    assert setup.manager.identity == (9, 5)


def test_offsets_are_sent_to_both_coordinators() -> None:
    setup = Setup().begun()
    group = GroupGeneration("g", 4, "m")
    outcome = setup.calls.send_offsets({FIRST: 5, SECOND: CommittedOffset(6)}, group)
    assert setup.offsets_added() == "g"
    assert setup.find().key_type == 0
    assert setup.offsets_committed({0: 0, 1: 0}) == [(0, 5), (1, 6)]
    outcome.claim()
    ended = setup.calls.commit()
    assert setup.ended()
    ended.claim()


def test_in_version_2_offsets_are_sent_only_to_the_group_coordinator() -> None:
    setup = Setup(version=2).begun()
    outcome = setup.calls.send_offsets({FIRST: 5}, "g")
    setup.find()
    assert setup.offsets_committed({0: 0}, version=5) == [(0, 5)]
    assert outcome.is_done


def test_only_rejected_offsets_are_sent_again() -> None:
    setup = Setup(version=2).begun()
    outcome = setup.calls.send_offsets({FIRST: 5, SECOND: 6}, "g")
    setup.find()
    setup.offsets_committed({0: 0, 1: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}, version=5)
    setup.cluster.time.advance(200)
    assert setup.offsets_committed({1: 0}, version=5) == [(1, 6)]
    assert outcome.is_done


def test_the_moved_coordinator_of_a_group_is_looked_up() -> None:
    setup = Setup(version=2).begun()
    setup.calls.send_offsets({FIRST: 5}, "g")
    setup.find()
    setup.offsets_committed({0: ErrorCode.NOT_COORDINATOR}, version=5)
    setup.cluster.time.advance(200)
    assert setup.find().coordinator_keys == ["g"]


@pytest.mark.parametrize(
    "code",
    [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID],
)
def test_offsets_of_a_removed_member_are_an_abortable_error(code: int) -> None:
    setup = Setup(version=2).begun()
    outcome = setup.calls.send_offsets({FIRST: 5}, GroupGeneration("g", 1, "m"))
    setup.find()
    setup.offsets_committed({0: code}, version=5)
    with pytest.raises(ClientError):
        outcome.claim()
    assert setup.manager.state is S.ABORTABLE_ERROR
    setup.calls.abort()
    assert not setup.ended(version=5, epoch=1)
    assert setup.manager.state is S.READY


def test_a_repeated_call_after_a_timeout_awaits_the_same_result() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added()
    setup.produced()
    outcome = setup.calls.commit()
    with pytest.raises(IllegalTransactionStateError, match="commit_transaction"):
        setup.calls.abort()
    setup.ended()
    assert setup.calls.commit().started is outcome.started
    outcome.claim()
    setup.calls.begin()


def test_sending_outside_a_transaction_is_refused() -> None:
    with pytest.raises(IllegalTransactionStateError, match="ready"):
        Setup().ready().core.target("t")


@pytest.mark.parametrize(
    ("before", "after"),
    [(S.READY, S.COMMITTING), (S.FATAL_ERROR, S.READY), (S.UNINITIALIZED, S.READY)],
)
def test_only_transitions_of_the_table_are_allowed(
    before: TransactionState, after: TransactionState
) -> None:
    with pytest.raises(AssertionError):
        check_transition(before, after)


def test_a_partition_missing_in_the_response_is_not_in_the_transaction() -> None:
    setup = Setup().begun()
    delivery = setup.send()
    _, answer = setup.next(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    answer(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[]))
    assert setup.manager.state is S.FATAL_ERROR
    assert "missing in the response" in str(setup.manager.error)
    assert delivery.done()
    assert not setup.cluster.calls


def test_offsets_missing_in_the_response_are_not_sent_forever() -> None:
    setup = Setup(version=2).begun()
    outcome = setup.calls.send_offsets({FIRST: 1}, "g")
    setup.find()
    _, answer = setup.next(ApiKey.TXN_OFFSET_COMMIT, 5)
    answer(TxnOffsetCommitResponse(topics=[]))
    assert not setup.cluster.calls
    assert outcome.is_done
    assert "t-0 is missing in the response" in str(outcome.error)


@pytest.mark.parametrize(("producer_id", "epoch"), [(-1, 0), (9, -1)])
def test_a_transactional_id_without_a_producer_id_is_fatal(producer_id: int, epoch: int) -> None:
    setup = Setup()
    outcome = setup.calls.initialize()
    setup.find()
    _, answer = setup.next(ApiKey.INIT_PRODUCER_ID, 4)
    answer(InitProducerIdResponse(error_code=0, producer_id=producer_id, producer_epoch=epoch))
    assert outcome.is_done
    assert outcome.error is not None
    assert setup.manager.state is S.FATAL_ERROR


@pytest.mark.parametrize("step", ["initialize", "add", "end"])
def test_an_unknown_error_code_ends_the_call_with_an_error(step: str) -> None:
    future = 9_999
    setup = Setup()
    outcome = setup.calls.initialize()
    setup.find()
    setup.initialized(code=future if step == "initialize" else 0)
    if step != "initialize":
        outcome.claim()
        setup.calls.begin()
        setup.send()
        setup.added(future if step == "add" else 0)
    if step == "end":
        setup.produced()
        outcome = setup.calls.commit()
        setup.ended(future)
    assert outcome.is_done
    assert f"error code {future}" in str(setup.manager.error)
    assert setup.manager.state is S.FATAL_ERROR
    assert not setup.cluster.calls


def test_an_unknown_error_code_fails_the_batch_and_the_transaction() -> None:
    setup = Setup().begun()
    delivery = setup.send()
    setup.added()
    setup.produced(9_999)
    assert "error code 9999" in str(delivery.exception())
    assert setup.manager.state is S.ABORTABLE_ERROR
