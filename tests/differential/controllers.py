"""A controller of Apache Kafka and ours, with requests that brokers send.

Both also show the metadata records that they write, which contain more than the responses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.metadata.image import BEFORE_ALL_RECORDS, ClusterDelta, ClusterImage
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.raft.log.metadata_batch import decode_metadata_batches
from barnabas.server.startup.features import BOOTSTRAP_FEATURES
from barnabas.testing.cluster_process import NodeOptions, NodeProcess
from barnabas.testing.free_ports import free_ports
from conformance.raw_client import RawClient
from jvm.kafka_controller import KafkaController
from jvm.kafka_process import CLUSTER_ID
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.protocol.schema import Message, Record

    Versioned = tuple[Record, int]

SESSION_MS = 3000
# Initial content of both clusters.
FEATURES = dict(BOOTSTRAP_FEATURES)
# Kafka's features that a cluster may lack.
_OPTIONAL_FEATURES = ("group.version", "transaction.version", "share.version", "streams.version")
SETTINGS = {
    "broker.session.timeout.ms": str(SESSION_MS),
    "min.insync.replicas": "2",
    "auto.leader.rebalance.enable": "false",
    "num.partitions": "1",
    "default.replication.factor": "1",
}
_METADATA_LOG_ID = bytes(15) + b"\x01"
_FETCH_VERSION = 16


class ControllerSide:
    """One of the two controllers, at its controller listener.

    `image` is built from the metadata records that the controller writes.
    """

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.image = ClusterImage()
        # Topic ids and broker epochs that this controller assigned, and their names in a case.
        self.topics: dict[bytes, str] = {}
        self.epochs: dict[tuple[int, int], str] = {}
        self._client = RawClient(bootstrap)
        self._offset = 0
        # The epoch of the quorum. A single voter is elected in epoch 1.
        self._leader_epoch = 1
        # The epoch of the last record that was read.
        self._last_epoch = 0
        # A controller accepts connections before it has written the first records of a new cluster.
        eventually(self._has_first_records, "the controller writes no first records")

    def _has_first_records(self) -> bool:
        self.new_records()
        return bool(self.image.features.finalized and self.image.controllers)

    def exchange(self, request: Message, version: int) -> Any:
        """Send a request; return the response."""
        return self._client.ask(request, version)

    def new_records(self) -> list[Versioned]:
        """Return the records committed since the last call."""
        records = self._fetch()
        delta = ClusterDelta(self.image)
        for record, _ in records:
            delta.replay(record)
        self.image = delta.apply(BEFORE_ALL_RECORDS)
        return records

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

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
        response: Any = self.exchange(request, _FETCH_VERSION)
        assert response.error_code == 0, response
        found = response.responses[0].partitions[0]
        assert found.error_code == 0, response
        records: list[Versioned] = []
        for batch in decode_metadata_batches(bytes(found.records or b"")):
            if batch.last_offset < found.high_watermark and batch.base_offset >= self._offset:
                records += batch.records
                self._offset, self._last_epoch = batch.last_offset + 1, batch.epoch
        return records


def make_kafka(directory: Path) -> KafkaController:
    """Return a controller of Apache Kafka, formatted with the feature levels of Barnabas."""
    levels = {name: FEATURES.get(name, 0) for name in _OPTIONAL_FEATURES}
    return KafkaController(directory, SETTINGS, features=levels)


def make_barnabas(directory: Path) -> NodeProcess:
    """Return a controller of Barnabas."""
    host, (port,) = "127.0.0.1", free_ports(1)
    options = NodeOptions(1, ("controller",), {"CONTROLLER": (host, port)}, CLUSTER_ID, directory)
    settings = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{host}:{port}",
        "listeners": f"CONTROLLER://{host}:{port}",
        "controller.listener.names": "CONTROLLER",
        **SETTINGS,
    }
    return NodeProcess(options, settings)
