"""Nodes of a cluster with tiered storage: Apache Kafka with its LocalTieredStorage, or ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from jvm.java import java_command
from jvm.kafka_node import KafkaNode
from jvm.kafka_process import quick_machine
from jvm.tiered_kafka import JARS, SHIM, STORAGE, TIERED_SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.testing.cluster_process import NodeOptions

_METADATA = "rlmm.config.remote.log.metadata.topic"


def tiered_settings(directory: Path, replicas: int, store: str = "") -> dict[str, str]:
    """Return the keys of nodes of both kinds, which share the store in a directory.

    Args:
        directory: the store. Each kind ignores the keys of the other kind.
        replicas: of the metadata topic.
        store: parameters of the store's address for our nodes.
    """
    return {
        **TIERED_SETTINGS,
        f"{_METADATA}.replication.factor": str(replicas),
        f"{_METADATA}.min.isr": str(min(replicas, 2)),
        "barnabas.remote.storage": f"file://{directory}{store}",
        "remote.log.storage.manager.class.name": STORAGE,
        "rsm.config.dir": str(directory),
    }


class TieredKafkaNode(KafkaNode):
    """A node of Apache Kafka that can have a remote store."""

    jars = JARS

    def __init__(self, options: NodeOptions, settings: Mapping[str, str]) -> None:
        machine = ("-Xms64m", *quick_machine(self.jars))
        super().__init__(options, settings, machine)
        self._java = java_command(self.jars, log_level="INFO", machine=machine, source=SHIM)
