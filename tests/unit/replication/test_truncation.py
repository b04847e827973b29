"""Logs that diverge from their leader's are truncated (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

import pytest

from barnabas.metadata.features_image import FeaturesImage
from barnabas.metadata.image import ClusterImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from barnabas.replication.log_dir_moves import LogDirMoves
from barnabas.replication.partition.partition_registry import ImageBrokers
from barnabas.sim.disk import DiskFault
from unit.replication.following_broker import FollowingBroker, data, records
from unit.replication.replicated_cluster import DATA, PARTITION, ReplicatedCluster


def with_log(broker: FollowingBroker, *batches: tuple[int, int]) -> None:
    """Give the follower's log one record per (offset, epoch)."""
    for offset, epoch in batches:
        broker.log.append_as_follower(records(b"%d" % epoch, offset=offset, epoch=epoch))
    broker.lead(3)
    broker.lead(2)


def offsets_and_epochs(broker: FollowingBroker) -> list[tuple[int, int]]:
    epochs = broker.log.leader_epochs
    return [(each.offset, epochs.epoch_for_offset(each.offset)) for each in broker.node.records(0)]


def test_a_diverging_epoch_in_the_answer_cuts_to_the_common_point() -> None:
    """The leader knows our epoch, and it ended earlier there."""
    broker = FollowingBroker()
    with_log(broker, (0, 0), (1, 1), (2, 1), (3, 1))
    assert broker.asked()[PARTITION].last_fetched_epoch == 1
    broker.leader.give({PARTITION: data(high_watermark=9, diverging=(1, 2))})
    assert offsets_and_epochs(broker) == [(0, 0), (1, 1)]
    asked = broker.asked()[PARTITION]
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 1)


def test_a_diverging_answer_moves_no_watermark() -> None:
    """Watermarks wait for the fetch after the cut."""
    broker = FollowingBroker()
    with_log(broker, (0, 0), (1, 1))
    broker.leader.give({PARTITION: data(high_watermark=9, log_start_offset=1, diverging=(0, 1))})
    assert (broker.log.log_start_offset, broker.log.high_watermark) == (0, 0)


def test_epochs_that_the_leader_never_had_are_cut_one_by_one() -> None:
    """KIP-279: repeating while epochs differ."""
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


def test_a_former_leader_that_appended_nothing_forgets_its_epoch() -> None:
    """The present leader may not know that epoch; nothing else is cut."""
    broker = FollowingBroker()
    broker.log.append_as_follower(records(b"a"))
    broker.lead(1)
    assert broker.log.latest_epoch == 1
    broker.lead(2)
    assert broker.asked()[PARTITION].last_fetched_epoch == 1
    broker.leader.give({PARTITION: data(diverging=(0, 1))})
    assert broker.log.leader_epochs.entries == [(0, 0)]
    assert broker.node.values() == [b"a"]
    assert broker.asked()[PARTITION].last_fetched_epoch == 0


def test_a_cut_that_changes_nothing_is_not_asked_for_again_at_once() -> None:
    """Never spins, whatever a leader answers."""
    broker = FollowingBroker()
    with_log(broker, (0, 0), (1, 1))
    broker.leader.give({PARTITION: data(diverging=(1, 2))})
    assert broker.is_delayed()


def test_a_cut_below_the_high_watermark_is_done_with_a_warning(caplog) -> None:
    """Below the high watermark: a warning."""
    broker = FollowingBroker()
    with_log(broker, (0, 0), (1, 0), (2, 0))
    broker.log.update_high_watermark(3)
    broker.leader.give({PARTITION: data(diverging=(0, 1))})
    assert "below its high watermark" in caplog.text
    assert (broker.log.log_end_offset, broker.log.high_watermark) == (1, 1)


def test_lag_epoch_and_delay_stay() -> None:
    """The state after a cut."""
    broker = FollowingBroker()
    broker.leader.give({PARTITION: data(records(b"a", epoch=0), high_watermark=7)})
    state = broker.state()
    broker.leader.give({PARTITION: data(diverging=(0, 0))})
    assert broker.state() is state
    assert (state.lag, state.current_leader_epoch, state.fetch_offset) == (6, 0, 0)


def test_a_cut_that_fails_fails_its_partition_and_the_others_go_on() -> None:
    """Its offset unchanged."""
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
    """Fetches in version 11, which knows nothing of diverging epochs."""
    monkeypatch.setattr(ImageBrokers, "fetch_version", lambda _: 11)
    return FollowingBroker()


def test_the_leader_is_asked_where_our_epoch_ends(old) -> None:
    """OffsetForLeaderEpoch, then the cut, then the fetch."""
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


def test_the_leader_is_asked_again_while_epochs_differ(old) -> None:
    """KIP-279: still truncating, so asked again."""
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
def test_a_leader_that_does_not_say_leaves_the_log_as_it_is(old, error, fails) -> None:
    """Delayed, or failed if our epoch is over."""
    with_log(old, (0, 0), (1, 1))
    old.leader.give_epoch_end(PARTITION, -1, -1, error)
    assert old.log.log_end_offset == 2
    assert (old.fetchers.failed == [PARTITION]) is fails
    assert fails or old.is_delayed()


def test_an_answer_for_an_earlier_leadership_goes_by(old) -> None:
    """Leadership changed while the leader was asked."""
    with_log(old, (0, 0), (1, 1), (2, 1))
    leader = old.leader
    old.lead(2)
    leader.give_epoch_end(PARTITION, 0, 1)
    assert old.log.log_end_offset == 3


def test_a_failing_connection_delays_those_that_were_asked_for(old) -> None:
    """And the log stays as it is."""
    with_log(old, (0, 0), (1, 1))
    old.leader.fail()
    assert old.is_delayed()
    assert old.log.log_end_offset == 2


def test_the_version_of_fetch_is_that_of_the_cluster() -> None:
    """By metadata.version, as in Kafka."""
    brokers = ImageBrokers()
    versions = {}
    for level in (7, 8, 9, 10, 19, 21, 27, 33):
        brokers.image = ClusterImage(features=FeaturesImage({"metadata.version": level}))
        versions[level] = brokers.fetch_version()
    assert versions == {7: 13, 8: 13, 9: 14, 10: 15, 19: 16, 21: 17, 27: 18, 33: 18}


# Whole stories.


def test_a_former_leader_cuts_what_only_it_had() -> None:
    """A former leader that comes back cuts its log too (KIP-101's lost and differing logs)."""
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


def test_two_leaders_that_both_died_with_records_of_their_own() -> None:
    """KIP-279: epochs alternate on two brokers that never saw each other's records."""
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


def test_a_future_replica_is_cut_with_its_log() -> None:
    """A move to another directory that is under way ends with the cut log."""
    broker = FollowingBroker(node_settings={"directories": [DATA, "/more"]})
    node = broker.node

    class Assigner:
        def assign(self, where, directory, on_done) -> None:
            self.on_done = on_done

    assigner = Assigner()
    moves = LogDirMoves(node.manager, node.logs, assigner, node.doors)
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
