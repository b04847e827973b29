"""A replica that is damaged while its broker runs: another one leads, and it is fetched again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.legacy import read_records
from barnabas.storage.topic_partition import TopicPartition
from unit.server.simulated_cluster import SimulatedCluster, three_nodes

if TYPE_CHECKING:
    from barnabas.storage.log.log import Log

TOPIC = "flights"
KEY = TopicPartition(TOPIC, 0)


class Damaged:
    """A topic on three brokers with min.insync.replicas=2."""

    def __init__(self, seed: int = 1) -> None:
        self.cluster: SimulatedCluster = three_nodes(seed)
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=1,
            replication_factor=3,
            assignments=[],
            configs=[CreatableTopicConfig(name="min.insync.replicas", value="2")],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        answer = self.cluster.ask(self.cluster.active, request, 5)
        assert answer.topics[0].error_code == 0, answer
        self.cluster.until(lambda: all(self.registration(each) for each in (1, 2, 3)))
        self.cluster.until(lambda: len(self.registration(1).isr) == 3)

    def registration(self, node_id: int) -> Any:
        return self.cluster.image(node_id).topics.partition(*KEY)

    @property
    def leader(self) -> int:
        return int(self.registration(self.cluster.active).leader)

    def log(self, node_id: int) -> Log:
        return self.cluster.nodes[node_id].broker.logs.logs[KEY]

    def send(self, value: bytes, acks: int = -1) -> list[Any]:
        builder = BatchBuilder()
        builder.append(1, None, value)
        data = PartitionProduceData(index=0, records=bytes(builder.build()))
        topics = [TopicProduceData(name=TOPIC, partition_data=[data])]
        request = ProduceRequest(
            transactional_id=None, acks=acks, timeout_ms=60_000, topic_data=topics
        )
        return self.cluster.send(self.leader, request, 9)

    def produce(self, value: bytes, acks: int = -1) -> int:
        """Produce until it succeeds, as clients do; return the offset."""
        for _ in range(200):
            answer = self.answered(self.send(value, acks))
            if answer.error_code == 0:
                return int(answer.base_offset)
            self.cluster.world.run_for(100)
        raise AssertionError(ErrorCode(answer.error_code).name)

    def answered(self, outcome: list[Any]) -> Any:
        self.cluster.until(lambda: bool(outcome))
        response, error = outcome[0]
        assert error is None, error
        return response.responses[0].partition_responses[0]

    def fetch(self, node_id: int, offset: int) -> Any:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topics = [FetchTopic(topic=TOPIC, partitions=[partition])]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
        return self.cluster.ask(node_id, request, 11).responses[0].partitions[0]

    def values(self) -> list[bytes | None]:
        """Return the records that a consumer reads from the leader."""
        found: list[bytes | None] = []
        while True:
            answer = self.fetch(self.leader, len(found))
            assert answer.error_code == 0, ErrorCode(answer.error_code).name
            records = read_records(bytes(answer.records or b""))
            found += [each.value for each in records if each.offset >= len(found)]
            if len(found) >= answer.high_watermark:
                return found

    def flip(self, node_id: int, position: int, bit: int = 2) -> None:
        file = self.log(node_id).segments[0].file
        byte = file.read_at(1, position)[0]
        file.write_at(bytes([byte ^ 1 << bit]), position)

    def is_healed(self) -> bool:
        """Whether all replicas are in sync again, with the same bytes."""
        leader = self.leader
        if len(self.registration(leader).isr) < 3:
            return False
        contents = set()
        for node_id in (1, 2, 3):
            log = self.cluster.nodes[node_id].broker.logs.logs.get(KEY)
            if log is None:
                return False
            contents.add(b"".join(bytes(s.file.read_at(s.size, 0)) for s in log.segments))
        return len(contents) == 1

    def damage_counts(self, node_id: int) -> int:
        return sum(self.cluster.nodes[node_id].shared.log_dependencies.damage.counts.values())


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_leader_whose_batch_all_followers_refuse_resigns(seed: int) -> None:
    """Both followers refuse the batch: the high watermark could never advance again."""
    damaged = Damaged(seed)
    damaged.produce(b"first")
    leader = damaged.leader
    position = damaged.log(leader).size
    # A smaller batch would be served from memory.
    outcome = damaged.send(b"lost" * 1000, acks=-1)
    damaged.cluster.until(lambda: damaged.log(leader).size > position)
    damaged.flip(leader, position + 65)
    # The followers have not received the batch yet, and fetch it again from the file.
    for follower in {1, 2, 3} - {leader}:
        damaged.cluster.world.network.reset_connections(f"node-{leader}", f"node-{follower}")
    damaged.cluster.until(lambda: damaged.leader != leader)
    assert damaged.damage_counts(leader) == 1
    offset = damaged.produce(b"second")
    assert offset == 1
    damaged.cluster.until(damaged.is_healed)
    assert damaged.values() == [b"first", b"second"]
    # Never committed, so never acknowledged.
    assert damaged.answered(outcome).error_code != 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_committed_records_that_the_leader_lost_are_fetched_from_followers(
    seed: int,
) -> None:
    damaged = Damaged(seed)
    values = [b"%d" % number for number in range(5)]
    for value in values:
        damaged.produce(value)
    damaged.cluster.until(damaged.is_healed)
    leader = damaged.leader
    log = damaged.log(leader)
    # The length of the third batch.
    damaged.flip(leader, 2 * log.size // 5 + 9)
    log.release_idle()
    log.segments[0]._recent.clear()
    answer = damaged.fetch(leader, 3)
    assert answer.error_code == ErrorCode.CORRUPT_MESSAGE
    damaged.cluster.until(lambda: damaged.leader != leader)
    damaged.cluster.until(damaged.is_healed)
    # A new leader's high watermark follows the fetches of its followers.
    damaged.cluster.until(lambda: damaged.log(damaged.leader).high_watermark == len(values))
    assert damaged.values() == values
    assert damaged.damage_counts(leader) == 1
    # The replica is assigned to its directory again.
    directory = damaged.cluster.nodes[leader].broker.logs.directories[0].id
    damaged.cluster.until(lambda: damaged.registration(leader).directory_of(leader) == directory)
