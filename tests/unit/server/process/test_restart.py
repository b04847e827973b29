"""Killed nodes return to their cluster in virtual time: delays and log messages."""

from __future__ import annotations

import re

import pytest

from barnabas.metadata.broker_registration import features_as
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from barnabas.server.startup.features import SUPPORTED_FEATURES
from unit.server.simulated_cluster import (
    CLUSTER_ID,
    CONTROLLER_PORT,
    SimulatedCluster,
    three_nodes,
)


@pytest.mark.parametrize("down_ms", [0, 20, 100])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_killed_and_restarted_active_controller_is_unfenced_soon(seed: int, down_ms: int) -> None:
    """The next controller has no connection of the former process, whose session is not over."""
    cluster = three_nodes(seed)
    dead = cluster.active
    cluster.kill(dead)
    cluster.world.run_for(down_ms)
    started_ms = cluster.world.scheduler.now_ms
    cluster.launch(dead)
    cluster.until(lambda: dead in cluster.ready)
    assert cluster.world.scheduler.now_ms - started_ms < 2_000


def test_another_process_with_the_id_of_a_live_broker_is_refused() -> None:
    cluster = three_nodes()
    dead = cluster.active
    cluster.kill(dead)
    witness = cluster.active
    taken = next(node_id for node_id in (1, 2, 3) if node_id not in (dead, witness))
    request = registration_of(cluster, taken)
    epoch = cluster.image(witness).brokers[taken].epoch
    for _ in range(30):
        answer = cluster.ask(witness, request, 4, CONTROLLER_PORT)
        assert answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        cluster.world.run_for(100)
    assert cluster.image(witness).brokers[taken].epoch == epoch
    assert taken in cluster.live_brokers(witness)


def registration_of(cluster: SimulatedCluster, broker_id: int) -> BrokerRegistrationRequest:
    """Return the registration of another process of the broker."""
    broker = cluster.image(broker_id).brokers[broker_id]
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=bytes(range(16)),
        listeners=[
            Listener(name=name, host=at.host, port=at.port, security_protocol=0)
            for name, at in broker.listeners.items()
        ],
        features=features_as(Feature, SUPPORTED_FEATURES),
        rack=None,
        log_dirs=list(broker.directories),
    )


def test_a_node_that_waits_for_its_controller_logs_the_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # A seed in which the registration is answered before the metadata of it comes.
    cluster = three_nodes(seed=1)
    active = cluster.active
    waiting = next(node_id for node_id in (1, 2, 3) if node_id != active)
    cluster.kill(waiting)
    cluster.world.run_for(1_000)
    caplog.clear()
    cluster.launch(waiting)
    broker = cluster.nodes[waiting].broker
    assert broker is not None
    told = set()
    while waiting not in cluster.ready:
        told.add(re.sub(r"[0-9]+", "N", broker.awaits()))
        cluster.world.run_for(0.1)
    assert told >= {
        "waiting for controller N to register this broker",
        "waiting for the metadata up to offset N; N is known",
        "waiting for controller N to unfence this broker, which is registered",
    }


def test_a_node_that_reaches_no_voter_logs_it_and_recovers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = three_nodes()
    active = cluster.active
    waiting, other = (node_id for node_id in (1, 2, 3) if node_id != active)
    cluster.kill(active)
    for node_id in (waiting, other):
        cluster.world.network.partition(f"node-{node_id}", f"node-{active}")
    cluster.launch(active)
    cluster.world.run_for(4_000)
    assert "Waiting for the metadata quorum: no response from voter" in caplog.text
    cluster.world.network.heal()
    cluster.until(lambda: active in cluster.ready)
