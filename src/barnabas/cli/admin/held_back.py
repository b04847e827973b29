"""Find the transactions that hold back the last stable offset of a partition, and their owners.

The partition's leader knows the producers with an open transaction. The coordinators know their
transactional ids. A transaction that no coordinator has in progress there hangs (KIP-664).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.admin.partitions import ActiveProducer
    from barnabas.client.admin.transactions import TransactionDescription
    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition

# The timeout of transactions that never time out: those with two-phase commit (KIP-939).
NO_TIMEOUT_MS = 0x7FFF_FFFF
# States in which the coordinator will end the transaction or waits for its producer.
IN_PROGRESS = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort"})


@dataclass(frozen=True, slots=True)
class Owner:
    """A transactional id, with the coordinator's description or error."""

    transactional_id: str
    description: TransactionDescription | ClientError


@dataclass(frozen=True, slots=True)
class HeldBack:
    """A partition whose last stable offset is below its high watermark."""

    partition: TopicPartition
    last_stable_offset: int
    high_watermark: int
    # Wall-clock time of the requests (ms).
    now_ms: int
    # Producers with an open transaction, in the order of its first offset.
    producers: Sequence[ActiveProducer] = ()
    # Producer id -> its transactional id, if a coordinator knows one.
    owners: Mapping[int, Owner] = field(default_factory=dict)
    # The error because of which the coordinators were not asked; None if they were asked.
    error: ClientError | None = None

    @property
    def first(self) -> ActiveProducer | None:
        """The producer whose transaction holds the last stable offset; None if it has ended."""
        return self.producers[0] if self.producers else None

    def is_hanging(self, producer: ActiveProducer) -> bool:
        """Return whether the coordinators answer but none of them will end the transaction."""
        if self.error is not None:
            return False
        owner = self.owners.get(producer.producer_id)
        if owner is None:
            return True
        found = owner.description
        if isinstance(found, ClientError):
            return False
        return not (
            found.state in IN_PROGRESS
            and found.producer_id == producer.producer_id
            and self.partition in found.partitions
        )


def gather_held_back(
    client: Client, tp: TopicPartition, last_stable_offset: int, high_watermark: int
) -> HeldBack:
    """Ask the leader for open transactions, and the coordinators for their owners.

    Candidates for hanging transactions are checked again, because they may have ended between the
    two requests.
    """
    now_ms = int(time.time() * 1000)
    producers = _open_producers(client, tp)
    held = HeldBack(tp, last_stable_offset, high_watermark, now_ms, producers)
    if not producers:
        return held
    try:
        owners = _owners(client, producers)
    except ClientError as error:
        return HeldBack(
            partition=tp,
            last_stable_offset=last_stable_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
            producers=producers,
            owners={},
            error=error,
        )
    held = HeldBack(tp, last_stable_offset, high_watermark, now_ms, producers, owners)
    if any(held.is_hanging(each) for each in producers):
        still = {
            (each.producer_id, each.current_transaction_start_offset)
            for each in _open_producers(client, tp)
        }
        producers = [
            each
            for each in producers
            if (each.producer_id, each.current_transaction_start_offset) in still
        ]
        held = HeldBack(tp, last_stable_offset, high_watermark, now_ms, producers, owners)
    return held


def _open_producers(client: Client, tp: TopicPartition) -> list[ActiveProducer]:
    producers = client.admin.describe_producers([tp], once=True)[tp]
    if isinstance(producers, ClientError):
        return []
    opened = [each for each in producers if each.current_transaction_start_offset >= 0]
    return sorted(opened, key=lambda each: each.current_transaction_start_offset)


def _owners(client: Client, producers: Sequence[ActiveProducer]) -> dict[int, Owner]:
    listed = client.admin.list_transactions([each.producer_id for each in producers])
    names = sorted({each.transactional_id for each in listed})
    described = client.admin.describe_transactions(names) if names else {}
    return {
        each.producer_id: Owner(each.transactional_id, described[each.transactional_id])
        for each in listed
    }
