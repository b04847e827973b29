"""The server-side assignors on drawn groups: complete, balanced and sticky."""

from __future__ import annotations

from hypothesis import given, strategies as st

from barnabas.coordinator.group.consumer.consumer_assignors import assign_ranges, assign_uniformly
from barnabas.coordinator.group.targets import (
    AssignorInput,
    MemberInput,
)
from barnabas.coordinator.group.topics import Target
from barnabas.waiting.steps import run_to_end

TOPICS = [bytes([number]) * 16 for number in range(4)]


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool | None = None) -> AssignorInput:
    counts = {topic: draw(st.integers(1, 7)) for topic in TOPICS}
    names = [f"m{number}" for number in range(draw(st.integers(1, 6)))]
    subscriptions = st.frozensets(st.sampled_from(TOPICS))
    common = draw(subscriptions)
    is_homogeneous = draw(st.booleans()) if homogeneous is None else homogeneous
    free = {(topic, index) for topic in TOPICS for index in range(counts[topic] + 2)}
    members = {}
    for name in names:
        # A partition belongs to one member, but may be gone or no longer subscribed.
        own = draw(st.sets(st.sampled_from(sorted(free)))) if free else set()
        free -= own
        target = {
            topic: frozenset(index for other, index in own if other == topic)
            for topic in {topic for topic, _ in own}
        }
        topics = common if is_homogeneous else draw(subscriptions)
        members[name] = MemberInput(topics, target)
    return AssignorInput(members, counts, is_homogeneous)


def owners(found: dict[str, Target]) -> list[tuple[bytes, int]]:
    return sorted(
        (topic, index)
        for target in found.values()
        for topic, indexes in target.items()
        for index in indexes
    )


def subscribed(group: AssignorInput) -> list[tuple[bytes, int]]:
    topics = {topic for each in group.members.values() for topic in each.subscribed_topic_ids}
    return sorted((topic, i) for topic in topics for i in range(group.partition_counts[topic]))


def check_valid(group: AssignorInput, found: dict[str, Target]) -> None:
    assert found.keys() == group.members.keys()
    assert owners(found) == subscribed(group)
    for name, target in found.items():
        assert target.keys() <= group.members[name].subscribed_topic_ids
        assert all(target.values())


@given(groups())
def test_both_assign_each_subscribed_partition_once(group: AssignorInput) -> None:
    check_valid(group, run_to_end(assign_uniformly(group)))
    check_valid(group, run_to_end(assign_ranges(group)))


@given(groups(homogeneous=True))
def test_uniform_balances_members_with_equal_subscriptions(group: AssignorInput) -> None:
    loads = [
        sum(map(len, target.values())) for target in run_to_end(assign_uniformly(group)).values()
    ]
    assert max(loads) - min(loads) <= 1


@given(groups(homogeneous=False))
def test_uniform_leaves_no_movement_that_would_level_the_load(group: AssignorInput) -> None:
    found = run_to_end(assign_uniformly(group))
    load = {name: sum(map(len, target.values())) for name, target in found.items()}
    for owner, target in found.items():
        for topic in target:
            for name, member in group.members.items():
                if topic in member.subscribed_topic_ids:
                    assert load[owner] <= load[name] + 1


@given(groups())
def test_uniform_moves_nothing_without_a_reason(group: AssignorInput) -> None:
    first = run_to_end(assign_uniformly(group))
    members = {
        name: MemberInput(member.subscribed_topic_ids, first[name])
        for name, member in group.members.items()
    }
    again = run_to_end(
        assign_uniformly(AssignorInput(members, group.partition_counts, group.is_homogeneous))
    )
    assert again == first


@given(groups(homogeneous=True))
def test_range_divides_topics_of_equal_size_in_the_same_way(group: AssignorInput) -> None:
    for target in run_to_end(assign_ranges(group)).values():
        for topic, indexes in target.items():
            assert sorted(indexes) == list(range(min(indexes), max(indexes) + 1))
            for other in target:
                if group.partition_counts[other] == group.partition_counts[topic]:
                    assert target[other] == indexes


def test_range_puts_static_members_first_by_their_instance_ids() -> None:
    topic = TOPICS[0]
    members = {
        "a": MemberInput(frozenset({topic})),
        "b": MemberInput(frozenset({topic}), instance_id="z"),
        "c": MemberInput(frozenset({topic}), instance_id="y"),
    }
    found = run_to_end(assign_ranges(AssignorInput(members, {topic: 4}, is_homogeneous=True)))
    assert found == {
        "c": {topic: frozenset({0, 1})},
        "b": {topic: frozenset({2})},
        "a": {topic: frozenset({3})},
    }
