"""Follower logs that diverge from the leader's log are truncated (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

import pytest

from barnabas.metadata.image import ClusterImage
from barnabas.metadata.metadata_version import FeaturesImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.log_offsets import OffsetForLeaderEpochRequest
from barnabas.replication.log_dir_moves import LogDirMoves
from barnabas.replication.partition.partition_registry import ImageBrokers
from barnabas.sim.disk import DiskFault
from unit.replication.following_broker import FollowingBroker, data, records
from unit.replication.replicated_cluster import DATA, PARTITION, ReplicatedCluster


def with_log(broker: FollowingBroker, *batches: tuple[int, int]) -> None:
    """Give the follower's log one record per (offset, epoch)."""
    for offset, epoch in batches:
        broker.log.appender.append_as_follower(records(b"%d" % epoch, offset=offset, epoch=epoch))
    broker.lead(3)
    broker.lead(2)


def offsets_and_epochs(broker: FollowingBroker) -> list[tuple[int, int]]:
    epochs = broker.log.leader_epochs
    return [(each.offset, epochs.epoch_for_offset(each.offset)) for each in broker.node.records(0)]


def test_a_diverging_epoch_in_the_response_truncates_to_the_common_offset() -> None:
    """The leader has the epoch, and it ended earlier there."""
    broker = FollowingBroker()
    with_log(broker, (0, 0), (1, 1), (2, 1), (3, 1))
    assert broker.asked()[PARTITION].last_fetched_epoch == 1
    broker.leader.give({PARTITION: data(high_watermark=9, diverging=(1, 2))})
    assert offsets_and_epochs(broker) == [(0, 0), (1, 1)]
    asked = broker.asked()[PARTITION]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 1)


def test_a_diverging_response_changes_no_high_watermark() -> None:
    """It changes with the fetch after the truncation."""
    broker = FollowingBroker()
    with_log(broker, (0, 0), (1, 1))
    broker.leader.give({PARTITION: data(high_watermark=9, log_start_offset=1, diverging=(0, 1))})
    assert (broker.log.log_start_offset, broker.log.high_watermark) == (0, 0)


def test_epochs_unknown_to_the_leader_are_truncated_one_by_one() -> None:
    """KIP-279: the truncation repeats while epochs differ."""
    broker = FollowingBroker()
    with_log(broker, (0, 0), (1, 1), (2, 3), (3, 5))
    # The leader had epochs 0, 2 and 4: asked for 5 it names 4, of which we have nothing.
    broker.leader.give({PARTITION: data(diverging=(4, 8))})
    assert offsets_and_epochs(broker) == [(0, 0), (1, 1), (2, 3)]
    assert broker.asked()[PARTITION].last_fetched_epoch == 3
    broker.leader.give({PARTITION: data(diverging=(2, 5))})
    assert offsets_and_epochs(broker) == [(0, 0), (1, 1)]
    broker.leader.give({PARTITION: data(diverging=(0, 1))})
    assert offsets_and_epochs(broker) == [(0, 0)]
    assert broker.asked()[PARTITION].last_fetched_epoch == 0


def test_a_former_leader_without_appends_removes_its_epoch() -> None:
    """The current leader may not know that epoch; nothing else is truncated."""
    broker = FollowingBroker()
    broker.log.appender.append_as_follower(records(b"a"))
    broker.lead(1)
    assert broker.log.latest_epoch == 1
    broker.lead(2)
    assert broker.asked()[PARTITION].last_fetched_epoch == 1
    broker.leader.give({PARTITION: data(diverging=(0, 1))})
    assert broker.log.leader_epochs.entries == [(0, 0)]
    assert broker.node.values() == [b"a"]
    assert broker.asked()[PARTITION].last_fetched_epoch == 0


def test_a_truncation_without_effect_is_not_repeated_immediately() -> None:
    """The fetcher never spins, regardless of the leader's responses."""
    broker = FollowingBroker()
    with_log(broker, (0, 0), (1, 1))
    broker.leader.give({PARTITION: data(diverging=(1, 2))})
    assert broker.is_delayed()


def test_a_truncation_below_the_high_watermark_logs_a_warning(caplog) -> None:
    broker = FollowingBroker()
    with_log(broker, (0, 0), (1, 0), (2, 0))
    broker.log.update_high_watermark(3)
    broker.leader.give({PARTITION: data(diverging=(0, 1))})
    assert "below its high watermark" in caplog.text
    assert (broker.log.log_end_offset, broker.log.high_watermark) == (1, 1)


def test_a_truncation_keeps_lag_epoch_and_delay() -> None:
    broker = FollowingBroker()
    broker.leader.give({PARTITION: data(records(b"a", epoch=0), high_watermark=7)})
    state = broker.state()
    broker.leader.give({PARTITION: data(diverging=(0, 0))})
    assert broker.state() is state
    assert (state.lag, state.current_leader_epoch, state.fetch_offset) == (6, 0, 0)


def test_a_failed_truncation_fails_only_its_partition() -> None:
    """Its offset does not change."""
    broker = FollowingBroker(partitions=2, node_settings={"directories": [DATA, "/more"]})
    bad, good = broker.key(0), broker.key(1)
    broker.leader.give(
        {
            bad: data(records(b"a"), high_watermark=1),
            good: data(records(b"b"), high_watermark=1),
        },
        session_id=0,
    )
    directory = broker.node.log(bad).directory
    broker.node.host.disk.faults.append(DiskFault(directory, ("write",)))
    broker.leader.give({bad: data(diverging=(0, 0)), good: data(diverging=(0, 0))}, session_id=0)
    assert broker.fetchers.failed == [bad]
    assert broker.node.log(good).log_end_offset == 0
    assert list(broker.asked()) == [good]


# A leader that does not find the divergence itself is asked before anything is fetched.


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> FollowingBroker:
    """Return a broker that fetches in version 11, which has no diverging epochs."""
    monkeypatch.setattr(ImageBrokers, "fetch_version", lambda _: 11)
    return FollowingBroker()


def test_the_leader_gets_an_offset_for_leader_epoch_request(old) -> None:
    """OffsetForLeaderEpoch, then the truncation, then the fetch."""
    with_log(old, (0, 0), (1, 1), (2, 1))
    request = old.leader.waiting
    assert isinstance(request, OffsetForLeaderEpochRequest)
    asked = request.topics[0].partitions[0]
    assert (request.replica_id, asked.leader_epoch, asked.current_leader_epoch) == (1, 1, 2)
    old.leader.give_epoch_end(PARTITION, 1, 2)
    assert offsets_and_epochs(old) == [(0, 0), (1, 1)]
    assert old.leader.version == 11
    asked = old.asked()[PARTITION]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, -1)
    assert old.leader.waiting.replica_id == 1


def test_the_request_is_repeated_while_epochs_differ(old) -> None:
    """KIP-279: the partition is still truncating."""
    with_log(old, (0, 0), (1, 1), (2, 3))
    old.leader.give_epoch_end(PARTITION, 2, 5)
    assert offsets_and_epochs(old) == [(0, 0), (1, 1)]
    assert old.state().phase.name == "TRUNCATING"
    assert old.leader.waiting.topics[0].partitions[0].leader_epoch == 1
    old.leader.give_epoch_end(PARTITION, 0, 1)
    assert offsets_and_epochs(old) == [(0, 0)]
    assert old.state().phase.name == "FETCHING"


@pytest.mark.parametrize(
    ("error", "fails"),
    [(ErrorCode.UNKNOWN_LEADER_EPOCH, False), (ErrorCode.FENCED_LEADER_EPOCH, True)],
)
def test_an_error_of_the_leader_leaves_the_log_unchanged(old, error, fails) -> None:
    """The partition is delayed, or failed if the epoch is fenced."""
    with_log(old, (0, 0), (1, 1))
    old.leader.give_epoch_end(PARTITION, -1, -1, error)
    assert old.log.log_end_offset == 2
    assert (old.fetchers.failed == [PARTITION]) is fails
    assert fails or old.is_delayed()


def test_a_response_of_an_earlier_leader_epoch_is_ignored(old) -> None:
    """The leadership changed during the request."""
    with_log(old, (0, 0), (1, 1), (2, 1))
    leader = old.leader
    old.lead(2)
    leader.give_epoch_end(PARTITION, 0, 1)
    assert old.log.log_end_offset == 3


def test_a_failed_connection_delays_the_requested_partitions(old) -> None:
    """Their logs do not change."""
    with_log(old, (0, 0), (1, 1))
    old.leader.fail()
    assert old.is_delayed()
    assert old.log.log_end_offset == 2


def test_the_fetch_version_depends_on_metadata_version() -> None:
    """As in Kafka."""
    brokers = ImageBrokers()
    versions = {}
    for level in (7, 8, 9, 10, 19, 21, 27, 33):
        brokers.image = ClusterImage(features=FeaturesImage({"metadata.version": level}))
        versions[level] = brokers.fetch_version()
    assert versions == {7: 13, 8: 13, 9: 14, 10: 15, 19: 16, 21: 17, 27: 18, 33: 18}


# Whole stories.


def test_a_former_leader_truncates_its_unreplicated_records() -> None:
    """A former leader that returns truncates its log (KIP-101: lost and diverging logs)."""
    cluster = ReplicatedCluster()
    cluster.make_topic()
    cluster.produce(b"everywhere")
    cluster.world.network.partition("b1", "b2")
    cluster.world.network.partition("b1", "b3")
    cluster.leader().produce(b"only", b"here", acks=1)
    cluster.kill(1)
    cluster.world.network.heal()
    assert cluster.until(lambda: cluster[2].partition().is_leader)
    assert cluster.produce(b"later").error is ErrorCode.NONE
    cluster.restart(1)
    assert cluster.until(cluster.in_sync)
    assert [node.values() for node in cluster.nodes.values()] == [[b"everywhere", b"later"]] * 3
    assert cluster[1].bytes() == cluster[2].bytes()


def test_two_former_leaders_with_unreplicated_records_converge() -> None:
    """KIP-279: epochs alternate on two brokers that never replicated each other's records."""
    cluster = ReplicatedCluster(2)
    cluster.make_topic(replicas=(1, 2))
    cluster.produce(b"both")
    cluster.world.network.partition("b1", "b2")
    for turn in range(2):
        for node_id in (1, 2):
            cluster.controller.elect(node_id, unclean=True)
            cluster.run_for(5)
            cluster[node_id].produce(b"%d of %d" % (turn, node_id), acks=1)
    assert len(cluster[1].log().leader_epochs.entries) > 2
    cluster.world.network.heal()
    cluster.controller.elect(1, unclean=True)
    assert cluster.until(cluster.in_sync)
    assert cluster[1].bytes() == cluster[2].bytes()
    assert cluster[2].values() == [b"both", b"0 of 1", b"1 of 1"]


def test_a_future_replica_is_truncated_with_its_log() -> None:
    """A running move to another directory ends with the truncated log."""
    broker = FollowingBroker(node_settings={"directories": [DATA, "/more"]})
    node = broker.node

    class Assigner:
        def assign(self, where, directory, on_done) -> None:
            self.on_done = on_done

    assigner = Assigner()
    moves = LogDirMoves(node.manager, node.logs, assigner, node.log_dependencies)
    broker.leader.give({PARTITION: data(records(b"a"))}, session_id=0)
    broker.leader.give({PARTITION: data(records(b"b", offset=1, epoch=0))}, session_id=0)
    target = "/more" if node.log().directory.startswith(DATA) else DATA
    assert moves.alter(PARTITION, target) is ErrorCode.NONE
    assert broker.cluster.until(lambda: hasattr(assigner, "on_done"))
    future = node.logs.futures[PARTITION]
    assert future.log_end_offset == 2
    broker.leader.give({PARTITION: data(diverging=(0, 1))}, session_id=0)
    assigner.on_done(True)
    assert broker.cluster.until(lambda: not node.logs.futures)
    assert node.log() is future
    assert node.values() == [b"a"]
    broker.leader.give({PARTITION: data(records(b"c", offset=1), high_watermark=2)}, session_id=0)
    assert node.values() == [b"a", b"c"]
