"""Stories of groups whose members change their protocol (KIP-848), as requests to one broker."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from barnabas.coordinator.group.classic.classic_member import (
    decode_assignment,
    encode_assignment,
)
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import encode_coordinator_value
from barnabas.protocol.records.classic_groups import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from differential.consumer_members import Members, records
from differential.request import request
from differential.response import as_text, read_response
from differential.scene import exchange
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from differential.side import Side

CLASSIC, CONSUMER = "classic", "consumer"


class Mixed(Members):
    """Members of both protocols. Each classic member has a separate connection."""

    def __init__(self, side: Side, group: str, topics: dict[str, int]) -> None:
        super().__init__(side, group, topics, interval_ms=0)

    def note(self, what: str, response: Any) -> Any:
        self.lines.append(f"{what}: {as_text(response, self.side)}")
        return response

    def exchange(self, api: ApiKey, version: int, **fields: Any) -> Any:
        values = {"group_id": self.group, **fields}
        return self.note(f"{api.name} {sorted(fields)}", exchange(self.side, api, version, values))

    def send_join(
        self,
        member: str,
        *topics: str,
        version: int = 9,
        instance: str | None = None,
        owned: dict[str, Sequence[int]] | None = None,
        protocols: Sequence[str] = ("range",),
        **fields: Any,
    ) -> Callable[[], Any]:
        """Send a JoinGroup, and return a function that waits for the response."""
        subscription = ConsumerProtocolSubscription(
            topics=list(topics),
            owned_partitions=[
                TopicPartition(topic=name, partitions=list(indexes))
                for name, indexes in (owned or {}).items()
            ],
        )
        data = encode_coordinator_value(subscription, 3)
        values = {
            "group_id": self.group,
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 60_000,
            "member_id": member,
            "group_instance_id": instance,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": data} for name in protocols],
            **fields,
        }
        on = instance or member
        self.side.send(request(ApiKey.JOIN_GROUP, version, values), version, on)
        return partial(self._joined, version, on)

    def _joined(self, version: int, on: str) -> Any:
        frame = self.side.receive(on)
        assert isinstance(frame, bytes), frame
        response = read_response(ApiKey.JOIN_GROUP, version, frame)
        if response.member_id and response.member_id not in self.side.named_values().values():
            self.side.remember(f"member {len(self.side.named_values())}", response.member_id)
        response.members.sort(key=lambda each: as_text([each.member_id], self.side))
        return self.note("join", response)

    def join_with(self, member: str, protocols: list[dict[str, Any]]) -> None:
        fields = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 60_000}
        names = {"member_id": member, "protocol_type": "consumer", "protocols": protocols}
        self.exchange(ApiKey.JOIN_GROUP, 9, **fields, **names)

    def join(self, member: str, *topics: str, **fields: Any) -> Any:
        return self.send_join(member, *topics, **fields)()

    def sync(
        self,
        member: str,
        generation: int,
        assign: dict[str, dict[str, Sequence[int]]] | None = None,
        **fields: Any,
    ) -> Any:
        assignments = [
            {"member_id": name, "assignment": encode_assignment(partitions, 3)}
            for name, partitions in (assign or {}).items()
        ]
        fields.setdefault("protocol_type", "consumer")
        fields.setdefault("protocol_name", "range")
        values = {
            "group_id": self.group,
            "generation_id": generation,
            "member_id": member,
            "assignments": assignments,
            **fields,
        }
        response = exchange(self.side, ApiKey.SYNC_GROUP, 5, values)
        if response.error_code == 0 and response.assignment:
            self.lines.append(f"assigned {decode_assignment(response.assignment)}")
        return self.note("sync", response)

    def heartbeat_classic(self, member: str, generation: int, instance: str | None = None) -> int:
        fields = {"generation_id": generation, "member_id": member, "group_instance_id": instance}
        error: int = self.exchange(ApiKey.HEARTBEAT, 4, **fields).error_code
        return error

    def heartbeat_uncompared(self, member: str, generation: int) -> int:
        values = {"group_id": self.group, "generation_id": generation, "member_id": member}
        error: int = exchange(self.side, ApiKey.HEARTBEAT, 4, values).error_code
        return error

    def leave(self, *members: tuple[str, str | None]) -> None:
        named = [{"member_id": each, "group_instance_id": name} for each, name in members]
        self.exchange(ApiKey.LEAVE_GROUP, 5, members=named)

    def commit(self, topic: str, partition: int, member: str, epoch: int, version: int = 9) -> None:
        partitions = [{"partition_index": partition, "committed_offset": 7}]
        self.exchange(
            ApiKey.OFFSET_COMMIT,
            version,
            member_id=member,
            generation_id_or_member_epoch=epoch,
            topics=[{"name": topic, "partitions": partitions}],
        )

    def fetch(self, topic: str, member: str, epoch: int) -> None:
        topics = [{"name": topic, "partition_indexes": [0]}]
        group = {"group_id": self.group, "member_id": member, "member_epoch": epoch}
        response = exchange(
            self.side, ApiKey.OFFSET_FETCH, 9, {"groups": [{**group, "topics": topics}]}
        )
        self.note("fetch", response)

    def describe_everywhere(self) -> None:
        """Describe and list the group by all APIs."""
        self.describe()
        response = exchange(self.side, ApiKey.DESCRIBE_GROUPS, 6, {"groups": [self.group]})
        for group in response.groups:
            group.members.sort(key=lambda each: as_text([each.member_id], self.side))
        self.note("classic", response)
        for kind in (CLASSIC, CONSUMER):
            listed = exchange(self.side, ApiKey.LIST_GROUPS, 5, {"types_filter": [kind]})
            self.lines.append(str([each for each in listed.groups if each.group_id == self.group]))


def classic_group(members: Mixed, topic: str, **fields: Any) -> tuple[str, int]:
    """Create a stable classic group with one member, which has all partitions of the topic."""
    fields.setdefault("version", 3)
    joined = members.join("", topic, **fields)
    generation = joined.generation_id
    members.sync(
        joined.member_id,
        generation,
        {joined.member_id: {topic: range(4)}},
        group_instance_id=fields.get("instance"),
    )
    return joined.member_id, generation


def upgrade_and_downgrade(members: Mixed, topic: str) -> None:
    c1, generation = classic_group(members, topic)
    members.describe_everywhere()
    joined = members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    members.describe_everywhere()
    epoch = joined.member_epoch
    members.heartbeat_classic(c1, generation)
    members.sync(c1, generation)
    # The member keeps its partitions, and gives up two of them in its second JoinGroup.
    first = members.join(c1, topic, owned={topic: range(4)})
    members.sync(c1, first.generation_id)
    members.heartbeat_classic(c1, first.generation_id)
    members.describe_everywhere()
    second = members.join(c1, topic, owned={topic: [0, 1]})
    members.sync(c1, second.generation_id)
    members.heartbeat_classic(c1, second.generation_id)
    members.heartbeat("m1", epoch)
    members.describe_everywhere()
    members.heartbeat("m1", -1)
    members.describe_everywhere()
    members.heartbeat_classic(c1, second.generation_id)
    members.heartbeat_classic(c1, second.generation_id + 1)
    third = members.join(c1, topic, owned={topic: [0, 1]})
    members.sync(c1, third.generation_id, {c1: {topic: range(4)}})
    members.describe_everywhere()
    members.leave((c1, None))
    members.describe_everywhere()


def new_members_of_both(members: Mixed, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_names=[topic], server_assignor="range")
    members.join("", topic)
    members.join("c1", topic, protocols=("range", "cooperative-sticky"))
    members.join("c2", topic, protocols=("sticky",))
    members.join("c2", topic, protocols=())
    members.join("c2", topic, protocol_type="connect")
    joined = members.join("c2", topic, protocols=("cooperative-sticky",), version=1)
    members.sync("c2", joined.generation_id, protocol_name="range")
    members.sync("c2", joined.generation_id, protocol_type="connect")
    members.sync("c2", joined.generation_id, protocol_type=None, protocol_name=None)
    members.sync("c2", joined.generation_id, protocol_name="cooperative-sticky")
    members.sync("m1", 2)
    members.heartbeat_classic("m1", 2)
    members.heartbeat_classic("c3", 2)
    members.heartbeat_classic("c2", 99)
    members.describe_everywhere()
    members.heartbeat("m1", 2, owned={topic: [0, 1, 2, 3]})
    members.heartbeat("m1", 2, owned={topic: [0, 1]})
    members.heartbeat_classic("c2", joined.generation_id)
    members.heartbeat_classic("c1", joined.generation_id)
    members.describe_everywhere()
    # A client changes its protocol with the same member id, in both directions.
    members.heartbeat("c1", 0, subscribed_topic_names=[topic])
    members.join("m1", topic, protocols=("cooperative-sticky",))
    members.describe_everywhere()
    members.leave(("c1", None), ("unknown", None), ("c2", None), ("c2", None))
    members.describe_everywhere()


def offsets_of_both(members: Mixed, topic: str) -> None:
    c1, generation = classic_group(members, topic)
    members.commit(topic, 0, c1, generation, version=8)
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    members.commit(topic, 0, c1, generation, version=8)
    members.commit(topic, 0, c1, generation)
    members.fetch(topic, c1, generation)
    joined = members.join(c1, topic, owned={topic: [0, 1]})
    # The member has had the partition since its older generation.
    members.commit(topic, 0, c1, generation)
    members.commit(topic, 3, c1, generation)
    members.commit(topic, 0, c1, generation - 1)
    members.commit(topic, 0, c1, joined.generation_id + 1)
    members.commit(topic, 0, c1, -1)
    members.fetch(topic, c1, generation)
    members.fetch(topic, c1, joined.generation_id)
    members.fetch(topic, "m1", joined.generation_id)
    members.fetch(topic, "m1", joined.generation_id + 1)
    members.commit(topic, 3, "m1", joined.generation_id, version=8)
    members.commit(topic, 3, "m1", joined.generation_id)
    members.commit(topic, 3, "m1", joined.generation_id + 1)


def static_members_change(members: Mixed, topic: str) -> None:
    c1, generation = classic_group(members, topic, instance="i", version=5)
    members.heartbeat("m1", 0, subscribed_topic_names=[topic], instance_id="j")
    members.heartbeat_classic(c1, generation, "i")
    members.heartbeat_classic(c1, generation, "j")
    members.heartbeat_classic("m1", generation, "i")
    members.heartbeat_classic(c1, generation, "unknown")
    # A member of the consumer protocol replaces the classic static member, and vice versa.
    replaced = members.heartbeat("m2", 0, subscribed_topic_names=[topic], instance_id="i")
    members.heartbeat_classic(c1, generation, "i")
    members.describe_everywhere()
    members.join("other", topic, instance="i")
    members.join("other", topic, instance="unknown")
    members.join("", topic, instance="j")
    members.describe_everywhere()
    members.heartbeat("m2", replaced.member_epoch, instance_id="i", owned={topic: []})
    members.describe_everywhere()
    # The last member of the consumer protocol is replaced, and its subscription stays.
    members.join("", topic, instance="i")
    members.describe_everywhere()


def last_static_member_resubscribes(members: Mixed, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_names=[topic], instance_id="i")
    members.join("", "other-topic", instance="i")
    members.describe_everywhere()


def only_static_member_is_replaced(members: Mixed, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_names=[topic], instance_id="i")
    joined = members.join("", topic, instance="i")
    members.describe_everywhere()
    members.sync(joined.member_id, joined.generation_id, group_instance_id="i")
    members.leave(("", "i"))
    members.describe_everywhere()


def fenced_and_expired(members: Mixed, topic: str) -> None:
    c1, generation = classic_group(members, topic, session_timeout_ms=60_000)
    members.heartbeat("m1", 0, subscribed_topic_names=[topic], instance_id="i")
    members.heartbeat("m1", -2, instance_id="i")
    members.describe_everywhere()
    members.leave(("", "i"))
    members.heartbeat_classic(c1, generation)
    members.describe_everywhere()


def refused_upgrades(members: Mixed, topic: str) -> None:
    connect = members.join("", topic, version=3, protocol_type="connect")
    members.sync(connect.member_id, connect.generation_id, {connect.member_id: {topic: [0]}})
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    members.heartbeat("m1", 3)
    members.heartbeat("m1", -1)
    members.describe_everywhere()


def rebalance_in_progress(members: Mixed, topic: str) -> None:
    c1, generation = classic_group(members, topic)
    pending = members.send_join("", "no-such-topic", version=3, instance="i")
    eventually(
        lambda: members.heartbeat_uncompared(c1, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    )
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    pending()
    members.describe_everywhere()
    members.heartbeat_classic(c1, generation)
    members.join(c1, topic, owned={topic: range(4)})
    members.describe_everywhere()


def first_rebalance_in_progress(members: Mixed, topic: str) -> None:
    joined = members.join("", "no-such-topic", version=3)
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    members.describe_everywhere()
    members.sync(joined.member_id, joined.generation_id)
    members.join(joined.member_id, "no-such-topic")
    members.describe_everywhere()


def invalid_assignments(members: Mixed, topic: str) -> None:
    joined = members.join("", topic, version=3)
    member, generation = joined.member_id, joined.generation_id
    with_data = encode_assignment({topic: [0]}, 3)[:-4] + b"\x00\x00\x00\x01x"
    for assignment in (with_data, b"\x00", b"\xff\xff", b"\x00\x00\x00\x00\x00\x09"):
        named = [{"member_id": member, "assignment": assignment}]
        members.exchange(
            ApiKey.SYNC_GROUP,
            5,
            generation_id=generation,
            member_id=member,
            assignments=named,
            protocol_type="consumer",
            protocol_name="range",
        )
        members.heartbeat("m1", 0, subscribed_topic_names=[topic])
        generation = members.join(member, topic, version=3).generation_id
    named = {member: {topic: [0, 1], "no-such-topic": [0]}}
    members.sync(member, generation, named)
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    members.describe_everywhere()


def invalid_subscriptions(members: Mixed, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    # A version 1 that ends after the user data, as some clients write it.
    shorter = b"\x00\x01" + bytes(4) + b"\xff\xff\xff\xff"
    for metadata in (b"", b"\x00", b"\xff\xff", b"\x00\x03\x00\x00\x00\x09", shorter):
        protocols = [{"name": "range", "metadata": metadata}]
        members.join_with("c1", protocols)
    members.join("c1", topic, owned={"no-such-topic": [0], topic: [0, 9]})
    members.describe_everywhere()


def topics_change(members: Mixed, topic: str) -> None:
    c1, generation = classic_group(members, topic)
    members.heartbeat("m1", 0, subscribed_topic_regex="no-such-.*", subscribed_topic_names=[])
    # Kafka evaluates the expression after the response.
    eventually(lambda: any("RegularExpression" in line for line in records(members)))
    members.heartbeat_classic(c1, generation)
    first = members.join(c1, topic, "no-such-topic", owned={topic: range(4)})
    members.sync(c1, first.generation_id)
    members.join("m1", topic)
    members.describe_everywhere()
    second = members.join(c1, owned={topic: [0, 1]})
    members.sync(c1, second.generation_id)
    members.heartbeat_classic(c1, second.generation_id)
    members.join(c1, owned={})
    members.describe_everywhere()


def late_members_leave(members: Mixed, topic: str) -> None:
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])

    def is_gone(member: str, generation: int) -> bool:
        return members.heartbeat_uncompared(member, generation) == ErrorCode.UNKNOWN_MEMBER_ID

    # The member sends no SyncGroup.
    first = members.join("c1", "no-such-topic", rebalance_timeout_ms=300)
    eventually(lambda: is_gone("c1", first.generation_id))
    members.describe_everywhere()
    # The member does not rejoin.
    second = members.join("c2", "no-such-topic", rebalance_timeout_ms=5_000)
    members.sync("c2", second.generation_id)
    members.heartbeat("m2", 0, subscribed_topic_names=["no-such-topic"])
    members.heartbeat_classic("c2", second.generation_id)
    eventually(lambda: is_gone("c2", second.generation_id))
    members.describe_everywhere()


def empty_groups_change(members: Mixed, topic: str) -> None:
    c1, _ = classic_group(members, topic)
    members.leave((c1, None))
    members.heartbeat("m1", 0, subscribed_topic_names=[topic])
    members.describe_everywhere()
    members.heartbeat("m1", -1)
    members.sync("m1", 2)
    members.heartbeat_classic("m1", 2)
    classic_group(members, topic)
    members.describe_everywhere()


CONVERSIONS = (
    upgrade_and_downgrade,
    new_members_of_both,
    offsets_of_both,
    static_members_change,
    last_static_member_resubscribes,
    only_static_member_is_replaced,
    fenced_and_expired,
    refused_upgrades,
    rebalance_in_progress,
    first_rebalance_in_progress,
    invalid_assignments,
    invalid_subscriptions,
    topics_change,
    late_members_leave,
    empty_groups_change,
)
