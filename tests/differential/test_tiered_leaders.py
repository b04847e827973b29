"""Clients see the same of a tiered topic on Apache Kafka and on ours when its leaders change."""

from __future__ import annotations

from difflib import unified_diff
from typing import TYPE_CHECKING

import pytest

from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from differential.tiered_leaders import leader_changes
from jvm.tiered_node import TieredKafkaNode, tiered_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.conformance, pytest.mark.nightly, pytest.mark.timeout(1800)]
BROKERS = 3
START_S = 300.0
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    # A killed broker is fenced soon; a busy one is not.
    "broker.session.timeout.ms": "9000",
    # The story elects leaders itself.
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.enable": "true",
}


def test_clients_see_the_same_when_leaders_change(
    kafka_jars: Callable[[str], str], tmp_path: Path
) -> None:
    kafka_jars("kafka-tiered")
    seen: dict[str, list[str]] = {}
    for name, kind in (("kafka", TieredKafkaNode), ("barnabas", NodeProcess)):
        settings = SETTINGS | tiered_settings(tmp_path / f"{name}-store", BROKERS)
        cluster = ClusterProcess(BROKERS, 0, tmp_path / name, settings, node_type=kind)
        try:
            cluster.start(START_S)
            seen[name] = leader_changes(cluster)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}\n{cluster.log()}") from error
        finally:
            cluster.close()
    assert len(seen["kafka"]) > 100
    found = list(unified_diff(seen["kafka"], seen["barnabas"], *seen, lineterm="", n=0))
    assert not found, "\n" + "\n".join(found)
