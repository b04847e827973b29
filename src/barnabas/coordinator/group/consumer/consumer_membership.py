"""ConsumerGroupHeartbeat: joining, leaving, subscribing and reconciliation (KIP-848).

A heartbeat does three things. It creates or changes the member, and raises the group epoch if that
concerns other members. It computes the target assignment if that is older than the group epoch. It
moves the member a step towards its target.

Nearly all heartbeats of a stable group change nothing: `quiet_consumer_heartbeat` gives the same
response without looking for each possible change. A test compares both for random groups.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from barnabas.coordinator.group.consumer.consumer_records import (
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    regex_tombstone,
    target_epoch_record,
)
from barnabas.coordinator.group.consumer.consumer_shard import ConsumerTimers
from barnabas.coordinator.group.consumer.consumer_targets import (
    ConsumerTargets,
    Reconciliation,
    compute_targets,
    reconcile,
)
from barnabas.coordinator.group.consumer.conversion import LeavingMembers
from barnabas.coordinator.group.consumer.heartbeats import (
    find_dynamic,
    find_leaving,
    find_member,
    find_static,
)
from barnabas.coordinator.group.consumer.regexes import GroupRegexes, RegexChange
from barnabas.coordinator.group.group_base import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    RefusalError,
    check_instance,
)
from barnabas.coordinator.group.kind_configs import consumer_assignors
from barnabas.coordinator.group.topics import NOTHING_OWNED, Target
from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    MemberResponse,
    TopicPartitionsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.group.classic.classic_group import ClassicGroup
    from barnabas.coordinator.group.consumer.consumer_group import ConsumerGroup, ConsumerMember
    from barnabas.coordinator.group.consumer.consumer_shard import ConsumerShard
    from barnabas.coordinator.group.consumer.conversion import Downgrade, Upgrade
    from barnabas.coordinator.group.consumer.heartbeats import ConsumerHeartbeat
    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.protocol.messages.groups import LeaveGroupRequest

    Result = CoordinatorResult[ConsumerGroupHeartbeatResponse]

# Attribute lookup on the enum class costs 100 ns, as much as a function call.
_NONE = ErrorCode.NONE


def quiet_consumer_heartbeat(
    shard: ConsumerShard, timers: ConsumerTimers, heartbeat: ConsumerHeartbeat
) -> ConsumerGroupHeartbeatResponse | None:
    """Return the response to a heartbeat that changes nothing; None for other heartbeats."""
    request = heartbeat.request
    group_id, member_id, epoch = request.group_id, request.member_id, request.member_epoch
    group = shard.groups.find(group_id)
    if group is None:
        return None
    member = group.members.get(member_id)
    if (
        member is None
        or epoch != member.member_epoch
        or epoch <= JOIN_EPOCH
        or _has_changes(heartbeat, member)
        or not group.is_settled(member)
    ):
        return None
    timeout_ms, interval_ms = shard.session_and_interval_ms(group_id)
    timers.restart_session(group_id, member_id, timeout_ms)
    return ConsumerGroupHeartbeatResponse(
        error_code=_NONE,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=interval_ms,
    )


def _has_changes(heartbeat: ConsumerHeartbeat, member: ConsumerMember) -> bool:
    """Whether the request has fields of the member. They may be equal to the known ones."""
    request, client = heartbeat.request, heartbeat.client
    return (
        request.subscribed_topic_names is not None
        or request.rebalance_timeout_ms != -1
        or request.instance_id is not None
        or request.rack_id is not None
        or request.server_assignor is not None
        or request.subscribed_topic_regex is not None
        or member.classic is not None
        or client.client_id != member.client_id
        or client.host != member.client_host
    )


R = TypeVar("R")


class ConsumerMembership:
    """The heartbeats of one shard."""

    __slots__ = ("_regexes", "_shard", "_targets", "_upgrade", "downgrade", "timers")

    def __init__(self, shard: ConsumerShard, upgrade: Upgrade, downgrade: Downgrade) -> None:
        self._shard = shard
        self._upgrade = upgrade
        self.downgrade = downgrade
        self.timers = ConsumerTimers(
            shard.groups, shard.timers, lambda group, member: self.remove(group, [member], None)
        )
        self._regexes = GroupRegexes(shard)
        self._targets = ConsumerTargets(shard, self._assignor)

    def start_timers(self) -> None:
        """Start the timeouts of all members after the shard is loaded."""
        self.timers.start_all(self._shard.session_timeout_of)

    def heartbeat(self, heartbeat: ConsumerHeartbeat) -> Result:
        """Return the response and the records of a heartbeat whose fields are valid."""
        # 1. A heartbeat that changes nothing needs no further step.
        response = quiet_consumer_heartbeat(self._shard, self.timers, heartbeat)
        if response is not None:
            return CoordinatorResult(response)
        try:
            if heartbeat.request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
                return self._leave(heartbeat)
            return self._continue(heartbeat)
        except RefusalError as error:
            return CoordinatorResult(failed_heartbeat(error.error, error.message))

    # Joining and continuing.

    def _continue(self, heartbeat: ConsumerHeartbeat) -> Result:
        request = heartbeat.request
        # 2. Find or create the group.
        group = self._shard.find_or_create(
            request.group_id,
            heartbeat.records,
            partial(self._converted, heartbeat.records),
            is_joining=request.member_epoch == JOIN_EPOCH,
        )
        member_id = request.member_id or self._shard.new_member_id()
        self._shard.check_size(group, member_id, request.instance_id)
        # 3. Find or create the member, and give it the fields of the request.
        find = find_dynamic if request.instance_id is None else find_static
        member = find(group, heartbeat, member_id)
        updated = heartbeat.updated(member)
        # 4. Raise the group epoch if the change concerns other members.
        group_epoch, has_new_subscription = self.update(group, heartbeat, (member, updated))
        # 5. Compute the target assignment if it is older than the group epoch.
        epoch, target = self.update_target(group, heartbeat, group_epoch, (member, updated))
        # 6. Move the member a step towards its target.
        updated = self.reconcile(group, heartbeat, updated, epoch, target, has_new_subscription)
        # 7. Restart the session, and respond.
        timeout_ms, interval_ms = self._shard.session_and_interval_ms(group.group_id)
        self.timers.restart_session(group.group_id, member_id, timeout_ms)
        response = ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=member_id,
            member_epoch=updated.member_epoch,
            heartbeat_interval_ms=interval_ms,
        )
        is_joining = request.member_epoch == JOIN_EPOCH
        if (
            is_joining
            or heartbeat.is_full()
            or (updated is not member and updated.assigned != member.assigned)
        ):
            response.assignment = Assignment(
                topic_partitions=[
                    TopicPartitionsResponse(topic_id=topic_id, partitions=sorted(indexes))
                    for topic_id, indexes in sorted(updated.assigned.items())
                ]
            )
        return CoordinatorResult(response, heartbeat.records)

    def _converted(self, records: list[CoordinatorRecord], classic: ClassicGroup) -> ConsumerGroup:
        """Return the consumer group of a classic group with members. Raises RefusalError."""
        group = self._upgrade.convert(classic, records)
        # If the records are not written, the group stays classic, and these timers do nothing.
        for member in group.members.values():
            # The group may have been a consumer group before.
            self.timers.end(group.group_id, member.member_id)
            timeout_ms = self._shard.session_timeout_of(group, member)
            self.timers.restart_session(group.group_id, member.member_id, timeout_ms)
        return group

    def update(
        self,
        group: ConsumerGroup,
        heartbeat: ConsumerHeartbeat,
        change: tuple[ConsumerMember, ConsumerMember],
    ) -> tuple[int, bool]:
        """Append the records of a new or changed member. Raises RefusalError.

        Returns:
            The group epoch, and whether the subscription of the member has changed.
        """
        member, updated = change
        if updated is not member:
            if updated != member:
                self._shard.check_memory(group, group.growth_by(updated))
                heartbeat.records.append(member_record(group.group_id, updated))
        elif not group.regexes() and not group.needs_refresh:
            # The heartbeat has only an epoch.
            return group.group_epoch, False
        has_new_names = updated.subscribed_topic_names != member.subscribed_topic_names
        regex_change = self._regexes.update(group, member, updated, heartbeat)
        has_new_assignor = updated.server_assignor != member.server_assignor and (
            self._assignor(group) != self._assignor(group, member, updated)
        )
        is_bumped = has_new_names or has_new_assignor or regex_change is RegexChange.RESOLVED
        group_epoch = group.group_epoch
        if is_bumped or group.needs_refresh:
            group_epoch = self._update_epoch(group, heartbeat, change, is_bumped)
        return group_epoch, has_new_names or regex_change is not RegexChange.NONE

    def _assignor(
        self,
        group: ConsumerGroup,
        before: ConsumerMember | None = None,
        after: ConsumerMember | None = None,
    ) -> str:
        # A member may prefer an assignor that was removed from this broker's configuration.
        known = consumer_assignors(self._shard.config)
        preferred = group.preferred_assignor(before, after)
        return preferred if preferred in known else known[0]

    def _update_epoch(
        self,
        group: ConsumerGroup,
        heartbeat: ConsumerHeartbeat,
        change: tuple[ConsumerMember, ConsumerMember],
        is_bumped: bool,
    ) -> int:
        """Return the group epoch. Raise it if `is_bumped`, or if the subscribed topics changed."""
        names = group.subscribed_names_with(*change)
        metadata_hash = self._shard.hashes.of_topics(names)
        epoch = group.group_epoch
        if is_bumped or metadata_hash != group.metadata_hash:
            epoch += 1
            heartbeat.records.append(epoch_record(group.group_id, epoch, metadata_hash))
            self._shard.metrics.consumer_rebalances += 1
        group.compared_epoch = epoch
        if group.has_partition_metadata:
            heartbeat.records.append(partition_metadata_tombstone(group.group_id))
        return epoch

    def update_target(
        self,
        group: ConsumerGroup,
        heartbeat: ConsumerHeartbeat,
        group_epoch: int,
        change: tuple[ConsumerMember, ConsumerMember],
    ) -> tuple[int, Target]:
        """Return epoch and target assignment of the member. Compute them if they are outdated."""
        before, after = change
        current = group.target_of(after.member_id, after.instance_id)
        if group.assignment_epoch >= group_epoch:
            return group.assignment_epoch, current
        interval_ms = self._shard.assignment_interval_ms(group.group_id)
        if self._targets.must_wait(group, interval_ms):
            return group.assignment_epoch, current
        if self._targets.is_large(group, before, after):
            self._targets.start(group.group_id, self._targets.assign)
            return group.assignment_epoch, current
        assignor = self._assignor(group, before, after)
        targets, differing = compute_targets(group, after, assignor, self._shard.topics)
        heartbeat.records += self._targets.records_of(group.group_id, group_epoch, differing)
        return group_epoch, targets[after.member_id]

    def reconcile(
        self,
        group: ConsumerGroup,
        heartbeat: ConsumerHeartbeat,
        member: ConsumerMember,
        epoch: int,
        target: Target,
        has_new_subscription: bool,
    ) -> ConsumerMember:
        """Return the member after its next step towards the target.

        Args:
            group: the group.
            heartbeat: the request, whose records get those of the step.
            member: the member, with the fields of the request.
            epoch: the epoch of the target.
            target: the partitions of the target.
            has_new_subscription: whether the request has changed the subscription.
        """
        if not has_new_subscription and member.is_reconciled_to(epoch):
            return member
        names, name_of = group.topics_of(member), self._shard.topics.topic_name
        after = reconcile(
            member,
            Reconciliation(
                epoch,
                target,
                {each for each in (*member.assigned, *target) if name_of(each) in names},
                has_new_subscription,
                group.is_owned,
                heartbeat.reported(),
            ),
        )
        if after is None:
            raise RefusalError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The state of member {member.member_id} is not known to this broker. Give up all "
                "partitions and join again.",
            )
        if after != member:
            _check_owners(group, member, after)
            heartbeat.records.append(current_record(group.group_id, after))
            self.timers.update_rebalance(group.group_id, after)
        return after

    # Leaving.

    def _leave(self, heartbeat: ConsumerHeartbeat) -> Result:
        request = heartbeat.request
        group = self._shard.groups.require(request.group_id)
        response = ConsumerGroupHeartbeatResponse(
            error_code=ErrorCode.NONE,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            heartbeat_interval_ms=0,
        )
        if request.instance_id is None:
            member = find_member(group, request.member_id)
        else:
            known = group.static_member(request.instance_id)
            member = check_instance(known, request.member_id, request.instance_id)
            if request.member_epoch == STATIC_LEAVE_EPOCH:
                return CoordinatorResult(response, [_static_leave(group, member)])
        return self.remove(group, [member], response)

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest
    ) -> CoordinatorResult[list[MemberResponse]]:
        """Handle LeaveGroup: remove members by member id or (for administrators) instance id."""
        responses: list[MemberResponse] = []
        removed: dict[str, ConsumerMember] = {}
        for each in request.members:
            error = ErrorCode.NONE
            try:
                member = find_leaving(group, each.member_id, each.group_instance_id)
                removed[member.member_id] = member
            except RefusalError as refusal:
                error = refusal.error
            responses.append(
                MemberResponse(
                    member_id=each.member_id,
                    group_instance_id=each.group_instance_id,
                    error_code=error,
                )
            )
        if not removed:
            return CoordinatorResult(responses)
        return self.remove(group, list(removed.values()), responses)

    def remove(
        self, group: ConsumerGroup, members: list[ConsumerMember], response: R
    ) -> CoordinatorResult[R]:
        """Remove members. If only classic members remain, the group becomes a classic group."""
        departure = LeavingMembers(members)
        if self.downgrade.is_due(group, departure):
            records: list[CoordinatorRecord] = []
            on_converted = self.convert_to_classic(group, records, departure)
            return CoordinatorResult(response, records, is_replayed=False, on_appended=on_converted)
        member_ids = [each.member_id for each in members]
        on_appended = partial(self.timers.end_removed, group.group_id, member_ids)
        return CoordinatorResult(response, self._fence(group, members), on_appended=on_appended)

    def convert_to_classic(
        self, group: ConsumerGroup, records: list[CoordinatorRecord], departure: LeavingMembers
    ) -> Callable[[ErrorCode], None]:
        """Convert the group, and append the records, which are not replayed.

        Returns:
            A function to call with the result of the append.
        """
        on_converted = self.downgrade.convert(group, records, departure)

        def on_appended(error: ErrorCode) -> None:
            on_converted(error)
            if self._shard.groups.find(group.group_id) is None:
                for member_id in group.members:
                    self.timers.end(group.group_id, member_id)

        return on_appended

    def _fence(
        self, group: ConsumerGroup, members: list[ConsumerMember]
    ) -> list[CoordinatorRecord]:
        """Return the records that remove members, and that raise the group epoch."""
        group_id = group.group_id
        records: list[CoordinatorRecord] = []
        for member in members:
            records += member_tombstones(group_id, member.member_id)
        regexes = Counter(each.subscribed_topic_regex for each in members)
        records += [
            regex_tombstone(group_id, regex)
            for regex, count in regexes.items()
            if regex and group.regex_subscribers(regex) == count
        ]
        names = group.subscribed_names_without(members)
        epoch = group.group_epoch + 1
        records.append(epoch_record(group_id, epoch, self._shard.hashes.of_topics(names)))
        if len(group.members) == len(members):
            # An empty group has nothing to assign.
            records.append(target_epoch_record(group_id, epoch, 0))
        return records


def _static_leave(group: ConsumerGroup, member: ConsumerMember) -> CoordinatorRecord:
    """Return the record of a static member that may come back. It keeps its partitions."""
    left = replace(
        member,
        member_epoch=STATIC_LEAVE_EPOCH,
        pending_revocation=NOTHING_OWNED,
        assigned={
            topic_id: dict.fromkeys(indexes, 0) for topic_id, indexes in member.assigned.items()
        },
    )
    return current_record(group.group_id, left)


def failed_heartbeat(error: ErrorCode, message: str | None) -> ConsumerGroupHeartbeatResponse:
    """Return the response with an error."""
    return ConsumerGroupHeartbeatResponse(
        error_code=error, error_message=message, member_epoch=0, heartbeat_interval_ms=0
    )


def _check_owners(group: ConsumerGroup, before: ConsumerMember, after: ConsumerMember) -> None:
    """Assert that a member gets no partition that another member owns."""
    for topic_id, indexes in after.assigned.items():
        own = before.assigned.get(topic_id, {}).keys()
        pending = before.pending_revocation.get(topic_id, {}).keys()
        for index in indexes.keys() - own - pending:
            assert not group.is_owned(topic_id, index), (
                f"OneOwnerPerPartition: group={group.group_id} member={after.member_id} "
                f"member_epoch={after.member_epoch} topic={topic_id.hex()} partition={index}"
            )
