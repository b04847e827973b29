"""A cluster whose nodes run Barnabas or Apache Kafka in turn on the same directories.

Both have the same addresses, so that clients and other nodes do not see which program runs a node.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, NamedTuple

from confluent_kafka import Producer

from barnabas.protocol.primitives import uuid_to_string
from barnabas.testing.cluster_process import CONTROLLER_LISTENER, ClusterProcess, NodeProcess
from jvm.barnabas_formatting import format_by_barnabas
from jvm.kafka_node import KafkaNode
from jvm.kafka_process import quick_machine
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

SMALL = ("-Xmx384m", "-Xms64m")
# Client settings for recent metadata and quick retries.
QUICK_RETRIES = {"reconnect.backoff.max.ms": 500, "topic.metadata.refresh.interval.ms": 2000}
# Timeouts for operations that hang.
FLUSH_S = 300.0
STOP_S = 90.0


class AlternatingCluster:
    """Nodes of Barnabas and of Apache Kafka on the same directories; one of each pair runs.

    Args:
        nodes: the number of nodes, which are brokers and controllers.
        directory: contains the directories of the nodes.
        settings: broker configs of all nodes.
        dynamic: whether the voters are in the metadata log (kraft.version 1).
    """

    def __init__(
        self, nodes: int, directory: Path, settings: Mapping[str, str], *, dynamic: bool = False
    ) -> None:
        self._cluster = ClusterProcess(nodes, 0, directory, settings)
        self.ours: dict[int, NodeProcess] = self._cluster.nodes
        self.kafkas: dict[int, NodeProcess] = {}
        for node_id, node in self.ours.items():
            kafka = KafkaNode(node.options, node.settings, (*quick_machine("kafka"), *SMALL))
            for each in (node, kafka):
                paths = ",".join(map(str, self.directories(node_id)))
                each.settings["log.dirs"] = paths
                if dynamic:
                    del each.settings["controller.quorum.voters"]
                    each.settings["controller.quorum.bootstrap.servers"] = ",".join(
                        map(self._controller, self.ours)
                    )
            self.kafkas[node_id] = kafka
        if dynamic:
            self._format()
        self.running: dict[int, NodeProcess] = {}

    @property
    def bootstrap(self) -> str:
        return self._cluster.bootstrap

    def directories(self, node_id: int) -> list[Path]:
        """Return the two data directories of a node."""
        above = self.ours[node_id].directory
        return [above / "data", above / "more"]

    def start(self, nodes: Mapping[int, NodeProcess]) -> None:
        """Start nodes whose directories are not in use, and wait until they are ready."""
        for node in nodes.values():
            node.launch()
        self.running.update(nodes)
        for node in nodes.values():
            node.await_ready()

    def stop(self) -> None:
        """Stop all nodes at the same time, and wait."""
        for node in self.running.values():
            node.terminate()
        for node_id, node in self.running.items():
            # Wait without a second signal, which would end the node at once.
            status = node.wait(STOP_S)
            assert status in (0, 143), (node_id, status, node.log()[-2000:])

    def kill(self) -> None:
        """Kill all nodes at the same time."""
        for node in self.running.values():
            node.kill()

    def close(self) -> None:
        for node in (*self.ours.values(), *self.kafkas.values()):
            node.close()

    def _format(self) -> None:
        voters = ",".join(
            f"{node_id}@{self._controller(node_id)}:{uuid_to_string(os.urandom(16))}"
            for node_id in self.ours
        )
        for node in self.ours.values():
            format_by_barnabas(node, "--initial-controllers", voters)

    def _controller(self, node_id: int) -> str:
        host, port = self.ours[node_id].options.listeners[CONTROLLER_LISTENER]
        return f"{host}:{port}"


class Acknowledged(NamedTuple):
    """A record that a broker has acknowledged."""

    partition: int
    offset: int
    value: bytes


class Writer:
    """An idempotent producer with acks=all that writes to a topic until it is closed.

    Args:
        bootstrap: the addresses of the cluster.
        topic: gets the values 0, 1, 2, ..., in turn in its partitions.
        partitions: the number of its partitions.
    """

    PENDING_MAX = 50
    # Pause between two records, without which the writer takes the processor from six brokers.
    PAUSE_S = 0.002

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                # After a stop, a broker has only the last batch of a producer, from its snapshot.
                "max.in.flight.requests.per.connection": 1,
                "linger.ms": 20,
                "message.timeout.ms": 300_000,
                "retry.backoff.max.ms": 200,
                **QUICK_RETRIES,
            }
        )
        self._topic = topic
        self._partitions = partitions
        self.acknowledged: list[Acknowledged] = []
        self.failed: list[object] = []
        self.sent = 0
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def close(self) -> Sequence[Acknowledged]:
        """Stop sending, wait for pending records, and return the acknowledged records."""
        self._is_stopped.set()
        self._thread.join()
        assert self._producer.flush(FLUSH_S) == 0
        assert not self.failed, self.failed[:3]
        assert len(self.acknowledged) == self.sent
        return self.acknowledged

    def await_more(self, count: int) -> None:
        """Wait until that many more records are acknowledged."""
        target = len(self.acknowledged) + count
        eventually(lambda: len(self.acknowledged) >= target, "no record is acknowledged")

    def _write(self) -> None:
        while not self._is_stopped.is_set():
            if len(self._producer) < self.PENDING_MAX:
                value = b"%d" % self.sent
                partition = self.sent % self._partitions
                self._producer.produce(
                    self._topic, value, partition=partition, on_delivery=self._on_delivery
                )
                self.sent += 1
            self._producer.poll(0)
            self._is_stopped.wait(self.PAUSE_S)

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            self.failed.append(error)
            return
        self.acknowledged.append(
            Acknowledged(message.partition(), message.offset(), message.value())
        )
