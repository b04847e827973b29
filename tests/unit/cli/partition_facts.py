"""Facts about one partition for the tests of `barnabas why`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.cli.partitions.snapshot import PartitionSnapshot
from barnabas.cli.why.facts import BrokerFacts, PartitionFacts
from barnabas.client.admin.topics import PartitionState
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.client.errors import ClientError

TP = TopicPartition("orders", 0)
NOW_MS = 1_000_000


def snapshot(
    ends: Mapping[int, int | ClientError],
    watermark: int | ClientError,
    *,
    isr: tuple[int, ...] = (1, 2, 3),
    leader: int = 1,
    min_isr: int = 2,
    **more: Any,
) -> PartitionSnapshot:
    elr, last_known = more.pop("elr", ()), more.pop("last_known_elr", ())
    state = PartitionState(0, leader, 5, (1, 2, 3), isr, elr, last_known, ())
    return PartitionSnapshot(TP, state, False, min_isr, watermark, ends, **more)


def facts(
    now: PartitionSnapshot, before: PartitionSnapshot | None = None, **more: Any
) -> PartitionFacts:
    brokers = more.pop("brokers", BrokerFacts(frozenset({1, 2, 3}), controller=1))
    return PartitionFacts(before or now, now, 2.0, brokers, now_ms=NOW_MS, **more)
