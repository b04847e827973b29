"""Groups that convert between the classic and the consumer protocol."""

from __future__ import annotations

from barnabas.coordinator.group.classic.classic_member import (
    decode_assignment,
    encode_assignment,
)
from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.classic_groups import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from barnabas.protocol.records.topics import PartitionChangeRecord
from unit.coordinator.consumers_world import ConsumersWorld
from unit.coordinator.coordinator_world import OFFSETS_ID
from unit.coordinator.members_world import DELAY_MS, SESSION_MS

SHORT_MS, LONG_MS = SESSION_MS // 2, 60_000


def subscription(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    value = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            TopicPartition(topic=name, partitions=indexes)
            for name, indexes in (owned or {}).items()
        ],
    )
    return b"\x00\x03" + encode_bytes(value, 3)


class MixedWorld(ConsumersWorld):
    """A group whose members use both protocols. The topic `a` has four partitions."""

    def __init__(self, replicas: tuple[int, ...] = (1,), **config: str | int) -> None:
        super().__init__(replicas, broker_config=config)
        self.replicas.replay(PartitionChangeRecord(partition_id=0, topic_id=OFFSETS_ID, isr=[1]))
        self.create_topic("a", 4)

    def join_a(self, member: str = "", owned: list[int] | None = None, **options):
        """Join with the topic `a`. Versions below 4 need no member id."""
        protocols = {"range": subscription("a", owned={"a": owned or []})}
        return self.join(member, options.pop("version", 3), protocols=protocols, **options)

    def assigned(self, member: str, generation: int, **options) -> set[int]:
        """Return the partitions of a member, from SyncGroup."""
        answer = self.sync(member, generation, **options).one
        assert answer.error_code == ErrorCode.NONE, answer
        found = decode_assignment(answer.assignment).assigned_partitions
        return {index for each in found for index in each.partitions}

    def classic_member(self, **options) -> tuple[str, int]:
        """Make a stable classic group with one member, which has all partitions."""
        waiting = self.join_a(**options)
        self.run_for(2 * DELAY_MS + 10)
        joined = waiting.one
        assignment = encode_assignment({"a": range(4)}, 3)
        self.sync(joined.member_id, joined.generation_id, assign={joined.member_id: assignment})
        return joined.member_id, joined.generation_id

    def mixed_group(self) -> tuple[str, int, int]:
        """Make a stable group: a classic member (id, generation), `m1` of that epoch."""
        member, generation = self.classic_member()
        epoch = self.subscribe("m1", "a").member_epoch
        self.join_a(member, [0, 1, 2, 3])
        assert self.assigned(member, generation) == {0, 1}
        assert self.join_a(member, [0, 1]).one.generation_id == epoch
        assert self.assigned(member, epoch) == {0, 1}
        assert self.owned(self.beat("m1", epoch)) == {"a": {2, 3}}
        assert self.state() == "Stable"
        return member, generation, epoch

    def both_alive(self, ms: int, member: str, epoch: int) -> None:
        for _ in range(ms // SHORT_MS):
            self.run_for(SHORT_MS)
            self.heartbeat(member, epoch)
            self.beat("m1", epoch)

    def reject_appends(self) -> None:
        """Let the log reject all batches: it has fewer in-sync replicas than it needs."""
        self.log.update_config(type(self.log.config)(min_insync_replicas=2))

    def accept_appends(self) -> None:
        self.log.update_config(type(self.log.config)())

    def is_classic(self) -> bool:
        return self.describe().error_code == ErrorCode.NONE
