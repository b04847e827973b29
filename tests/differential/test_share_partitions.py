"""Share partitions: equal responses to sequences of ShareFetch and ShareAcknowledge.

After each story the states at the share coordinators are compared too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.record.columns import iter_records
from differential.scene import Scene, exchange
from differential.share_fetches import LOADING_MS_MAX, SharedGroup
from differential.share_state import READ

if TYPE_CHECKING:
    from collections.abc import Callable

    from differential.scene import Pair
    from differential.side import Side

    Story = Callable[[SharedGroup], None]

pytestmark = pytest.mark.conformance

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
# States of records at a share coordinator.
AVAILABLE, ACKNOWLEDGED, ARCHIVED = 0, 2, 4


def acknowledged_in_order(shared: SharedGroup) -> None:
    shared.produce(3, 4)
    member = shared.member()
    member.fetch()
    member.acknowledge((0, 6, [ACCEPT]))
    member.fetch()
    shared.produce(2)
    member.fetch()
    member.fetch((7, 8, [ACCEPT]))


def every_acknowledge_type(shared: SharedGroup) -> None:
    shared.produce(10)
    member = shared.member()
    member.fetch()
    types = [GAP, ACCEPT, RELEASE, REJECT, RELEASE, ACCEPT, ACCEPT, GAP, RELEASE, REJECT]
    member.acknowledge((0, 9, types))
    member.fetch()
    member.acknowledge((2, 2, [REJECT]), (4, 4, [ACCEPT]), (8, 8, [RELEASE]))
    member.fetch((8, 8, [ACCEPT]))
    member.fetch((8, 8, [ACCEPT]))


def refused_acknowledgements(shared: SharedGroup) -> None:
    shared.produce(5, 5)
    member, other = shared.member(), shared.member("other")
    member.fetch(max_records=5)
    other.fetch()
    for batches in (
        [(5, 9, [ACCEPT])],
        [(4, 5, [ACCEPT])],
        [(3, 12, [ACCEPT])],
        [(20, 25, [ACCEPT])],
        [(-1, 2, [ACCEPT])],
        [(-5, 2, [ACCEPT])],
        [(3, 2, [ACCEPT])],
        [(0, 2, [])],
        [(0, 2, [ACCEPT, ACCEPT])],
        [(0, 2, [5])],
        [(0, 2, [-1])],
        [(0, 2, [RENEW])],
        [(2, 3, [ACCEPT]), (0, 1, [ACCEPT])],
        [(0, 2, [ACCEPT]), (2, 3, [ACCEPT])],
        [(0, 2, [ACCEPT]), (2, 6, [ACCEPT])],
        [],
    ):
        member.acknowledge(*batches)
    member.acknowledge((0, 4, [ACCEPT]))
    member.acknowledge((0, 4, [ACCEPT]))
    member.acknowledge((0, 1, [ACCEPT]), partition=7)
    other.acknowledge((5, 9, [RELEASE]))
    other.acknowledge((5, 9, [ACCEPT]))


def deliveries_until_the_limit(shared: SharedGroup) -> None:
    shared.produce(8)
    member = shared.member()
    member.fetch()
    member.acknowledge((0, 7, [RELEASE]))
    for _ in range(12):
        response = member.fetch()
        acquired = (
            response.responses[0].partitions[0].acquired_records if response.responses else []
        )
        for each in acquired:
            member.acknowledge((each.first_offset, each.last_offset, [RELEASE]))
    member.fetch()


def batch_sizes_and_record_limits(shared: SharedGroup) -> None:
    shared.produce(*[3] * 12)
    member = shared.member()
    member.fetch(max_records=4)
    member.fetch(max_records=10, batch_size=4)
    member.fetch(max_records=2, share_acquire_mode=1)
    member.fetch(max_records=1, share_acquire_mode=1)
    member.fetch(max_records=5, share_acquire_mode=1)
    member.fetch(max_records=0)
    member.fetch(max_bytes=0)
    member.fetch(share_acquire_mode=7, max_records=1)
    member.acknowledge((0, 5, [RELEASE]))
    member.fetch(max_records=2, share_acquire_mode=1)
    member.fetch(max_records=2)
    member.fetch()


def sessions_and_their_epochs(shared: SharedGroup) -> None:
    shared.produce(4)
    member = shared.member()
    member.fetch(share_session_epoch=1)
    member.acknowledge(share_session_epoch=0)
    member.acknowledge(share_session_epoch=1)
    member.acknowledge(share_session_epoch=-1)
    member.fetch(share_session_epoch=-1)
    member.fetch((0, 0, [ACCEPT]), share_session_epoch=0)
    member.fetch()
    member.fetch(share_session_epoch=3)
    member.fetch(share_session_epoch=-2)
    member.acknowledge((0, 1, [ACCEPT]), share_session_epoch=7)
    member.acknowledge((0, 1, [ACCEPT]))
    member.fetch((2, 2, [REJECT]), share_session_epoch=-1)
    member.fetch(share_session_epoch=-1)
    again = shared.member()
    again.fetch()
    again.acknowledge((3, 3, [RELEASE]), share_session_epoch=-1)
    last = shared.member("last")
    last.fetch()
    last.fetch(share_session_epoch=0)
    last.epoch = 1
    last.fetch()


def renewed_locks(shared: SharedGroup) -> None:
    shared.produce(6)
    member = shared.member()
    member.fetch()
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    member.fetch((0, 2, [RENEW]), is_renew_ack=True, **nothing)
    member.fetch((0, 2, [RENEW]), is_renew_ack=True, share_session_epoch=2)
    member.acknowledge((0, 2, [RENEW, ACCEPT, RENEW]), is_renew_ack=True)
    member.acknowledge((3, 5, [RENEW]), is_renew_ack=True)
    member.acknowledge((3, 5, [RENEW]))
    member.acknowledge((1, 1, [RENEW]), is_renew_ack=True)
    member.acknowledge((0, 0, [ACCEPT]), (2, 5, [ACCEPT]))


def partitions_of_a_session(shared: SharedGroup) -> None:
    shared.produce(2)
    shared.produce(3, partition=1)
    member = shared.member()
    member.fetch()
    member.fetch(partition=1, max_wait_ms=LOADING_MS_MAX, min_bytes=1)
    member.fetch((0, 1, [ACCEPT]), forget=0)
    member.fetch(partition=5)
    member.fetch(partition=5, forget=5)
    member.acknowledge((0, 2, [ACCEPT]), partition=1)
    member.fetch()


def refused_members(shared: SharedGroup) -> None:
    member = shared.member()
    member.fetch(group_id=None)
    member.fetch(member_id=None, share_session_epoch=0)
    member.fetch(member_id="", share_session_epoch=0)
    member.fetch(member_id="m" * 37, share_session_epoch=0)
    member.acknowledge(group_id=None, share_session_epoch=1)
    member.acknowledge(member_id="", share_session_epoch=1)
    member.fetch(share_session_epoch=0, group_id="")


def deleted_records(shared: SharedGroup) -> None:
    shared.produce(5, 5, 5)
    member = shared.member()
    member.fetch(max_records=5)
    deleted = [{"partition_index": 0, "offset": 8}]
    topics = [{"name": shared.topic, "partitions": deleted}]
    shared.scene.do(ApiKey.DELETE_RECORDS, 2, {"topics": topics, "timeout_ms": 5_000})
    member.fetch()
    member.fetch()
    member.acknowledge((0, 4, [ACCEPT]))
    member.acknowledge((5, 14, [ACCEPT]))
    member.fetch()


def subsets_of_batches(shared: SharedGroup) -> None:
    shared.produce(6, 6, 6)
    member, other = shared.member(), shared.member("other")
    member.fetch()
    member.acknowledge((2, 3, [RELEASE]), (8, 14, [RELEASE]))
    other.fetch(max_records=1)
    other.fetch()
    member.acknowledge((0, 1, [ACCEPT]), (4, 7, [ACCEPT]))
    other.acknowledge((2, 3, [ACCEPT]), (8, 14, [ACCEPT]))
    member.acknowledge((15, 17, [RELEASE]))
    other.fetch()


def delivery_counts_near_the_maximum(shared: SharedGroup) -> None:
    shared.produce(3, 2)
    shared.state.write((0, 2, AVAILABLE, 32_766), (3, 4, AVAILABLE, 32_767), state_epoch=1)
    member = shared.member()
    for _ in range(3):
        response = member.fetch()
        for topic in response.responses:
            for each in topic.partitions[0].acquired_records:
                member.acknowledge((each.first_offset, each.last_offset, [RELEASE]))


STORIES = (
    acknowledged_in_order,
    every_acknowledge_type,
    refused_acknowledgements,
    deliveries_until_the_limit,
    batch_sizes_and_record_limits,
    sessions_and_their_epochs,
    renewed_locks,
    partitions_of_a_session,
    refused_members,
    deleted_records,
    subsets_of_batches,
    delivery_counts_near_the_maximum,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_responses_and_states_are_equal(pair: Pair, story: Story) -> None:
    scene = Scene(pair, ApiKey.SHARE_FETCH, f"share-{story.__name__}", 2)
    shared = SharedGroup(scene, partitions=2)
    story(shared)
    shared.state.compare_state()
    shared.state.compare_state(partition=1)
    found = list(scene.unexpected({}, set()))
    assert not found, "\n".join(found)


Letter = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


class DeadLetters:
    """The dead-letter topic of a group (KIP-1191) on both brokers."""

    def __init__(self, shared: SharedGroup) -> None:
        self.shared = shared
        self.topic = f"dlq.{shared.topic}"
        config = {"name": "errors.deadletterqueue.group.enable", "value": "true"}
        topic = {"name": self.topic, "num_partitions": 1, "replication_factor": 1}
        topic |= {"assignments": [], "configs": [config]}
        shared.scene.do(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout_ms": 30_000})
        self.configure(**{"errors.deadletterqueue.topic.name": self.topic})
        self.configure(**{"share.delivery.count.limit": "2"})

    def configure(self, **configs: str) -> None:
        """Compare the responses to a change of the group's configs."""
        changes = [
            {"name": name, "config_operation": 0, "value": value} for name, value in configs.items()
        ]
        resource = {"resource_type": 32, "resource_name": self.shared.group, "configs": changes}
        values = {"resources": [resource], "validate_only": False}
        self.shared.scene.compare(lambda _: values, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1)
        self.shared.scene.settle()

    def read(self, side: Side) -> list[Letter]:
        """Return key, value and headers of each record, by its offset in the source topic."""
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        values = {
            "replica_id": -1,
            "max_wait_ms": 0,
            "min_bytes": 0,
            "max_bytes": 1 << 20,
            "topics": [{"topic": self.topic, "partitions": [partition]}],
            "forgotten_topics_data": [],
        }
        (found,) = exchange(side, ApiKey.FETCH, 11, values).responses
        records = iter_records(bytes(found.partitions[0].records or b""))
        letters = [(each.key, each.value, tuple(each.headers)) for each in records]
        return sorted(letters, key=lambda letter: int(dict(letter[2])["__dlq.errors.offset"] or -1))

    def processed(self, side: Side) -> int:
        """Return the offset up to which the share coordinator has all records as processed.

        The stored start offset may lag behind: the write of an archived record does not move it.
        """
        partitions = [{"partition": 0, "leader_epoch": 0}]
        topics = [{"topic_id": side.topic_id(self.shared.topic), "partitions": partitions}]
        values = {"group_id": self.shared.group, "topics": topics}
        (found,) = exchange(side, READ, 0, values).results
        (state,) = found.partitions
        end = int(state.start_offset)
        for each in state.state_batches:
            if each.first_offset == end and each.delivery_state in (ACKNOWLEDGED, ARCHIVED):
                end = each.last_offset + 1
        return end

    def compare(self, count: int, processed: int) -> None:
        """Wait for dead letters and for the final states of the records, and compare the letters.

        Args:
            count: the number of dead letters.
            processed: the offset up to which all records are processed.
        """
        scene = self.shared.scene
        scene.until(lambda side: len(self.read(side)) >= count)
        scene.until(lambda side: self.processed(side) == processed)
        kafka, barnabas = (self.read(side) for side in scene.pair.sides())
        assert len(kafka) == count
        assert kafka == barnabas


def test_dead_letters_are_equal(pair: Pair) -> None:
    scene = Scene(pair, ApiKey.SHARE_FETCH, "share-dead-letters", 2)
    shared = SharedGroup(scene, partitions=2)
    dead = DeadLetters(shared)
    shared.produce(6)
    member = shared.member()
    member.fetch()
    member.acknowledge((0, 5, [REJECT, ACCEPT, REJECT, REJECT, RELEASE, GAP]))
    dead.compare(3, 4)
    member.fetch()
    member.acknowledge((4, 4, [RELEASE]))
    dead.compare(4, 6)
    dead.configure(**{"errors.deadletterqueue.copy.record.enable": "true"})
    shared.produce(2)
    shared.produce(3, compression=1)
    member.fetch()
    member.acknowledge((6, 10, [ACCEPT, REJECT, REJECT, REJECT, ACCEPT]))
    dead.compare(7, 11)
    for value in ("__internal", "dlq.missing", ""):
        dead.configure(**{"errors.deadletterqueue.topic.name": value})
    dead.configure(**{"errors.deadletterqueue.copy.record.enable": "perhaps"})
    shared.produce(1)
    member.fetch()
    member.acknowledge((11, 11, [REJECT]))
    dead.compare(7, 12)
    found = list(scene.unexpected({}, set()))
    assert not found, "\n".join(found)
