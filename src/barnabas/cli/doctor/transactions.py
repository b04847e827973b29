"""Transactions that delay read_committed consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.transactions.held_back import gather_held_back
from barnabas.cli.why.reasons.transaction_reasons import transaction_reasons
from barnabas.client.errors import ClientError
from barnabas.client.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.transactions.held_back import HeldBack
    from barnabas.client.facade import Client
    from barnabas.client.fetch.offset_lookups import ListedOffset

__all__ = ["examine_transactions"]

# Transactions usually end within seconds, so younger ones are not reported.
_OPEN_MS_MIN = 10_000
# Maximum number of examined partitions, and of reported findings.
_EXAMINED_MAX = 20
_REPORTED_MAX = 5


def examine_transactions(client: Client, diagnosis: Diagnosis) -> None:
    """Report transactions that have been open for a long time, or that no coordinator will end."""
    wanted = [
        TopicPartition(topic, number)
        for topic, info in client.describe_topics().items()
        for number, partition in info.partitions.items()
        if partition.leader >= 0
    ]
    ends = client.admin.list_offsets(dict.fromkeys(wanted, "latest"))
    stable = client.admin.list_offsets(dict.fromkeys(wanted, "latest"), read_committed=True)
    held = [
        (tp, low, high)
        for tp in sorted(wanted)
        for low, high in ((_offset(stable, tp), _offset(ends, tp)),)
        if low is not None and high is not None and low < high
    ]
    if len(held) > _EXAMINED_MAX:
        diagnosis.unexamined(
            f"transactions that are open in {len(held) - _EXAMINED_MAX} more partitions"
        )
    reported: set[int] = set()
    for tp, low, high in held[:_EXAMINED_MAX]:
        found = gather_held_back(client, tp, low, high)
        producer = found.first
        if producer is None or producer.producer_id in reported or _open_ms(found) < _OPEN_MS_MIN:
            continue
        reported.add(producer.producer_id)
        for reason in transaction_reasons(found):
            add = diagnosis.wrong if reason.verdict == "wrong" else diagnosis.note
            add(f"{tp}: {reason.what}", reason.remedy)
        if len(reported) == _REPORTED_MAX:
            return


def _offset(
    found: Mapping[TopicPartition, ListedOffset | ClientError], tp: TopicPartition
) -> int | None:
    listed = found.get(tp)
    return None if listed is None or isinstance(listed, ClientError) else listed.offset


def _open_ms(held: HeldBack) -> int:
    """Return how long the first transaction has been open, or since its last write."""
    producer = held.first
    assert producer is not None
    owner = held.owners.get(producer.producer_id)
    if owner is None or isinstance(owner.description, ClientError) or held.is_hanging(producer):
        return held.now_ms - producer.last_timestamp
    return held.now_ms - owner.description.start_time_ms
