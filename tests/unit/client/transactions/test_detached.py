"""A transaction that its producer leaves open for another process."""

from __future__ import annotations

import pytest

from barnabas.client.errors import (
    ClientError,
    IllegalTransactionStateError,
)
from barnabas.protocol.errors import ErrorCode
from unit.client.transactions.transactional_setup import Setup


@pytest.mark.parametrize("version", [1, 2])
def test_a_detached_transaction_stays_open(version: int) -> None:
    setup = Setup(version).begun()
    setup.send()
    if version == 1:
        setup.added()
    outcome = setup.calls.detach()
    assert not outcome.is_done
    setup.produced(version=13 if version == 2 else 11)
    outcome.claim()
    assert setup.manager.detached == ("id", 9, 0, version == 2)
    assert not setup.core.is_in_transaction
    assert not setup.cluster.calls
    with pytest.raises(IllegalTransactionStateError, match="detached"):
        setup.calls.begin()


def test_a_detached_transaction_without_records_has_no_end() -> None:
    setup = Setup().begun()
    setup.calls.detach().claim()
    assert setup.manager.detached is None


def test_a_batch_that_fails_while_detaching_fails_the_call() -> None:
    setup = Setup().begun()
    setup.send()
    setup.added()
    outcome = setup.calls.detach()
    setup.produced(code=ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(ClientError):
        outcome.claim()
    assert setup.core.is_in_transaction
