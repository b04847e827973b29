"""A controller of Apache Kafka and ours, asked the same as brokers ask: by their own APIs.

Both also show the metadata records that they write, which say more than the answers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from barnabas.controller.config import CONTROLLER_CONFIGS, ControllerConfig
from barnabas.controller.controller import Controller, ControllerParts
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.provenance import Provenance
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.protocol.api_keys import response_class
from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.raft.config import RaftConfig
from barnabas.raft.metadata_batch import decode_metadata_batches
from barnabas.raft.opening import RaftOpening, open_raft
from barnabas.sim.world import SimWorld
from barnabas.storage.config import BROKER_CONFIGS
from barnabas.storage.doors import LogDoors
from conformance.raw_client import RawClient
from jvm.kafka_process import CLUSTER_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.protocol.schema import Message, Record
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot

    Versioned = tuple[Record, int]

SESSION_MS = 3000
# What Kafka 4.4 formats a directory with.
FEATURES = {
    "metadata.version": 33,
    "group.version": 1,
    "transaction.version": 2,
    "eligible.leader.replicas.version": 1,
    "share.version": 2,
    "streams.version": 1,
}
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    "num.partitions": "1",
    "default.replication.factor": "1",
}
_METADATA_LOG_ID = bytes(15) + b"\x01"
_FETCH_VERSION = 16
_START_S = 30.0

_METHODS = {
    ApiKey.CREATE_TOPICS: "create_topics",
    ApiKey.DELETE_TOPICS: "delete_topics",
    ApiKey.CREATE_PARTITIONS: "create_partitions",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "incremental_alter_configs",
    ApiKey.ALLOCATE_PRODUCER_IDS: "allocate_producer_ids",
    ApiKey.BROKER_REGISTRATION: "register_broker",
    ApiKey.BROKER_HEARTBEAT: "broker_heartbeat",
    ApiKey.ALTER_PARTITION: "alter_partition",
    ApiKey.UPDATE_FEATURES: "update_features",
    ApiKey.ELECT_LEADERS: "elect_leaders",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "list_partition_reassignments",
    ApiKey.UNREGISTER_BROKER: "unregister_broker",
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: "assign_replicas_to_dirs",
    ApiKey.CONTROLLER_REGISTRATION: "register_controller",
    ApiKey.UNREGISTER_CONTROLLER: "unregister_controller",
}


class ControllerSide:
    """One of the two; `image` is what its records make."""

    name = ""

    def __init__(self) -> None:
        self.image = ClusterImage()
        # Topic ids and broker epochs that it drew, and what a case calls them.
        self.topics: dict[bytes, str] = {}
        self.epochs: dict[tuple[int, int], str] = {}

    def ask(self, request: Message, version: int) -> Any:
        """Send a request; returns the answer."""
        raise NotImplementedError

    def new_records(self) -> list[Versioned]:
        """Records committed since the last call."""
        records = self._fetch()
        delta = ClusterDelta(self.image)
        for record, version in records:
            delta.replay(record, version)
        self.image = delta.apply(Provenance(0, 0, 0))
        return records

    def _fetch(self) -> list[Versioned]:
        raise NotImplementedError

    def wait(self, duration_ms: int) -> None:
        """Let time pass."""
        raise NotImplementedError

    def close(self) -> None:
        """The comparison is over."""


class KafkaSide(ControllerSide):
    """By the controller listener of a process."""

    name = "kafka"

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self._client = RawClient(bootstrap)
        self._offset = 0
        # The quorum's epoch; a lone voter is elected in the first.
        self._leader_epoch = 1
        # Of the last record that was read.
        self._last_epoch = 0
        deadline = time.monotonic() + _START_S
        while not (self.image.features.finalized and self.image.controllers):
            # It accepts connections before it has written what a new cluster begins with.
            assert time.monotonic() < deadline, "the controller does not begin"
            time.sleep(0.01)
            self.new_records()

    def ask(self, request: Message, version: int) -> Any:
        return self._client.ask(request, version)

    def _fetch(self) -> list[Versioned]:
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=self._leader_epoch,
            fetch_offset=self._offset,
            last_fetched_epoch=self._last_epoch,
            log_start_offset=-1,
            partition_max_bytes=1 << 23,
        )
        request = FetchRequest(
            cluster_id=CLUSTER_ID,
            max_wait_ms=0,
            min_bytes=0,
            max_bytes=1 << 23,
            session_id=0,
            session_epoch=-1,
            topics=[FetchTopic(topic_id=_METADATA_LOG_ID, partitions=[partition])],
            forgotten_topics_data=[],
        )
        answer: Any = self.ask(request, _FETCH_VERSION)
        assert answer.error_code == 0, answer
        found = answer.responses[0].partitions[0]
        assert found.error_code == 0, answer
        records: list[Versioned] = []
        for batch in decode_metadata_batches(bytes(found.records or b"")):
            if batch.last_offset < found.high_watermark and batch.base_offset >= self._offset:
                records += batch.records
                self._offset, self._last_epoch = batch.last_offset + 1, batch.epoch
        return records

    def wait(self, duration_ms: int) -> None:
        # There is nothing to wait for: how long a session lasts is what is asked.
        time.sleep(duration_ms / 1000)

    def close(self) -> None:
        self._client.close()


class _Recorder:
    """A listener of the quorum that keeps what is committed."""

    def __init__(self) -> None:
        self.records: list[Versioned] = []

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            self.records += batch.records

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        self.records += snapshot.records

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        pass


class OwnSide(ControllerSide):
    """In this process, on a simulated host."""

    name = "barnabas"

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__()
        self._world = SimWorld(1)
        runtime = self._world.host("a").runtime
        runtime.disk.make_directory("/data")
        doors = LogDoors(runtime.disk, runtime.clock, runtime.executor, runtime.timer, runtime.rng)
        fatal: list[BaseException] = []
        opening = RaftOpening("/data", doors, runtime.rng, fatal.append, FEATURES)
        driver = open_raft(RaftConfig(1, (1,)), opening)
        publisher, self._recorder = MetadataPublisher(), _Recorder()
        config = ControllerConfig(
            1, CLUSTER_ID, (BROKER_CONFIGS | CONTROLLER_CONFIGS).parse(dict(settings))
        )
        self._controller = Controller(config, ControllerParts(driver, publisher, runtime.rng))
        for listener in (publisher, self._recorder, self._controller):
            driver.add_listener(listener)
        driver.start()
        assert self._world.run_until(
            lambda: self._controller.is_active and driver.high_watermark == driver.log_end_offset
        )

    def ask(self, request: Message, version: int) -> Any:
        api = request.__api_key__
        sent = decode(type(request), version, encode_bytes(request, version))
        answers: list[Any] = []
        getattr(self._controller, _METHODS[ApiKey(api)])(sent, answers.append)
        assert self._world.run_until(lambda: bool(answers)), request
        return decode(response_class(api), version, encode_bytes(answers[0], version))

    def wait(self, duration_ms: int) -> None:
        self._world.run_for(duration_ms)

    def _fetch(self) -> list[Versioned]:
        records, self._recorder.records = self._recorder.records, []
        return records
