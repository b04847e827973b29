"""A cluster of Apache Kafka becomes Barnabas one node at a time under load, and goes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jvm.migrating_cluster import Kafka39Node, Shape
from jvm.migration import migration, there_and_back

# Limits for a test that hangs. Six processes share the processors, and Java starts slowly.
pytestmark = [pytest.mark.conformance, pytest.mark.timeout(1200)]
LONG_S = 5400

SHAPES = {
    "static-combined": Shape(),
    "dynamic-combined": Shape(dynamic=True),
    "static-separate": Shape(controllers=3),
    "dynamic-separate": Shape(dynamic=True, controllers=3),
    "from-3.9": Shape(kafka=Kafka39Node, has_groups=False),
}


def test_one_node_becomes_barnabas_under_load_and_kafka_again(
    kafka_jars: Callable[[str], str], tmp_path: Path
) -> None:
    # The nightly tests have groups of all types too.
    with migration(Shape(has_groups=False), tmp_path) as made:
        outcome = there_and_back(made, [2])
    assert outcome.problems == []
    assert outcome.failed_sends == 0


@pytest.mark.nightly
@pytest.mark.timeout(LONG_S)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_all_nodes_become_barnabas_under_load_and_kafka_again(
    shape: Shape, kafka_jars: Callable[[str], str], tmp_path: Path
) -> None:
    with migration(shape, tmp_path) as made:
        outcome = there_and_back(made, list(made.cluster.ours))
    assert outcome.problems == []
    assert outcome.failed_sends == 0
