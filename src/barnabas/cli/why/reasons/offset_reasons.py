"""Reasons why an offset cannot be read, or cannot be read yet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.why.reasons.partition_reasons import NO_LEADER, partition_reasons
from barnabas.cli.why.reasons.reason import Reason, note, ok, wrong
from barnabas.cli.why.reasons.transaction_reasons import transaction_reasons

if TYPE_CHECKING:
    from barnabas.cli.why.facts.facts import PartitionFacts

__all__ = ["offset_reasons"]


def offset_reasons(facts: PartitionFacts, offset: int, found: int | None) -> list[Reason]:
    """Return the reasons for the state of an offset in its partition.

    Args:
        facts: The facts about the partition.
        offset: The offset.
        found: Offset of the first record that a consumer receives from `offset` on; None if it
            receives no record.
    """
    watermark, end = facts.high_watermark, facts.end
    if facts.now.state.leader == NO_LEADER or end is None or watermark is None:
        return partition_reasons(facts)
    start = facts.log_start
    if start is not None and offset < start:
        return [
            wrong(
                "below-log-start",
                f"offset {offset} was deleted: the log starts at {start}. Retention or "
                "a client (`topics purge`, DeleteRecords) deleted the records below",
                f"read from {start} on; "
                f"`{Advice.DESCRIBE_TOPIC_CONFIGS.text(topic=facts.partition.topic)}` shows "
                "retention.ms and retention.bytes",
            )
        ]
    if offset >= end:
        return [
            ok(
                "not-written",
                f"offset {offset} has not been written: the log ends at {end}"
                + (", at this offset" if offset == end else ""),
            )
        ]
    if offset >= watermark:
        head = note(
            "not-committed",
            f"offset {offset} is written but not committed: the high watermark is "
            f"{watermark} of {end}, and consumers only receive records below it",
        )
        return [head, *partition_reasons(facts)]
    if found is not None and found > offset:
        reasons = [
            ok(
                "no-record",
                f"offset {offset} has no record for consumers, the next one is {found}: "
                "it was removed by compaction, or it is a transaction marker or an "
                "aborted record",
            )
        ]
    elif found is None:
        reasons = [ok("no-record", f"from offset {offset} on, there is no record for consumers")]
    else:
        reasons = [ok("readable", f"offset {offset} is committed and can be read")]
    stable = facts.last_stable_offset
    if stable is not None and offset >= stable:
        reasons += transaction_reasons(facts.held_back)
    return reasons
