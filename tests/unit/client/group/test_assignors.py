"""Properties of each assignor."""

from __future__ import annotations

import pytest

from barnabas.client.errors import ClientConfigError
from barnabas.client.group.assignor import (
    AssignablePartition,
    Assignment,
    Assignor,
    MemberSubscription,
    RackMatch,
    RebalanceProtocol,
)
from barnabas.client.group.built_in_assignors import (
    StickyAssignor,
    read_sticky_user_data,
    sticky_user_data,
)
from barnabas.client.group.group_leader import BUILT_IN, common_protocol, resolve_assignors
from barnabas.client.group.membership import GroupGeneration
from barnabas.client.group.sticky_assignment import Claim
from barnabas.client.topic_partition import TopicPartition


def topic(*racks: str) -> list[AssignablePartition]:
    """A topic with one partition per word; the letters are its replicas' racks."""
    return [AssignablePartition(number, tuple(each)) for number, each in enumerate(racks)]


def plain(count: int) -> list[AssignablePartition]:
    return [AssignablePartition(number) for number in range(count)]


def assign(
    name: str, topics: dict[str, list[AssignablePartition]], **members: MemberSubscription
) -> dict[str, str]:
    decided = resolve_assignors([name])[name].assign(topics, members)
    return {
        each: " ".join(str(tp) for tp in sorted(assignment.partitions))
        for each, assignment in decided.items()
    }


def wants(
    *topics: str, rack: str | None = None, owned: str = "", of: int = -1
) -> MemberSubscription:
    partitions = []
    for word in owned.split():
        name, _, number = word.partition("-")
        partitions.append(TopicPartition(name, int(number)))
    return MemberSubscription(topics, partitions, None, of, rack)


def test_range_assigns_adjacent_partitions_of_each_topic() -> None:
    found = assign("range", {"s": plain(3), "t": plain(3)}, a=wants("s", "t"), b=wants("s", "t"))
    assert found == {"a": "s-0 s-1 t-0 t-1", "b": "s-2 t-2"}


def test_range_serves_static_members_first_by_their_names() -> None:
    static = MemberSubscription(("t",), instance_id="1")
    found = assign("range", {"t": plain(3)}, a=wants("t"), z=static)
    assert found == {"z": "t-0 t-1", "a": "t-2"}


def test_range_gives_members_partitions_of_their_racks_first() -> None:
    found = assign(
        "range", {"t": topic("b", "a", "b", "a")}, a=wants("t", rack="a"), b=wants("t", rack="b")
    )
    assert found == {"a": "t-1 t-3", "b": "t-0 t-2"}


def test_range_treats_a_member_without_a_rack_as_near_to_each_partition() -> None:
    found = assign("range", {"t": topic("b", "b", "a", "a")}, a=wants("t"), b=wants("t", rack="b"))
    assert found == {"a": "t-0 t-1", "b": "t-2 t-3"}


def test_a_member_without_a_rack_is_apart_from_no_partition() -> None:
    match = RackMatch({"t": topic("b", "a")}, {"a": wants("t"), "b": wants("t", rack="b")})
    apart = {
        (name, number): match.is_apart(name, TopicPartition("t", number))
        for name in ("a", "b")
        for number in (0, 1)
    }
    assert apart == {("a", 0): False, ("a", 1): False, ("b", 0): False, ("b", 1): True}


def test_range_co_partitions_topics_of_equal_size() -> None:
    topics = {"s": topic("b", "a"), "t": topic("b", "a")}
    found = assign("range", topics, a=wants("s", "t", rack="a"), b=wants("s", "t", rack="b"))
    assert found == {"a": "s-1 t-1", "b": "s-0 t-0"}


def test_round_robin_assigns_partitions_in_turn() -> None:
    found = assign(
        "roundrobin", {"s": plain(3), "t": plain(1)}, a=wants("s", "t"), b=wants("s", "t")
    )
    assert found == {"a": "s-0 s-2", "b": "s-1 t-0"}


def test_round_robin_skips_members_without_the_topic() -> None:
    found = assign("roundrobin", {"s": plain(2), "t": plain(2)}, a=wants("s"), b=wants("t"))
    assert found == {"a": "s-0 s-1", "b": "t-0 t-1"}


def test_cooperative_sticky_omits_partitions_that_must_be_revoked_first() -> None:
    owner = wants("t", owned="t-0 t-1 t-2 t-3", of=3)
    found = assign("cooperative-sticky", {"t": plain(4)}, a=owner, b=wants("t"))
    assert found == {"a": "t-0 t-1", "b": ""}
    owner = wants("t", owned="t-0 t-1", of=4)
    found = assign("cooperative-sticky", {"t": plain(4)}, a=owner, b=wants("t", of=4))
    assert found == {"a": "t-0 t-1", "b": "t-2 t-3"}


def test_a_claim_of_an_older_generation_is_dropped() -> None:
    found = assign(
        "cooperative-sticky",
        {"t": plain(2)},
        a=wants("t", owned="t-0 t-1", of=3),
        b=wants("t", owned="t-1", of=4),
    )
    assert found == {"a": "t-0", "b": "t-1"}


def test_a_partition_claimed_twice_in_one_generation_stays_unassigned_at_first() -> None:
    found = assign(
        "cooperative-sticky",
        {"t": plain(1)},
        a=wants("t", owned="t-0", of=3),
        b=wants("t", owned="t-0", of=3),
    )
    assert found == {"a": "", "b": ""}


def test_the_sticky_assignor_stores_the_last_assignment() -> None:
    assignor = StickyAssignor()
    assert assignor.user_data(["t"]) is None
    had = [TopicPartition("t", 1), TopicPartition("t", 3)]
    assignor.on_assignment(Assignment(had), GroupGeneration("g", 7, "m"))
    assert read_sticky_user_data(assignor.user_data(["t"])) == Claim(had, 7)
    member = MemberSubscription(("t",), user_data=assignor.user_data(["t"]), generation_id=7)
    decided = assignor.assign({"t": plain(4)}, {"a": wants("t"), "m": member})
    assert set(had) == set(decided["m"].partitions)


@pytest.mark.parametrize("data", [None, b"", b"\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00"])
def test_unknown_user_data_is_no_claim(data: bytes | None) -> None:
    assert read_sticky_user_data(data) == Claim(())


def test_user_data_without_a_generation_is_read() -> None:
    claim = Claim([TopicPartition("t", 1)], 5)
    assert read_sticky_user_data(sticky_user_data(claim)[:-4]) == claim._replace(generation_id=-1)


def test_assignors_are_given_by_java_class_by_name_or_as_objects() -> None:
    class Mine(Assignor):
        name = "mine"

        def assign(self, topics: object, members: object) -> dict[str, Assignment]:
            return {}

    java = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
    assert list(resolve_assignors([java, "range", Mine])) == ["cooperative-sticky", "range", "mine"]
    assert set(resolve_assignors(list(BUILT_IN))) == set(BUILT_IN)
    mine = Mine()
    assert resolve_assignors([mine]) == {"mine": mine}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            ["ranged"],
            "ranged is neither a class nor one of range, roundrobin, sticky, cooperative-sticky",
        ),
        (["range", "range"], "range twice"),
        ([dict], "extend Assignor"),
        ([], "empty"),
    ],
)
def test_an_unknown_assignor_is_refused(given: list[object], words: str) -> None:
    with pytest.raises(ClientConfigError) as raised:
        resolve_assignors(given)
    assert words in str(raised.value)


def test_the_most_advanced_protocol_that_all_assignors_support_is_used() -> None:
    assert common_protocol(resolve_assignors(["cooperative-sticky"])) is (
        RebalanceProtocol.COOPERATIVE
    )
    both = resolve_assignors(["range", "cooperative-sticky"])
    assert common_protocol(both) is RebalanceProtocol.EAGER

    class Bold(Assignor):
        name = "bold"
        protocols = (RebalanceProtocol.COOPERATIVE,)

        def assign(self, topics: object, members: object) -> dict[str, Assignment]:
            return {}

    with pytest.raises(ClientConfigError, match="no rebalance protocol in common"):
        common_protocol(resolve_assignors(["range", Bold]))
