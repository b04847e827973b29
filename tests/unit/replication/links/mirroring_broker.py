"""Broker 1 that leads a mirror, and a source broker whose responses the test defines."""

from __future__ import annotations

from barnabas.record.batch import batches
from barnabas.replication.config import UNLIMITED, FetcherSettings, ReplicationConfig
from barnabas.replication.fetcher.fetch_states import FailedPartitions
from barnabas.replication.fetcher.replica_fetcher import FetcherDependencies
from barnabas.replication.links.link_fetchers import LinkFetchers
from barnabas.replication.links.mirror_replicas import Mirror, SourcePlace
from barnabas.replication.replication_throttle import ReplicationThrottle
from unit.replication.following_broker import ScriptedChannel
from unit.replication.replica_set import PARTITION, ReplicaSet
from unit.replication.replicated_cluster import topic_id_of

SOURCE_BROKER = 5
FETCH_VERSION = 17


class SourceChannels:
    """Opens one scripted channel for each broker of the source."""

    def __init__(self) -> None:
        self.opened: dict[int, ScriptedChannel] = {}

    def open(self, broker_id: int, client_id: str) -> ScriptedChannel:
        self.opened[broker_id] = ScriptedChannel(broker_id, client_id)
        return self.opened[broker_id]


class MirroringBroker:
    """A leader with a link. Its mirror is fetched from `SOURCE_BROKER` in source epoch 3."""

    def __init__(
        self,
        replicas: tuple[int, ...] = (1,),
        version: int = FETCH_VERSION,
        **log_config: object,
    ) -> None:
        self.set = ReplicaSet(replicas, **log_config)
        self.channels = SourceChannels()
        self.failed = FailedPartitions()
        self.version = version
        self.throttle = ReplicationThrottle(self.set.runtime.clock, 11, 1_000.0)
        self.throttle.bytes_per_second = UNLIMITED
        self._make_fetchers()
        self.place: SourcePlace | None = SourcePlace(SOURCE_BROKER, 3, topic_id_of(PARTITION.topic))
        self.begin()

    def _make_fetchers(self) -> None:
        runtime = self.set.runtime
        local = self.set.manager.mirror_replicas(self.throttle)
        settings = FetcherSettings(-1, lambda: -1, lambda: self.version, ReplicationConfig())
        self.local = local
        self.fetchers = LinkFetchers(
            "prod",
            self.channels,
            local,
            FetcherDependencies(local, settings, self.failed, self.set.wheel, runtime.clock),
        )

    def begin(self) -> None:
        """Fetch the partition, if this broker leads it."""
        self.fetchers.lead([self.set.partition] if self.set.partition.leader else [])
        self.fetchers.follow(lambda _key: self.place)
        # A fetch that is pending is abandoned for the new state after some milliseconds.
        self.run_for(100)

    def start_again(self) -> None:
        """Start the broker on the logs that there are now, and win another leader epoch."""
        self.fetchers.close()
        self.set.restart()
        self._make_fetchers()
        self.lead_anew()

    def lead_anew(self) -> None:
        """Win another leader epoch of the mirror."""
        self.set.change(leader=1)
        self.begin()

    @property
    def source(self) -> ScriptedChannel:
        return self.channels.opened[SOURCE_BROKER]

    @property
    def mirror(self) -> Mirror:
        return self.fetchers.mirrors[PARTITION]

    @property
    def log(self):
        return self.set.log

    @property
    def requested(self):
        """The partition in the pending fetch."""
        (topic,) = self.source.waiting.topics
        (partition,) = topic.partitions
        return partition

    def give(self, part) -> None:
        self.source.give({PARTITION: part})

    def run_for(self, duration_ms: float) -> None:
        self.set.world.run_for(duration_ms)

    def offsets_and_epochs(self) -> list[tuple[int, int]]:
        """Return base offset and leader epoch of the batches in the log."""
        segments = list(self.log.segments)
        return [
            (header.base_offset, header.partition_leader_epoch)
            for segment in segments
            for _, header in batches(segment.file.read_at(segment.size, 0))
        ]
