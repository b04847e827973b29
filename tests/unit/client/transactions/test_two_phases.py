"""Two-phase commit (KIP-939): prepare, keep after a crash, complete."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.client.config import ClientConfig
from barnabas.client.errors import (
    ClientConfigError,
    ClientError,
    IllegalTransactionStateError,
    UnsupportedVersionError,
)
from barnabas.client.transactions.state import PreparedTransaction
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode, ProtocolError
from barnabas.protocol.messages.transactions import InitProducerIdResponse
from unit.client.transactions.transactional_setup import Setup

NO_TIMEOUT_MS = 0x7FFF_FFFF
NONE = PreparedTransaction(-1, -1)


def setup_of(version: int = 2) -> Setup:
    return Setup(version, transaction_two_phase_commit_enable=True)


def initialized(
    setup: Setup, ongoing: PreparedTransaction = NONE, epoch: int = 0, producer_id: int = 9
) -> Any:
    request, answer = setup.next(ApiKey.INIT_PRODUCER_ID, 6)
    answer(
        InitProducerIdResponse(
            error_code=0,
            producer_id=producer_id,
            producer_epoch=epoch,
            ongoing_txn_producer_id=ongoing.producer_id,
            ongoing_txn_producer_epoch=ongoing.producer_epoch,
        )
    )
    return request


def begun(version: int = 2) -> Setup:
    setup = setup_of(version)
    outcome = setup.calls.initialize()
    setup.find()
    request = initialized(setup)
    assert (request.enable_2pc, request.keep_prepared_txn) == (True, False)
    assert request.transaction_timeout_ms == NO_TIMEOUT_MS
    outcome.claim()
    setup.calls.begin()
    return setup


def prepared(version: int = 2) -> Setup:
    setup = begun(version)
    setup.send()
    if version == 1:
        setup.added()
    outcome = setup.calls.prepare()
    assert not outcome.is_done
    setup.produced(version=13 if version == 2 else 11)
    outcome.claim()
    assert setup.manager.prepared == PreparedTransaction(9, 0)
    assert not setup.cluster.calls
    return setup


def kept(ongoing: PreparedTransaction) -> Setup:
    setup = setup_of()
    outcome = setup.calls.initialize(keeps_prepared=True)
    setup.find()
    request = initialized(setup, ongoing, epoch=4)
    assert (request.enable_2pc, request.keep_prepared_txn) == (True, True)
    outcome.claim()
    return setup


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("is_stored", [True, False])
def test_a_prepared_transaction_is_committed_if_it_was_stored(
    version: int, is_stored: bool
) -> None:
    setup = prepared(version)
    stored = PreparedTransaction(9, 0 if is_stored else 7)
    outcome = setup.calls.complete(stored)
    is_v2 = version == 2
    assert setup.ended(version=5 if is_v2 else 4, epoch=1 if is_v2 else -1) is is_stored
    outcome.claim()
    assert setup.manager.prepared is None
    setup.calls.begin()


def test_only_the_end_of_a_prepared_transaction_is_allowed() -> None:
    setup = prepared()
    for call in (setup.calls.begin, setup.manager.check_sending, setup.calls.prepare):
        with pytest.raises(IllegalTransactionStateError, match="prepared"):
            call()
    with pytest.raises(IllegalTransactionStateError):
        setup.calls.send_offsets({("t", 0): 1}, "g")
    # Closing the producer must not abort it.
    assert not setup.core.is_in_transaction
    outcome = setup.calls.commit()
    assert setup.ended(version=5, epoch=1)
    outcome.claim()


def test_a_prepared_transaction_can_be_aborted() -> None:
    setup = prepared()
    outcome = setup.calls.abort()
    assert not setup.ended(version=5, epoch=1)
    outcome.claim()


def test_a_batch_that_fails_while_preparing_fails_the_call() -> None:
    setup = begun()
    setup.send()
    outcome = setup.calls.prepare()
    setup.produced(code=ErrorCode.INVALID_PRODUCER_EPOCH, version=13)
    with pytest.raises(ClientError):
        outcome.claim()
    assert setup.core.is_in_transaction


def test_a_kept_transaction_is_ended_by_the_identity_of_the_new_producer() -> None:
    ongoing = PreparedTransaction(7, 3)
    setup = kept(ongoing)
    assert setup.manager.prepared == ongoing
    with pytest.raises(IllegalTransactionStateError, match="prepared"):
        setup.calls.begin()
    outcome = setup.calls.complete(PreparedTransaction.parse("7:3"))
    request, _ = setup.cluster.take(5)
    assert (request.producer_id, request.producer_epoch, request.committed) == (9, 4, True)
    assert not outcome.is_done


def test_a_producer_that_finds_no_transaction_is_ready() -> None:
    setup = kept(NONE)
    assert setup.manager.prepared is None
    with pytest.raises(IllegalTransactionStateError, match="complete_transaction"):
        setup.calls.complete(PreparedTransaction(7, 3))
    setup.calls.begin()


def test_a_request_that_raises_the_epoch_keeps_nothing() -> None:
    setup = begun()
    setup.send()
    setup.produced(code=ErrorCode.UNKNOWN_SERVER_ERROR, version=13)
    outcome = setup.calls.abort()
    setup.ended(version=4)
    request = initialized(setup, epoch=1)
    assert (request.enable_2pc, request.keep_prepared_txn) == (True, False)
    assert (request.producer_id, request.producer_epoch) == (9, 0)
    outcome.claim()


def test_two_phase_commit_uses_only_an_unstable_version() -> None:
    plain = Setup()
    plain.calls.initialize()
    plain.find()
    assert plain.cluster.calls[0].max_version is None
    setup = setup_of()
    setup.calls.initialize()
    setup.find()
    call = setup.cluster.calls[0]
    assert call.max_version == 6
    with pytest.raises(ProtocolError, match=r"unstable\.api\.versions\.enable"):
        call.build(5)


def test_a_broker_without_the_version_ends_the_call() -> None:
    setup = setup_of()
    outcome = setup.calls.initialize()
    setup.find()
    call = setup.cluster.calls.pop(0)
    call.on_done(None, UnsupportedVersionError("h:1", "INIT_PRODUCER_ID", "version 5"))
    with pytest.raises(UnsupportedVersionError):
        outcome.claim()


def test_preparing_needs_the_configuration_key() -> None:
    setup = Setup().begun()
    with pytest.raises(ClientConfigError, match=r"transaction\.two\.phase\.commit\.enable"):
        setup.calls.prepare()


def test_a_timeout_contradicts_two_phase_commit() -> None:
    keys = {"bootstrap.servers": "h:1", "transactional.id": "t"}
    two_phases = {"transaction.two.phase.commit.enable": "true"}
    assert ClientConfig.parse({**keys, **two_phases}).transaction_two_phase_commit_enable
    with pytest.raises(ClientConfigError, match=r"transaction\.timeout\.ms"):
        ClientConfig.parse({**keys, **two_phases, "transaction.timeout.ms": 1000})


@pytest.mark.parametrize("text", ["", "7", "7:", ":3", "7:3:1", "-1:-1", "a:3", "7:99999", "٧:3"])
def test_malformed_text_of_a_prepared_transaction_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PRODUCER-ID:EPOCH"):
        PreparedTransaction.parse(text)


def test_a_prepared_transaction_is_stored_as_text() -> None:
    assert PreparedTransaction.parse(str(PreparedTransaction(7, 3))) == (7, 3)
    assert str(PreparedTransaction(7, 3)) == "7:3"
