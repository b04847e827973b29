"""A topic whose follower fetches only when a test asks. Until then, a Produce of acks=all waits.

The broker of the follower is simulated: the tests register it at the controllers of both sides, and
send its heartbeats and its fetches.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from barnabas.protocol.api_table import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Listener,
)
from barnabas.testing.cluster_process import CONTROLLER_LISTENER, ClusterProcess
from conformance.raw_client import RawClient
from differential.broker_pair import SETTINGS, warmed_up_pair
from differential.controller_scene import CAUGHT_UP, features_of
from differential.controllers import FEATURES
from differential.scene import POLL_S, exchange
from jvm.kafka_process import CLUSTER_ID, KafkaProcess
from waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from differential.scene import Pair
    from differential.side import Side

HELD_TOPIC = "topic-with-a-held-replica"
# The simulated broker.
FOLLOWER = 2
DIRECTORY = b"simulated broker"
DAY_MS = "86400000"
# The follower stays connected, registered and in the ISR for the whole run.
HELD_SETTINGS = {
    **SETTINGS,
    "broker.session.timeout.ms": DAY_MS,
    "replica.lag.time.max.ms": DAY_MS,
    "connections.max.idle.ms": DAY_MS,
    "auto.leader.rebalance.enable": "false",
}


@contextlib.contextmanager
def started_pair_with_held_topic(directory: Path) -> Iterator[Pair]:
    """Run both brokers, with the topic whose follower is simulated.

    Args:
        directory: contains the directories of both brokers.
    """
    kafka = KafkaProcess(directory / "kafka", HELD_SETTINGS)
    barnabas = ClusterProcess(1, directory=directory / "barnabas", settings=HELD_SETTINGS)
    host, port = barnabas.node(1).options.listeners[CONTROLLER_LISTENER]
    try:
        kafka.launch()
        barnabas.start()
        kafka.await_ready()
        with (
            warmed_up_pair(kafka.bootstrap, barnabas.bootstrap) as pair,
            contextlib.closing(RawClient(kafka.controller)) as of_kafka,
            contextlib.closing(RawClient(f"{host}:{port}")) as of_barnabas,
        ):
            # After the internal topics, which have their only replicas on the real brokers.
            _add_held_topic(pair.kafka, of_kafka, CLUSTER_ID)
            _add_held_topic(pair.barnabas, of_barnabas, barnabas.cluster_id)
            yield pair
    finally:
        kafka.close()
        barnabas.close()


def release(side: Side, on: str) -> None:
    """Fetch as the follower until the waiting Produce on a connection has its response."""

    def has_response() -> bool:
        _fetch_to_end(side)
        return side.has_response(POLL_S, on)

    eventually(has_response, f"{side.name}: the Produce still waits")


def _fetch_to_end(side: Side) -> None:
    """Fetch from the log end, which tells the leader that the follower has all records."""
    partition = {
        "partition": 0,
        "fetch_offset": _log_end(side).offset,
        "log_start_offset": 0,
        "partition_max_bytes": 1,
    }
    fetch = {
        "replica_id": FOLLOWER,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "topics": [{"topic": HELD_TOPIC, "partitions": [partition]}],
    }
    response = exchange(side, ApiKey.FETCH, 12, fetch)
    (fetched,) = response.responses[0].partitions
    assert response.error_code == fetched.error_code == ErrorCode.NONE, response


def _add_held_topic(side: Side, controller: RawClient, cluster_id: str) -> None:
    """Register the simulated broker, and create the topic.

    Args:
        side: the broker that leads the topic.
        controller: the connection of the simulated broker to the controller. Barnabas fences a
            broker whose connection is closed.
        cluster_id: the id of the cluster.
    """
    levels = {name: (0, level) for name, level in FEATURES.items()}
    registered: Any = controller.ask(
        BrokerRegistrationRequest(
            broker_id=FOLLOWER,
            cluster_id=cluster_id,
            incarnation_id=DIRECTORY,
            listeners=[Listener(name="PLAINTEXT", host="h", port=9092, security_protocol=0)],
            features=features_of({**levels, "metadata.version": (7, 33)}),
            rack=None,
            log_dirs=[DIRECTORY],
        ),
        4,
    )
    assert registered.error_code == ErrorCode.NONE, registered

    def heartbeat(cordoned: list[bytes]) -> Any:
        response: Any = controller.ask(
            BrokerHeartbeatRequest(
                broker_id=FOLLOWER,
                broker_epoch=registered.broker_epoch,
                current_metadata_offset=CAUGHT_UP,
                want_fence=False,
                want_shut_down=False,
                cordoned_log_dirs=cordoned,
            ),
            2,
        )
        assert response.error_code == ErrorCode.NONE, response
        return response

    eventually(lambda: not heartbeat([]).is_fenced, f"{side.name}: the follower stays fenced")
    assigned = [{"partition_index": 0, "broker_ids": [1, FOLLOWER]}]
    topic = {
        "name": HELD_TOPIC,
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": assigned,
    }
    created = exchange(side, ApiKey.CREATE_TOPICS, 7, {"topics": [topic], "timeout_ms": 10_000})
    assert created.topics[0].error_code == ErrorCode.NONE, created
    # No other topic gets a replica on the simulated broker.
    heartbeat([DIRECTORY])
    eventually(
        lambda: _log_end(side).error_code == ErrorCode.NONE, f"{side.name}: the topic has no leader"
    )


def _log_end(side: Side) -> Any:
    """Return the log end, including the records that the follower lacks, or an error."""
    topics = [{"name": HELD_TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    values = {"replica_id": FOLLOWER, "topics": topics}
    (found,) = exchange(side, ApiKey.LIST_OFFSETS, 5, values).topics[0].partitions
    return found
