"""A topic on three brokers whose leaders do not coordinate transactions."""

from __future__ import annotations

from barnabas.client.admin.topics import NewTopic, PartitionState
from barnabas.client.facade import Client
from barnabas.client.topic_partition import TopicPartition
from barnabas.testing.cluster_process import ClusterProcess
from jvm.kafka_process import QUICK_FENCING
from waiting import eventually

# Settings of the brokers: one broker coordinates all transactions, and leaders stay where they are.
SETTINGS = {
    **QUICK_FENCING,
    "transaction.state.log.num.partitions": "1",
    "auto.leader.rebalance.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}
STATE = "__transaction_state"


def create_state_topic(client: Client) -> None:
    """Create the topic of the transaction coordinator."""
    with client.producer(transactional_id="first") as producer:
        producer.init_transactions()


class UncoordinatedTopic:
    """Two partitions with different leaders; the third broker coordinates all transactions."""

    def __init__(self, cluster: ClusterProcess, client: Client, topic: str) -> None:
        self.cluster = cluster
        self.client = client
        self.topic = topic
        self.await_in_sync(STATE)
        self.coordinator = self._partitions(STATE)[0].leader
        self.leaders = [n.node_id for n in cluster.brokers if n.node_id != self.coordinator]
        first, second = self.leaders
        assignments = {
            0: [first, second, self.coordinator],
            1: [second, first, self.coordinator],
        }
        client.create_topics([NewTopic(topic, assignments=assignments)])
        self.await_in_sync(topic)
        self.places = [TopicPartition(topic, number) for number in assignments]

    def _partitions(self, topic: str) -> dict[int, PartitionState]:
        return self.client.describe_topics([topic])[topic].partitions

    def await_in_sync(self, topic: str) -> None:
        """Wait until all replicas of a topic are in sync."""
        eventually(
            lambda: all(
                len(each.isr) == len(self.cluster.brokers)
                for each in self._partitions(topic).values()
            ),
            self.cluster.log,
        )

    def ends(self, isolation_level: str) -> list[int]:
        """Return the end offset of each partition, or its last stable offset."""
        asked = dict.fromkeys(self.places, "latest")
        found = self.client.list_offsets(asked, isolation_level=isolation_level)
        return [found[place].offset for place in self.places]

    def await_stable(self) -> None:
        """Wait until no transaction is open in the topic."""
        eventually(
            lambda: self.ends("read_committed") == self.ends("read_uncommitted"),
            lambda: f"{self.ends('read_committed')} {self.ends('read_uncommitted')}",
        )
