"""Well-behaved clients of both group protocols, in a coordinator's virtual time."""

from __future__ import annotations

from barnabas.coordinator.group.classic.classic_member import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
)
from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.classic_groups import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from unit.coordinator.consumers_world import ConsumersWorld, Partitions
from unit.coordinator.members_world import Answers

Owned = set[tuple[str, int]]
_REJOINS = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
_RESTARTS = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}


def subscription(*topics: str, owned: Partitions | None = None) -> bytes:
    """Return the subscription of a classic member."""
    value = ConsumerProtocolSubscription(
        topics=list(topics),
        owned_partitions=[
            TopicPartition(topic=name, partitions=sorted(indexes))
            for name, indexes in (owned or {}).items()
        ],
    )
    return b"\x00\x03" + encode_bytes(value, 3)


def by_topic(partitions: Owned) -> Partitions:
    found: Partitions = {}
    for topic, index in partitions:
        found.setdefault(topic, set()).add(index)
    return found


class ConsumerClient:
    """A client of the consumer protocol."""

    def __init__(self, world: ConsumersWorld, name: str, topics: list[str]) -> None:
        self.world = world
        self.name = name
        self.topics = topics
        self.epoch = 0
        self.owned: Owned = set()

    def step(self) -> None:
        """Send a heartbeat, and use the assigned partitions."""
        owned = by_topic(self.owned)
        if self.epoch:
            answer = self.world.beat(self.name, self.epoch, owned)
        else:
            answer = self.world.subscribe(self.name, *self.topics)
        if answer.error_code != ErrorCode.NONE:
            # Fenced: the client gives up its partitions, and joins again.
            assert answer.error_code in {
                ErrorCode.FENCED_MEMBER_EPOCH,
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.GROUP_ID_NOT_FOUND,
            }, answer
            self.epoch, self.owned = 0, set()
            return
        self.epoch = answer.member_epoch
        assigned = self.world.owned(answer)
        if assigned is not None:
            self.owned = {(topic, each) for topic, indexes in assigned.items() for each in indexes}

    def leave(self) -> None:
        if self.epoch:
            self.world.beat(self.name, -1)
        self.owned = set()


class ClassicClient:
    """A client of the classic protocol. A cooperative one keeps its partitions while it joins."""

    def __init__(self, world: ConsumersWorld, topics: list[str], *, is_cooperative: bool) -> None:
        self.world = world
        self.topics = topics
        self.is_cooperative = is_cooperative
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = set()
        self._joining: Answers | None = None
        self._syncing: Answers | None = None
        self._must_join = True

    def step(self) -> None:
        """Send a heartbeat, or take the next step of a rebalance."""
        if self._joining:
            self._on_joined(self._joining.one)
        elif self._syncing:
            self._on_synced(self._syncing.one)
        elif self._joining is None and self._syncing is None:
            if not self._must_join:
                self._on_error(self.world.heartbeat(self.member_id, self.generation))
            if self._must_join:
                self._join()

    def _join(self) -> None:
        if not self.is_cooperative:
            self.owned = set()
        data = subscription(*self.topics, owned=by_topic(self.owned))
        self._must_join = False
        self._joining = self.world.join(self.member_id, 3, protocols={"range": data})

    def _on_joined(self, answer) -> None:
        self._joining = None
        self._on_error(answer.error_code)
        if answer.error_code != ErrorCode.NONE:
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        assigned = {}
        if answer.leader == self.member_id:
            assigned = self._assign(answer.members)
        self._syncing = self.world.sync(self.member_id, self.generation, assign=assigned)

    def _on_synced(self, answer) -> None:
        self._syncing = None
        self._on_error(answer.error_code)
        if answer.error_code != ErrorCode.NONE:
            return
        assigned = set()
        if answer.assignment:
            for each in decode_assignment(answer.assignment).assigned_partitions:
                assigned |= {(each.topic, index) for index in each.partitions}
        # A cooperative client reports its revoked partitions by another JoinGroup.
        self._must_join = self.is_cooperative and bool(self.owned - assigned)
        self.owned = assigned

    def _on_error(self, error: int) -> None:
        assert error in {ErrorCode.NONE} | _REJOINS | _RESTARTS, error
        if error in _RESTARTS:
            self.member_id, self.generation, self.owned = "", -1, set()
        self._must_join = error != ErrorCode.NONE

    def _assign(self, members) -> dict[str, bytes]:
        """Assign each partition to a subscriber; a cooperative leader leaves out owned ones."""
        subscriptions = {each.member_id: decode_subscription(each.metadata) for each in members}
        owners: dict[tuple[str, int], str] = {}
        if self.is_cooperative:
            owners = {
                (each.topic, index): member_id
                for member_id, found in subscriptions.items()
                for each in found.owned_partitions
                for index in each.partitions
            }
        assigned: dict[str, Owned] = {member_id: set() for member_id in subscriptions}
        number = 0
        for topic in sorted({topic for each in subscriptions.values() for topic in each.topics}):
            able = [name for name, found in subscriptions.items() if topic in found.topics]
            for index in range(self.world.topic_sizes[topic]):
                chosen = able[number % len(able)]
                number += 1
                if owners.get((topic, index), chosen) == chosen:
                    assigned[chosen].add((topic, index))
        return {
            member_id: encode_assignment(by_topic(partitions), 3)
            for member_id, partitions in assigned.items()
        }

    def leave(self) -> None:
        if self.member_id:
            self.world.leave(self.member_id)
        self.owned = set()
