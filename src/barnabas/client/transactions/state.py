"""The states of a transactional producer and their transitions (KIP-98, 360, 939)."""

from __future__ import annotations

from enum import Enum

__all__ = ["TransactionState", "check_transition"]


class TransactionState(Enum):
    """State of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    # InitProducerId is pending: the first one, or one that raises the epoch after an abort.
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    # The producer sends pending records, and then waits for commit, abort or complete (KIP-939).
    PREPARING = "preparing"
    # All records are written; or a predecessor's prepared transaction was kept.
    PREPARED = "prepared"
    # The producer sends pending records, and then leaves the open transaction to another process.
    DETACHING = "detaching"
    # Another process ends the transaction; this producer can no longer be used.
    DETACHED = "detached"
    # Only an abort is allowed.
    ABORTABLE_ERROR = "abortable error"
    # The producer is fenced or not authorized; the application needs a new producer.
    FATAL_ERROR = "fatal error"


_S = TransactionState
# For each state the states that may precede it.
_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    _S.UNINITIALIZED: frozenset(),
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.ABORTING}),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING, _S.ABORTING}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.PREPARING: frozenset({_S.IN_TRANSACTION}),
    _S.PREPARED: frozenset({_S.PREPARING, _S.INITIALIZING}),
    _S.COMMITTING: frozenset({_S.IN_TRANSACTION, _S.PREPARED}),
    _S.ABORTING: frozenset({_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR}),
    _S.DETACHING: frozenset({_S.IN_TRANSACTION}),
    _S.DETACHED: frozenset({_S.DETACHING}),
    _S.ABORTABLE_ERROR: frozenset(
        {_S.IN_TRANSACTION, _S.PREPARING, _S.COMMITTING, _S.DETACHING, _S.ABORTABLE_ERROR}
    ),
    _S.FATAL_ERROR: frozenset(_S),
}


def check_transition(before: TransactionState, after: TransactionState) -> None:
    """Assert that the transition from `before` to `after` is allowed."""
    assert before in _FROM[after], f"{before.value} to {after.value}"
