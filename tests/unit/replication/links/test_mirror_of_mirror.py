"""A mirror of a mirror: its source may replace records in one leader epoch."""

from __future__ import annotations

import pytest

from unit.replication.following_broker import data
from unit.replication.links.mirroring_broker import MirroringBroker
from unit.replication.links.truncating_source import Source, assert_equal


def named(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number}".encode() for number in range(count)]


@pytest.fixture
def broker() -> MirroringBroker:
    return MirroringBroker()


@pytest.mark.parametrize("kept", [0, 4, 9, 10])
def test_a_mirror_follows_a_source_that_has_replaced_records(
    broker: MirroringBroker, kept: int
) -> None:
    broker.local.follows_truncation = True
    source = Source(*named("old", 10))
    source.serve(broker)
    source.follow(kept, *named("new", 20))
    source.serve(broker)
    assert_equal(broker, source)
    source.follow(kept + 10, *named("newer", 20))
    source.serve(broker)

    assert_equal(broker, source)


def test_a_mirror_stops_if_its_source_has_replaced_records(broker: MirroringBroker) -> None:
    source = Source(*named("old", 10))
    source.serve(broker)
    source.follow(4, *named("new", 20))
    source.serve(broker)

    assert "lost records" in broker.mirror.problem
    assert broker.log.log_end_offset == 10


def test_a_mirror_goes_on_if_its_source_has_replaced_only_records_that_it_does_not_have(
    broker: MirroringBroker,
) -> None:
    source = Source(*named("old", 10))
    source.serve(broker)
    source.follow(10, *named("new", 20))
    source.serve(broker)

    assert_equal(broker, source)


def test_a_mirror_compares_its_last_batch_after_an_election_in_the_source(
    broker: MirroringBroker,
) -> None:
    source = Source(*named("old", 10))
    source.serve(broker)
    source.follow(4, *named("new", 20))
    # The next leader of the source does not know of the truncation.
    source.truncations = 0
    assert broker.place is not None
    broker.place = broker.place._replace(leader_epoch=4)
    broker.begin()
    source.serve(broker)

    assert "lost records" in broker.mirror.problem
    assert broker.log.log_end_offset == 10


def test_an_election_in_the_source_does_not_stop_an_equal_mirror(broker: MirroringBroker) -> None:
    source = Source(*named("old", 10))
    source.serve(broker)
    assert broker.place is not None
    broker.place = broker.place._replace(leader_epoch=4)
    broker.begin()
    source.serve(broker)
    source.extend(*named("new", 10), epoch=4)
    source.serve(broker)

    assert_equal(broker, source)


def test_only_mirrors_learn_that_the_leader_has_truncated_its_log() -> None:
    broker = MirroringBroker((1, 2))
    broker.local.follows_truncation = True
    source = Source(*named("old", 10))
    source.serve(broker)
    broker.set.follow(2, 10, current_leader_epoch=0, last_fetched_epoch=0)
    broker.set.consume(5, last_fetched_epoch=0)
    assert broker.set.last_fetch().truncations == 0
    source.truncate(6)
    broker.give(data(diverging=(3, 6), high_watermark=6))

    broker.set.consume(5, last_fetched_epoch=0)
    assert broker.set.last_fetch().truncations == 1
    broker.set.consume(5)
    assert broker.set.last_fetch().truncations == 0
    broker.set.follow(2, 6, current_leader_epoch=0, last_fetched_epoch=0)
    assert broker.set.last_fetch().truncations == 0
