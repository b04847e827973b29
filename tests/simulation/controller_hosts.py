"""Three controllers on simulated hosts, with checks of their records.

Committed records are checked against the invariants in ARCHITECTURE.md, under their names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from barnabas.controller.config import CONTROLLER_CONFIGS, ControllerConfig
from barnabas.controller.controller import Controller, ControllerDependencies
from barnabas.metadata.broker_registration import ControllerRegistration, SupportedLevels
from barnabas.metadata.image import BEFORE_ALL_RECORDS, ClusterDelta, ClusterImage
from barnabas.metadata.partition_registration import NO_LEADER
from barnabas.protocol.record_frame import encode_metadata_record
from barnabas.storage.config import BROKER_CONFIGS
from simulation.quorum_hosts import CLUSTER_ID, QuorumHosts, Replica

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.protocol.schema import Record
    from barnabas.raft.listener import CommittedBatch, LoadedSnapshot

SETTINGS = {"broker.session.timeout.ms": "2000", "leader.imbalance.check.interval.seconds": "5"}
FEATURES = {"metadata.version": 33, "eligible.leader.replicas.version": 1}


@dataclass
class MetadataHistory:
    """All records that any replica has seen committed."""

    # Offset -> the record, its version and its bytes.
    records: dict[int, tuple[Record, int, bytes]] = field(default_factory=dict)
    # (topic, partition, leader epoch) -> leader.
    leaders: dict[tuple[bytes, int, int], int] = field(default_factory=dict)

    def note(self, offset: int, record: Record, version: int) -> None:
        data = encode_metadata_record(record, version)
        known = self.records.setdefault(offset, (record, version, data))
        assert known[2] == data, f"CommittedNeverLost: {offset} was {known[0]}, is {record}"

    def image(self) -> ClusterImage:
        """Return the image that results from all records since the beginning."""
        delta = ClusterDelta(ClusterImage())
        for offset in sorted(self.records):
            record, _, _ = self.records[offset]
            delta.replay(record)
        return delta.apply(BEFORE_ALL_RECORDS)


class ControllerReplica(Replica):
    """A voter with a controller."""

    features: ClassVar[dict[str, int]] = FEATURES

    def join(self, hosts: QuorumHosts) -> None:
        assert isinstance(hosts, ControllerHosts)
        self.loaded_snapshots = 0
        self.metadata = hosts.metadata
        node_id = self.config.node_id
        config = (BROKER_CONFIGS | CONTROLLER_CONFIGS).parse(SETTINGS)
        levels = {name: SupportedLevels(0, level) for name, level in FEATURES.items()}
        registration = ControllerRegistration(node_id, bytes([node_id] * 16), {}, levels)
        # The ids of controllers differ from those of brokers, so no process is both.
        rng = hosts.host(node_id).runtime.rng
        self.controller = Controller(
            ControllerConfig(node_id, CLUSTER_ID, config),
            ControllerDependencies(self.driver, self.publisher, rng, registration),
        )
        self.publisher.add_listener(self._check)
        self.driver.add_listener(self.controller)

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            assert batch.base_offset >= self.next_offset, "HighWatermarkMonotonic"
            for index, (record, version) in enumerate(batch.records):
                self.metadata.note(batch.base_offset + index, record, version)
            self.next_offset = batch.last_offset + 1

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.next_offset = snapshot.id.end_offset
        self.loaded_snapshots += 1

    def _check(self, delta: ClusterDelta, image: ClusterImage) -> None:
        for topic, index, before, after in delta.topics_delta.changed_partitions():
            where = f"{topic.name}-{index}: {before} -> {after}"
            if before is not None:
                assert after.partition_epoch > before.partition_epoch, f"epochs grow: {where}"
                assert after.leader_epoch >= before.leader_epoch, f"epochs grow: {where}"
            key = (topic.id, index, after.leader_epoch)
            known = self.metadata.leaders.setdefault(key, after.leader)
            assert known == after.leader, f"OneLeaderPerEpoch: {known}, {where}"
        if delta.topics_delta.changed or delta.broker_changes:
            for each in image.topics:
                for index, partition in each.partitions.items():
                    check_partition(image, f"{each.name}-{index}", partition)


def check_partition(image: ClusterImage, name: str, partition: PartitionRegistration) -> None:
    """Check the invariants of a partition in an image."""
    where = f"{name}: {partition}, brokers {image.brokers}"
    replicas, isr = set(partition.replicas), set(partition.isr)
    assert isr <= replicas, f"IsrSubsetOfReplicas: {where}"
    assert set(partition.elr) <= replicas - isr, f"eligible, out of the ISR: {where}"
    assert partition.leader in isr or partition.leader == NO_LEADER, f"LeaderInIsr: {where}"
    assert set(partition.adding_replicas) <= replicas, where
    assert set(partition.removing_replicas) <= replicas, where
    assert len(partition.directories) == len(partition.replicas), where
    if partition.leader == NO_LEADER:
        # After an unclean cancellation of a reassignment, the leader may be down.
        return
    for member in isr:
        broker = image.brokers.get(member)
        assert broker is not None, f"in sync and not registered: {where}"
        assert not broker.fenced, f"in sync and fenced: {where}"


class ControllerHosts(QuorumHosts):
    """Three hosts with controllers."""

    replica_class: ClassVar[type[Replica]] = ControllerReplica

    def __init__(self, seed: int, **config: int) -> None:
        self.metadata = MetadataHistory()
        super().__init__(3, seed, **config)

    def active(self) -> ControllerReplica | None:
        """Return the active controller with the largest epoch; None without one."""
        leader = self.leader()
        if isinstance(leader, ControllerReplica) and leader.controller.is_active:
            return leader
        return None

    def await_active(self) -> ControllerReplica:
        assert self.run_until(lambda: self.active() is not None), self.describe()
        found = self.active()
        assert found is not None
        return found

    def ask(self, request: Any) -> Any:
        """Send a request to the active controller, and return its response."""
        answers: list[Any] = []
        self.await_active().controller.serve(request, answers.append)
        assert self.run_until(lambda: bool(answers)), request
        return answers[0]

    def settle_metadata(self) -> ClusterImage:
        """Start all nodes, and check that their images equal a replay of all records."""
        self.world.network.heal()
        self.start_all()

        def is_settled() -> bool:
            active = self.active()
            if active is None:
                return False
            end = active.driver.log.log_end_offset
            return all(each.driver.core.high_watermark == end for each in self.running())

        assert self.run_until(is_settled), self.describe()
        active = self.active()
        assert active is not None
        made = records_of(self.metadata.image())
        for replica in self.running():
            assert records_of(replica.publisher.image) == made, "image equals replay from nothing"
            assert not replica.fatal
        image = active.controller.image
        assert image is not None
        assert records_of(image) == made, "what was appended is what is committed"
        return active.publisher.image


def records_of(image: ClusterImage) -> list[bytes]:
    """Return the records of an image in a comparable form, because topics are unordered."""
    return sorted(encode_metadata_record(*each) for each in image.to_records())
