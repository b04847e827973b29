"""The first batch of a transaction is verified by the transaction coordinator (KIP-890)."""

from __future__ import annotations

import pytest

from barnabas.record.batch import ControlType
from barnabas.storage.errors import InvalidTxnStateError, OutOfOrderSequenceError
from barnabas.storage.producers.open_transactions import VerificationGuard
from barnabas.storage.results import AppendOrigin
from unit.storage.storage_fixtures import LEADER_EPOCH, NOW_MS, Bench, batch, marker

PRODUCER = 7


def transactional(sequence: int, epoch: int = 0) -> bytearray:
    return batch(
        [b"x"],
        producer_id=PRODUCER,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


class Verified(Bench):
    """A log that requires verification."""

    def __init__(self) -> None:
        super().__init__()
        self.log.producer_state.requires_verification = True

    def begin(self, epoch: int = 0, sequence: int = 0) -> VerificationGuard:
        guard = self.log.producer_state.begin_verification(PRODUCER, epoch, sequence, NOW_MS)
        assert guard is not None
        return guard

    def confirm(self, guard: VerificationGuard) -> None:
        self.log.producer_state.confirm_verification(PRODUCER, guard)

    def end(self, epoch: int, origin: AppendOrigin) -> None:
        """Write a commit marker. The coordinator of version 2 uses the next epoch."""
        records = marker(ControlType.COMMIT, PRODUCER, epoch)
        self.log.appender.append_as_leader(memoryview(records), LEADER_EPOCH, origin, NOW_MS)


@pytest.fixture
def bench() -> Verified:
    return Verified()


def test_a_transaction_begins_after_its_confirmation(bench: Verified) -> None:
    guard = bench.begin()
    with pytest.raises(InvalidTxnStateError):
        bench.append(transactional(0))
    bench.confirm(guard)
    bench.append(transactional(0))
    # The transaction is open: no other batch of it is verified.
    assert bench.log.producer_state.begin_verification(PRODUCER, 0, 1, NOW_MS) is None
    bench.append(transactional(1))


@pytest.mark.parametrize("bumps_epoch", [True, False])
def test_only_clients_with_new_epochs_are_asked_for_without_verification(
    bench: Verified, bumps_epoch: bool
) -> None:
    state = bench.log.producer_state
    state.requires_verification = False
    guard = state.begin_verification(PRODUCER, 0, 0, NOW_MS, bumps_epoch=bumps_epoch)
    assert (guard is not None) == bumps_epoch
    bench.append(transactional(0))
    assert state.begin_verification(PRODUCER, 0, 1, NOW_MS, bumps_epoch=bumps_epoch) is None


def test_a_batch_before_the_verified_batch_is_appended_first(bench: Verified) -> None:
    guard = bench.begin(sequence=3)
    assert bench.begin(sequence=0) is guard
    bench.confirm(guard)
    with pytest.raises(OutOfOrderSequenceError):
        bench.append(transactional(3))
    bench.append(transactional(0))


@pytest.mark.parametrize("is_confirmed", [True, False])
@pytest.mark.parametrize(
    ("marker_epoch", "origin"),
    [
        # Version 0 and 1: the epoch of the transaction itself, or the next one if it is fenced.
        (0, AppendOrigin.COORDINATOR),
        (1, AppendOrigin.COORDINATOR),
        # Version 2: the epoch after that of the transaction.
        (1, AppendOrigin.BUMPING_MARKER),
    ],
)
def test_the_marker_of_a_transaction_ends_its_verification(
    bench: Verified, is_confirmed: bool, marker_epoch: int, origin: AppendOrigin
) -> None:
    guard = bench.begin()
    if is_confirmed:
        bench.confirm(guard)
    bench.end(marker_epoch, origin)
    bench.confirm(guard)
    with pytest.raises(InvalidTxnStateError):
        bench.append(transactional(0))


def test_the_marker_of_the_previous_transaction_keeps_the_next_verification(
    bench: Verified,
) -> None:
    bench.confirm(bench.begin())
    bench.append(transactional(0))
    # The client sends the next transaction before the marker of the former one is written.
    guard = bench.begin(epoch=1)
    bench.end(1, AppendOrigin.BUMPING_MARKER)
    bench.confirm(guard)
    bench.append(transactional(0, epoch=1))
