"""ShareGroupHeartbeat: joining, leaving, subscribing and the assignment (KIP-932).

A heartbeat does four things. It creates or changes the member, and raises the group epoch if that
concerns other members. It computes the target assignment if that is older than the group epoch. It
gives the member its target. It requests state for new partitions of the subscribed topics.

Nearly all heartbeats of a stable group change nothing: `quiet_share_heartbeat` gives the same
response without looking for each possible change. A test compares both for random groups.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from barnabas.coordinator.group.classic.classic_membership import ClientIdentity  # noqa: TC001 - field type
from barnabas.coordinator.group.group_base import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    RefusalError,
    check_ids,
    check_topic_names,
    fenced_epoch,
    invalid_request,
    unknown_member,
)
from barnabas.coordinator.group.group_kind import MemberTimers
from barnabas.coordinator.group.share.share_group import ShareGroup, ShareMember
from barnabas.coordinator.group.share.share_records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    target_epoch_record,
    target_record,
)
from barnabas.coordinator.group.share.simple_assignor import assign_simply
from barnabas.coordinator.group.targets import (
    STEP,
    AssignorInput,
    GroupCopy,
    MemberInput,
    SlicedTargets,
    differing,
    is_large,
)
from barnabas.coordinator.group.topics import NOTHING, Target
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.initialize_share_group_state import InitializeShareGroupStateRequest  # noqa: TC001 - field type
from barnabas.protocol.messages.share_consumers import (
    Assignment,
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from barnabas.waiting.steps import run_to_end

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from barnabas.coordinator.group.share.share_group import ShareShard
    from barnabas.coordinator.group.share.share_state import StateChanges
    from barnabas.coordinator.group.targets import Assigning
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord

    _Copy: TypeAlias = GroupCopy[ShareGroup, ShareMember, Target]


# The name of the only assignor.
ASSIGNOR = "simple"
# A heartbeat computes the assignment of a group below this limit at once (see `is_large`). That
# takes a few milliseconds.
AT_ONCE_MAX = 1_000


class ShareTargets(SlicedTargets[ShareGroup, ShareMember, Target]):
    """The computations of the groups of one shard; at most one per group runs in slices."""

    __slots__ = ("_shard",)

    def __init__(self, shard: ShareShard) -> None:
        self._shard = shard
        super().__init__(
            shard.groups, shard.timers, shard.clock, target_record, target_epoch_record
        )

    def is_large(self, group: ShareGroup, changed: ShareMember) -> bool:
        """Whether the target assignment must be computed in slices.

        Args:
            group: the group.
            changed: a member that is new or has changed.
        """
        before = group.members.get(changed.member_id)
        names = partial(group.subscribed_names_with, before, changed)
        return is_large(1 + len(group.members), names, self._shard.topics, AT_ONCE_MAX)

    def compute(
        self, group: ShareGroup, epoch: int, changed: ShareMember
    ) -> tuple[Mapping[str, Target], Mapping[str, Target]]:
        """Return the new targets of all members, and of those for which it changed.

        Args:
            group: the group.
            epoch: the group epoch after the heartbeat.
            changed: a member that is new or has changed.
        """
        members = {**group.members, changed.member_id: changed}
        targets = run_to_end(self.assign(GroupCopy(group, epoch, members, group.targets)))
        return targets, differing(targets, group.targets)

    def assign(self, copy: _Copy) -> Assigning:
        """Return the new targets. Only partitions with initialized state are assigned. Yields."""
        topics, state_topics = self._shard.topics, copy.group.state_topics
        initialized = {} if state_topics is None else state_topics.initialized
        topic_ids: dict[frozenset[str], frozenset[bytes]] = {}
        counts: dict[bytes, int] = {}
        inputs: dict[str, MemberInput] = {}
        for position, (member_id, member) in enumerate(copy.members.items()):
            names = member.subscribed_topic_names
            if names not in topic_ids:
                found = {topics.topic_id(name): name for name in names}
                existing = {each: name for each, name in found.items() if each is not None}
                counts |= {each: topics.partition_count(name) for each, name in existing.items()}
                topic_ids[names] = frozenset(existing)
            inputs[member_id] = MemberInput(topic_ids[names], copy.known.get(member_id, NOTHING))
            if position % STEP == STEP - 1:
                yield
        assignable = {each: topic.partitions for each, topic in initialized.items()}
        given = AssignorInput(inputs, counts, len(topic_ids) <= 1, assignable)
        return (yield from assign_simply(given))


# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


def quiet_share_heartbeat(
    shard: ShareShard,
    timers: MemberTimers[ShareGroup],
    request: ShareGroupHeartbeatRequest,
    client: ClientIdentity,
) -> ShareGroupHeartbeatResponse | None:
    """Return the response to a heartbeat that changes nothing; None for other heartbeats."""
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    group = shard.groups.find(group_id)
    if group is None:
        return None
    member = group.members.get(member_id)
    if (
        member is None
        or epoch != member.member_epoch
        or epoch <= JOIN_EPOCH
        or request.subscribed_topic_names is not None
        or request.rack_id is not None
        or client.client_id != member.client_id
        or client.host != member.client_host
        or not group.is_settled(member)
    ):
        return None
    timeout_ms, interval_ms = shard.session_and_interval_ms(group_id)
    timers.restart_session(group_id, member_id, timeout_ms)
    return ShareGroupHeartbeatResponse(
        error_code=_NONE,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
    )


T = TypeVar("T")


class ShareHeartbeat(msgspec.Struct):
    """The response to a heartbeat, and the request that the coordinator sends after it."""

    response: ShareGroupHeartbeatResponse
    initialization: InitializeShareGroupStateRequest | None = None


class _Heartbeat(msgspec.Struct):
    """One heartbeat in progress."""

    request: ShareGroupHeartbeatRequest
    client: ClientIdentity
    records: list[CoordinatorRecord] = msgspec.field(default_factory=list)


class ShareMembership:
    """The heartbeats of one shard."""

    __slots__ = ("_shard", "_state", "_targets", "timers")

    def __init__(self, shard: ShareShard, state: StateChanges) -> None:
        self._shard = shard
        self._state = state
        self._targets = ShareTargets(shard)
        self.timers = MemberTimers(
            shard.groups, shard.timers, lambda group, member: self.remove(group, member, None)
        )

    def start_timers(self) -> None:
        """Start the session timeouts of all members after the shard is loaded."""
        self.timers.start_all(lambda group, _: self._shard.session_timeout_ms(group.group_id))

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: ClientIdentity
    ) -> CoordinatorResult[ShareHeartbeat]:
        """Return the response and the records of a heartbeat whose fields are valid."""
        # 1. A heartbeat that changes nothing needs no further step.
        response = quiet_share_heartbeat(self._shard, self.timers, request, client)
        if response is not None:
            return CoordinatorResult(ShareHeartbeat(response))
        try:
            if request.member_epoch == LEAVE_EPOCH:
                return self._leave(request)
            return self._continue(_Heartbeat(request, client))
        except RefusalError as error:
            failed = failed_share_heartbeat(error.error, error.message)
            return CoordinatorResult(ShareHeartbeat(failed))

    # Joining and continuing.

    def _continue(self, heartbeat: _Heartbeat) -> CoordinatorResult[ShareHeartbeat]:
        request = heartbeat.request
        is_joining = request.member_epoch == JOIN_EPOCH
        # 2. Find or create the group.
        group = self._shard.find_or_create(
            request.group_id, heartbeat.records, is_joining=is_joining
        )
        self._shard.check_size(group, request.member_id, None)
        # 3. Find or create the member, and give it the fields of the request.
        member = _find_member(group, request)
        updated = _updated(member, heartbeat)
        if updated is not member and updated != member:
            self._shard.check_memory(group, group.growth_by(updated))
            heartbeat.records.append(member_record(group.group_id, updated))
        # 4. Raise the group epoch if the change concerns other members.
        group_epoch, is_bumped, names = self._update_epoch(group, heartbeat, member, updated)
        # 5. Compute the target assignment if it is older than the group epoch.
        epoch, target = self._update_target(group, heartbeat, group_epoch, updated)
        # 6. Give the member its target.
        if is_bumped or updated.member_epoch != epoch:
            updated = self._assign(group, heartbeat, updated, (epoch, target))
        # 7. Restart the session, and respond.
        timeout_ms, interval_ms = self._shard.session_and_interval_ms(group.group_id)
        self.timers.restart_session(group.group_id, member.member_id, timeout_ms)
        response = ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=updated.member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=interval_ms,
        )
        is_full = request.subscribed_topic_names is not None
        if is_joining or is_full or updated.assigned != member.assigned:
            response.assignment = _assignment(updated.assigned)
        records, initialization = self._state.initialize_missing(group, group_epoch, names)
        heartbeat.records += records
        return CoordinatorResult(ShareHeartbeat(response, initialization), heartbeat.records)

    def _update_epoch(
        self,
        group: ShareGroup,
        heartbeat: _Heartbeat,
        member: ShareMember,
        updated: ShareMember,
    ) -> tuple[int, bool, set[str] | None]:
        """Return the group epoch, whether it is new, and the subscribed topics if they may differ.

        Subscriptions, topics and newly initialized partitions raise it.
        """
        epoch = group.group_epoch
        is_bumped = updated.subscribed_topic_names != member.subscribed_topic_names
        if group.assignment_epoch >= epoch:
            is_bumped |= group.has_unassigned_state()
        if not is_bumped and not group.needs_refresh:
            return epoch, False, None
        names = group.subscribed_names_with(member, updated)
        metadata_hash = self._shard.hashes.of_topics(names)
        if is_bumped or metadata_hash != group.metadata_hash:
            is_bumped = True
            epoch += 1
            heartbeat.records.append(epoch_record(group.group_id, epoch, metadata_hash))
            self._shard.metrics.share_rebalances += 1
        group.compared_epoch = epoch
        return epoch, is_bumped, names

    def _update_target(
        self, group: ShareGroup, heartbeat: _Heartbeat, group_epoch: int, updated: ShareMember
    ) -> tuple[int, Target]:
        """Return epoch and target assignment of the member. Compute them if they are outdated."""
        if group.assignment_epoch >= group_epoch:
            return group.assignment_epoch, group.target_of(updated.member_id)
        interval_ms = self._shard.assignment_interval_ms(group.group_id)
        if self._targets.must_wait(group, interval_ms):
            return group.assignment_epoch, group.target_of(updated.member_id)
        if self._targets.is_large(group, updated):
            self._targets.start(group.group_id, self._targets.assign)
            return group.assignment_epoch, group.target_of(updated.member_id)
        targets, differing = self._targets.compute(group, group_epoch, updated)
        heartbeat.records += self._targets.records_of(group.group_id, group_epoch, differing)
        return group_epoch, targets[updated.member_id]

    def _assign(
        self,
        group: ShareGroup,
        heartbeat: _Heartbeat,
        member: ShareMember,
        target: tuple[int, Target],
    ) -> ShareMember:
        """Return the member with its target (epoch, partitions of topics that it subscribes to)."""
        epoch, partitions = target
        names, name_of = member.subscribed_topic_names, self._shard.topics.topic_name
        assigned = {each: own for each, own in partitions.items() if name_of(each) in names}
        after = replace(member, assigned=assigned)
        if epoch != member.member_epoch:
            after = replace(after, member_epoch=epoch, previous_member_epoch=member.member_epoch)
        if after != member:
            heartbeat.records.append(current_record(group.group_id, after))
        return after

    # Leaving.

    def _leave(self, request: ShareGroupHeartbeatRequest) -> CoordinatorResult[ShareHeartbeat]:
        group = self._shard.groups.require(request.group_id)
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_member(group, request.member_id)
        response = ShareGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        return self.remove(group, member, ShareHeartbeat(response))

    def remove(self, group: ShareGroup, member: ShareMember, response: T) -> CoordinatorResult[T]:
        """Remove a member."""
        on_appended = partial(self.timers.end_removed, group.group_id, [member.member_id])
        return CoordinatorResult(response, self._fence(group, member), on_appended=on_appended)

    def _fence(self, group: ShareGroup, member: ShareMember) -> list[CoordinatorRecord]:
        """Return the records that remove a member, and that raise the group epoch."""
        names = group.subscribed_names_with(member, None)
        epoch = group.group_epoch + 1
        records = [
            *member_tombstones(group.group_id, member.member_id),
            epoch_record(group.group_id, epoch, self._shard.hashes.of_topics(names)),
        ]
        if len(group.members) == 1:
            # An empty group has nothing to assign.
            records.append(target_epoch_record(group.group_id, epoch, 0))
        return records


def check_share_heartbeat(request: ShareGroupHeartbeatRequest) -> None:
    """Check the fields whose validity does not depend on the group. Raises RefusalError."""
    check_ids(request.member_id, request.group_id, None, request.rack_id)
    if request.subscribed_topic_names is not None:
        check_topic_names(request.subscribed_topic_names)
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise invalid_request("The heartbeat that joins needs topic names.")
    if request.member_epoch < LEAVE_EPOCH:
        raise invalid_request(f"The member epoch {request.member_epoch} is below -1.")


def _find_member(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> ShareMember:
    """Return the known or new member of a request. Raises RefusalError.

    The previous epoch is accepted, because the client may have missed the last response.
    """
    epoch = request.member_epoch
    member = group.members.get(request.member_id)
    if member is None:
        if epoch != JOIN_EPOCH:
            raise unknown_member(group, request.member_id)
        return ShareMember(request.member_id)
    if epoch in (JOIN_EPOCH, member.member_epoch, member.previous_member_epoch):
        return member
    raise fenced_epoch(member.member_id, epoch, member.member_epoch)


def _updated(member: ShareMember, heartbeat: _Heartbeat) -> ShareMember:
    """Return the member with the fields that the request has."""
    request, client = heartbeat.request, heartbeat.client
    after = member
    if client.client_id != member.client_id or client.host != member.client_host:
        after = replace(after, client_id=client.client_id, client_host=client.host)
    if request.rack_id is not None:
        after = replace(after, rack_id=request.rack_id)
    if request.subscribed_topic_names is not None:
        names = frozenset(request.subscribed_topic_names)
        after = replace(after, subscribed_topic_names=names)
    return after


def _assignment(assigned: Target) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
            for topic_id, indexes in sorted(assigned.items())
        ]
    )


def failed_share_heartbeat(error: ErrorCode, message: str | None) -> ShareGroupHeartbeatResponse:
    """Return the response with an error."""
    return ShareGroupHeartbeatResponse(
        error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )
