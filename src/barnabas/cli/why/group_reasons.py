"""Reasons why the members of a group wait, streams groups (KIP-1071) included.

A member also waits if an offset cannot be read, or cannot be read yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.printable import counted
from barnabas.cli.partitions.snapshot import NO_LEADER
from barnabas.cli.why.facts import COMMIT_INTERVAL_S, listed, member_name
from barnabas.cli.why.partition_reasons import partition_reasons
from barnabas.cli.why.reasons import (
    Reason,
    duration,
    missing_topics,
    note,
    ok,
    transaction_reasons,
    wrong,
)
from barnabas.cli.why.share_reasons import share_reasons
from barnabas.client.errors import ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from barnabas.cli.why.facts import GroupFacts, PartitionFacts, ReaderFacts
    from barnabas.client.admin.group_descriptions import (
        GroupDescription,
        GroupMember,
        StreamsGroupDescription,
        StreamsMember,
        Task,
    )
    from barnabas.client.errors import CorruptRecordsError
    from barnabas.client.topic_partition import TopicPartition


# The kind of the reason about a name that is no group.
NO_SUCH_GROUP = "no-such-group"
_OFFSETS = "__consumer_offsets"
# What a user needs the right DESCRIBE on, by error.
_NOT_ALLOWED = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "all topics of the group",
}


def group_reasons(facts: GroupFacts) -> list[Reason]:
    """Return all reasons for the state of a group, the most serious first."""
    described = facts.description
    for found in (facts.coordinator, described):
        if isinstance(found, ClientError) and found.error_code in _NOT_ALLOWED:
            return [_not_allowed(facts.name, _NOT_ALLOWED[found.error_code])]
    if isinstance(facts.coordinator, ClientError):
        return [_no_coordinator(facts.coordinator)]
    if isinstance(described, ClientError):
        return [_no_description(described, facts.coordinator)]
    if facts.shares is not None:
        return share_reasons(facts, described, facts.shares)
    if described.state == "Dead" and not facts.readers:
        return [
            wrong(
                NO_SUCH_GROUP,
                f"there is no group {facts.name}, and it has no committed offsets",
                f"`{Advice.LIST_GROUPS.text()}` shows all groups; the first member creates a group",
            )
        ]
    reasons = [*_state_reasons(facts, described)]
    if facts.streams is None:
        reasons += missing_topics(facts.missing_topics)
    if facts.unread and described.state == "Stable":
        reasons.append(
            wrong(
                "partitions-unread",
                f"no member reads {listed(map(str, facts.unread))}, although members subscribe to "
                "the topic",
                "the group's assignor did not assign them; when a member joins or "
                "leaves, it assigns all partitions again",
            )
        )
    reasons += [reason for reader in facts.readers for reason in _reader_reasons(facts, reader)]
    lags = [reader.lag for reader in facts.readers]
    if not any(lags) and not any(reason.verdict == "wrong" for reason in reasons):
        reasons.append(ok("nothing-to-read", _nothing_to_read(facts)))
    return reasons


def _nothing_to_read(facts: GroupFacts) -> str:
    if not facts.readers:
        return "it has no committed offsets, and no partition is assigned"
    if all(reader.now is None for reader in facts.readers):
        return "its lag is unknown: it has no committed offsets"
    return (
        f"all committed records have been read: lag 0 in {len(facts.readers)} "
        f"partition{'' if len(facts.readers) == 1 else 's'}"
    )


def _not_allowed(name: str, subject: str) -> Reason:
    return wrong(
        "not-allowed",
        f"this user may not see the group {name}: that needs DESCRIBE on {subject}",
        f"use another user, or give this user the right; for an administrator, "
        f"`{Advice.EXPLAIN_GROUP_RIGHT.text(group=name)}` explains the decision",
    )


def _no_coordinator(error: ClientError) -> Reason:
    """Return the reason for a failed FindCoordinator request.

    The lookup fails while __consumer_offsets does not exist or its partition has no leader.
    """
    if error.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
        return wrong(
            "no-coordinator",
            f"the group has no coordinator: its partition of {_OFFSETS} has no leader, "
            "or the topic does not exist yet",
            f"`{Advice.WHY_TOPIC.text(topic=_OFFSETS)}` explains the problem of its partitions",
        )
    return wrong(
        "coordinator-unknown",
        f"the coordinator of the group is unknown: {error}",
        f"check that brokers answer: `{Advice.DOCTOR.text()}`",
    )


def _no_description(error: ClientError, coordinator: int) -> Reason:
    if error.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return note(
            "coordinator-loads",
            f"broker {coordinator} has become the coordinator and is loading the state "
            "of the groups; members wait until it has finished",
            f"repeat this command; loading takes longer if the partition of {_OFFSETS} is large",
        )
    if error.error_code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
        return note(
            "coordinator-moves",
            f"the coordinator is moving: broker {coordinator} returned {error.error_code.name}",
            "repeat this command; if the state stays the same: "
            f"`{Advice.WHY_TOPIC.text(topic=_OFFSETS)}`",
        )
    return wrong(
        "coordinator-silent",
        f"broker {coordinator} coordinates the group but does not answer: {error}",
        f"check whether broker {coordinator} hangs or is paused; if another broker "
        f"becomes leader of its partition of {_OFFSETS}, that broker coordinates the "
        "group",
    )


def _state_reasons(facts: GroupFacts, described: GroupDescription) -> Iterator[Reason]:
    members = described.members
    lag = sum(reader.lag or 0 for reader in facts.readers)
    if described.state in ("Empty", "Dead"):
        if not lag:
            yield note("no-members", "it has no members")
            return
        yield wrong(
            "no-members",
            f"it has no members, and a lag of {counted(lag, 'record')}",
            "start a consumer; if one is running, its log shows why it is not a "
            "member (another group.id, no connection to the coordinator, "
            "max.poll.interval.ms exceeded)",
        )
        return
    if facts.streams is not None:
        yield from streams_reasons(facts.streams, facts.missing_topics)
        return
    if described.state == "PreparingRebalance":
        yield _preparing(members)
        return
    if described.state == "CompletingRebalance":
        yield note(
            "rebalance-completing",
            f"a rebalance is in progress: all {len(members)} members have joined, "
            "and wait for the assignment from the group leader",
            "repeat this command; if the state stays the same, the group leader "
            "hangs in its assignor, and is removed after its session.timeout.ms",
        )
        return
    if described.type == "consumer":
        yield from _reconciling(described)
    idle = [member for member in members if not member.assignment and not member.target]
    if idle and described.state == "Stable":
        names = ", ".join(member_name(member) for member in idle[:5])
        yield note(
            "members-idle",
            f"{len(idle)} of {len(members)} members have no partitions ({names}): "
            "there are fewer partitions than members",
            "add partitions, or stop members",
        )


def _preparing(members: tuple[GroupMember, ...]) -> Reason:
    """Return the reason for a preparing rebalance.

    The protocol shows the members, but not which of them have joined again.
    """
    names = ", ".join(member_name(member) for member in members[:8]) or "none yet"
    return note(
        "rebalance-preparing",
        "a rebalance is in progress: the coordinator waits until all members have "
        f"joined again, or until their rebalance timeout. Members: {names}; the "
        "protocol does not show which of them are missing",
        "members that are processing records join at their next poll, or are removed "
        "after max.poll.interval.ms; reduce max.poll.interval.ms or max.poll.records",
    )


def _reconciling(described: GroupDescription) -> Iterator[Reason]:
    """Return reasons for members that have not reached their target assignment.

    In the new protocol, the epoch and target of each member are known.
    """
    for member in described.members:
        target = member.target or ()
        extra = [tp for tp in member.assignment if tp not in target]
        if extra:
            shown = ", ".join(map(str, extra[:5]))
            yield note(
                "member-gives-up",
                f"{member_name(member)} still has {shown}, which are assigned to other "
                "members: these wait until they are revoked",
                "it revokes them in its next poll, or is removed after max.poll.interval.ms",
            )
        elif 0 <= member.epoch < described.epoch:
            yield note(
                "member-behind",
                f"{member_name(member)} is at epoch {member.epoch} of {described.epoch}: "
                "it has not received its new assignment",
                "it receives the assignment with its next heartbeat",
            )


def _reader_reasons(facts: GroupFacts, reader: ReaderFacts) -> Iterator[Reason]:
    """Return the reasons why reading does not continue in one partition."""
    tp, position = reader.partition, reader.now
    why_partition = Advice.WHY_PARTITION.text(**tp._asdict())
    if reader.leader < 0 or reader.high_watermark is None:
        yield wrong(
            "partition-unavailable",
            f"{tp} has no leader, or the leader does not answer: the partition cannot be read",
            f"`{why_partition}`",
        )
        return
    if position is None:
        if not reader.reader:
            return
        yield note(
            "never-committed",
            f"{tp}: {reader.reader} reads it and has not committed yet: its "
            "auto.offset.reset determines its start",
        )
        return
    if reader.log_start is not None and position < reader.log_start:
        yield wrong(
            "below-log-start",
            f"{tp}: the position {position} was deleted, the log starts at "
            f"{reader.log_start}: "
            f"{reader.log_start - position} records were deleted before they were read",
            "auto.offset.reset determines whether the consumer continues at the "
            "end, at the start, or fails; to continue at the first record: "
            f"{_reset(facts, tp, Advice.RESET_TO_EARLIEST)}; increase the retention to "
            "keep records longer",
        )
        return
    if reader.end is not None and position > reader.end:
        yield wrong(
            "beyond-end",
            f"{tp}: the position {position} is beyond the log's end {reader.end}: the topic "
            f"was created again, or records were lost by an unclean election",
            f"to continue at the end: {_reset(facts, tp, Advice.RESET_TO_LATEST)}",
        )
        return
    if position > reader.high_watermark:
        yield note(
            "beyond-watermark",
            f"{tp}: the position {position} is beyond the high watermark "
            f"{reader.high_watermark}, which a new leader does not know yet",
            f"if the state stays the same: `{why_partition}`",
        )
        return
    yield from _waiting(facts, reader, position)


def _waiting(facts: GroupFacts, reader: ReaderFacts, position: int) -> Iterator[Reason]:
    """Return the reasons for a position within the log."""
    tp = reader.partition
    why_partition = Advice.WHY_PARTITION.text(**tp._asdict())
    lag = reader.lag or 0
    if not lag:
        if reader.end is not None and reader.high_watermark is not None:
            uncommitted = reader.end - reader.high_watermark
            if uncommitted:
                yield note(
                    "not-committed",
                    f"{tp}: {uncommitted} records are written but not committed, so "
                    "consumers do not receive them",
                    f"`{why_partition}`",
                )
        return
    stable = reader.last_stable_offset
    if stable is not None and position >= stable:
        yield note(
            "open-transaction",
            f"{tp}: the position {position} is at the last stable offset {stable}: a "
            "read_committed consumer waits for an open transaction, with a lag of "
            f"{counted(lag, 'offset')}",
            f"`{why_partition}` shows its producer" if reader.held_back is None else "",
        )
        yield from transaction_reasons(reader.held_back)
        return
    if reader.unreadable is not None:
        yield unreadable(reader.unreadable, reader.leader, facts)
        return
    if not reader.reader:
        # The missing members are reported once for the whole group.
        return
    moved = position - reader.before if reader.before is not None else 0
    if moved > 0:
        rate = moved / facts.seconds if facts.seconds else 0.0
        yield ok(
            "reads",
            f"{tp}: {reader.reader} reads about {rate:.0f} records/s, {lag} are left, about "
            f"{duration(1000 * lag / rate) if rate else '?'} at that pace",
        )
        return
    quota = facts.fetch_quotas.get(reader.client_id)
    if quota is not None:
        yield note(
            "quota",
            f"{tp}: lag of {lag} records; {quota.owner} may fetch {quota.rate:.0f} "
            f"bytes/s, and {reader.reader} has not committed for {facts.seconds:.1f} s",
            f"raise its consumer_byte_rate: `{Advice.LIST_QUOTAS.text()}`",
        )
        return
    yield _stalled(facts, reader, position)


def _stalled(facts: GroupFacts, reader: ReaderFacts, position: int) -> Reason:
    """Return the reason for a member that does not commit.

    A healthy member commits once per auto.commit.interval.ms, so a shorter measurement proves
    nothing.
    """
    tp = reader.partition
    what = (
        f"{tp}: {reader.reader} owns it and is an active member, but has not committed for "
        f"{facts.seconds:.1f} s; lag of {reader.lag} records from {position} on"
    )
    if facts.seconds < COMMIT_INTERVAL_S:
        return note(
            "reader-stalled",
            f"{what}; members commit every {COMMIT_INTERVAL_S:.0f} s by default",
            "repeat this command with a longer time between its measurements (--seconds)",
        )
    show = Advice.SHOW_RECORD.text(**tp._asdict(), offset=position)
    return wrong(
        "reader-stalled",
        what,
        "it processes records slowly, has paused the partition, fails repeatedly on that record, "
        f"or commits rarely (auto.commit.interval.ms): read its log; `{show}` shows the record",
    )


def unreadable(error: CorruptRecordsError, leader: int, facts: GroupFacts | None = None) -> Reason:
    """Return the reason for records that no consumer can read.

    Args:
        error: The error of a consumer.
        leader: The broker that sent the records.
        facts: The group that waits at them; None if the question is not about a group.
    """
    tp = error.partition
    verify = Advice.VERIFY_LOG.text(directory="DIRECTORY")
    remedy = (
        f"`{verify}` on broker {leader} names the damaged file, and how to get the records back "
        "from another replica or by a repair"
    )
    if facts is not None:
        skip = _reset(facts, tp, Advice.RESET_TO_OFFSET, offset=error.next_offset)
        remedy += f"; to skip them instead: {skip}"
    return wrong(
        "unreadable",
        f"{tp}: no consumer can read the records from offset {error.offset} on: {error.reason}",
        remedy,
    )


def _reset(facts: GroupFacts, tp: TopicPartition, advice: Advice, **more: object) -> str:
    """Return text about a command that moves a position. It is refused while members exist."""
    command = advice.text(topic=f"{tp.topic}:{tp.partition}", group=facts.name, **more)
    described = facts.description
    has_members = not isinstance(described, ClientError) and described.members
    first = "stop all members, then " if has_members else ""
    return f"{first}`{command}` shows the change, --execute executes it"


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


def streams_reasons(group: StreamsGroupDescription, missing: Collection[str]) -> list[Reason]:
    """Return the reasons for the state of a streams group that has members.

    Args:
        group: the group with its topology and tasks.
        missing: the topics of the topology that do not exist.
    """
    if group.topology_epoch < 0:
        return [
            note(
                "no-topology",
                "no member has sent the topology yet, so there are no tasks",
                "repeat this command; if the state stays the same, read the application's log",
            )
        ]
    reasons = _topic_reasons(group, missing)
    if not reasons and group.state == "NotReady":
        reasons.append(
            wrong(
                "topics-do-not-fit",
                "all topics of the topology exist, but their partitions do not fit it, so no tasks "
                "are assigned",
                "the application's log names the topics: copartitioned topics must have equal "
                "numbers of partitions, and internal topics the number that the topology needs",
            )
        )
    for member in group.members:
        if member.topology_epoch < group.topology_epoch:
            reasons.append(_stale(group, member))
    if group.state != "NotReady":
        reasons += _task_reasons(group)
    return reasons


def _topic_reasons(group: StreamsGroupDescription, missing: Collection[str]) -> list[Reason]:
    """Return reasons for missing topics. Without source topics no internal topic is created."""
    sources = {topic for each in group.subtopologies for topic in each.source_topics}
    reasons = [
        wrong(
            "source-topic-missing",
            f"the topology reads {topic}, but this topic does not exist, so no tasks are assigned",
            f"`{Advice.CREATE_TOPIC.text(topic=topic)}`, or check the name",
        )
        for topic in sorted(set(missing) & sources)
    ]
    internal = sorted(set(missing) - sources)
    if internal and not reasons:
        reasons.append(
            wrong(
                "internal-topic-missing",
                f"internal topics are missing, so no tasks are assigned: {listed(internal)}",
                "the coordinator creates them when a member sends a heartbeat; if they stay "
                "missing, the application's log has the error (its principal needs the right to "
                "create topics)",
            )
        )
    return reasons


def _stale(group: StreamsGroupDescription, member: StreamsMember) -> Reason:
    return wrong(
        "topology-stale",
        f"{member_name(member)} has topology epoch {member.topology_epoch}, the group has "
        f"{group.topology_epoch}: it gets no new tasks",
        "start it again with the current version of the application",
    )


def _task_reasons(group: StreamsGroupDescription) -> Iterator[Reason]:
    """Return reasons for members that do not have their target tasks, or have no tasks."""
    owners = {task: member for member in group.members for task in member.assignment.active}
    for member in group.members:
        waiting = [task for task in member.target.active if owners.get(task, member) != member]
        for owner in {owners[task].member_id: owners[task] for task in waiting}.values():
            held = [task for task in waiting if owners[task] == owner]
            yield note(
                "task-not-released",
                f"{member_name(member)} waits for {listed(map(_word, held))}, which "
                f"{member_name(owner)} has not released yet",
                "it releases them after it has committed and closed them, or is removed after "
                "max.poll.interval.ms",
            )
        if not waiting and 0 <= member.epoch < group.epoch:
            yield note(
                "member-behind",
                f"{member_name(member)} is at epoch {member.epoch} of {group.epoch}: "
                "it has not received or taken up its new tasks",
                "it receives them with its next heartbeat",
            )
    idle = [each for each in group.members if not _has_tasks(each)]
    if idle and group.state == "Stable":
        yield note(
            "members-idle",
            f"{len(idle)} of {len(group.members)} members have no tasks "
            f"({listed(map(member_name, idle))}): there are fewer tasks than members",
            "stop members, or add partitions to the source topics of a new application",
        )


def _has_tasks(member: StreamsMember) -> bool:
    return any(
        (
            member.assignment.active,
            member.assignment.standby,
            member.assignment.warmup,
            member.target.active,
            member.target.standby,
        )
    )


def _word(task: Task) -> str:
    return f"{task[0]}_{task[1]}"
