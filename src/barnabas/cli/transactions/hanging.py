"""Find transactions that no coordinator will end (KIP-664), from the state of the partitions.

A partition's leader knows the producers with an open transaction in the partition. A transaction
hangs if it is older than the maximum timeout and no coordinator has it in progress in that
partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.served_apis import require_api
from barnabas.cli.transactions.held_back import IN_PROGRESS
from barnabas.client.errors import ClientError
from barnabas.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.partitions import ActiveProducer
    from barnabas.client.admin.transactions import TransactionDescription
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["OpenTransaction", "find_hanging", "open_transactions"]


class OpenTransaction(NamedTuple):
    """One producer's open transaction in one partition."""

    partition: TopicPartition
    producer: ActiveProducer
    # None if no coordinator knows a transactional id for the producer.
    transactional_id: str | None = None


def open_transactions(
    client: Client, partitions: Sequence[TopicPartition]
) -> tuple[list[OpenTransaction], dict[TopicPartition, ClientError]]:
    """Return the open transactions of partitions, and the errors of partitions by partition."""
    found: list[OpenTransaction] = []
    failed: dict[TopicPartition, ClientError] = {}
    for tp, producers in sorted(client.admin.describe_producers(partitions, once=True).items()):
        if isinstance(producers, ClientError):
            failed[tp] = producers
            continue
        found += [
            OpenTransaction(tp, producer)
            for producer in producers
            if producer.current_transaction_start_offset >= 0
        ]
    return found, failed


def find_hanging(client: Client, candidates: Sequence[OpenTransaction]) -> list[OpenTransaction]:
    """Return the open transactions that no coordinator has in progress in their partition.

    Ends the command if there are candidates and the brokers cannot list transactions.
    """
    if not candidates:
        return []
    require_api(
        client, ApiKey.LIST_TRANSACTIONS, "ListTransactions", "the search for hanging transactions"
    )
    wanted = sorted({each.producer.producer_id for each in candidates})
    ids = {
        listing.producer_id: listing.transactional_id
        for listing in client.admin.list_transactions(wanted)
    }
    described = client.admin.describe_transactions(sorted(set(ids.values()))) if ids else {}
    return [
        each._replace(transactional_id=ids.get(each.producer.producer_id))
        for each in candidates
        if not _is_in_progress(each, ids, described)
    ]


def _is_in_progress(
    each: OpenTransaction,
    ids: Mapping[int, str],
    described: Mapping[str, TransactionDescription | ClientError],
) -> bool:
    name = ids.get(each.producer.producer_id)
    if name is None:
        return False
    found = described[name]
    if isinstance(found, ClientError):
        # The coordinator does not answer, so assume that the transaction is in progress.
        return True
    return (
        found.state in IN_PROGRESS
        and found.producer_id == each.producer.producer_id
        and each.partition in found.partitions
    )
