"""A tiered topic with a replica on Apache Kafka and one on Barnabas, which share the store.

The store has the layout of Kafka's LocalTieredStorage. Each kind of broker is the leader whose
follower has lost its disk, and each is that follower, which then leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.testing.cluster_process import ClusterProcess, NodeOptions, NodeProcess
from differential.tiered_leaders import LedTopic
from jvm.tiered_node import TieredKafkaNode, tiered_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.conformance, pytest.mark.nightly, pytest.mark.timeout(1200)]
START_S = 300.0
OURS, KAFKAS = 1, 2
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    # A killed broker is fenced soon; a busy one is not.
    "broker.session.timeout.ms": "9000",
    "auto.leader.rebalance.enable": "false",
}
# One broker writes events alone while the other one is down.
MIN_ISR = {"rlmm.config.remote.log.metadata.topic.min.isr": "1"}


@pytest.fixture
def cluster(kafka_jars: Callable[[str], str], tmp_path: Path) -> Iterator[ClusterProcess]:
    """Broker 1 is Barnabas, broker 2 is Apache Kafka, and the controller is ours."""
    kafka_jars("kafka-tiered")

    class EitherNode(NodeProcess):
        """Creates a node of Barnabas or of Apache Kafka."""

        def __new__(cls, options: NodeOptions, settings: Mapping[str, str]) -> NodeProcess:
            kind = TieredKafkaNode if options.node_id == KAFKAS else NodeProcess
            return kind(options, settings)

    settings = SETTINGS | tiered_settings(tmp_path / "store", 2, "?layout=kafka-local") | MIN_ISR
    made = ClusterProcess(2, 1, tmp_path, settings, node_type=EitherNode)
    try:
        yield made.start(START_S)
    finally:
        made.close()


@pytest.mark.parametrize(
    ("leader", "follower"), [(OURS, KAFKAS), (KAFKAS, OURS)], ids=["our leader", "Kafka's leader"]
)
def test_a_follower_without_a_disk_gets_in_sync_and_leads(
    cluster: ClusterProcess, leader: int, follower: int
) -> None:
    led = LedTopic(cluster, "mixed", (leader, follower), min_isr=1)
    try:
        led.fill()
        led.await_local_start()
        written = list(led.records(leader))
        cluster.node(follower).kill()
        cluster.node(follower).wipe()
        led.await_in_sync(1)
        cluster.node(follower).start()
        led.await_in_sync(2)
        # The follower serves consumers from the tier.
        assert list(led.records(follower)) == written
        cluster.node(leader).kill()
        led.await_led_by(follower)
        assert list(led.records(follower)) == written
        led.fill()
        # The new leader copies what it has got, and the segments of its own epoch.
        led.await_local_start()
        written = list(led.records(follower))
        assert len(written) == led.end_offset
        cluster.node(leader).start()
        led.await_in_sync(2)
        assert list(led.records(leader)) == written
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.log()}") from error
