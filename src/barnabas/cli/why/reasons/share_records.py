"""Reasons about single records of a share group, from the states that share coordinators store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.why.facts.members import listed
from barnabas.cli.why.reasons.reason import Reason, note, wrong
from barnabas.client.admin.share_groups import ShareRecordState

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.why.facts.share_facts import ShareLimits
    from barnabas.client.admin.share_groups import ShareState, ShareStateBatch
    from barnabas.client.topic_partition import TopicPartition

__all__ = ["record_reasons"]


def record_reasons(
    tp: TopicPartition, state: ShareState, limits: ShareLimits | None, high_watermark: int
) -> list[Reason]:
    """Return the reasons about records from the start offset on.

    Args:
        tp: the partition.
        state: what its share coordinator has stored.
        limits: the configs of the group; None if they are unknown.
        high_watermark: the high watermark.
    """
    batches = [each for each in state.batches if each.last_offset >= state.start_offset]
    available = [
        each
        for each in batches
        if each.delivery_state == ShareRecordState.AVAILABLE and each.delivery_count > 0
    ]
    reasons = []
    if limits is not None:
        reasons += _in_flight(tp, state, batches, limits, high_watermark)
        last = [each for each in available if each.delivery_count >= limits.delivery_count - 1]
        if last:
            available = [each for each in available if each not in last]
            reasons.append(_last_delivery(tp, last, limits))
    if available:
        reasons.append(
            note(
                "delivered-before",
                f"{tp}: these records were delivered and came back, because a member released them "
                f"or a lock ended: {_ranges(available)}; they wait for the next delivery, or a "
                "member has them again",
            )
        )
    archiving = [each for each in batches if each.delivery_state == ShareRecordState.ARCHIVING]
    if archiving:
        reasons.append(
            note(
                "dead-letter-pending",
                f"{tp}: these records were given up, and are written to the dead-letter topic "
                f"before the group passes them: {_ranges(archiving)}",
                "if the state stays the same, the leader's log shows why the write fails",
            )
        )
    if limits is not None:
        reasons += _given_up(tp, batches, limits)
    return reasons


def _last_delivery(
    tp: TopicPartition, batches: list[ShareStateBatch], limits: ShareLimits
) -> Reason:
    return note(
        "last-delivery",
        f"{tp}: the next delivery of these records is their last one, or is under way "
        f"(share.delivery.count.limit={limits.delivery_count}): {_ranges(batches)}; the group "
        "gives up what is not accepted then",
        f"`{Advice.SHOW_RECORD.text(**tp._asdict(), offset=batches[0].first_offset)}` "
        "shows the first one; correct the consumer, or set errors.deadletterqueue.topic.name of "
        "the group to keep copies of such records",
    )


def _given_up(
    tp: TopicPartition, batches: list[ShareStateBatch], limits: ShareLimits
) -> list[Reason]:
    """Return the reason about records whose deliveries have reached the limit.

    Records below the limit may be rejected records, or markers of transactions.
    """
    found = [
        each
        for each in batches
        if each.delivery_state == ShareRecordState.ARCHIVED
        and each.delivery_count >= limits.delivery_count
    ]
    if not found:
        return []
    return [
        note(
            "records-given-up",
            f"{tp}: these records were given up after their last delivery "
            f"(share.delivery.count.limit={limits.delivery_count}): {_ranges(found)}",
            f"`{Advice.SHOW_RECORD.text(**tp._asdict(), offset=found[0].first_offset)}` "
            "shows the first one",
        )
    ]


def _in_flight(
    tp: TopicPartition,
    state: ShareState,
    batches: list[ShareStateBatch],
    limits: ShareLimits,
    high_watermark: int,
) -> list[Reason]:
    """Return the reason for a partition whose records in flight have reached the limit."""
    if not batches:
        return []
    end = batches[-1].last_offset + 1
    count = end - state.start_offset
    if count < limits.record_locks or end >= high_watermark:
        return []
    return [
        wrong(
            "in-flight-full",
            f"{tp}: {count} records are in flight, from the start offset {state.start_offset} to "
            f"{end - 1}; the limit is {limits.record_locks} (share.partition.max.record.locks), so "
            f"no member gets a record after {end - 1} until the first one is finished",
            f"`{Advice.SHOW_RECORD.text(**tp._asdict(), offset=state.start_offset)}` shows "
            "the record that holds the others up",
        )
    ]


def _ranges(batches: Iterable[ShareStateBatch]) -> str:
    """Return offsets with their delivery counts."""
    return listed(map(_range, batches))


def _range(batch: ShareStateBatch) -> str:
    first, last = batch.first_offset, batch.last_offset
    offsets = str(first) if first == last else f"{first} to {last}"
    times = "delivery" if batch.delivery_count == 1 else "deliveries"
    return f"{offsets} ({batch.delivery_count} {times})"
