"""Reasons why the members of a share group get no records, or get a record again (KIP-932).

Share coordinators store the state of a record when a delivery of it ends. Which member has a
record is in the memory of the partition's leader only, and no API returns it. So a reason names all
members that may have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.why.facts.facts import COMMIT_INTERVAL_S
from barnabas.cli.why.facts.members import listed, member_name
from barnabas.cli.why.reasons.missing_topics import missing_topics
from barnabas.cli.why.reasons.reason import Reason, duration, note, ok, wrong
from barnabas.cli.why.reasons.share_records import record_reasons
from barnabas.cli.why.reasons.transaction_reasons import transaction_reasons
from barnabas.client.errors import ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cli.why.facts.facts import GroupFacts
    from barnabas.cli.why.facts.share_facts import ShareFacts, SharePartitionFacts
    from barnabas.client.admin.group_descriptions import GroupDescription, GroupMember

__all__ = ["share_reasons"]

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
    reasons = _member_reasons(described, shares)
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


def _member_reasons(described: GroupDescription, shares: ShareFacts) -> list[Reason]:
    members = described.members
    if not members:
        if not shares.lag:
            return [note("no-members", "it has no members")]
        return [
            wrong(
                "no-members",
                f"it has no members, and a lag of {shares.lag} records",
                "start a share consumer; if one is running, its log shows why it is not a member "
                "(another group.id, no connection to the coordinator)",
            )
        ]
    idle = [each for each in members if not each.assignment]
    if not idle:
        return []
    return [
        note(
            "members-idle",
            f"{len(idle)} of {len(members)} members have no partitions "
            f"({listed(map(_name, idle))}): the group has no partitions for their topics, or they "
            "have not received their assignment yet",
            "repeat this command; members share partitions, so that each gets one even if there "
            "are fewer partitions than members",
        )
    ]


def _partition_reasons(
    seconds: float, shares: ShareFacts, facts: SharePartitionFacts
) -> list[Reason]:
    """Return the reasons for the state of one share partition."""
    tp = facts.partition
    if facts.log.leader < 0 or facts.log.high_watermark is None:
        return [
            wrong(
                "partition-unavailable",
                f"{tp} has no leader, or the leader does not answer: the partition cannot be read",
                f"`{Advice.WHY_PARTITION.text(**tp._asdict())}`",
            )
        ]
    state = facts.now.state
    reasons = []
    if isinstance(state, ClientError):
        if not _is_refused(facts):
            reasons.append(_no_state(facts, state))
    else:
        reasons += record_reasons(tp, state, shares.limits, facts.log.high_watermark)
    if facts.now.start_offset is None:
        return [*reasons, *_unstored(facts)]
    return reasons + _waiting(seconds, shares, facts, facts.now.start_offset)


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


def _unstored(facts: SharePartitionFacts) -> list[Reason]:
    """Return the reason for a partition without a start offset."""
    end, start = facts.log.high_watermark, facts.log.log_start
    if not facts.members or end is None or end == start:
        return []
    return [
        note(
            "nothing-acknowledged",
            f"{facts.partition}: no acknowledgement is stored yet, so there is no start offset: "
            f"{_holders(facts)} received no record, or still has the first ones",
            "share.auto.offset.reset of the group determines the first record: with latest, only "
            "records that are written from now on",
        )
    ]


def _waiting(
    seconds: float, shares: ShareFacts, facts: SharePartitionFacts, start: int
) -> list[Reason]:
    """Return the reasons for a partition with a start offset."""
    tp, log, lag = facts.partition, facts.log, facts.lag
    if log.log_start is not None and start < log.log_start and lag:
        return [
            note(
                "below-log-start",
                f"{tp}: the records from the start offset {start} to {log.log_start - 1} were "
                "deleted before they were processed",
                "the group continues at the log's start when a member fetches; increase the "
                "retention to keep records longer",
            )
        ]
    if not lag or not facts.members:
        return []
    stable = log.last_stable_offset
    is_committed = shares.limits is not None and shares.limits.is_read_committed
    if is_committed and stable is not None and stable <= start:
        head = note(
            "open-transaction",
            f"{tp}: the start offset {start} is at the last stable offset {stable}: the group has "
            f"share.isolation.level=read_committed and waits for an open transaction; lag of {lag}",
        )
        return [head, *transaction_reasons(facts.held_back)]
    if facts.moved > 0:
        rate = facts.moved / seconds if seconds else 0.0
        return [
            ok(
                "reads",
                f"{tp}: about {rate:.0f} records/s are processed, {lag} are left from the start "
                f"offset {start} on, about {duration(1000 * lag / rate) if rate else '?'} at that "
                "pace",
            )
        ]
    return [_stalled(seconds, shares, facts, start)]


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
