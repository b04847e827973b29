"""The active controller on a simulated host: responses follow commits."""

from __future__ import annotations

from typing import Any

from barnabas.metadata.configs_image import ALL_BROKERS, BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.sim.world import SimWorld
from unit.controller.lone_controller import FEATURES, Node
from unit.controller.parts import (
    CLUSTER_ID,
    creation,
    heartbeat,
    new_topic,
    registration,
)


def test_a_new_cluster_begins_with_the_formatted_features_and_a_pinned_minimum() -> None:
    world = SimWorld(1)
    node = Node(world)
    node.ready()
    image = node.publisher.image
    assert dict(image.features.finalized) == FEATURES
    assert dict(image.configs.get(BROKER, ALL_BROKERS)) == {"min.insync.replicas": "1"}
    assert list(image.controllers) == [1]
    assert not image.brokers[1].fenced


def test_an_inactive_controller_returns_not_controller() -> None:
    world = SimWorld(2)
    node = Node(world)
    node.controller.serve(creation(new_topic("a")), node.answers.append)
    (answer,) = node.answers
    assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER


def test_a_callback_runs_when_the_controller_becomes_active() -> None:
    world = SimWorld(3)
    node = Node(world)
    called: list[str] = []
    node.controller.when_active(lambda: called.append("waited"))
    assert called == []
    assert world.run_until(lambda: bool(called))
    node.controller.when_active(lambda: called.append("at once"))
    assert called == ["waited", "at once"]


def test_a_response_is_sent_only_after_the_commit() -> None:
    world = SimWorld(4)
    node = Node(world)
    node.ready()
    count = len(node.answers)
    node.controller.serve(creation(new_topic("a")), node.answers.append)
    assert len(node.answers) == count
    assert node.publisher.image.topics.by_name("a") is None
    assert node.controller.image is not None
    assert node.controller.image.topics.by_name("a") is not None
    assert node.wait().topics[0].error_code == ErrorCode.NONE
    assert node.publisher.image.topics.by_name("a") is not None


def test_a_request_sees_uncommitted_changes_of_earlier_requests() -> None:
    world = SimWorld(5)
    node = Node(world)
    node.ready()
    for _ in range(2):
        node.controller.serve(creation(new_topic("a")), node.answers.append)
    node.wait(2)
    errors = [each.topics[0].error_code for each in node.answers[-2:]]
    assert sorted(errors) == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_response_without_records_waits_for_the_changes_that_it_saw() -> None:
    world = SimWorld(6)
    node = Node(world)
    node.ready()
    order: list[str] = []
    node.controller.serve(creation(new_topic("a")), lambda _: order.append("created"))
    node.controller.serve(creation(new_topic("a")), lambda _: order.append("refused"))
    assert order == []
    world.run_until(lambda: len(order) == 2)
    assert node.driver.core.high_watermark == node.driver.log.log_end_offset


def test_pending_requests_get_not_controller_at_a_stop() -> None:
    world = SimWorld(7)
    node = Node(world)
    node.ready()
    answers: list[Any] = []
    node.controller.serve(creation(new_topic("a")), answers.append)
    node.controller.serve(creation(new_topic("a")), answers.append)
    node.driver.shutdown()
    errors = [each.topics[0].error_code for each in answers]
    assert errors == [ErrorCode.NOT_CONTROLLER] * 2
    assert not node.controller.is_active


def test_the_state_survives_a_restart() -> None:
    world = SimWorld(8)
    node = Node(world)
    epoch = node.ready()
    node.controller.serve(creation(new_topic("a", 3)), node.answers.append)
    topic_id = node.wait().topics[0].topic_id
    node.host.lose_power()
    node.host.start()
    again = Node(world)
    assert again.ready(incarnation=2) > epoch
    found = again.publisher.image.topics.by_name("a")
    assert found is not None
    assert found.id == topic_id
    assert [each.leader for each in found.partitions.values()] == [1, 1, 1]
    assert again.fatal == []


def test_a_registration_with_another_cluster_id_is_refused() -> None:
    world = SimWorld(9)
    node = Node(world)
    world.run_until(lambda: node.controller.is_active)
    assert CLUSTER_ID != "other"
    node.controller.serve(registration(cluster_id="other"), node.answers.append)
    world.run_for(50)
    assert node.answers[0].error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_silent_broker_is_fenced_by_the_timer() -> None:
    world = SimWorld(10)
    node = Node(world)
    node.ready()
    node.controller.serve(registration(broker_id=2), node.answers.append)
    epoch = node.wait().broker_epoch
    node.controller.serve(heartbeat(epoch, broker_id=2), node.answers.append)
    assert not node.wait().is_fenced
    world.run_for(8000)
    assert not node.publisher.image.brokers[2].fenced
    world.run_for(2000)
    assert node.publisher.image.brokers[2].fenced
    assert not node.publisher.image.brokers[1].fenced


def test_records_that_cannot_be_written_change_neither_log_nor_image() -> None:
    node = Node(SimWorld(21))
    node.ready()
    state = node.controller._state
    image, log_end = state.image, node.driver.log.log_end_offset
    record = ConfigRecord(resource_type=2, resource_name="a", name="k", value="x" * 40_000)
    state.append([(record, 0)])
    assert state.image is image
    assert node.driver.log.log_end_offset == log_end
    assert not node.fatal
    node.controller.serve(creation(new_topic("a")), node.answers.append)
    assert node.wait().topics[0].error_code == ErrorCode.NONE
