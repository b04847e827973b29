"""Invariants of a group, whose members send any requests in any order, over failovers.

Every request is answered once (EveryRequestAnsweredOnce). Each member gets only the assignment that
the leader of its generation made for it (OneOwnerPerPartition). Generations increase. A new
coordinator knows the responses of the earlier one to members. A group without heartbeats becomes
empty.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings, strategies as st

from barnabas.coordinator.group.classic.classic_group import ClassicGroup, GroupState
from barnabas.protocol.errors import ErrorCode
from unit.coordinator.members_world import SESSION_MS, MembersWorld, subscription

CLIENTS = 5
PROTOCOLS = (
    {"range": subscription("flights")},
    {"range": subscription("flights"), "sticky": subscription("flights")},
    {"sticky": subscription("trains"), "range": subscription("trains")},
    {"other": b""},
)
NEVER_FATAL = {
    ErrorCode.NONE,
    ErrorCode.MEMBER_ID_REQUIRED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_MAX_SIZE_REACHED,
    ErrorCode.NOT_COORDINATOR,
}

clients = st.integers(0, CLIENTS - 1)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("join"), clients, st.integers(0, len(PROTOCOLS) - 1)),
        st.tuples(st.just("sync"), clients, st.just(0)),
        st.tuples(st.just("beat"), clients, st.just(0)),
        st.tuples(st.just("leave"), clients, st.just(0)),
        st.tuples(st.just("forget"), clients, st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.sampled_from([1, 100, 3_100, 9_000, 21_000])),
        st.tuples(st.just("fail over"), st.just(0), st.just(0)),
        st.tuples(st.just("all join"), clients, st.just(0)),
        st.tuples(st.just("all sync"), st.just(0), st.just(0)),
        st.tuples(st.just("settle"), clients, st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


class Client:
    """The state of one client. The first two clients are static members."""

    def __init__(self, number: int) -> None:
        self.instance = f"instance-{number}" if number < 2 else None
        self.member = ""
        self.generation = -1
        self.is_leader = False
        self.told: list[str] = []


class Story:
    """One run."""

    def __init__(self) -> None:
        self.world = MembersWorld(group_max_size=4)
        self.clients = [Client(number) for number in range(CLIENTS)]
        # The responses to each request.
        self.asked: list[list[Any]] = []
        self.joins: list[tuple[Client, list[Any]]] = []
        self.syncs: list[tuple[Client, int, list[Any]]] = []
        # The assignments of leaders, by generation.
        self.assigned: dict[int, list[dict[str, bytes]]] = {}
        self.generation = 0

    def join(self, client: Client, kind: int) -> None:
        answers = self.world.join(
            client.member, instance=client.instance, protocols=PROTOCOLS[kind]
        )
        self.asked.append(answers)
        self.joins.append((client, answers))

    def sync(self, client: Client) -> None:
        assign = {}
        if client.is_leader:
            number = len(self.assigned.get(client.generation, []))
            assign = {each: f"{each} {number}".encode() for each in client.told}
            self.assigned.setdefault(client.generation, []).append(assign)
        answers = self.world.sync(
            client.member,
            client.generation,
            version=4,
            instance=client.instance,
            protocol_type=None,
            protocol_name=None,
            assign=assign,
        )
        self.asked.append(answers)
        self.syncs.append((client, client.generation, answers))

    def step(self, what: str, number: int, value: int) -> None:
        client = self.clients[number]
        match what:
            case "join":
                self.join(client, value)
            case "all join":
                for each in self.clients[: number + 1]:
                    self.join(each, 0)
                    self.take_answers()
                    if each.generation < 0 and each.instance is None:
                        self.join(each, 0)
            case "sync":
                self.sync(client)
            case "settle":
                # Do what well-behaved clients do: this often makes a stable group.
                for each in ("all join", "wait", "all join", "all sync"):
                    self.step(each, number, 7_000)
                    self.take_answers()
            case "all sync":
                for each in self.clients:
                    self.sync(each)
            case "beat":
                self.world.heartbeat(client.member, client.generation, instance=client.instance)
            case "leave":
                self.world.leave((client.member, client.instance))
            case "forget":
                client.member, client.generation = "", -1
            case "wait":
                self.world.run_for(value)
            case _:
                self.fail_over()

    def take_answers(self) -> None:
        """Pass the responses to their clients."""
        for client, answers in self.joins:
            for answer in answers:
                if answer.error_code == ErrorCode.NONE:
                    assert answer.generation_id >= 1
                    client.member, client.generation = answer.member_id, answer.generation_id
                    client.is_leader = answer.leader == answer.member_id
                    client.told = [each.member_id for each in answer.members]
                elif answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    client.member = answer.member_id
        self.joins = [(client, answers) for client, answers in self.joins if not answers]
        for client, generation, answers in self.syncs:
            for answer in answers:
                if answer.error_code == ErrorCode.NONE and answer.assignment:
                    owners = {
                        owner
                        for each in self.assigned[generation]
                        for owner, what in each.items()
                        if what == answer.assignment
                    }
                    assert len(owners) == 1, f"OneOwnerPerPartition: {owners}"
                    if client.instance is None:
                        assert owners <= {answer.assignment.decode().split(" ")[0]}
        self.syncs = [each for each in self.syncs if not each[2]]

    def fail_over(self) -> None:
        group = self.world.shard.groups.find("g")
        was_stable = group is not None and group.is_in(GroupState.STABLE)
        before = summary(group) if group is not None else None
        self.world.coordinator.runtime.on_resigned(0)
        self.world.coordinator = self.world.new_coordinator()
        epoch = self.world.replicas.runtime.clock.wall_ms()
        self.world.load(epoch)
        if was_stable:
            assert summary(self.world.group) == before

    def check(self) -> None:
        for answers in self.asked:
            assert len(answers) <= 1, f"EveryRequestAnsweredOnce: {answers}"
            assert {each.error_code for each in answers} <= NEVER_FATAL
        self.asked = [each for each in self.asked if not each]
        group = self.world.shard.groups.find("g")
        if group is not None:
            check_group(group)

    def finish(self) -> None:
        """Wait until all sessions have expired."""
        self.world.run_for(10 * 60_000)
        self.take_answers()
        self.check()
        assert not self.asked, "a request was never answered"
        group = self.world.shard.groups.find("g")
        assert group is None or group.is_in(GroupState.EMPTY)


def summary(group: ClassicGroup) -> object:
    """Return the state that survives a failover."""
    members = {each.id: (each.assignment, each.identity) for each in group.members.values()}
    return group.generation_id, group.leader_id, group.protocol_name, members


def check_group(group: ClassicGroup) -> None:
    """Check that the fields of a group agree."""
    members = group.members.values()
    assert group.awaiting_join_count == sum(each.is_awaiting_join for each in members)
    assert group.supporters == Counter(name for each in members for name in each.protocols)
    assert group.static_members == {
        each.identity.group_instance_id: each.id for each in members if each.is_static
    }
    assert (group.leader_id in group.members) if group.members else group.leader_id is None
    assert not set(group.pending_join_members) & set(group.members)
    assert set(group.pending_sync_members) <= set(group.members)
    assert group.is_in(GroupState.PREPARING_REBALANCE) or bool(members) == group.has_members, (
        f"GroupStateMatchesMembers: state={group.state} members={list(group.members)}"
    )
    if group.is_in(GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        assert group.protocol_name is not None
        assert group.supporters[group.protocol_name] == len(members)
    for member in members:
        if group.is_in(GroupState.STABLE):
            assert member.awaiting_sync is None


@settings(max_examples=150)
@given(steps)
def test_a_group_stays_consistent_after_any_requests(story: list[tuple[str, int, int]]) -> None:
    run = Story()
    for what, number, value in story:
        run.step(what, number, value)
        run.take_answers()
        run.check()
        group = run.world.shard.groups.find("g")
        if group is not None:
            # A generation that was never written is forgotten by a fail-over.
            assert group.generation_id >= run.generation or what == "fail over"
            run.generation = group.generation_id
    run.finish()


def test_a_group_without_heartbeats_becomes_empty() -> None:
    run = Story()
    for client in run.clients:
        run.join(client, 0)
        run.take_answers()
        run.join(client, 0)
    run.world.run_for(SESSION_MS)
    run.finish()
