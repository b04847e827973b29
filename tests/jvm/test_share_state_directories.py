"""Directories with the state of share partitions, which the other broker continues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from differential.scene import advertised, exchange
from differential.share_state import DELETE, INITIALIZE, READ, SUMMARY, WRITE
from differential.side import Side
from jvm.directory_pair import directory_pair
from jvm.directory_settings import SETTINGS
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jvm.directory_pair import Broker

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

GROUP, TOPIC = "travellers", "roads"
ALL = {
    **SETTINGS,
    "share.coordinator.state.topic.num.partitions": "2",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.snapshot.update.records.per.snapshot": "3",
}
APIS = {INITIALIZE: (0, 0), READ: (0, 0), WRITE: (0, 1), DELETE: (0, 0), SUMMARY: (0, 1)}
NOT_READY = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


@pytest.fixture
def pair(tmp_path: Path, kafka_jars: Callable[[str], str]) -> Iterator[tuple[Broker, Broker]]:
    """Both brokers on one directory."""
    with directory_pair(tmp_path, ALL) as brokers:
        yield brokers


class Group:
    """A group's share partitions of one topic on the running broker."""

    def __init__(self, broker: Broker, topic_id: bytes | None = None) -> None:
        self.side = Side("running", broker.bootstrap)
        self.topic_id = self._created() if topic_id is None else topic_id
        key = f"{GROUP}:AAAAAAAAAAAAAAAAAAAAAA:0"
        find_values = {"key_type": 2, "coordinator_keys": [key]}
        find = ApiKey.FIND_COORDINATOR
        eventually(lambda: not exchange(self.side, find, 6, find_values).coordinators[0].error_code)
        self.summaries()

    def _created(self) -> bytes:
        new = {"name": TOPIC, "num_partitions": 6, "replication_factor": 1}
        made = exchange(self.side, ApiKey.CREATE_TOPICS, 7, {"topics": [new], "timeout_ms": 10_000})
        assert made.topics[0].error_code == 0, made
        topic_id: bytes = made.topics[0].topic_id
        return topic_id

    def send(self, api: ApiKey, *partitions: dict[str, Any]) -> list[Any]:
        topics = [{"topic_id": self.topic_id, "partitions": list(partitions)}]
        version = 1 if api in (WRITE, SUMMARY) else 0
        (topic,) = exchange(self.side, api, version, {"group_id": GROUP, "topics": topics}).results
        for each in topic.partitions:
            # Error messages differ between brokers.
            each.error_message = None
        return sorted(topic.partitions, key=lambda each: each.partition)

    def _read(self, api: ApiKey, leader_epoch: int) -> list[Any]:
        """Read all partitions from a coordinator that has loaded them.

        Kafka also unloads them for a moment when it lacks processor time.
        """
        partitions = [{"partition": each, "leader_epoch": leader_epoch} for each in range(6)]

        def loaded() -> list[Any]:
            found = self.send(api, *partitions)
            return [] if {each.error_code for each in found} & {*NOT_READY} else found

        return eventually(loaded)

    def summaries(self) -> list[Any]:
        return self._read(SUMMARY, 0)

    def states(self) -> list[Any]:
        return self._read(READ, 4)

    def write(self, partition: int, offset: int) -> None:
        batch = {"first_offset": offset, "last_offset": offset + 1}
        batches = [{**batch, "delivery_state": 2, "delivery_count": 1}]
        epochs = {"state_epoch": 2, "leader_epoch": 4, "delivery_complete_count": offset}
        values = {**epochs, "start_offset": 10, "state_batches": batches}
        (written,) = self.send(WRITE, {"partition": partition, **values})
        assert written.error_code == ErrorCode.NONE, written


@pytest.mark.parametrize("is_kafka_first", [True, False], ids=["kafka-first", "ours-first"])
def test_the_other_broker_continues_with_the_state(
    pair: tuple[Broker, Broker], is_kafka_first: bool
) -> None:
    first, second = pair if is_kafka_first else pair[::-1]
    first.start()
    group = Group(first)
    # Both brokers serve the APIs even at level 0 of share.version.
    served = advertised(group.side)
    assert {each: served[each] for each in APIS} == APIS
    known = [{"partition": each, "state_epoch": 2, "start_offset": 10} for each in range(5)]
    eventually(lambda: {each.error_code for each in group.send(INITIALIZE, *known)} == {0})
    # Between zero and eight updates, so that some partitions have snapshots with batches.
    for partition in range(5):
        for number in range(2 * partition):
            group.write(partition, 10 + 3 * number)
    group.send(DELETE, {"partition": 1})
    before = group.states(), group.summaries()
    group.side.close_all()
    first.kill()
    second.start()
    group = Group(second, group.topic_id)
    assert (group.states(), group.summaries()) == before
    # The epochs are restored, and writes continue.
    stale = {"partition": 3, "state_epoch": 1, "start_offset": 0}
    (fenced,) = group.send(INITIALIZE, stale)
    assert fenced.error_code == ErrorCode.FENCED_STATE_EPOCH
    (fenced,) = group.send(READ, {"partition": 3, "leader_epoch": 3})
    assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
    for number in range(5):
        group.write(3, 100 + 3 * number)
    after = group.states(), group.summaries()
    assert len(after[0][3].state_batches) == len(before[0][3].state_batches) + 5
    group.side.close_all()
    # Back on the first broker.
    second.kill()
    first.start()
    group = Group(first, group.topic_id)
    assert (group.states(), group.summaries()) == after
    group.side.close_all()
