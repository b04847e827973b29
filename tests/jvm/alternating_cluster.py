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
        nodes: the number of brokers, which are controllers too unless there are `controllers`.
        directory: contains the directories of the nodes.
        settings: broker configs of all nodes.
        dynamic: whether the voters are in the metadata log (kraft.version 1).
        controllers: the number of separate controllers.
        kafka: the version of Apache Kafka.
    """

    # The data directories of a node.
    FOLDERS: tuple[str, ...] = ("data", "more")

    def __init__(
        self,
        nodes: int,
        directory: Path,
        settings: Mapping[str, str],
        *,
        dynamic: bool = False,
        controllers: int = 0,
        kafka: type[KafkaNode] = KafkaNode,
    ) -> None:
        # Its `nodes` are those that were started last.
        self.cluster = ClusterProcess(nodes, controllers, directory, settings)
        self.ours: dict[int, NodeProcess] = dict(self.cluster.nodes)
        self.kafkas: dict[int, KafkaNode] = {}
        machine = (*quick_machine(kafka.jars), *SMALL)
        for node_id, node in self.ours.items():
            other = kafka(node.options, node.settings, machine)
            for each in (node, other):
                paths = ",".join(map(str, self.directories(node_id)))
                each.settings["log.dirs"] = paths
                if dynamic:
                    del each.settings["controller.quorum.voters"]
                    each.settings["controller.quorum.bootstrap.servers"] = ",".join(
                        map(self._controller, self._voters)
                    )
            self.kafkas[node_id] = other
        if dynamic:
            self._format()
        self.running: dict[int, NodeProcess] = {}

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap

    def directories(self, node_id: int) -> list[Path]:
        """Return the data directories of a node."""
        above = self.ours[node_id].directory
        return [above / folder for folder in self.FOLDERS]

    def start(self, nodes: Mapping[int, NodeProcess]) -> None:
        """Start nodes whose directories are not in use, and wait until they are ready."""
        for node in nodes.values():
            node.launch()
        self.running.update(nodes)
        self.cluster.nodes.update(nodes)
        for node in nodes.values():
            node.await_ready()

    def stop(self, *node_ids: int) -> None:
        """Stop nodes at the same time, and wait; all nodes without arguments."""
        stopped = {each: self.running[each] for each in node_ids or self.running}
        for node in stopped.values():
            node.terminate()
        for node_id, node in stopped.items():
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

    @property
    def _voters(self) -> list[int]:
        return [node_id for node_id, node in self.ours.items() if node.is_controller]

    def _initial_controllers(self) -> tuple[str, str]:
        """Return the option of `format` for a dynamic quorum, with new directory ids."""
        voters = ",".join(
            f"{node_id}@{self._controller(node_id)}:{uuid_to_string(os.urandom(16))}"
            for node_id in self._voters
        )
        return "--initial-controllers", voters

    def _format(self) -> None:
        words = self._initial_controllers()
        for node in self.ours.values():
            format_by_barnabas(node, *words)

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
