"""Members of classic groups in a coordinator's virtual time."""

from __future__ import annotations

from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.messages.committed_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.protocol.messages.groups import (
    DeleteGroupsResponse,
    DescribedGroup,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    ListGroupsRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from barnabas.protocol.records.classic_groups import ConsumerProtocolSubscription
from steps import finish
from unit.coordinator.coordinator_world import CoordinatorWorld

SESSION_MS = 10_000
REBALANCE_MS = 20_000
DELAY_MS = 3_000


def subscription(*topics: str) -> bytes:
    return b"\x00\x00" + encode_bytes(ConsumerProtocolSubscription(topics=list(topics)), 0)


class Answers(list):
    """The responses to one request: at most one."""

    @property
    def one(self):
        (answer,) = self
        return answer

    @property
    def error(self) -> int:
        return self.one.error_code


class MembersWorld(CoordinatorWorld):
    """A loaded coordinator, and short calls for its requests."""

    def __init__(self, replicas: tuple[int, ...] = (1,), **config: str | int) -> None:
        super().__init__(replicas, **config)
        self.load()

    def join(self, member: str = "", version: int = 9, **options) -> Answers:
        answers: list[JoinGroupResponse] = Answers()
        protocols = options.pop("protocols", {"range": subscription("flights")})
        request = JoinGroupRequest(
            group_id=options.pop("group", "g"),
            session_timeout_ms=options.pop("session_ms", SESSION_MS),
            rebalance_timeout_ms=options.pop("rebalance_ms", REBALANCE_MS),
            member_id=member,
            group_instance_id=options.pop("instance", None),
            protocol_type=options.pop("protocol_type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols.items()
            ],
            reason=options.pop("reason", None),
        )
        client_id = options.pop("client_id", "client")
        assert not options, options
        client = ClientIdentity(client_id, "/127.0.0.1")
        self.coordinator.members.join(request, version, client, answers.append)
        return answers

    def sync(self, member: str, generation: int, version: int = 5, **options) -> Answers:
        answers: list[SyncGroupResponse] = Answers()
        request = SyncGroupRequest(
            group_id=options.pop("group", "g"),
            generation_id=generation,
            member_id=member,
            group_instance_id=options.pop("instance", None),
            protocol_type=options.pop("protocol_type", "consumer"),
            protocol_name=options.pop("protocol_name", "range"),
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assignment)
                for name, assignment in options.pop("assign", {}).items()
            ],
        )
        assert not options, options
        self.coordinator.members.sync(request, version, answers.append)
        return answers

    def heartbeat(
        self, member: str, generation: int, group: str = "g", instance: str | None = None
    ) -> int:
        answers: list[HeartbeatResponse] = Answers()
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
        )
        self.coordinator.members.heartbeat(request, answers.append)
        return answers.error

    def leave(self, *members: str | tuple[str, str], version: int = 5, group: str = "g") -> Answers:
        answers: list[LeaveGroupResponse] = Answers()
        identities = [
            MemberIdentity(member_id=each)
            if isinstance(each, str)
            else MemberIdentity(member_id=each[0], group_instance_id=each[1])
            for each in members
        ]
        request = LeaveGroupRequest(group_id=group)
        if version < 3:
            request.member_id = identities[0].member_id
        else:
            request.members = identities
        self.coordinator.members.leave(request, version, answers.append)
        return answers

    def new_id(self, **options) -> str:
        """Return a member id that the coordinator issued."""
        return self.join(**options).one.member_id

    def run_for(self, ms: float) -> None:
        self.replicas.world.run_for(ms)

    def begin(self, count: int = 1, **options) -> list[JoinGroupResponse]:
        """Start the first generation of a group of dynamic members. The first one leads."""
        waiting = [self.join(self.new_id(**options), **options) for _ in range(count)]
        # Each new member extends the initial delay.
        self.run_for(2 * DELAY_MS + 10)
        return [each.one for each in waiting]

    def stable(self, count: int = 1, **options) -> list[str]:
        """Make a stable group. Return the member ids, beginning with the leader's."""
        joined = self.begin(count, **options)
        ids = [each.member_id for each in joined]
        self.sync_all(joined[0].generation_id, ids, group=options.get("group", "g"))
        return ids

    def sync_all(self, generation: int, ids: list[str], **options) -> None:
        """Send SyncGroup for all members. The leader, which is the first one, sends it last."""
        waiting = [self.sync(each, generation, **options) for each in ids[1:]]
        assign = {each: b"for " + each.encode() for each in ids}
        waiting.append(self.sync(ids[0], generation, assign=assign, **options))
        assert [each.error for each in waiting] == [0] * len(ids)

    def keep_alive(self, ms: float, generation: int, *members: str) -> None:
        """Let time pass, in which these members send heartbeats."""
        for _ in range(int(ms / 1_000)):
            self.run_for(1_000)
            for each in members:
                self.heartbeat(each, generation)

    def describe(self, group: str = "g", version: int = 6) -> DescribedGroup:
        return self.coordinator.groups.describe(group, version)

    def list_groups(self, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list:
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(types))
        response = finish(self.coordinator.groups.list_groups(request))
        assert response.error_code == 0
        return [
            (each.group_id, each.protocol_type, each.group_state, each.group_type)
            for each in response.groups
        ]

    def delete(self, *groups: str) -> list[int]:
        answers: list[DeleteGroupsResponse] = Answers()
        finish(self.coordinator.groups.delete(list(groups), answers.append))
        return [each.error_code for each in answers.one.results]

    def delete_offsets(self, *partitions: int, topic: str = "flights", group: str = "g"):
        answers: list[OffsetDeleteResponse] = Answers()
        topics = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[OffsetDeleteRequestPartition(partition_index=p) for p in partitions],
            )
        ]
        request = OffsetDeleteRequest(group_id=group, topics=topics)
        finish(
            self.coordinator.groups.delete_offsets(
                request, lambda steps: answers.append(finish(steps))
            )
        )
        if answers.error:
            return answers.error
        return [each.error_code for topic in answers.one.topics for each in topic.partitions]

    @property
    def shard(self):
        (shard,) = self.coordinator.runtime.active_shards()
        return shard

    @property
    def group(self):
        return self.shard.groups.find("g")

    def fail_over(self) -> None:
        """Load the same log in a new coordinator."""
        self.coordinator.runtime.on_resigned(0)
        self.coordinator = self.new_coordinator()
        self.load(1)
