"""Members of consumer groups in a coordinator's virtual time."""

from __future__ import annotations

from barnabas.coordinator.group.classic.classic_membership import ClientIdentity
from barnabas.coordinator.group.consumer.heartbeats import ConsumerHeartbeat
from barnabas.coordinator.group.group_config import DEFINITION, GroupSettings
from barnabas.coordinator.group.group_coordinator import GroupCoordinator
from barnabas.protocol.messages.consumer_group_describe import DescribedGroup
from barnabas.protocol.messages.groups import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitionsRequest,
)
from barnabas.protocol.records.topics import PartitionRecord, RemoveTopicRecord, TopicRecord
from steps import finish
from unit.coordinator.members_world import MembersWorld
from unit.replication.replica_set import LEADER

CLIENT = ClientIdentity("app", "/10.0.0.1")
REBALANCE_MS = 20_000

Partitions = dict[str, set[int]]


class ConsumersWorld(MembersWorld):
    """A loaded coordinator, topics, and short calls for heartbeats."""

    def __init__(
        self,
        replicas: tuple[int, ...] = (1,),
        broker_config: dict[str, str | int] | None = None,
        **config: int,
    ) -> None:
        # Keys of groups of all kinds, with `_` for `.`.
        self.group_config = {"group_consumer_assignment_interval_ms": 0, **config}
        self.overrides: dict[str, dict[str, str]] = {}
        # Topics that clients may not describe.
        self.hidden: set[str] = set()
        super().__init__(replicas, **(broker_config or {}))

    def _make_coordinator(self, settings: GroupSettings | None = None) -> GroupCoordinator:
        changed = {name.replace("_", "."): value for name, value in self.group_config.items()}
        found = GroupSettings(DEFINITION.parse({}, changed), self.overrides)
        return super()._make_coordinator(settings or found)

    def create_topic(self, name: str, partitions: int) -> None:
        self.replicas.replay(
            TopicRecord(name=name, topic_id=self.id_of(name)),
            *(self._partition(name, index) for index in range(partitions)),
        )
        self.coordinator.on_topics_changed([name], has_new=True)

    def add_partition(self, name: str, index: int) -> None:
        self.replicas.replay(self._partition(name, index))
        self.coordinator.on_topics_changed([name], has_new=False)

    def delete_topic(self, name: str) -> None:
        self.replicas.replay(RemoveTopicRecord(topic_id=self.id_of(name)))
        self.coordinator.on_topics_changed([name], has_new=False)

    def _partition(self, name: str, index: int) -> PartitionRecord:
        return PartitionRecord(
            partition_id=index,
            topic_id=self.id_of(name),
            replicas=[LEADER],
            isr=[LEADER],
            removing_replicas=[],
            adding_replicas=[],
            leader=LEADER,
            leader_epoch=0,
            partition_epoch=0,
            directories=[],
        )

    @staticmethod
    def id_of(name: str) -> bytes:
        return name.encode().ljust(16, b"-")

    def beat(
        self, member: str, epoch: int, owned: Partitions | None = None, **fields
    ) -> ConsumerGroupHeartbeatResponse:
        version = fields.pop("version", 1)
        client = ClientIdentity(CLIENT.client_id, fields.pop("host", CLIENT.host))
        if owned is not None:
            fields["topic_partitions"] = [
                TopicPartitionsRequest(topic_id=self.id_of(name), partitions=sorted(indexes))
                for name, indexes in owned.items()
            ]
        request = ConsumerGroupHeartbeatRequest(
            group_id=fields.pop("group", "g"), member_id=member, member_epoch=epoch, **fields
        )
        answers: list[ConsumerGroupHeartbeatResponse] = []
        heartbeat = ConsumerHeartbeat(request, client, lambda topic: topic not in self.hidden)
        self.coordinator.consumers.heartbeat(heartbeat, version, answers.append)
        (answer,) = answers
        return answer

    def subscribe(self, member: str, *topics: str, **fields) -> ConsumerGroupHeartbeatResponse:
        """Join the group."""
        if topics:
            fields["subscribed_topic_names"] = list(topics)
        fields.setdefault("rebalance_timeout_ms", REBALANCE_MS)
        return self.beat(member, 0, {}, **fields)

    def owned(self, response: ConsumerGroupHeartbeatResponse) -> Partitions | None:
        if response.assignment is None:
            return None
        return {
            each.topic_id.rstrip(b"-").decode(): set(each.partitions)
            for each in response.assignment.topic_partitions
        }

    def describe_consumers(self, group: str = "g") -> DescribedGroup:
        answers: list[list[DescribedGroup]] = []
        finish(self.coordinator.consumers.describe([group], answers.append))
        ((described,),) = answers
        return described

    def state(self, group: str = "g") -> str:
        return self.describe_consumers(group).group_state

    def restart(self) -> None:
        """Load the state from the log, as another broker does."""
        self.coordinator.runtime.on_resigned(0)
        self.coordinator = self.new_coordinator()
        self.load(1)
