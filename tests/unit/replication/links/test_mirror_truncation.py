"""A mirror that follows the truncations of its source, with all of its replicas."""

from __future__ import annotations

import pytest

from unit.replication.following_broker import data
from unit.replication.links.mirroring_broker import MirroringBroker
from unit.replication.links.truncating_source import Source, assert_equal


def named(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number}".encode() for number in range(count)]


@pytest.fixture
def broker() -> MirroringBroker:
    made = MirroringBroker()
    made.local.follows_truncation = True
    return made


@pytest.mark.parametrize("kept", [0, 1, 2, 20, 38, 39])
@pytest.mark.parametrize("later", [0, 5, 70])
@pytest.mark.parametrize("is_new_leader", [False, True])
def test_a_mirror_becomes_equal_to_a_source_that_has_lost_records(
    broker: MirroringBroker, kept: int, later: int, is_new_leader: bool
) -> None:
    source = Source(*named("old", 40))
    source.serve(broker)
    assert broker.log.log_end_offset == broker.log.high_watermark == 40
    source.truncate(kept)
    source.extend(*named("new", later), epoch=4)
    if is_new_leader:
        broker.lead_anew()
    source.serve(broker)

    assert_equal(broker, source)
    assert broker.log.high_watermark == kept + later


@pytest.mark.parametrize("kept", [0, 3, 9])
def test_a_source_without_diverging_epochs_is_compared_by_a_new_leader(kept: int) -> None:
    broker = MirroringBroker(version=11)
    broker.local.follows_truncation = True
    source = Source(*named("old", 10))
    source.serve(broker)
    source.truncate(kept)
    source.extend(*named("new", 20), epoch=4)
    broker.lead_anew()
    source.serve(broker)

    assert_equal(broker, source)


def test_a_diverging_epoch_truncates_the_mirror(broker: MirroringBroker) -> None:
    source = Source(*named("old", 10))
    source.serve(broker)
    source.truncate(4)
    source.extend(b"new", b"newer", epoch=5)
    # Some batches before the end of the epoch are different too.
    broker.give(data(diverging=(3, 7), high_watermark=6))
    assert broker.log.log_end_offset == 7
    source.serve(broker)

    assert_equal(broker, source)


def test_an_equal_source_is_not_truncated(broker: MirroringBroker) -> None:
    source = Source(*named("old", 10))
    source.serve(broker)
    broker.lead_anew()
    source.serve(broker)

    assert_equal(broker, source)
    assert broker.offsets_and_epochs() == [(offset, 0) for offset in range(10)]


def test_a_truncation_is_found_after_a_new_leader_has_compared_the_last_batch(
    broker: MirroringBroker,
) -> None:
    source = Source(*named("old", 10))
    source.serve(broker)
    broker.lead_anew()
    source.serve(broker)
    # The source's log grows beyond the mirror before the next fetch.
    source.truncate(4)
    source.extend(*named("new", 20), epoch=4)
    source.serve(broker)

    assert_equal(broker, source)


def test_records_that_are_not_committed_yet_are_not_truncated(broker: MirroringBroker) -> None:
    source = Source(*named("old", 3))
    source.serve(broker)
    broker.lead_anew()
    for _ in range(4):
        # The last batch is above the high watermark of a new leader of the source.
        broker.give(data(high_watermark=2))
        broker.fetchers.follow(lambda _key: broker.place)
        broker.run_for(1_000)
    assert broker.log.log_end_offset == 3
    source.serve(broker)

    assert_equal(broker, source)


def followed(broker: MirroringBroker, replica_id: int, offset: int) -> None:
    broker.set.follow(replica_id, offset, current_leader_epoch=0, last_fetched_epoch=0)


def test_nothing_is_appended_until_all_replicas_have_truncated() -> None:
    broker = MirroringBroker((1, 2, 3))
    broker.local.follows_truncation = True
    source = Source(*named("old", 10))
    source.serve(broker)
    followed(broker, 2, 10)
    followed(broker, 3, 10)
    assert broker.log.high_watermark == 10
    source.truncate(6)
    source.extend(*named("new", 8), epoch=4)
    broker.lead_anew()
    source.serve(broker)
    assert broker.log.log_end_offset == 6

    broker.set.follow(2, 10, current_leader_epoch=1, last_fetched_epoch=0)
    assert broker.set.last_fetch().diverging_epoch is not None
    assert broker.set.last_fetch().diverging_epoch[:2] == (0, 6)
    broker.set.follow(2, 6, current_leader_epoch=1, last_fetched_epoch=0)
    source.serve(broker)
    assert broker.log.log_end_offset == 6
    broker.set.follow(3, 6, current_leader_epoch=1, last_fetched_epoch=0)
    source.serve(broker)
    assert broker.log.log_end_offset == 14
    assert broker.log.high_watermark == 6
    for replica_id in (2, 3):
        broker.set.follow(replica_id, 14, current_leader_epoch=1, last_fetched_epoch=1)

    assert broker.log.high_watermark == 14
    assert_equal(broker, source)


def test_replicas_truncate_records_of_the_same_leader_epoch() -> None:
    broker = MirroringBroker((1, 2))
    broker.local.follows_truncation = True
    source = Source(*named("old", 10))
    source.serve(broker)
    followed(broker, 2, 10)
    source.truncate(6)
    broker.give(data(diverging=(3, 6), high_watermark=6))
    followed(broker, 2, 10)
    diverging = broker.set.last_fetch().diverging_epoch
    assert diverging is not None
    assert diverging[:2] == (0, 6)
    followed(broker, 2, 6)
    source.extend(b"new", epoch=4)
    source.serve(broker)
    followed(broker, 2, 7)

    assert broker.log.high_watermark == 7
    assert_equal(broker, source)
