"""Background work of the active controller: fencing, rebalancing, elections and timers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from barnabas.metadata.partition_registration import RECOVERING
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    BrokerHeartbeatResponse,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
)
from barnabas.protocol.messages.partition_changes import (
    AlterPartitionRequest,
    BrokerState,
    ElectLeadersRequest,
    PartitionDataRequest,
    TopicDataRequest,
)
from barnabas.protocol.records.metadata_log import NoOpRecord
from barnabas.protocol.records.nodes import (
    BrokerRegistrationChangeRecord,
)
from barnabas.sim.world import SimWorld
from unit.controller.lone_controller import Node
from unit.controller.parts import creation, heartbeat, new_topic, registration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.metadata.partition_registration import PartitionRegistration
    from barnabas.protocol.schema import Record
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot

_BEAT_MS = 1000


class Recorder:
    """A listener that keeps every batch."""

    def __init__(self) -> None:
        self.batches: list[list[Record]] = []

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.batches += [[record for record, _ in batch.records] for batch in batches]

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        pass

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        pass


class Cluster:
    """A lone controller, and brokers 2 and 3 that are live."""

    def __init__(self, seed: int, **settings: str) -> None:
        self.world = SimWorld(seed)
        self.node = Node(self.world, **settings)
        self.recorder = Recorder()
        self.node.driver.add_listener(self.recorder)
        assert self.world.run_until(lambda: self.node.controller.is_active)
        self.epochs = {broker_id: self.enter(broker_id) for broker_id in (2, 3)}

    def ask(self, request: Any) -> Any:
        answers: list[Any] = []
        self.node.controller.serve(request, answers.append)
        assert self.world.run_until(lambda: bool(answers)), request
        return answers[0]

    def enter(self, broker_id: int, incarnation: int = 1) -> int:
        answer = self.ask(registration(broker_id=broker_id, incarnation=incarnation))
        assert answer.error_code == ErrorCode.NONE
        epoch: int = answer.broker_epoch
        self.epochs = {**getattr(self, "epochs", {}), broker_id: epoch}
        self.beat(broker_id)
        return epoch

    def beat(self, *brokers: int) -> None:
        for broker_id in brokers:
            request = heartbeat(self.epochs[broker_id], broker_id=broker_id)
            assert not self.ask(request).is_fenced

    def live(self, duration_ms: int, *brokers: int) -> None:
        for _ in range(0, duration_ms, _BEAT_MS):
            self.beat(*brokers)
            self.world.run_for(_BEAT_MS)

    def topic(self, name: str = "a", **configs: str) -> None:
        wanted = new_topic(
            name,
            partitions=-1,
            factor=-1,
            assignments={0: [2, 3]},
            configs={key.replace("_", "."): value for key, value in configs.items()},
        )
        assert self.ask(creation(wanted)).topics[0].error_code == ErrorCode.NONE

    def partition(self, name: str = "a") -> PartitionRegistration:
        found = self.node.publisher.image.topics.partition(name, 0)
        assert found is not None
        return found

    def isr(self, leader: int, *isr: int, name: str = "a") -> None:
        topic = self.node.publisher.image.topics.by_name(name)
        assert topic is not None
        before = topic.partitions[0]
        proposal = PartitionDataRequest(
            partition_index=0,
            leader_epoch=before.leader_epoch,
            new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=-1) for each in isr],
            leader_recovery_state=before.leader_recovery_state,
            partition_epoch=before.partition_epoch,
        )
        request = AlterPartitionRequest(
            broker_id=leader,
            broker_epoch=self.epochs[leader],
            topics=[TopicDataRequest(topic_id=topic.id, partitions=[proposal])],
        )
        (answer,) = self.ask(request).topics
        assert answer.partitions[0].error_code == ErrorCode.NONE

    def settle(self) -> None:
        driver = self.node.driver
        assert self.world.run_until(lambda: driver.core.high_watermark == driver.log.log_end_offset)


def test_a_broker_whose_connection_is_gone_is_fenced_at_once() -> None:
    cluster = Cluster(1)
    cluster.topic()
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2])
    cluster.settle()
    assert cluster.node.publisher.image.brokers[2].fenced
    found = cluster.partition()
    assert (found.leader, found.isr, found.leader_epoch) == (3, (3,), 1)


def test_the_next_process_of_a_fenced_broker_registers_before_the_session_ends() -> None:
    cluster = Cluster(2)
    again = registration(broker_id=2, incarnation=7)
    refused = cluster.ask(again)
    assert refused.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2])
    assert cluster.enter(2, incarnation=7) > cluster.epochs[3]


def test_closed_connections_of_an_earlier_epoch_and_the_own_broker_are_ignored() -> None:
    cluster = Cluster(3)
    own = cluster.enter(1)
    end = cluster.node.driver.log.log_end_offset
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2] - 1)
    cluster.node.controller.on_broker_lost(9, 5)
    cluster.node.controller.on_broker_lost(1, own)
    assert cluster.node.driver.log.log_end_offset == end


def test_a_fenced_live_broker_is_unfenced_by_its_next_heartbeat() -> None:
    cluster = Cluster(4)
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2])
    cluster.beat(2)
    assert not cluster.node.publisher.image.brokers[2].fenced


def test_preferred_leaders_are_elected_periodically() -> None:
    cluster = Cluster(5, leader__imbalance__check__interval__seconds="60")
    cluster.topic()
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2])
    cluster.beat(2)
    cluster.isr(3, 3, 2)
    cluster.live(20_000, 2, 3)
    assert cluster.partition().leader == 3
    cluster.live(60_000, 2, 3)
    assert cluster.partition().leader == 2


def test_periodic_preferred_elections_can_be_disabled() -> None:
    cluster = Cluster(
        6,
        leader__imbalance__check__interval__seconds="1",
        auto__leader__rebalance__enable="false",
    )
    cluster.topic()
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2])
    cluster.beat(2)
    cluster.isr(3, 3, 2)
    cluster.live(5_000, 2, 3)
    assert cluster.partition().leader == 3


def test_a_topic_that_enables_unclean_elections_gets_a_leader_later() -> None:
    cluster = Cluster(7, unclean__leader__election__interval__ms="5000")
    cluster.topic("no")
    cluster.topic("yes", unclean_leader_election_enable="false")
    for name in ("no", "yes"):
        cluster.isr(2, 2, name=name)
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2])
    cluster.live(6_000, 3)
    assert (cluster.partition("no").leader, cluster.partition("yes").leader) == (-1, -1)
    cluster.ask(_allow_unclean("yes"))
    cluster.live(6_000, 3)
    assert (cluster.partition("no").leader, cluster.partition("yes").leader) == (-1, 3)
    assert cluster.partition("yes").leader_recovery_state == RECOVERING


def _allow_unclean(topic: str) -> Any:
    from barnabas.protocol.messages.configs import (
        AlterableConfig,
        AlterConfigsResource,
        IncrementalAlterConfigsRequest,
    )

    key = "unclean.leader.election.enable"
    change = AlterableConfig(name=key, config_operation=0, value="true")
    return IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])],
        validate_only=False,
    )


def test_an_idle_log_with_followers_gets_no_op_records() -> None:
    cluster = Cluster(8)
    cluster.settle()
    before = len(cluster.recorder.batches)
    cluster.world.run_for(5_200)
    written = cluster.recorder.batches[before:]
    assert len(written) in (9, 10)
    assert all(isinstance(record, NoOpRecord) for batch in written for record in batch)


def test_a_single_idle_controller_writes_no_records() -> None:
    world = SimWorld(9)
    node = Node(world)
    node.ready()
    end = node.driver.log.log_end_offset
    world.run_for(10_000)
    assert node.driver.log.log_end_offset == end


def test_a_pause_of_the_controller_does_not_end_broker_sessions() -> None:
    cluster = Cluster(10)
    cluster.node.host.timer.pause(20_000)
    cluster.world.run_for(20_050)
    assert not cluster.node.publisher.image.brokers[2].fenced
    cluster.world.run_for(10_000)
    assert cluster.node.publisher.image.brokers[2].fenced


def test_fencing_a_broker_with_many_partitions_writes_several_batches() -> None:
    cluster = Cluster(11)
    for name in ("a", "b", "c"):
        wanted = new_topic(
            name, partitions=-1, factor=-1, assignments={each: [2, 3] for each in range(4000)}
        )
        assert cluster.ask(creation(wanted)).topics[0].error_code == 0
    before = len(cluster.recorder.batches)
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2])
    assert cluster.world.run_until(lambda: cluster.node.publisher.image.brokers[2].fenced)
    written = cluster.recorder.batches[before:]
    sizes = [len([each for each in batch if not isinstance(each, NoOpRecord)]) for batch in written]
    assert [size for size in sizes if size] == [1_000] * 12 + [1]
    # Last: a controller that takes over in the midst of it goes on from there.
    assert isinstance(written[-1][-1], BrokerRegistrationChangeRecord)
    topics = cluster.node.publisher.image.topics
    leaders = {each.leader for topic in topics for each in topic.partitions.values()}
    assert leaders == {3}


def test_without_the_elr_feature_fencing_with_many_single_replicas_completes() -> None:
    cluster = Cluster(13)
    wanted = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(
                feature="eligible.leader.replicas.version", max_version_level=0, upgrade_type=2
            )
        ],
        timeout_ms=60_000,
    )
    assert cluster.ask(wanted).error_code == ErrorCode.NONE
    alone = new_topic(
        "a", partitions=-1, factor=-1, assignments={each: [2] for each in range(2500)}
    )
    assert cluster.ask(creation(alone)).topics[0].error_code == 0
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2])
    publisher = cluster.node.publisher
    assert cluster.world.run_until(lambda: publisher.image.brokers[2].fenced)
    (topic,) = publisher.image.topics
    # Each stays in its ISR of one: it alone has everything.
    assert {(each.leader, each.isr) for each in topic.partitions.values()} == {(-1, (2,))}
    cluster.beat(2)
    (topic,) = publisher.image.topics
    assert {(each.leader, each.isr) for each in topic.partitions.values()} == {(2, (2,))}


def test_a_request_with_more_records_than_a_batch_is_refused() -> None:
    cluster = Cluster(12)
    for name in ("a", "b"):
        wanted = new_topic(
            name, partitions=-1, factor=-1, assignments={each: [2, 3] for each in range(6000)}
        )
        assert cluster.ask(creation(wanted)).topics[0].error_code == 0
    brokers = cluster.node.publisher
    cluster.node.controller.on_broker_lost(2, cluster.epochs[2])
    assert cluster.world.run_until(lambda: brokers.image.brokers[2].fenced)
    cluster.node.controller.on_broker_lost(3, cluster.epochs[3])
    assert cluster.world.run_until(lambda: all(b.fenced for b in brokers.image.brokers.values()))
    # 3 was the last in sync, and stays away.
    cluster.beat(2)
    everything = ElectLeadersRequest(election_type=1, topic_partitions=None, timeout_ms=60_000)
    assert cluster.ask(everything).error_code == ErrorCode.POLICY_VIOLATION
    topics = cluster.node.publisher.image.topics
    assert {each.leader for topic in topics for each in topic.partitions.values()} == {-1}


def shut_down(cluster: Cluster, broker_id: int) -> BrokerHeartbeatResponse:
    request = heartbeat(cluster.epochs[broker_id], broker_id=broker_id, shut_down=True)
    answer = cluster.ask(request)
    assert isinstance(answer, BrokerHeartbeatResponse)
    return answer


def leaders_and_isr(cluster: Cluster) -> set[tuple[int, tuple[int, ...]]]:
    topics = cluster.node.publisher.image.topics
    return {(each.leader, each.isr) for topic in topics for each in topic.partitions.values()}


def sizes_since(cluster: Cluster, before: int) -> list[int]:
    written = cluster.recorder.batches[before:]
    sizes = [len([each for each in batch if not isinstance(each, NoOpRecord)]) for batch in written]
    return [size for size in sizes if size]


@pytest.mark.parametrize("leader", [2, 3])
def test_a_shutdown_of_a_broker_with_many_partitions_takes_several_turns(leader: int) -> None:
    """In one case the broker leads them, in the other it is only in sync."""
    cluster = Cluster(14)
    follower = 5 - leader
    for name in ("a", "b"):
        wanted = new_topic(
            name,
            partitions=-1,
            factor=-1,
            assignments={each: [leader, follower] for each in range(3000)},
        )
        assert cluster.ask(creation(wanted)).topics[0].error_code == 0
    before = len(cluster.recorder.batches)
    known = cluster.node.publisher.image.provenance.offset
    cluster.ask(heartbeat(cluster.epochs[3], broker_id=3, offset=known))
    assert not shut_down(cluster, 2).should_shut_down
    assert cluster.world.run_until(lambda: leaders_and_isr(cluster) == {(3, (3,))})
    assert max(sizes_since(cluster, before)) <= 1_001
    # It is let go only when the other one has read all of that.
    assert not shut_down(cluster, 2).should_shut_down
    cluster.beat(3)
    assert shut_down(cluster, 2).should_shut_down
    assert cluster.node.publisher.image.brokers[2].fenced


def test_a_new_controller_continues_a_controlled_shutdown() -> None:
    cluster = Cluster(15)
    wanted = new_topic(
        "a", partitions=-1, factor=-1, assignments={each: [2, 3] for each in range(3000)}
    )
    assert cluster.ask(creation(wanted)).topics[0].error_code == 0
    request = heartbeat(cluster.epochs[2], broker_id=2, shut_down=True)
    cluster.node.controller.serve(request, lambda _: None)
    assert cluster.world.run_until(lambda: len(leaders_and_isr(cluster)) == 2)
    cluster.node.host.kill()
    cluster.node.host.start()
    cluster.node = Node(cluster.world)
    assert cluster.world.run_until(lambda: leaders_and_isr(cluster) == {(3, (3,))})
