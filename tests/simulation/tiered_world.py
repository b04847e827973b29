"""Three simulated brokers with a tiered topic, a writer, and the invariants of the remote tier.

The store is one for the whole world, and outlives its brokers. The named invariants:

    NothingSkipped          A read begins with the asked offset, and has what was acknowledged.
    NothingLost             The leader serves each acknowledged record above its log start.
    TierNeverAhead          A leader copies only records below its last stable offset.
    OneCopyPerRange         At the end, lookups find a copy of each copied offset.
    NoOrphanAfterQuiescence At the end, the store has the objects of known segments only.
    LocalStartMonotonic     A local log start only rises, until the log is truncated.
    NothingLeft             After the tier is switched off, the store has nothing of the topic, and
                            the leader has all records from the local start on.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from barnabas.metadata.configs_image import TOPIC as CONFIG_TOPIC
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.log_offsets import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.record.builder import BatchBuilder
from barnabas.record.reader import read_batches
from barnabas.server.process import tiered_storage
from barnabas.sim.remote_storage import SimRemoteStorage
from barnabas.storage.remote.remote_storage import SegmentState
from barnabas.storage.remote.segment_objects import SUFFIXES, segment_name
from barnabas.storage.topic_partition import TopicIdPartition, TopicPartition
from simulation.cluster_world import NODES, ClusterWorld
from unit.server.simulated_broker import produce_request
from unit.server.simulated_cluster import TIMEOUT_MS, SimulatedCluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from barnabas.replication.partition.partition import Partition
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.rng import Rng
    from barnabas.sim.world import SimWorld
    from barnabas.storage.log.log import Log
    from barnabas.storage.remote.remote_storage import (
        RemoteSegment,
        RemoteStorage,
        SegmentFiles,
    )
    from barnabas.storage.remote.segment_states import RemoteLog

TOPIC = "tiered"
PARTITIONS = 2
SEGMENT_BYTES = 2_000
# Segments that local retention keeps, beside the active one.
LOCAL_SEGMENTS = 2
RECORD_BYTES = 150
ORPHAN_AGE_MS = 3_000
QUIET_LIMIT_MS = 120_000.0
EARLIEST, LATEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -1, -4, -5
# Operations of IncrementalAlterConfigs.
_SET, _DELETE = 0, 1

SETTINGS = {
    "remote_log_storage_system_enable": "true",
    "barnabas_remote_storage": "file:///tier",
    "barnabas_remote_orphan_age_ms": str(ORPHAN_AGE_MS),
    "remote_log_manager_task_interval_ms": "500",
    "rlmm_config_remote_log_metadata_topic_num_partitions": "2",
    "log_initial_task_delay_ms": "100",
    "log_retention_check_interval_ms": "400",
    "log_segment_delete_delay_ms": "500",
    "min_insync_replicas": "2",
    "offsets_topic_num_partitions": "1",
    "transaction_state_log_num_partitions": "1",
}


class InvariantError(AssertionError):
    """An invariant does not hold; the message begins with its name."""


class WatchedStore(SimRemoteStorage):
    """The store of a world, which checks TierNeverAhead at each copy."""

    world: TieredWorld | None = None

    def __init__(self, clock: Clock, rng: Rng) -> None:
        super().__init__(clock, rng)
        self.clock = clock

    def on(self, disk: Disk) -> RemoteStorage:
        return _WatchedView(self, disk)  # type: ignore[return-value]


class _WatchedView:
    """A broker's view of the store."""

    def __init__(self, store: WatchedStore, disk: Disk) -> None:
        self._store = store
        self._disk = disk
        self._view = SimRemoteStorage.on(store, disk)

    def copy_segment(self, segment: RemoteSegment, files: SegmentFiles) -> bytes:
        if self._store.world is not None:
            self._store.world.check_copy(self._disk, segment)
        return self._view.copy_segment(segment, files)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


@contextmanager
def shared_store() -> Iterator[dict[int, WatchedStore]]:
    """Let brokers open the store of their world in place of a directory.

    Yields:
        The stores by the identity of the hosts' disks, to be filled.
    """
    stores: dict[int, WatchedStore] = {}

    def open_store(
        url: str, cluster_id: str, disk: Disk, options: object, is_new: object
    ) -> RemoteStorage:
        return stores[id(disk)].on(disk)

    original = tiered_storage.open_remote_storage
    tiered_storage.open_remote_storage = open_store
    try:
        yield stores
    finally:
        tiered_storage.open_remote_storage = original


class TieredWorld(ClusterWorld):
    """Three nodes with the topic `TOPIC`, whose replicas are on all nodes."""

    def __init__(
        self,
        seed: int,
        stores: dict[int, WatchedStore],
        settings: Mapping[str, str] | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Start the nodes and create the topic.

        Args:
            seed: seed of all random choices.
            stores: of `shared_store`.
            settings: broker keys.
            configs: more configs of the topic.
        """
        self._stores = stores
        super().__init__(seed, {**SETTINGS, **(settings or {})})
        self.topic_id = self._create_topic(configs or {})
        # Values of the acknowledged records by offset, by partition.
        self.acknowledged: dict[int, dict[int, bytes]] = {each: {} for each in range(PARTITIONS)}
        self._writers = [Writer(self, each) for each in range(PARTITIONS)]
        # Log object, end and local start at the last check, by node and partition.
        self._seen: dict[tuple[int, int], tuple[Log, int, int]] = {}

    def start_cluster(self, seed: int, settings: Mapping[str, str]) -> SimulatedCluster:
        roles = dict.fromkeys(NODES, "broker,controller")
        cluster = SimulatedCluster(roles, seed, **settings)
        self.store = store_of(cluster.world, self._stores)
        self.store.world = self
        return cluster.start()

    def _create_topic(self, configs: Mapping[str, str]) -> bytes:
        given = {
            "remote.storage.enable": "true",
            "internal.segment.bytes": str(SEGMENT_BYTES),
            "local.retention.bytes": str(LOCAL_SEGMENTS * SEGMENT_BYTES),
            **configs,
        }
        topic = CreatableTopic(
            name=TOPIC,
            num_partitions=PARTITIONS,
            replication_factor=len(NODES),
            assignments=[],
            configs=[CreatableTopicConfig(name=name, value=given[name]) for name in given],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
        answer = self.cluster.ask(self.cluster.active, request, 7).topics[0]
        assert answer.error_code == 0, answer
        return bytes(answer.topic_id)

    # Changes of the topic.

    def alter(self, **configs: str | None) -> None:
        """Set configs of the topic; None deletes one."""
        changes = [
            AlterableConfig(
                name=name.replace("_", "."),
                config_operation=_DELETE if value is None else _SET,
                value=value,
            )
            for name, value in configs.items()
        ]
        resource = AlterConfigsResource(
            resource_type=CONFIG_TOPIC, resource_name=TOPIC, configs=changes
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        answer = self.cluster.ask(self.cluster.active, request, 1).responses[0]
        assert answer.error_code == 0, answer

    def switch_tier(self, *, is_on: bool) -> None:
        """Switch the tier on, or switch it off and delete what is in it."""
        self.alter(
            remote_storage_enable=str(is_on).lower(),
            remote_log_delete_on_disable=str(not is_on).lower(),
        )

    def switch_copies(self, *, is_on: bool) -> None:
        """Let segments be copied, or let the tier be read only."""
        local = str(LOCAL_SEGMENTS * SEGMENT_BYTES) if is_on else None
        self.alter(remote_log_copy_disable=str(not is_on).lower(), local_retention_bytes=local)

    def delete_records(self, index: int, offset: int) -> None:
        """Delete the records of a partition below an offset; a failure changes nothing."""
        asked = DeleteRecordsPartition(partition_index=index, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=TOPIC, partitions=[asked])], timeout_ms=TIMEOUT_MS
        )
        self.cluster.ask(self.leading(index), request, 2)

    # Parts of the brokers.

    def broker(self, node: int) -> Any:
        """Return the broker of a running node."""
        return self.cluster.nodes[node].broker

    def log(self, node: int, index: int) -> Log:
        """Return a replica's log."""
        found: Log = self.broker(node).logs.logs[TopicPartition(TOPIC, index)]
        return found

    def partition(self, node: int, index: int) -> Partition | None:
        """Return a replica, or None if the broker does not have it yet."""
        found = self.broker(node).replicas.partition(TopicPartition(TOPIC, index))
        return None if isinstance(found, ErrorCode) else found

    def where(self, index: int) -> TopicIdPartition:
        return TopicIdPartition(self.topic_id, TOPIC, index)

    def remote_log(self, node: int, index: int) -> RemoteLog | None:
        """Return the segments that a broker knows of a partition; None if it is not ready."""
        found: RemoteLog | None = self.broker(node).tiering.metadata.log_of(self.where(index))
        return found

    def leading(self, index: int) -> int:
        """Wait until a running broker leads a partition, and return it."""

        def found() -> int:
            node = self.leader((TOPIC, index))
            if node in self.cluster.ready:
                partition = self.partition(node, index)
                if partition is not None and partition.leader is not None:
                    return node
            return -1

        assert self.await_that(lambda: found() >= 0), index
        return found()

    # Time.

    def live(self, duration_ms: float, *, writes: bool = True) -> None:
        """Advance time. Writers write, and the invariants of the time between are checked."""
        end = self.now * 1000 + duration_ms
        while self.now * 1000 < end:
            if writes:
                for writer in self._writers:
                    writer.pump()
            self.run_for(20)
            self._check_local_starts()

    def _check_local_starts(self) -> None:
        for node in self.cluster.ready:
            for index in range(PARTITIONS):
                log = self.broker(node).logs.logs.get(TopicPartition(TOPIC, index))
                if log is None:
                    continue
                before = self._seen.get((node, index))
                local, end = log.local_log_start_offset, log.log_end_offset
                if before is not None and before[0] is log and end >= before[1]:
                    check(
                        local >= before[2], f"LocalStartMonotonic: {node} {index} {before} {local}"
                    )
                self._seen[node, index] = (log, end, local)

    def check_copy(self, disk: Disk, segment: RemoteSegment) -> None:
        """Check a copy at the time at which the store begins with it."""
        for node in self.cluster.ready:
            if self.cluster.world.host(f"node-{node}").disk is not disk:
                continue
            partition = self.partition(node, segment.partition)
            if partition is not None and partition.leader is not None:
                stable = partition.log.last_stable_offset
                check(segment.end_offset < stable, f"TierNeverAhead: {stable=} {segment}")

    def check_reads(self) -> int:
        """Check NothingSkipped at a random offset of each partition. Return the number of records.

        A read may fail, or return nothing.
        """
        return sum(self._check_read(index) for index in range(PARTITIONS))

    def _check_read(self, index: int) -> int:
        known = self.acknowledged[index]
        node = self.leader((TOPIC, index))
        partition = self.partition(node, index) if node in self.cluster.ready else None
        if not known or partition is None or partition.leader is None:
            return 0
        offset = self.rng.choice(sorted(known))
        count = 0
        for header, batch in read_batches(self._fetch(node, index, offset)[1]):
            text = f"NothingSkipped: {node} {index} at {offset}"
            check(count > 0 or header.base_offset <= offset < header.next_offset, text)
            for each in batch:
                count += 1
                value = known.get(each.offset, each.value)
                check(value == each.value, f"{text}: the value of {each.offset} is another one")
        return count

    def _fetch(self, node: int, index: int, offset: int) -> tuple[int, bytes]:
        """Fetch once; return the error code, and records."""
        asked = FetchPartition(
            partition=index, fetch_offset=offset, partition_max_bytes=SEGMENT_BYTES
        )
        topic = FetchTopic(topic=TOPIC, partitions=[asked])
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])
        answer = self.cluster.ask(node, request, 11).responses[0].partitions[0]
        return answer.error_code, bytes(answer.records or b"")

    # The end.

    def settle(self) -> None:
        """Wait until all closed segments are copied, and local retention and orphans are done."""
        self.await_full_isr()
        for index in range(PARTITIONS):
            end = self.now * 1000 + QUIET_LIMIT_MS
            while not self._is_settled(index) and self.now * 1000 < end:
                self.run_for(200)
            check(self._is_settled(index), f"Quiescence: {index} {self.describe(index)}")

    def _is_settled(self, index: int) -> bool:
        node = self.leader((TOPIC, index))
        remote = self.remote_log(node, index) if node in self.cluster.ready else None
        if remote is None:
            return False
        log = self.log(node, index)
        segments = remote.segments()
        if any(each.state is not SegmentState.COPY_SEGMENT_FINISHED for each in segments):
            return False
        if log.copyable_segments(log.highest_remote_offset + 1, log.last_stable_offset):
            return False
        objects = [each for each in self.store.names() if f"/{index}/" in each]
        return len(objects) == len(SUFFIXES) * len(segments) and all(
            self.log(each, index).log_start_offset == log.log_start_offset
            and self.log(each, index).size <= (LOCAL_SEGMENTS + 2) * SEGMENT_BYTES
            for each in NODES
        )

    def check_tier_goes(self) -> None:
        """Switch the tier off, and check NothingLeft."""
        starts = [
            self.log(self.leading(each), each).local_log_start_offset for each in range(PARTITIONS)
        ]
        self.switch_tier(is_on=False)
        end = self.now * 1000 + QUIET_LIMIT_MS
        while self.store.names() and self.now * 1000 < end:
            self.run_for(200)
        check(not self.store.names(), f"NothingLeft: {self.store.names()}")
        for index in range(PARTITIONS):
            log = self.log(self.leading(index), index)
            start = log.log_start_offset
            check(start == log.local_log_start_offset, f"NothingLeft: {self.describe(index)}")
            check(start <= starts[index], f"NothingLeft: {starts} {self.describe(index)}")
            found = self.read_all(index, start)
            for offset, value in self.acknowledged[index].items():
                text = f"NothingLeft: {index} at {offset}"
                check(offset < start or found.get(offset) == value, text)

    def describe(self, index: int) -> str:
        """Return the state of a partition on all nodes, for messages."""
        lines = []
        for node in self.cluster.ready:
            log = self.log(node, index)
            remote = self.remote_log(node, index)
            segments = [] if remote is None else remote.segments()
            known = [(each.start_offset, each.end_offset, each.state.value) for each in segments]
            lines.append(
                f"{node}: start={log.log_start_offset} local={log.local_log_start_offset} "
                f"end={log.log_end_offset} remote={log.highest_remote_offset} {known}"
            )
        return "\n".join([f"leader={self.leader((TOPIC, index))}", *lines])

    def check_all(self) -> int:
        """Check the invariants at the end. Return the number of records read from the tier."""
        return sum(self._check(index) for index in range(PARTITIONS))

    def _check(self, index: int) -> int:
        node = self.leading(index)
        log = self.log(node, index)
        start, local = log.log_start_offset, log.local_log_start_offset
        found = self.read_all(index, start)
        for offset, value in self.acknowledged[index].items():
            if offset >= start:
                text = f"NothingLost: {index} at {offset}, local start {local}"
                check(found.get(offset) == value, f"{text}\n{self.describe(index)}")
        for each in NODES:
            self._check_copies(each, index)
        return sum(start <= offset < local for offset in found)

    def _check_copies(self, node: int, index: int) -> None:
        """Check OneCopyPerRange and NoOrphanAfterQuiescence with the metadata of a node."""
        assert self.await_that(lambda: self.remote_log(node, index) is not None), node
        log, remote = self.log(node, index), self.remote_log(node, index)
        assert remote is not None
        offset = log.log_start_offset
        while offset < log.local_log_start_offset:
            epoch = log.leader_epochs.epoch_for_offset(offset)
            segment = None if epoch is None else remote.segment_at(epoch, offset)
            text = f"OneCopyPerRange: {node} {index} has no copy of {offset} in epoch {epoch}"
            if segment is None:
                raise InvariantError(f"{text}\n{self.describe(index)}")
            offset = segment.end_offset + 1
        wanted = {segment_name(each) + suffix for each in remote.segments() for suffix in SUFFIXES}
        objects = {each for each in self.store.names() if f"/{index}/" in each}
        check(objects == wanted, f"NoOrphanAfterQuiescence: {node} {index} {objects ^ wanted}")

    # Requests of a client.

    def list_offset(self, index: int, timestamp: int) -> int:
        """Return the offset of a special timestamp from the leader."""
        partition = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        topic = ListOffsetsTopic(name=TOPIC, partitions=[partition])
        request = ListOffsetsRequest(replica_id=-1, topics=[topic])
        for _ in range(100):
            answer = self.cluster.ask(self.leading(index), request, 9).topics[0].partitions[0]
            if answer.error_code == 0:
                return int(answer.offset)
            self.run_for(50)
        raise InvariantError(f"ListOffsets of {index}: {ErrorCode(answer.error_code).name}")

    def read_all(self, index: int, start: int) -> dict[int, bytes]:
        """Read the committed records from an offset on, as a consumer of the leader."""
        found: dict[int, bytes] = {}
        offset, end = start, self.list_offset(index, LATEST)
        failures = 0
        while offset < end:
            error_code, records = self._fetch(self.leading(index), index, offset)
            if error_code or not records:
                failures += 1
                name = ErrorCode(error_code).name
                check(failures < 50, f"NothingLost: {name} at {offset}\n{self.describe(index)}")
                self.run_for(100)
                continue
            failures = 0
            for header, batch in read_batches(records):
                found.update((each.offset, each.value or b"") for each in batch)
                offset = max(offset, header.next_offset)
        return found


class Writer:
    """Writes batches to one partition, one at a time, and keeps what was acknowledged."""

    def __init__(self, world: TieredWorld, index: int) -> None:
        self._world = world
        self._index = index
        self._numbers = 0
        # The node of the pending request, its values and its outcome.
        self._pending: tuple[int, list[bytes], list[Any]] | None = None

    def pump(self) -> None:
        """Take the outcome of the pending request, and send the next one."""
        world = self._world
        if self._pending is not None:
            node, values, outcome = self._pending
            if not outcome and node in world.cluster.ready:
                return
            self._pending = None
            self._note(values, outcome)
        node = world.leader((TOPIC, self._index))
        if node not in world.cluster.ready:
            return
        values = [self._value() for _ in range(world.rng.choice([1, 1, 3]))]
        builder = BatchBuilder()
        for value in values:
            builder.append(world.store.clock.wall_ms(), None, value)
        request = produce_request(TOPIC, bytes(builder.build()))
        request.topic_data[0].partition_data[0].index = self._index
        self._pending = (node, values, world.cluster.send(node, request, 9))

    def _value(self) -> bytes:
        self._numbers += 1
        return b"%d-%d." % (self._index, self._numbers) + bytes(RECORD_BYTES)

    def _note(self, values: list[bytes], outcome: list[Any]) -> None:
        response, error = outcome[0] if outcome else (None, True)
        if error is not None or response is None:
            return
        answer = response.responses[0].partition_responses[0]
        if answer.error_code == 0:
            known = self._world.acknowledged[self._index]
            for offset, value in enumerate(values, answer.base_offset):
                check(offset not in known, f"OffsetOnce: {self._index} {offset}")
                known[offset] = value


def store_of(world: SimWorld, stores: dict[int, WatchedStore]) -> WatchedStore:
    """Make the store of a world, and let the disks of its nodes open it."""
    host = world.host("store")
    store = WatchedStore(host.clock, host.rng)
    for node in NODES:
        stores[id(world.host(f"node-{node}").disk)] = store
    return store


def check(holds: bool, text: str) -> None:
    """Raise InvariantError unless the invariant holds."""
    if not holds:
        raise InvariantError(text)
