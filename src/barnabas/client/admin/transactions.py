"""Transactions as their coordinators list them (KIP-664)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.schema import Message

__all__ = ["TransactionListing", "list_transactions"]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id and what it does."""

    transactional_id: str
    producer_id: int
    # "Empty", "Ongoing", "PrepareCommit", "CompleteAbort", ...
    state: str


def list_transactions(producer_ids: Sequence[int]) -> AdminCall[list[TransactionListing]]:
    """The transactions that one broker coordinates; no producer ids stand for all."""

    def build(_version: int) -> Message:
        return ListTransactionsRequest(state_filters=[], producer_id_filters=list(producer_ids))

    def read(response: Message) -> list[TransactionListing]:
        assert isinstance(response, ListTransactionsResponse)
        raise_error(response.error_code, "list of transactions")
        return [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]

    return AdminCall(ApiKey.LIST_TRANSACTIONS, build, read)
