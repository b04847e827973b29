"""Errors of exactly-once writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.errors import BrokerError
from barnabas.protocol.errors import ErrorCode
from barnabas.spark.errors import OptionError

if TYPE_CHECKING:
    from barnabas.client.errors import ClientError
    from barnabas.spark.sink.slices import Slice

__all__ = ["ReplayError", "TransactionError", "explained"]

_MS_PER_S = 1000
# The coordinator or a leader no longer accepts this producer.
_FENCED = frozenset({
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.INVALID_TXN_STATE,
})  # fmt: skip


class ReplayError(RuntimeError):
    """A replayed batch differs from its first attempt, parts of which may be committed."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}. Parts of the batch may already be committed, so that writing the rest "
            "could lose or repeat rows. Finish this batch with the query, options and number of "
            "tasks it had before; a query without random values repeats its rows. If that is not "
            "possible, finish the batch with exactlyOnce=false, which writes its rows again"
        )


class TransactionError(RuntimeError):
    """The transaction of a slice ended before the batch; Spark must run the batch again."""


def explained(error: ClientError, of: Slice, open_ms: float, timeout_ms: int) -> Exception:
    """Return an error that says why a transaction failed and what to do; others unchanged.

    Args:
        error: the client's error.
        of: the slice.
        open_ms: how long the transaction was open.
        timeout_ms: the transaction timeout.
    """
    if not isinstance(error, BrokerError):
        return error
    if error.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        return OptionError(
            f"kafka.transaction.timeout.ms={timeout_ms} is more than the brokers' "
            "transaction.max.timeout.ms: lower the option, or raise the broker's setting"
        )
    if error.error_code not in _FENCED:
        return error
    if open_ms >= timeout_ms:
        return TransactionError(
            f"{of}: its transaction was open for {open_ms / _MS_PER_S:.0f} s, longer than "
            f"kafka.transaction.timeout.ms={timeout_ms}, and the coordinator aborted it. Raise "
            "this option (up to the brokers' transaction.max.timeout.ms), or make batches smaller "
            "with maxOffsetsPerTrigger. No row was committed twice; restart the query"
        )
    return TransactionError(
        f"{of}: another producer has taken over transactional.id={of.transactional_id}: another "
        "attempt of the task, or another run of the query. Set spark.speculation=false, and run "
        f"a checkpoint in one process at a time. No row was committed twice ({error})"
    )
