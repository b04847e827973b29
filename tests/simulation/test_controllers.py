"""Three controllers in one simulated world keep the invariants of metadata, for random seeds."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from simulation.controller_faults import ControllerFaults
from simulation.controller_hosts import ControllerReplica


def three_replicas(name: str) -> CreatableTopic:
    return CreatableTopic(
        name=name, num_partitions=3, replication_factor=3, assignments=[], configs=[]
    )


@pytest.mark.parametrize("seed", range(6))
def test_metadata_stays_consistent_under_random_failures(seed: int) -> None:
    faults = ControllerFaults(seed)
    faults.run(120)
    image = faults.settle()
    assert len(image.brokers) == 4
    assert faults.hosts.metadata.records


def test_a_new_active_controller_gives_every_broker_a_full_session() -> None:
    faults = ControllerFaults(1)
    faults.settle()
    first = faults.hosts.await_active()
    faults.hosts.run_for(1_500)
    faults.hosts.kill(first.config.node_id)
    second = faults.hosts.await_active()
    began = faults.hosts.world.scheduler.now_ms
    # No heartbeat is sent for it from now on; sessions last 2 s.
    faults.hosts.run_for(1_900)
    image = second.controller.image
    assert image is not None
    assert not any(each.fenced for each in image.brokers.values())
    assert faults.hosts.world.scheduler.now_ms - began < 2_000
    faults.hosts.run_for(200)
    image = second.controller.image
    assert image is not None
    assert all(each.fenced for each in image.brokers.values())


def test_uncommitted_records_of_an_isolated_controller_are_dropped_and_answered() -> None:
    faults = ControllerFaults(2)
    faults.settle()
    old = faults.hosts.await_active()
    faults.hosts.isolate(old.config.node_id)
    answers: dict[str, Any] = {}
    for name, timeout_ms in (("patient", 60_000), ("hasty", 300)):
        request = CreateTopicsRequest(topics=[three_replicas(name)], timeout_ms=timeout_ms)
        old.controller.serve(request, partial(answers.__setitem__, name))
    assert old.controller.image is not None
    assert old.controller.image.topics.by_name("patient") is not None
    faults.hosts.run_for(350)
    assert set(answers) == {"hasty"}
    assert answers["hasty"].topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    assert faults.hosts.run_until(lambda: "patient" in answers)
    assert answers["patient"].topics[0].error_code == ErrorCode.NOT_CONTROLLER
    assert not old.controller.is_active
    image = faults.settle()
    assert image.topics.by_name("patient") is None
    assert image.topics.by_name("hasty") is None


def test_a_lagging_controller_loads_a_snapshot_and_serves_from_it() -> None:
    faults = ControllerFaults(3)
    faults.settle()
    faults.hosts.kill(3)
    for number in range(60):
        topic = three_replicas(f"new-{number}")
        request = CreateTopicsRequest(topics=[topic], timeout_ms=60_000)
        answer = faults.hosts.ask(request)
        assert answer.topics[0].error_code == ErrorCode.NONE
    for replica in faults.hosts.running():
        replica.generator.maybe_begin()
    faults.hosts.run_for(200)
    third = faults.hosts.start(3)
    assert isinstance(third, ControllerReplica)
    faults.settle()
    assert third.loaded_snapshots
    image = third.publisher.image
    assert len(image.topics) == 60
