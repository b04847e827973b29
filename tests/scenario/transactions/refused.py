"""Reactions of an application to errors of a transactional producer."""

from __future__ import annotations

from barnabas.client.errors import (
    ClientError,
    ClientTimeoutError,
    DeliveryTimeoutError,
    ProducerFencedError,
    TransactionAbortedError,
)
from barnabas.client.transactions.state import Reaction, reaction_to

# Verdicts of `Refused`: the producer must abort, or it cannot continue.
ABORT = "abort"
FATAL = "fatal"


class Refused(Exception):
    """A call failed with an error that is not retriable.

    Args:
        verdict: ABORT or FATAL.
        text: the client's error.
    """

    def __init__(self, verdict: str, text: str) -> None:
        super().__init__(f"{verdict}: {text}")
        self.verdict = verdict
        self.text = text


def judge_own(error: Exception) -> str:
    """Return the verdict on an error of the Barnabas client; "" for a retriable error."""
    assert isinstance(error, ClientError)
    if isinstance(error, ProducerFencedError):
        return FATAL
    if isinstance(error, TransactionAbortedError | DeliveryTimeoutError):
        return ABORT
    if isinstance(error, ClientTimeoutError):
        return ""
    verdict = reaction_to(error)
    if verdict is Reaction.ABORT:
        return ABORT
    return FATAL if verdict is Reaction.FATAL else ""
