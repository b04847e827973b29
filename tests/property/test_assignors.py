"""Properties of every assignment, for random groups from seeds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.client.group.assignor import MemberSubscription
from barnabas.client.group.built_in_assignors import sticky_user_data
from barnabas.client.group.sticky_assignment import Claim
from barnabas.client.topic_partition import TopicPartition
from unit.client.group.assignor_cases import AssignorCase, GroupHistory

ASSIGNORS = ("range", "roundrobin", "sticky", "cooperative-sticky")
STICKY = ("sticky", "cooperative-sticky")
GROUPS = 60
REBALANCES = 6
# With racks a move may have others in its train.
ROUNDS_MAX = 6


def cases(assignor: str) -> Iterator[AssignorCase]:
    for seed in range(GROUPS):
        yield from GroupHistory(assignor, seed).cases(REBALANCES)


def wanted(case: AssignorCase) -> set[TopicPartition]:
    """Return the partitions that a member subscribes to."""
    topics = {topic for member in case.members.values() for topic in member.topics}
    return {TopicPartition(t, p.number) for t in topics for p in case.topics.get(t, ())}


def want_the_same(case: AssignorCase) -> bool:
    return len({frozenset(member.topics) for member in case.members.values()}) == 1


def with_racks(case: AssignorCase) -> bool:
    """Return whether the assignor prefers the members' racks, at the cost of more moves."""
    return any(member.rack_id for member in case.members.values())


def settled(case: AssignorCase) -> dict[str, list[TopicPartition]]:
    """Return the assignment; under the cooperative protocol, that of the final rebalance."""
    decided = case.ours()
    for _ in range(ROUNDS_MAX):
        if sum(len(each) for each in decided.values()) == len(wanted(case)):
            return decided
        case = after(case, decided)
        decided = case.ours()
    raise AssertionError(f"not settled after {ROUNDS_MAX} rebalances: {case}")


def after(
    case: AssignorCase, decided: dict[str, list[TopicPartition]], without: str | None = None
) -> AssignorCase:
    """Return the members of the next rebalance, which own their assigned partitions."""

    def next_of(name: str) -> MemberSubscription:
        data = sticky_user_data(Claim(decided[name], 99)) if case.assignor == "sticky" else None
        owned = () if case.assignor == "sticky" else decided[name]
        return case.members[name]._replace(owned_partitions=owned, user_data=data, generation_id=99)

    members = {name: next_of(name) for name in case.members if name != without}
    return case._replace(members=members)


@pytest.mark.parametrize("assignor", ASSIGNORS)
def test_every_partition_is_assigned_to_one_subscribed_member(assignor: str) -> None:
    for case in cases(assignor):
        decided = settled(case)
        given = [tp for partitions in decided.values() for tp in partitions]
        assert sorted(given) == sorted(wanted(case))
        for name, partitions in decided.items():
            assert {tp.topic for tp in partitions} <= set(case.members[name].topics)


@pytest.mark.parametrize("assignor", ["roundrobin", *STICKY])
def test_members_with_equal_subscriptions_get_balanced_shares(assignor: str) -> None:
    for case in cases(assignor):
        if want_the_same(case):
            counts = [len(partitions) for partitions in settled(case).values()]
            assert max(counts) - min(counts) <= 1


def test_range_balances_each_topic() -> None:
    for case in cases("range"):
        decided = case.ours()
        for topic in case.topics:
            readers = [name for name, member in case.members.items() if topic in member.topics]
            counts = [sum(tp.topic == topic for tp in decided[name]) for name in readers]
            assert not counts or max(counts) - min(counts) <= 1


@pytest.mark.parametrize("assignor", STICKY)
def test_no_single_move_makes_an_assignment_more_even(assignor: str) -> None:
    for case in cases(assignor):
        decided = settled(case)
        owner = {tp: name for name, partitions in decided.items() for tp in partitions}
        if with_racks(case):
            continue
        for tp, name in owner.items():
            for other, member in case.members.items():
                if tp.topic in member.topics:
                    assert len(decided[other]) >= len(decided[name]) - 1, (case, tp)


@pytest.mark.parametrize("assignor", STICKY)
def test_an_unchanged_group_keeps_its_assignment(assignor: str) -> None:
    for case in cases(assignor):
        if not with_racks(case):
            decided = settled(case)
            assert after(case, decided).ours() == decided


@pytest.mark.parametrize("assignor", STICKY)
def test_remaining_members_keep_their_partitions_when_a_member_leaves(assignor: str) -> None:
    for case in cases(assignor):
        decided = settled(case)
        if len(case.members) > 1 and want_the_same(case) and not with_racks(case):
            gone = min(case.members)
            left = after(case, decided, without=gone).ours()
            for name, partitions in left.items():
                assert set(decided[name]) <= set(partitions)


def test_the_cooperative_protocol_assigns_no_owned_partition_to_another_member() -> None:
    for case in cases("cooperative-sticky"):
        claimed: dict[TopicPartition, set[str]] = {}
        for name, member in case.members.items():
            for tp in member.owned_partitions:
                claimed.setdefault(tp, set()).add(name)
        newest = max(member.generation_id for member in case.members.values())
        for name, partitions in case.ours().items():
            for tp in partitions:
                owners = claimed.get(tp, set())
                current = {each for each in owners if case.members[each].generation_id == newest}
                assert name in owners or not current, (case, tp)
