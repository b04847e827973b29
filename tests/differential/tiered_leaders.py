"""A story of leader changes of a tiered topic, played on three brokers of one kind.

The story returns what clients see of it, as lines. Waiting is by offsets of ListOffsets and by the
in-sync replicas.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.log_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.protocol.messages.partition_changes import ElectLeadersRequest, TopicPartitions
from barnabas.record.reader import read_batches
from chaos.cluster_view import ClusterView, await_that
from conformance.raw_client import RawClient
from differential.scene import NOW_MS
from differential.tiered_pair import SMALL_LOCAL, stamped_batch
from unit.server.simulated_broker import produce_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from barnabas.protocol.schema import Message
    from barnabas.testing.cluster_process import ClusterProcess, NodeProcess

TOPIC = "led"
SECONDS = 180.0
# Two batches of three records each are one segment.
BATCHES, RECORDS = 6, 3
SPECIAL = (-1, -2, -3, -4, -5, -6)
EARLIEST_LOCAL, LATEST_TIERED = -4, -5
_LIST_OFFSETS, _FETCH, _FOR_EPOCH, _PRODUCE = 11, 12, 4, 9
_MOVED = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE


class LedTopic:
    """A topic with one partition on brokers of a cluster."""

    def __init__(
        self,
        cluster: ClusterProcess,
        name: str = TOPIC,
        brokers: Sequence[int] = (1, 2, 3),
        min_isr: int = 2,
    ) -> None:
        """Create the topic.

        Args:
            cluster: a running cluster.
            name: of the topic.
            brokers: have a replica each. The first one leads.
            min_isr: in-sync replicas that a write needs.
        """
        self.cluster = cluster
        self.name = name
        self.view = ClusterView(cluster)
        self.batches = 0
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.brokers = brokers
        given = {**SMALL_LOCAL, "min.insync.replicas": str(min_isr)}
        topic = NewTopic(name, 1, replica_assignment=[list(brokers)], config=given)
        admin.create_topics([topic])[name].result(SECONDS)
        self.await_led_by(brokers[0])

    @property
    def end_offset(self) -> int:
        """The end of the log."""
        return self.batches * RECORDS

    @property
    def leader(self) -> int:
        """The broker that leads the partition."""
        return await_that(
            lambda: self.view.partition(self.name).leader,
            lambda found: found > 0,
            SECONDS,
            f"a leader of {self.name}",
        )

    def await_led_by(self, node: int) -> None:
        """Wait until a broker leads the partition."""
        await_that(
            lambda: self.view.partition(self.name).leader, node.__eq__, SECONDS, f"leader {node}"
        )

    def await_in_sync(self, count: int) -> None:
        """Wait until so many replicas are in sync."""
        await_that(
            lambda: self.view.partition(self.name).isr,
            lambda found: len(found) == count,
            SECONDS,
            f"{count} replicas in sync",
        )

    def ask(self, node: int, request: Message, version: int) -> Any:
        """Send a request to a broker."""
        with _connected(self.cluster.node(node)) as client:
            return client.ask(request, version)

    def fill(self, count: int = BATCHES) -> None:
        """Append batches of three records, each a second later than the one before."""
        for _ in range(count):
            number = self.batches
            values = [b"%d-%d:" % (number, each) + b"." * 100 for each in range(RECORDS)]
            request = produce_request(self.name, stamped_batch(NOW_MS + number * 1000, *values))
            request.acks = -1

            def code(request: Message = request) -> int:
                answer = self.ask(self.leader, request, _PRODUCE)
                return int(answer.responses[0].partition_responses[0].error_code)

            await_that(code, lambda found: not found, SECONDS, f"batch {number}")
            self.batches += 1

    def listed(self, node: int, timestamp: int) -> Any:
        """Return the answer of a broker to ListOffsets."""
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = ListOffsetsTopic(name=self.name, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic], timeout_ms=30_000)
        return self.ask(node, request, _LIST_OFFSETS).topics[0].partitions[0]

    def await_local_start(self) -> None:
        """Wait until all but the active segment are in the tier only, as the leader says."""
        end = self.end_offset
        # The active segment has one or two batches, and its predecessor is the last one copied.
        active = end - (RECORDS if self.batches % 2 else 2 * RECORDS)
        wanted = {EARLIEST_LOCAL: active, LATEST_TIERED: active - 1}
        await_that(
            lambda: {each: self.listed(self.leader, each).offset for each in wanted},
            wanted.__eq__,
            SECONDS,
            f"local start {active}",
        )

    def elect_preferred(self) -> None:
        """Make the first broker the leader."""
        partitions = [TopicPartitions(topic=self.name, partitions=[0])]
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=partitions, timeout_ms=10_000
        )
        first = self.brokers[0]

        def elect() -> bool:
            if self.view.partition(self.name).leader != first:
                self.view.order(request, 2)
            return self.view.partition(self.name).leader == first

        await_that(elect, bool, SECONDS, f"broker {first} as the leader")

    # What clients see.

    def offsets(self) -> Iterator[str]:
        """Yield the leader's offsets at all special times, and at the time of each batch."""
        for timestamp in SPECIAL:
            yield f"at {timestamp}: {_shown(self.listed(self.leader, timestamp))}"
        for number in range(self.batches):
            found = self.listed(self.leader, NOW_MS + number * 1000)
            yield f"at batch {number}: offset={found.offset} epoch={found.leader_epoch}"

    def epoch_ends(self) -> Iterator[str]:
        """Yield the ends of all leader epochs, and of two that do not exist."""
        newest = self.view.partition(self.name).leader_epoch
        for epoch in range(newest + 3):
            partition = OffsetForLeaderPartition(
                partition=0, current_leader_epoch=-1, leader_epoch=epoch
            )
            topic = OffsetForLeaderTopic(topic=self.name, partitions=[partition])
            request = OffsetForLeaderEpochRequest(replica_id=-2, topics=[topic])
            found = self.ask(self.leader, request, _FOR_EPOCH).topics[0].partitions[0]
            name = ErrorCode(found.error_code).name
            yield f"epoch {epoch}: {name} epoch={found.leader_epoch} end={found.end_offset}"

    def records(self, node: int) -> Iterator[str]:
        """Yield each record with its offset and leader epoch, as a broker serves it to a consumer.

        A follower may not know the high watermark yet; then its fetches are repeated.
        """
        offset, end = 0, self.end_offset
        while offset < end:
            content = await_that(
                lambda offset=offset: self._fetched(node, offset), bool, SECONDS, f"{offset} read"
            )
            for header, batch in read_batches(content):
                for each in batch:
                    value = (each.value or b"").partition(b":")[0].decode()
                    yield f"{each.offset}: {value} epoch={header.partition_leader_epoch}"
                offset = header.next_offset

    def _fetched(self, node: int, offset: int) -> bytes:
        found = self.fetch(node, offset)
        code = ErrorCode(found.error_code)
        assert code in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE), (node, offset, code)
        return bytes(found.records or b"")

    def fetch(self, node: int, offset: int, replica: int = -1, epoch: int = -1) -> Any:
        """Return the answer of a broker to a Fetch of a consumer, or of a replica."""
        partition = FetchPartition(
            partition=0,
            fetch_offset=offset,
            current_leader_epoch=epoch,
            partition_max_bytes=1 << 20,
        )
        topic = FetchTopic(topic=self.name, partitions=[partition])
        request = FetchRequest(
            replica_id=replica, max_wait_ms=1000, min_bytes=1, max_bytes=1 << 20, topics=[topic]
        )
        return self.ask(node, request, _FETCH).responses[0].partitions[0]

    def moved(self) -> str:
        """Return the leader's answer to a replica that fetches an offset that is only remote."""
        replica = next(each for each in self.brokers if each != self.leader)
        found = self.fetch(self.leader, 0, replica)
        assert found.error_code == _MOVED, ErrorCode(found.error_code)
        return f"replica at 0: {_MOVED.name} log_start={found.log_start_offset}"

    def seen(self, label: str) -> list[str]:
        """Return all that clients see now, after a label."""
        found = [*self.offsets(), *self.epoch_ends(), self.moved(), *self.records(self.leader)]
        return [f"{label}, {line}" for line in found]


def leader_changes(cluster: ClusterProcess) -> list[str]:
    """Play kills, elections and a wiped follower. Return what clients see after each."""
    led = LedTopic(cluster)
    first, second, third = cluster.brokers
    led.fill()
    led.await_local_start()
    seen = led.seen("first leader")
    first.kill()
    led.await_led_by(second.node_id)
    led.await_in_sync(2)
    led.await_local_start()
    seen += led.seen("after the kill")
    led.fill()
    led.await_local_start()
    seen += led.seen("second leader")
    first.wipe()
    first.start()
    led.await_in_sync(3)
    seen += [f"rebuilt follower, {line}" for line in led.records(first.node_id)]
    led.elect_preferred()
    led.await_local_start()
    seen += led.seen("rebuilt leader")
    led.fill()
    led.await_local_start()
    seen += led.seen("after its copies")
    seen += [f"follower, {line}" for line in led.records(third.node_id)]
    return seen


def _shown(found: Any) -> str:
    name = ErrorCode(found.error_code).name
    time = found.timestamp if found.timestamp < 0 else found.timestamp - NOW_MS
    return f"{name} time={time} offset={found.offset} epoch={found.leader_epoch}"


@contextlib.contextmanager
def _connected(node: NodeProcess) -> Iterator[RawClient]:
    client = RawClient(node.address)
    try:
        yield client
    finally:
        client.close()
