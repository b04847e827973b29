"""Three brokers of one kind, for a fixture with the parameter "barnabas" or "kafka"."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from jvm.kafka_node import KafkaNode


def three_brokers_of(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    settings: Mapping[str, str],
) -> ClusterProcess:
    """Return a cluster that is not started yet; it is a context manager."""
    kind = NodeProcess
    if request.param == "kafka":
        request.getfixturevalue("kafka_jars")
        kind = KafkaNode
    directory = tmp_path_factory.mktemp(f"three-{request.param}")
    return ClusterProcess(3, directory=directory, settings=settings, node_type=kind)
