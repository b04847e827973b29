"""Group requests to a complete broker: the parts that depend on the connection and the cluster."""

from __future__ import annotations

from typing import Any

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.groups import (
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    MemberIdentity,
)
from barnabas.protocol.messages.metadata import FindCoordinatorRequest
from barnabas.protocol.messages.topics import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from barnabas.server.handlers.groups.members import MEMBERS_AT_ONCE, leave_group
from steps import counted
from unit.server.handlers.offset_requests import broker_with_groups, commit, committed
from unit.server.process.drain import begin_stop
from unit.server.simulated_broker import SimulatedBroker


def join_request(member: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def described(broker: SimulatedBroker) -> Any:
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    return broker.ask(request, 6).groups[0]


def test_a_member_is_known_by_its_client_id_and_host() -> None:
    broker = broker_with_groups()
    broker.client.send(join_request(), 3)
    broker.world.run_for(4_000)
    (member,) = described(broker).members
    assert (member.client_id, member.client_host) == ("client", "/client")
    assert member.member_id.startswith("client-")
    assert described(broker).authorized_operations == 3400


def test_pending_joins_are_answered_when_the_broker_stops() -> None:
    broker = broker_with_groups()
    waiting = broker.client.send(join_request(), 3)
    broker.world.run_for(1_000)
    assert not waiting
    stopped = begin_stop(broker)
    assert broker.world.run_until(lambda: bool(stopped and waiting))
    assert waiting[0][0].error_code == ErrorCode.NOT_COORDINATOR
    assert stopped[0] < 100


def test_groups_and_offsets_survive_a_kill() -> None:
    broker = broker_with_groups()
    broker.make_topic("t")
    assert commit(broker, 7) == 0
    broker.host.kill()
    broker.restart()
    broker.world.run_for(100)
    assert committed(broker) == 7
    assert described(broker).group_state == "Empty"


def test_the_partition_count_of_the_topic_overrides_the_configuration() -> None:
    broker = broker_with_groups()
    broker.make_topic("t")
    broker.settings["offsets.topic.num.partitions"] = "50"
    broker.stop()
    broker.restart()
    assert commit(broker, 7) == 0
    assert committed(broker) == 7


def test_more_partitions_of_the_offsets_topic_move_groups_without_errors() -> None:
    broker = broker_with_groups()
    broker.make_topic("t")
    topic = CreatePartitionsTopic(name="__consumer_offsets", count=11, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=1_000, validate_only=False)
    assert broker.ask(request, 3).results[0].error_code == 0
    broker.world.run_for(100)
    assert broker.ask(FindCoordinatorRequest(key="g"), 1).error_code == 0
    assert commit(broker, 7) == 0
    assert committed(broker) == 7


def test_offsets_are_deleted_with_their_topic() -> None:
    broker = broker_with_groups()
    broker.make_topic("t")
    commit(broker, 7)
    topics = [DeleteTopicState(name="t", topic_id=bytes(16))]
    request = DeleteTopicsRequest(topics=topics, timeout_ms=1_000)
    assert broker.ask(request, 6).responses[0].error_code == 0
    broker.world.run_for(100)
    assert committed(broker) == -1


def test_many_members_that_leave_at_once_are_all_answered_in_order() -> None:
    broker = broker_with_groups()
    member_id = broker.ask(join_request(), 4).member_id
    broker.client.send(join_request(member_id), 4)
    broker.world.run_for(5_000)
    assert len(described(broker).members) == 1
    names = [f"name-{number}" for number in range(2 * MEMBERS_AT_ONCE + 100)]
    names[MEMBERS_AT_ONCE] = member_id
    members = [MemberIdentity(member_id=name) for name in names]
    response = broker.ask(LeaveGroupRequest(group_id="g", members=members), 5)
    assert [each.member_id for each in response.members] == names
    assert {each.member_id for each in response.members if each.error_code == 0} == {member_id}
    assert described(broker).members == []


def test_an_error_of_the_group_is_answered_once_for_many_members() -> None:
    broker = broker_with_groups()
    members = [MemberIdentity(member_id="name")] * (MEMBERS_AT_ONCE + 1)
    response = broker.ask(LeaveGroupRequest(group_id="", members=members), 5)
    assert (response.error_code, response.members) == (ErrorCode.INVALID_GROUP_ID, [])


def test_many_members_leave_in_steps() -> None:
    class Context:
        """Runs the work of the handler to its end."""

        version = 5
        steps = 0
        response = None

        def in_slices(self, steps: Any) -> None:
            _, self.steps = counted(steps)

        def respond(self, response: Any) -> None:
            self.response = response

    broker = broker_with_groups()
    context: Any = Context()
    members = [MemberIdentity(member_id="name")] * (10 * MEMBERS_AT_ONCE)
    handle = leave_group(broker.node.broker.groups)
    handle(context, LeaveGroupRequest(group_id="g", members=members))
    assert context.steps == 10
    assert len(context.response.members) == 10 * MEMBERS_AT_ONCE
