"""A quorum of complete replicas in virtual time: driver, log, transport, RPC on simulated hosts.

Hosts die with and without their page cache, connections break, networks are partitioned, disks are
slow, and voters change. The invariants in ARCHITECTURE.md are checked whenever replicas report
their state, under their names.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from barnabas.metadata.publishing import MetadataPublisher, SnapshotGenerator
from barnabas.network.connection import Connection
from barnabas.network.connection_limits import ConnectionDependencies, ConnectionLimits
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.protocol.api_keys import last_stable_version, request_class, schema_versions
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.codec import decode, decode_request_header, encode_response
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from barnabas.protocol.records.topics import TopicRecord
from barnabas.raft.config import RaftConfig
from barnabas.raft.driver.opening import RaftOpening, open_raft
from barnabas.raft.driver.rpc import RaftRpc
from barnabas.raft.listener import NotLeaderError, RaftError
from barnabas.raft.transport.channel_transport import ChannelTransport
from barnabas.sim.clock import SimExecutor
from barnabas.sim.world import SimHost, SimWorld
from barnabas.storage.log_dependencies import LogDependencies
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.schema import Message
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.raft.voter_set import VoterSet

PORT = 9093
METADATA_DIRECTORY = "/data/__cluster_metadata-0"
CLUSTER_ID = "simulated-cluster-0000"
QUORUM_APIS = (
    ApiKey.API_VERSIONS,
    ApiKey.FETCH,
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.FETCH_SNAPSHOT,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    ApiKey.UPDATE_RAFT_VOTER,
)


def host_name(node_id: int) -> str:
    return f"n{node_id}"


class History:
    """Reports of all replicas, with checks."""

    def __init__(self) -> None:
        # Epoch -> its leader.
        self.leaders: dict[int, int] = {}
        # Offset of a committed record -> topic name in the record.
        self.committed: dict[int, str] = {}
        # Offsets that were acknowledged to the node that appended them.
        self.acknowledged: dict[int, str] = {}

    def check_leader(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id >= 0:
            known = self.leaders.setdefault(leader.epoch, leader.leader_id)
            assert known == leader.leader_id, f"OneLeaderPerEpoch: {leader}, {known}"

    def check_committed(self, offset: int, name: str) -> None:
        known = self.committed.setdefault(offset, name)
        assert known == name, f"CommittedNeverLost: {offset} was {known}, is {name}"

    def names_below(self, offset: int) -> set[str]:
        return {name for at, name in self.committed.items() if at < offset}


class Replica:
    """One process on a host. A new process is a new object."""

    # Records with which a new cluster is formatted.
    features: ClassVar[dict[str, int]] = {"metadata.version": 33}

    def __init__(self, hosts: QuorumHosts, config: RaftConfig) -> None:
        self.config = config
        self.history = hosts.history
        self.names: set[str] = set()
        self.next_offset = 0
        runtime = hosts.host(config.node_id).runtime
        log_dependencies = LogDependencies(
            runtime.disk, runtime.clock, runtime.executor, runtime.timer, runtime.rng
        )
        opening = RaftOpening(
            "/data",
            log_dependencies,
            runtime.rng,
            self._on_fatal,
            self.features,
            ChannelTransport(runtime, config),
            hosts.initial_voters,
        )
        self.driver: RaftDriver = open_raft(config, opening)
        self.fatal: list[BaseException] = []
        self.publisher = MetadataPublisher()
        self.driver.add_listener(self.publisher)
        self.generator = SnapshotGenerator(self.driver, self.publisher, config)
        self.driver.add_listener(self.generator)
        self.driver.add_listener(self)
        self.rpc = RaftRpc(self.driver)
        self._dependencies = ConnectionDependencies(
            runtime.clock, runtime.timer, new_receive_buffer()
        )
        self._connections = 0
        if config.can_be_voter:
            runtime.sockets.listen("", hosts.ports[config.node_id], self._accept)
        self.join(hosts)
        self.driver.start()

    def join(self, hosts: QuorumHosts) -> None:
        """Add further listeners of the log."""

    def append(self, name: str) -> int:
        def on_committed(offset: int, error: RaftError | None) -> None:
            if error is None:
                self.history.acknowledged[offset] = name

        identity = int.from_bytes(name.encode()[-12:], "big")
        record = TopicRecord(name=name, topic_id=identity.to_bytes(16, "big"))
        return self.driver.append([(record, 0)], on_committed)

    # -- as a listener ----------------------------------------------------------------------------

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            assert batch.base_offset >= self.next_offset, "HighWatermarkMonotonic"
            for index, (record, _) in enumerate(batch.records):
                assert isinstance(record, TopicRecord)
                self.history.check_committed(batch.base_offset + index, record.name)
                self.names.add(record.name)
            self.next_offset = batch.last_offset + 1

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        names = {record.name for record, _ in snapshot.records if isinstance(record, TopicRecord)}
        below = self.history.names_below(snapshot.id.end_offset)
        assert names == below, f"CommittedNeverLost: {names ^ below}"
        self.names = names
        assert snapshot.id.end_offset >= self.next_offset, "HighWatermarkMonotonic"
        self.next_offset = snapshot.id.end_offset

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.history.check_leader(leader)

    # -- as a controller listener -----------------------------------------------------------------

    def _accept(self) -> Connection:
        self._connections += 1
        return Connection(
            self._connections,
            self._dependencies,
            ConnectionLimits(),
            self._on_request,
            lambda connection, error: None,
        )

    def _on_request(self, connection: Connection, frame: memoryview) -> None:
        api_key, version, correlation_id, _, offset = decode_request_header(frame)
        request = decode(request_class(api_key), version, frame, offset)
        slot = connection.reserve()

        def respond(response: Message) -> None:
            slot.complete(encode_response(correlation_id, response, version))

        if api_key == ApiKey.API_VERSIONS:
            assert isinstance(request, ApiVersionsRequest)
            assert request.client_software_name, "refused by Apache Kafka"
            respond(_api_versions())
        else:
            self.rpc.serve(request, version, respond)

    def _on_fatal(self, error: BaseException) -> None:
        self.fatal.append(error)


def _api_versions() -> ApiVersionsResponse:
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(
                api_key=key,
                min_version=schema_versions(key)[0],
                max_version=last_stable_version(key),
            )
            for key in QUORUM_APIS
        ],
        supported_features=[
            SupportedFeatureKey(name="kraft.version", min_version=0, max_version=1)
        ],
    )


class QuorumHosts:
    """Voters 1..n and observers above them, on hosts of one world."""

    # The first voters of a dynamic quorum; None where they are static.
    initial_voters: VoterSet | None = None
    replica_class: ClassVar[type[Replica]] = Replica

    def __init__(self, voters: int, seed: int, observers: int = 0, **config: int) -> None:
        self.world = SimWorld(seed)
        self.rng = self.world.host("fate").rng
        self.history = History()
        self.voters = tuple(range(1, voters + 1))
        self.ids = tuple(range(1, voters + observers + 1))
        # Number of times that each node's directory was wiped.
        self.wiped: Counter[int] = Counter()
        # Port of each node.
        self.ports = dict.fromkeys(self.ids, PORT)
        self._config = config
        self._prepare()
        self.replicas: dict[int, Replica | None] = dict.fromkeys(self.ids)
        self._names = 0
        for node_id in self.ids:
            self.start(node_id)

    def _prepare(self) -> None:
        """Prepare the hosts before the first process starts."""

    def directory_id(self, node_id: int) -> bytes:
        return bytes([node_id] * 15 + [self.wiped[node_id]])

    def host(self, node_id: int) -> SimHost:
        return self.world.host(host_name(node_id))

    def config(self, node_id: int) -> RaftConfig:
        return RaftConfig(
            node_id,
            self.voters,
            {each: (host_name(each), PORT) for each in self.voters},
            cluster_id=CLUSTER_ID,
            directory_id=self.directory_id(node_id),
            advertised={"CONTROLLER": (host_name(node_id), self.ports[node_id])},
            can_be_voter=node_id in self.voters,
            **self._config,
        )

    # -- what a test does -------------------------------------------------------------------------

    def start(self, node_id: int) -> Replica:
        assert self.replicas[node_id] is None
        host = self.host(node_id)
        host.start()
        host.disk.make_directory("/data")
        host.disk.sync_directory("/")
        replica = self.replicas[node_id] = self.replica_class(self, self.config(node_id))
        return replica

    def slow_disk(self, node_id: int, delay_max_ms: int) -> None:
        """Delay each sync by up to this time, until the process dies."""
        executor = self.host(node_id).runtime.executor
        assert isinstance(executor, SimExecutor)
        executor.delay_max_ms = delay_max_ms

    def kill(self, node_id: int) -> None:
        self.replicas[node_id] = None
        self.host(node_id).kill()

    def lose_power(self, node_id: int) -> None:
        self.replicas[node_id] = None
        self.host(node_id).lose_power()

    def wipe(self, node_id: int) -> None:
        """Replace the disk of a dead node."""
        assert self.replicas[node_id] is None
        disk = self.host(node_id).disk
        disk.remove_tree("/data")
        disk.sync_directory("/")
        self.wiped[node_id] += 1

    def start_all(self) -> None:
        for node_id, replica in self.replicas.items():
            if replica is None:
                self.start(node_id)

    def isolate(self, node_id: int) -> None:
        for other in self.ids:
            if other != node_id:
                self.world.network.partition(host_name(node_id), host_name(other))

    def running(self) -> list[Replica]:
        return [replica for replica in self.replicas.values() if replica is not None]

    def leader(self) -> Replica | None:
        """Return the running leader with the largest epoch."""
        leading = [each for each in self.running() if each.driver.core.is_leader]
        return max(leading, key=lambda each: each.driver.core.leader_and_epoch.epoch, default=None)

    def append(self) -> tuple[str, int] | None:
        """Append at the leader. Return (name, offset), or None without a leader."""
        leader = self.leader()
        if leader is None:
            return None
        self._names += 1
        name = f"topic-{self._names}"
        try:
            return name, leader.append(name)
        except NotLeaderError:
            return None

    def run_for(self, duration_ms: float) -> None:
        self.world.run_for(duration_ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: float = 60_000) -> bool:
        return self.world.run_until(condition, limit_ms)

    def settle(self) -> None:
        """Append a record, and wait until all nodes have it and all earlier committed records."""
        found: tuple[str, int] | None = None

        def is_committed() -> bool:
            nonlocal found
            if found is None or found[1] not in self.history.acknowledged:
                leader = self.leader()
                is_lost = found is not None and (
                    leader is None or leader.driver.log.log_end_offset <= found[1]
                )
                if found is None or is_lost:
                    found = self.append()
            return found is not None and found[1] in self.history.acknowledged

        assert self.run_until(is_committed), self.describe()
        assert found is not None
        name, _ = found
        assert self.run_until(lambda: all(name in each.names for each in self.running())), (
            self.describe()
        )
        self.check()

    def check(self) -> None:
        """Check the invariants that concern several replicas."""
        for offset, name in self.history.acknowledged.items():
            assert self.history.committed.get(offset, name) == name, "AckedNeverLost"
        for one, other in zip(self.running(), self.running()[1:], strict=False):
            _check_log_matching(one.driver, other.driver)

    def describe(self) -> str:
        lines = []
        for node_id, replica in self.replicas.items():
            if replica is None:
                lines.append(f"{node_id}: down")
                continue
            driver = replica.driver
            lines.append(
                f"{node_id}: {driver.core.role} epoch {driver.core.leader_and_epoch.epoch}"
                f" log {driver.log.log_start_offset}-{driver.log.log_end_offset}"
                f" high watermark {driver.core.high_watermark}"
            )
        return "\n".join(lines)


def _check_log_matching(one: RaftDriver, other: RaftDriver) -> None:
    """Check that the bytes below both high watermarks are equal, where both logs have them."""
    start = max(one.log.log_start_offset, other.log.log_start_offset)
    end = min(one.core.high_watermark, other.core.high_watermark)
    position = start
    while position < end:
        left, right = (
            each.log.reader.read(position, 1, FetchIsolation.LOG_END, True).records
            for each in (one, other)
        )
        assert _bytes(left) == _bytes(right), f"LogMatching at {position}"
        header = int.from_bytes(_bytes(left)[23:27], "big")
        position += header + 1


def _bytes(records: object) -> bytes:
    return records if isinstance(records, bytes) else records.read()  # type: ignore[attr-defined]
