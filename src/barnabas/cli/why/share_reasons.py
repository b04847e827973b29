"""Reasons why the members of a share group get no records, or get a record again (KIP-932).

Share coordinators store the state of a record when a delivery of it ends. Which member has a
record is in the memory of the partition's leader only, and no API returns it. So a reason names all
members that may have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.printable import counted
from barnabas.cli.why.facts import COMMIT_INTERVAL_S, listed, member_name
from barnabas.cli.why.reasons import (
    Reason,
    duration,
    missing_topics,
    note,
    ok,
    transaction_reasons,
    wrong,
)
from barnabas.client.admin.share_groups import ShareRecordState
from barnabas.client.errors import ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from barnabas.cli.why.facts import GroupFacts, ShareFacts, ShareLimits, SharePartitionFacts
    from barnabas.client.admin.group_descriptions import GroupDescription, GroupMember
    from barnabas.client.admin.share_groups import ShareState, ShareStateBatch
    from barnabas.client.topic_partition import TopicPartition

_STATE_TOPIC = "__share_group_state"
_NOT_ALLOWED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def share_reasons(
    facts: GroupFacts, described: GroupDescription, shares: ShareFacts
) -> list[Reason]:
    """Return all reasons for the state of a share group.

    Args:
        facts: the facts about the group.
        described: the group with its members.
        shares: the facts about its partitions.
    """
    reasons = [*_member_reasons(described, shares)]
    reasons += missing_topics(facts.missing_topics)
    if facts.unread and described.members:
        reasons.append(
            note(
                "partitions-not-initialized",
                f"no member has {listed(map(str, facts.unread))}, although members subscribe to "
                "the topic: a share group gets a partition once its state is initialized",
                _repeat(),
            )
        )
    if any(_is_refused(each) for each in shares.partitions):
        reasons.append(
            note(
                "states-not-allowed",
                "this user may not read the states of the records, so deliveries are unknown: that "
                "needs CLUSTER_ACTION on the cluster",
                "use the principal of a broker, or an administrator with this right",
            )
        )
    for each in shares.partitions:
        reasons += _partition_reasons(facts.seconds, shares, each)
    lags = [each.lag for each in shares.partitions]
    if not any(lags) and not any(reason.verdict == "wrong" for reason in reasons):
        processed = sum(lag == 0 for lag in lags)
        if processed or not lags:
            reasons.append(ok("nothing-to-read", _nothing_to_read(processed)))
    return reasons


def _nothing_to_read(partitions: int) -> str:
    if not partitions:
        return "no partition is assigned, and none has a start offset"
    return f"all records are processed: lag 0 in {partitions} partition{_s(partitions)}"


def _member_reasons(described: GroupDescription, shares: ShareFacts) -> Iterator[Reason]:
    members = described.members
    if not members:
        if not shares.lag:
            yield note("no-members", "it has no members")
            return
        yield wrong(
            "no-members",
            f"it has no members, and a lag of {counted(shares.lag, 'record')}",
            "start a share consumer; if one is running, its log shows why it is not a member "
            "(another group.id, no connection to the coordinator)",
        )
        return
    idle = [each for each in members if not each.assignment]
    if not idle:
        return
    yield note(
        "members-idle",
        f"{len(idle)} of {len(members)} members have no partitions "
        f"({listed(map(_name, idle))}): the group has no partitions for their topics, or they "
        "have not received their assignment yet",
        "repeat this command; members share partitions, so that each gets one even if there "
        "are fewer partitions than members",
    )


def _partition_reasons(
    seconds: float, shares: ShareFacts, facts: SharePartitionFacts
) -> Iterator[Reason]:
    """Return the reasons for the state of one share partition."""
    tp = facts.partition
    if facts.log.leader < 0 or facts.log.high_watermark is None:
        yield wrong(
            "partition-unavailable",
            f"{tp} has no leader, or the leader does not answer: the partition cannot be read",
            f"`{Advice.WHY_PARTITION.text(**tp._asdict())}`",
        )
        return
    state = facts.now.state
    if isinstance(state, ClientError):
        if not _is_refused(facts):
            yield _no_state(facts, state)
    else:
        yield from record_reasons(tp, state, shares.limits, facts.log.high_watermark)
    if facts.now.start_offset is None:
        yield from _unstored(facts)
    else:
        yield from _waiting(seconds, shares, facts, facts.now.start_offset)


def _no_state(facts: SharePartitionFacts, error: ClientError) -> Reason:
    if error.error_code == ErrorCode.FENCED_LEADER_EPOCH:
        return note(
            "state-moves",
            f"{facts.partition}: a new leader has just read the states of the records",
            "repeat this command",
        )
    return wrong(
        "state-unknown",
        f"{facts.partition}: the states of the records cannot be read, which the leader needs to "
        f"deliver records: {error}",
        _repeat(),
    )


def _unstored(facts: SharePartitionFacts) -> Iterator[Reason]:
    """Return the reason for a partition without a start offset."""
    end, start = facts.log.high_watermark, facts.log.log_start
    if not facts.members or end is None or end == start:
        return
    yield note(
        "nothing-acknowledged",
        f"{facts.partition}: no acknowledgement is stored yet, so there is no start offset: "
        f"{_holders(facts)} received no record, or still has the first ones",
        "share.auto.offset.reset of the group determines the first record: with latest, only "
        "records that are written from now on",
    )


def _waiting(
    seconds: float, shares: ShareFacts, facts: SharePartitionFacts, start: int
) -> Iterator[Reason]:
    """Return the reasons for a partition with a start offset."""
    tp, log, lag = facts.partition, facts.log, facts.lag
    if log.log_start is not None and start < log.log_start and lag:
        yield note(
            "below-log-start",
            f"{tp}: the records from the start offset {start} to {log.log_start - 1} were "
            "deleted before they were processed",
            "the group continues at the log's start when a member fetches; increase the "
            "retention to keep records longer",
        )
        return
    if not lag or not facts.members:
        return
    stable = log.last_stable_offset
    is_committed = shares.limits is not None and shares.limits.is_read_committed
    if is_committed and stable is not None and stable <= start:
        head = note(
            "open-transaction",
            f"{tp}: the start offset {start} is at the last stable offset {stable}: the group has "
            f"share.isolation.level=read_committed and waits for an open transaction; lag of {lag}",
        )
        yield head
        yield from transaction_reasons(facts.held_back)
        return
    if facts.moved > 0:
        rate = facts.moved / seconds if seconds else 0.0
        yield ok(
            "reads",
            f"{tp}: about {rate:.0f} records/s are processed, {lag} are left from the start "
            f"offset {start} on, about {duration(1000 * lag / rate) if rate else '?'} at that "
            "pace",
        )
        return
    yield _stalled(seconds, shares, facts, start)


def _stalled(seconds: float, shares: ShareFacts, facts: SharePartitionFacts, start: int) -> Reason:
    """Return the reason for records that members do not finish."""
    tp, lag, limits = facts.partition, facts.lag or 0, shares.limits
    what = (
        f"{tp}: no record was finished for {seconds:.1f} s; lag of {lag} records from the start "
        f"offset {start} on; {_holders(facts)} has them or does not poll"
    )
    if limits is not None:
        what += (
            f"; a lock ends after {duration(limits.lock_duration_ms)}, and then the record is "
            "delivered again"
        )
        if lag >= limits.record_locks:
            what += (
                f"; with {limits.record_locks} records in flight "
                "(share.partition.max.record.locks) no member gets another record"
            )
    if seconds < COMMIT_INTERVAL_S:
        return note(
            "records-held",
            what,
            "repeat this command with a longer time between its measurements (--seconds)",
        )
    return wrong(
        "records-held",
        what,
        "the member processes records slowly, does not acknowledge them, or has stopped to poll: "
        "read its log; when it is stopped, its records are delivered to others; "
        f"`{Advice.SHOW_RECORD.text(**tp._asdict(), offset=start)}` shows the first one",
    )


def _holders(facts: SharePartitionFacts) -> str:
    """Return which member may have a record: the subject of a sentence in singular."""
    names = [_name(each) for each in facts.members]
    if len(names) == 1:
        return f"{names[0]}, the only member with this partition,"
    return (
        f"one of the {len(names)} members with this partition ({listed(names)}; only the leader, "
        f"broker {facts.log.leader}, knows which)"
    )


def _name(member: GroupMember) -> str:
    # Members of a share group often have the same client id and host.
    return f"{member_name(member)} (member {member.member_id})"


def _is_refused(facts: SharePartitionFacts) -> bool:
    state = facts.now.state
    return isinstance(state, ClientError) and state.error_code == _NOT_ALLOWED


def _repeat() -> str:
    why = Advice.WHY_TOPIC.text(topic=_STATE_TOPIC)
    return f"repeat this command; if the state stays the same: `{why}`"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


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
    reasons: list[Reason] = []
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
) -> Iterator[Reason]:
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
        return
    yield note(
        "records-given-up",
        f"{tp}: these records were given up after their last delivery "
        f"(share.delivery.count.limit={limits.delivery_count}): {_ranges(found)}",
        f"`{Advice.SHOW_RECORD.text(**tp._asdict(), offset=found[0].first_offset)}` "
        "shows the first one",
    )


def _in_flight(
    tp: TopicPartition,
    state: ShareState,
    batches: list[ShareStateBatch],
    limits: ShareLimits,
    high_watermark: int,
) -> Iterator[Reason]:
    """Return the reason for a partition whose records in flight have reached the limit."""
    if not batches:
        return
    end = batches[-1].last_offset + 1
    count = end - state.start_offset
    if count < limits.record_locks or end >= high_watermark:
        return
    yield wrong(
        "in-flight-full",
        f"{tp}: {count} records are in flight, from the start offset {state.start_offset} to "
        f"{end - 1}; the limit is {limits.record_locks} (share.partition.max.record.locks), so "
        f"no member gets a record after {end - 1} until the first one is finished",
        f"`{Advice.SHOW_RECORD.text(**tp._asdict(), offset=state.start_offset)}` shows "
        "the record that holds the others up",
    )


def _ranges(batches: Iterable[ShareStateBatch]) -> str:
    """Return offsets with their delivery counts."""
    return listed(map(_range, batches))


def _range(batch: ShareStateBatch) -> str:
    first, last = batch.first_offset, batch.last_offset
    offsets = str(first) if first == last else f"{first} to {last}"
    times = "delivery" if batch.delivery_count == 1 else "deliveries"
    return f"{offsets} ({batch.delivery_count} {times})"
