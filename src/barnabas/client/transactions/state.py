"""The states of a transactional producer, and which may follow which (KIP-98, KIP-360)."""

from __future__ import annotations

from enum import Enum

__all__ = ["TransactionState", "check_transition"]


class TransactionState(Enum):
    """Where a transactional producer stands."""

    UNINITIALIZED = "uninitialized"
    # InitProducerId is under way: the first, or one that raises the epoch after an abort.
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    # Only an abort helps.
    ABORTABLE_ERROR = "abortable error"
    # Nothing helps but another producer: this one is fenced, or may not go on.
    FATAL_ERROR = "fatal error"


_S = TransactionState
# What each state may come from.
_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    _S.UNINITIALIZED: frozenset(),
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.ABORTING}),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING, _S.ABORTING}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.COMMITTING: frozenset({_S.IN_TRANSACTION}),
    _S.ABORTING: frozenset({_S.IN_TRANSACTION, _S.ABORTABLE_ERROR}),
    _S.ABORTABLE_ERROR: frozenset({_S.IN_TRANSACTION, _S.COMMITTING, _S.ABORTABLE_ERROR}),
    _S.FATAL_ERROR: frozenset(_S),
}


def check_transition(before: TransactionState, after: TransactionState) -> None:
    """Assert that the producer may go from one state to the other."""
    assert before in _FROM[after], f"{before.value} to {after.value}"
