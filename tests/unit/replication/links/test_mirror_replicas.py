"""The leader of a mirror appends the records of its source, and stops if the source has changed."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.replication.config import UNLIMITED
from unit.replication.following_broker import data, records
from unit.replication.links.mirroring_broker import MirroringBroker
from unit.replication.replica_set import PARTITION, batch
from unit.replication.replicated_cluster import topic_id_of


@pytest.fixture
def broker() -> MirroringBroker:
    return MirroringBroker()


def give_first(broker: MirroringBroker) -> None:
    """Mirror two batches of the source's epoch 3, with the offsets 0 to 2."""
    content = records(b"a", b"b", epoch=3) + records(b"c", offset=2, epoch=3)
    broker.give(data(content, high_watermark=3))


def test_records_keep_their_offsets_and_get_the_epoch_of_the_mirror(
    broker: MirroringBroker,
) -> None:
    give_first(broker)
    broker.give(data(records(b"d", offset=7, epoch=4), high_watermark=8))

    assert broker.offsets_and_epochs() == [(0, 0), (2, 0), (7, 0)]
    assert broker.log.high_watermark == 8
    assert broker.log.latest_epoch == 0


def test_a_link_fetches_as_a_consumer_with_the_epochs_of_the_source(
    broker: MirroringBroker,
) -> None:
    give_first(broker)

    request = broker.source.waiting
    assert isinstance(request, FetchRequest)
    assert request.replica_id == -1
    assert request.replica_state.replica_id == -1
    assert broker.requested.fetch_offset == 3
    assert broker.requested.current_leader_epoch == 3
    assert broker.requested.last_fetched_epoch == 3


def test_the_high_watermark_waits_for_the_followers_of_the_mirror() -> None:
    broker = MirroringBroker((1, 2))
    give_first(broker)
    assert broker.log.high_watermark == 0
    broker.set.follow(2, 3, current_leader_epoch=0, last_fetched_epoch=0)

    assert broker.log.high_watermark == 3


def test_records_that_come_before_the_link_knows_the_new_leader_epoch_are_fetched_again(
    broker: MirroringBroker,
) -> None:
    give_first(broker)
    broker.set.change(leader=1)
    broker.give(data(records(b"d", offset=3, epoch=3), high_watermark=4))
    assert broker.offsets_and_epochs() == [(0, 0), (2, 0)]
    assert len(broker.failed) == 0
    broker.begin()
    content = records(b"c", offset=2, epoch=3) + records(b"d", offset=3, epoch=3)
    broker.give(data(content, high_watermark=4))

    assert broker.offsets_and_epochs() == [(0, 0), (2, 0), (3, 1)]


def test_a_new_leader_compares_its_last_batch_and_goes_on(broker: MirroringBroker) -> None:
    give_first(broker)
    broker.lead_anew()
    assert broker.requested.fetch_offset == 2
    content = records(b"c", offset=2, epoch=3) + records(b"d", offset=3, epoch=5)
    broker.give(data(content, high_watermark=4))

    assert broker.offsets_and_epochs() == [(0, 0), (2, 0), (3, 1)]
    assert broker.requested.fetch_offset == 4
    assert broker.requested.last_fetched_epoch == 5
    assert not broker.mirror.problem


def test_a_new_leader_stops_if_the_source_has_another_batch(broker: MirroringBroker) -> None:
    give_first(broker)
    broker.lead_anew()
    broker.give(data(records(b"other", offset=2, epoch=5), high_watermark=3))

    assert "lost records" in broker.mirror.problem
    assert broker.offsets_and_epochs() == [(0, 0), (2, 0)]
    assert list(broker.failed) == [PARTITION]


def test_a_diverging_epoch_stops_the_mirror(broker: MirroringBroker) -> None:
    give_first(broker)
    broker.give(data(diverging=(2, 1), high_watermark=1))

    assert "offset 1" in broker.mirror.problem
    assert broker.log.log_end_offset == 3


def test_an_older_source_is_asked_for_the_end_of_the_epoch() -> None:
    broker = MirroringBroker(version=11)
    give_first(broker)
    broker.place = broker.place._replace(leader_epoch=6)
    broker.begin()
    broker.source.give_epoch_end(PARTITION, 3, 3)
    assert not broker.mirror.problem
    assert broker.requested.fetch_offset == 3
    broker.place = broker.place._replace(leader_epoch=7)
    broker.begin()
    broker.source.give_epoch_end(PARTITION, 3, 2)

    assert "offset 2" in broker.mirror.problem


def test_a_source_that_ends_below_the_mirror_stops_it(broker: MirroringBroker) -> None:
    give_first(broker)
    broker.give(data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    broker.source.give_offset(PARTITION, 1)

    assert "offset 1" in broker.mirror.problem
    assert broker.log.log_end_offset == 3


def test_a_mirror_begins_where_the_log_of_the_source_begins(broker: MirroringBroker) -> None:
    give_first(broker)
    broker.give(data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    broker.source.give_offset(PARTITION, 20)
    broker.source.give_offset(PARTITION, 10)
    broker.give(data(records(b"z", offset=10, epoch=3), high_watermark=11, log_start_offset=10))

    assert (broker.log.log_start_offset, broker.log.log_end_offset) == (10, 11)
    assert broker.log.high_watermark == 11
    assert not broker.mirror.problem


def test_damaged_records_are_not_appended_and_are_fetched_again(broker: MirroringBroker) -> None:
    damaged = bytearray(records(b"a", epoch=3))
    damaged[-1] ^= 1
    broker.give(data(bytes(damaged), high_watermark=1))
    assert broker.log.log_end_offset == 0
    # The next request forgets the partition until the backoff ends.
    broker.source.give({})
    broker.run_for(2_000)
    give_first(broker)

    assert broker.log.log_end_offset == 3


@pytest.mark.parametrize("offset", [-1, 1])
def test_offsets_that_go_back_are_not_appended(broker: MirroringBroker, offset: int) -> None:
    give_first(broker)
    broker.give(data(records(b"x", offset=offset, epoch=3), high_watermark=4))

    assert broker.offsets_and_epochs() == [(0, 0), (2, 0)]


def test_a_broker_that_leads_no_more_fetches_no_more(broker: MirroringBroker) -> None:
    give_first(broker)
    broker.fetchers.lead([])
    broker.fetchers.follow(lambda _key: broker.place)

    assert not broker.fetchers.mirrors
    assert broker.source.closed


def test_a_mirror_with_a_lag_waits_while_its_link_exceeds_its_limit(
    broker: MirroringBroker,
) -> None:
    broker.throttle.bytes_per_second = 1
    broker.give(data(records(b"a", epoch=3), high_watermark=2))
    # The request does not have the partition any more, and the link goes on without records.
    assert [topic.topic_id for topic in broker.source.waiting.forgotten_topics_data] == [
        topic_id_of(PARTITION.topic)
    ]
    broker.throttle.bytes_per_second = UNLIMITED
    broker.source.give({})

    assert broker.requested.fetch_offset == 1


def test_a_mirror_without_a_lag_does_not_wait_for_the_limit(broker: MirroringBroker) -> None:
    broker.throttle.bytes_per_second = 1
    give_first(broker)

    assert broker.throttle.is_exceeded
    assert broker.requested.fetch_offset == 3


class Unused:
    """A producer whose request does not join an append."""

    def on_appended(self, results: object) -> None:
        raise AssertionError(results)

    def on_joint_append(self, now_ms: float, must_wait: bool) -> None:
        raise AssertionError(now_ms)

    def wait_for(self, operation: object) -> None:
        raise AssertionError(operation)


def test_clients_append_to_a_mirror_only_after_its_promotion(broker: MirroringBroker) -> None:
    manager = broker.set.manager
    manager.set_read_only_topics({PARTITION.topic}, frozenset())
    assert not manager.joint_appends.join(1_000, 1, {PARTITION: batch(b"x")}, Unused())
    broker.set.produce(b"x")
    assert broker.set.last_produce().error is ErrorCode.INVALID_REQUEST
    assert broker.log.log_end_offset == 0
    manager.set_read_only_topics(set(), frozenset())
    broker.set.produce(b"x")

    assert broker.set.last_produce().error is ErrorCode.NONE
    assert broker.log.log_end_offset == 1
