"""A leader and its followers over the network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.records.nodes import UnregisterBrokerRecord
from barnabas.replication.config import RACK_AWARE_SELECTOR
from barnabas.replication.partition.fetch_params import FetchParams, FetchPartitionData
from barnabas.storage.results import FetchIsolation
from barnabas.storage.topic_partition import TopicIdPartition
from unit.replication.replica_set import ReplicaSet
from unit.replication.replicated_cluster import (
    LISTENER,
    PARTITION,
    TOPIC,
    ReplicatedCluster,
    topic_id_of,
)

if TYPE_CHECKING:
    from barnabas.replication.partition.results import FetchResult
    from unit.replication.replicated_cluster import Node


WHERE = TopicIdPartition(topic_id_of(TOPIC), TOPIC, 0)
FETCH = 1


@pytest.fixture
def cluster() -> ReplicatedCluster:
    made = ReplicatedCluster(replica_lag_time_max_ms=500)
    made.make_topic()
    made.produce(b"first")
    assert made.until(made.in_sync)
    return made


def fetch(node: Node, offset: int, **options: object) -> list[list[tuple[object, FetchResult]]]:
    """Send a consumer fetch, or that of `replica_id`; responses are added to the list."""
    replica_id = options.pop("replica_id", -1)
    data = FetchPartitionData(
        offset, 1 << 20, 0, options.pop("epoch", -1), options.pop("last_fetched_epoch", -1)
    )
    params = FetchParams(
        version=options.pop("version", 17),
        replica_id=replica_id,
        replica_epoch=options.pop("replica_epoch", -1),
        max_wait_ms=options.pop("max_wait_ms", 0),
        min_bytes=1,
        max_bytes=1 << 20,
        isolation=FetchIsolation.LOG_END if replica_id >= 0 else FetchIsolation.HIGH_WATERMARK,
        listener_name=LISTENER,
        **options,
    )
    answers: list[list[tuple[object, FetchResult]]] = []
    node.manager.fetch(params, [(WHERE, data)], answers.append)
    return answers


def result(answers: list[list[tuple[object, FetchResult]]]) -> FetchResult:
    return answers[0][0][1]


def test_idle_followers_fetch_once_per_max_wait(cluster) -> None:
    """A fetch at the log end waits at the leader until records arrive."""
    before = cluster[1].requests(FETCH)
    cluster.run_for(10_000)
    # Two followers, a request per replica.fetch.wait.max.ms of 500 each.
    assert 36 <= cluster[1].requests(FETCH) - before <= 44
    begin = cluster.world.scheduler.now_ms
    cluster.produce(b"more")
    assert cluster.world.scheduler.now_ms - begin < 20


def test_followers_read_to_the_log_end_and_consumers_to_the_high_watermark(cluster) -> None:
    for other in (2, 3):
        cluster.world.network.partition("b1", f"b{other}")
    cluster[1].produce(b"not yet")
    assert len(result(fetch(cluster[1], 1)).records) == 0
    assert len(result(fetch(cluster[1], 1, replica_id=2, epoch=0)).records) > 0


def test_a_delayed_fetch_is_answered_when_the_leadership_is_lost(cluster) -> None:
    answers = fetch(cluster[1], 1, version=10, max_wait_ms=10_000)
    assert not answers
    cluster.controller.elect(2)
    assert cluster.until(lambda: bool(answers))
    assert result(answers).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_delayed_fetch_at_a_follower_is_answered_when_the_high_watermark_advances(
    cluster,
) -> None:
    answers = fetch(cluster[2], 1, max_wait_ms=10_000)
    assert not answers
    cluster.produce(b"second")
    assert cluster.until(lambda: bool(answers), 1_000)
    assert len(result(answers).records) > 0


def test_a_broker_without_the_replica_returns_an_error() -> None:
    """UNKNOWN_LEADER_EPOCH if it sent an epoch, else NOT_LEADER_OR_FOLLOWER."""
    replicas = ReplicaSet((1, 2))
    replicas.follow(4, 0, current_leader_epoch=0)
    assert replicas.last_fetch().error is ErrorCode.UNKNOWN_LEADER_EPOCH
    replicas.follow(4, 0)
    assert replicas.last_fetch().error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_with_an_earlier_broker_epoch_changes_nothing(cluster) -> None:
    """KIP-903: the broker epoch is older than the registered one."""
    end = cluster[1].partition().leader.remote_replicas[2].log_end_offset
    cluster.world.network.partition("b1", "b2")
    answers = fetch(cluster[1], 0, replica_id=2, epoch=0, replica_epoch=cluster[2].epoch - 50)
    assert result(answers).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster[1].partition().leader.remote_replicas[2].log_end_offset == end


def test_the_leader_keeps_the_state_of_its_followers(cluster) -> None:
    """Log end, log start, fetch and caught-up times, broker epoch."""
    cluster.run_for(600)
    now_ms = cluster.world.scheduler.now_ms
    for replica in cluster[1].partition().leader.remote_replicas.values():
        assert (replica.log_end_offset, replica.log_start_offset) == (1, 0)
        assert now_ms - replica.last_fetch_ms < 510
        assert replica.last_caught_up_ms == replica.last_fetch_ms
        assert replica.broker_epoch == cluster[replica.broker_id].epoch


def test_a_lagging_follower_leaves_the_isr_and_rejoins_when_it_has_caught_up(
    cluster,
) -> None:
    """It leaves after replica.lag.time.max.ms, and joins at the high watermark; both count."""
    metrics = cluster[1].manager.metrics
    cluster.world.network.partition("b1", "b3")
    produced = cluster[1].produce(b"second")
    assert cluster.until(lambda: set(cluster.registration().isr) == {1, 2})
    assert cluster.until(lambda: bool(produced))
    assert produced[0].error is ErrorCode.NONE
    assert cluster.until(lambda: metrics.isr_shrinks == 1, 10)
    cluster.world.network.heal()
    assert cluster.until(cluster.in_sync)
    assert cluster.until(lambda: metrics.isr_expands == 1, 10)
    assert metrics.failed_isr_updates == 0


def test_a_fenced_follower_does_not_join_the_isr(cluster) -> None:
    """The follower must be unfenced and not shutting down."""
    cluster.controller.fence(3)
    cluster.run_for(5_000)
    assert cluster[3].log().log_end_offset == cluster[1].log().log_end_offset
    assert set(cluster.registration().isr) == {1, 2}
    assert not cluster.controller.proposals
    cluster.controller.unfence(3)
    assert cluster.until(cluster.in_sync)


def test_during_a_proposal_the_maximal_isr_applies(cluster) -> None:
    cluster.world.network.partition("b1", "b3")
    produced = cluster[1].produce(b"second")
    cluster.controller.unreachable.add(1)
    cluster.run_for(2_000)
    state = cluster[1].partition().leader.isr_state
    assert (set(state.maximal_isr), set(state.proposed_isr)) == ({1, 2, 3}, {1, 2})
    assert not produced
    cluster.controller.unreachable.clear()
    assert cluster.until(lambda: bool(produced))


def test_a_refused_proposal_is_repeated(cluster) -> None:
    """INELIGIBLE_REPLICA withdraws it, NETWORK_EXCEPTION repeats it; failures are counted."""
    cluster.controller.refusals = [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.NETWORK_EXCEPTION]
    cluster.world.network.partition("b1", "b3")
    cluster[1].produce(b"second")
    assert cluster.until(lambda: set(cluster.registration().isr) == {1, 2})
    assert cluster.controller.answers == [
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NONE,
    ]
    assert cluster[1].manager.metrics.failed_isr_updates == 1


def test_a_leader_with_outdated_metadata_waits_for_the_update(cluster) -> None:
    """The partition epoch protects against stale responses."""
    cluster.controller.refusals = [ErrorCode.INVALID_UPDATE_VERSION]
    cluster.world.network.partition("b1", "b3")
    cluster[1].produce(b"second")
    assert cluster.until(lambda: len(cluster.controller.answers) == 1)
    cluster.run_for(3_000)
    assert len(cluster.controller.proposals) == 1
    cluster.controller.change(isr=[1, 2, 3])
    assert cluster.until(lambda: set(cluster.registration().isr) == {1, 2})


def test_below_min_insync_replicas_nothing_is_committed() -> None:
    """KIP-966: the high watermark waits for min.insync.replicas."""
    cluster = ReplicatedCluster(
        2, replica_lag_time_max_ms=500, log_settings={"min_insync_replicas": 2}
    )
    cluster.make_topic(replicas=(1, 2))
    cluster.produce(b"both")
    cluster.kill(2)
    cluster.run_for(10)
    cluster[1].produce(b"alone", acks=1)
    cluster.run_for(5_000)
    assert (cluster[1].log().high_watermark, cluster[1].log().log_end_offset) == (1, 2)
    assert cluster.produce(b"refused").error is ErrorCode.NOT_ENOUGH_REPLICAS
    cluster.restart(2)
    assert cluster.until(lambda: cluster[1].log().high_watermark == 2)


def test_high_watermarks_are_restored_after_a_restart(cluster) -> None:
    """They are checkpointed and loaded at the start."""
    cluster.run_for(6_000)
    cluster.kill(3)
    cluster.world.network.partition("b1", "b3")
    cluster.restart(3)
    assert cluster[3].log().high_watermark == 1


def test_a_sync_that_ends_after_the_leadership_moves_no_high_watermark() -> None:
    """Records that only this broker has may be missing at the new leader (seed 1010)."""
    cluster = ReplicatedCluster(log_settings={"flush_messages": 1})
    cluster.make_topic()
    for other in (2, 3):
        cluster.world.network.partition("b1", f"b{other}")
    cluster[1].produce(b"only here")
    cluster[1].replay_now(leader=2)
    cluster.run_for(100)
    assert cluster[1].log().recovery_point == 1
    assert cluster[1].log().high_watermark == 0


def test_an_append_without_enough_replicas_gets_an_error() -> None:
    """NOT_ENOUGH_REPLICAS before the append; REQUEST_TIMED_OUT if no follower fetches in time."""
    cluster = ReplicatedCluster(2, log_settings={"min_insync_replicas": 2})
    cluster.make_topic(replicas=(1, 2))
    cluster.world.network.partition("b1", "b2")
    assert cluster.produce(b"a", timeout_ms=300).error is ErrorCode.REQUEST_TIMED_OUT
    cluster.controller.fence(2)
    cluster.run_for(5)
    assert cluster.produce(b"b").error is ErrorCode.NOT_ENOUGH_REPLICAS


def test_delete_records_waits_for_every_live_replica(cluster) -> None:
    """It waits until the log start offset of every live replica has reached the offset."""
    cluster.produce(b"second")
    cluster.world.network.partition("b1", "b3")
    answers: list[object] = []
    cluster[1].manager.delete_records(30_000, {PARTITION: 1}, answers.append)
    cluster.run_for(1_000)
    assert not answers
    assert cluster[2].log().log_start_offset == 1
    cluster.world.network.heal()
    assert cluster.until(lambda: bool(answers))
    assert answers[0][PARTITION].error is ErrorCode.NONE
    assert answers[0][PARTITION].low_watermark == 1
    assert cluster[3].log().log_start_offset == 1


def test_delete_records_does_not_wait_for_dead_replicas(cluster) -> None:
    cluster.produce(b"second")
    cluster.kill(3)
    cluster.run_for(5)
    answers: list[object] = []
    cluster[1].manager.delete_records(30_000, {PARTITION: 1}, answers.append)
    assert cluster.until(lambda: bool(answers), 2_000)
    assert answers[0][PARTITION].error is ErrorCode.NONE


@pytest.fixture
def racks() -> ReplicatedCluster:
    made = ReplicatedCluster(
        racks={1: "east", 2: "west", 3: "north"}, replica_selector_class=RACK_AWARE_SELECTOR
    )
    made.make_topic()
    made.produce(b"first")
    assert made.until(made.in_sync)
    return made


def test_a_consumer_is_sent_to_the_replica_in_its_rack(racks) -> None:
    """The response is immediate and has no records."""
    found = result(fetch(racks[1], 0, rack_id="west", max_wait_ms=10_000))
    assert (found.preferred_read_replica, len(found.records)) == (2, 0)
    assert found.high_watermark == 1
    there = result(fetch(racks[2], 0, rack_id="west"))
    assert (there.preferred_read_replica, there.error) == (-1, ErrorCode.NONE)
    assert len(there.records) > 0


@pytest.mark.parametrize(
    "options",
    [
        {"rack_id": "east"},
        {"rack_id": "south"},
        {"rack_id": ""},
        {"rack_id": "west", "version": 10},
        {"rack_id": "west", "replica_id": 2, "epoch": 0},
    ],
)
def test_these_clients_read_from_the_leader(racks, options: dict[str, object]) -> None:
    """Clients of the leader's rack, an unknown rack, no rack, or an old version; and followers."""
    found = result(fetch(racks[1], 0, **options))
    assert found.preferred_read_replica == -1
    assert len(found.records) > 0


def test_only_in_sync_followers_with_the_offset_are_preferred(racks) -> None:
    """A lagging follower would delay the consumer."""
    assert result(fetch(racks[1], 1, rack_id="west")).preferred_read_replica == 2
    racks.world.network.partition("b1", "b2")
    racks[1].produce(b"second", acks=1)
    assert result(fetch(racks[1], 2, rack_id="west")).preferred_read_replica == -1
    racks.controller.change(isr=[1, 3])
    racks.run_for(5)
    assert result(fetch(racks[1], 0, rack_id="west")).preferred_read_replica == -1


def test_a_wrong_leader_epoch_gets_an_error_and_no_preferred_replica(racks) -> None:
    """Fencing comes first."""
    found = result(fetch(racks[1], 0, rack_id="west", epoch=7))
    assert found.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert found.preferred_read_replica == -1


def test_without_a_selector_all_consumers_read_from_the_leader(cluster) -> None:
    """`replica.selector.class` is not set."""
    assert result(fetch(cluster[1], 0, rack_id="west")).preferred_read_replica == -1


def test_leader_epochs_are_on_every_replica_and_fence_outdated_requests(cluster) -> None:
    """Each batch has its epoch; start offsets are cached and checkpointed on every replica."""
    cluster.controller.elect(2)
    assert cluster.until(lambda: cluster[2].partition().is_leader)
    cluster.produce(b"second")
    assert cluster.until(cluster.in_sync)
    for node in cluster.nodes.values():
        assert node.log().leader_epochs.entries == [(0, 0), (1, 1)]
        assert b"1 1" in node.host.disk.read(node.log().leader_epochs.path)
    assert result(fetch(cluster[2], 0, epoch=0)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert result(fetch(cluster[2], 0, epoch=2)).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    end = cluster[2].manager.epoch_end_offset(PARTITION, 1, 0)
    assert (end.epoch, end.end_offset, end.error) == (0, 1, ErrorCode.NONE)


def test_an_unregistered_broker_is_no_live_replica(cluster) -> None:
    """It is not eligible for the ISR either."""
    cluster.kill(3)
    cluster.controller.write(UnregisterBrokerRecord(broker_id=3, broker_epoch=cluster[3].epoch))
    cluster.run_for(5)
    view = cluster[1].manager._brokers
    assert (view.is_alive(3), view.is_isr_eligible(3), view.broker_epoch(3)) == (False, False, None)
