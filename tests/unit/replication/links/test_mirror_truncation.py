"""A mirror that follows the truncations of its source, with all of its replicas."""

from __future__ import annotations

import pytest

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest
from barnabas.protocol.messages.log_offsets import ListOffsetsRequest
from barnabas.record.batch import batches, read_header
from barnabas.replication.partition.offset_lookup import EARLIEST
from unit.replication.following_broker import data, records
from unit.replication.links.mirroring_broker import MirroringBroker
from unit.replication.replica_set import PARTITION

# Enough for a search, and for the answers after it.
_STEPS = 80
# Responses of the source have at most this many batches.
_BATCHES = 3


class Source:
    """A source whose log the test defines."""

    def __init__(self, *values: bytes, epoch: int = 3) -> None:
        self.batches: list[bytes] = []
        # Offset and last epoch of the fetch session; None if it does not have the partition.
        self.wanted: tuple[int, int] | None = None
        self.extend(*values, epoch=epoch)

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    def extend(self, *values: bytes, epoch: int = 3) -> None:
        for value in values:
            self.batches.append(records(value, offset=self.end, epoch=epoch))

    def truncate(self, offset: int) -> None:
        self.batches = [each for each in self.batches if read_header(each).base_offset < offset]

    def serve(self, broker: MirroringBroker, steps: int = _STEPS) -> None:
        """Answer the requests of the broker, with the time of a link's checks between them."""
        for _ in range(steps):
            request = broker.source.waiting
            if isinstance(request, ListOffsetsRequest):
                asked = request.topics[0].partitions[0].timestamp
                broker.source.give_offset(PARTITION, 0 if asked == EARLIEST else self.end)
            elif isinstance(request, FetchRequest):
                self._give(broker, request)
            broker.fetchers.follow(lambda _key: broker.place)
            broker.run_for(500)

    def _give(self, broker: MirroringBroker, request: FetchRequest) -> None:
        if request.forgotten_topics_data or not request.session_epoch:
            self.wanted = None
        for topic in request.topics:
            (part,) = topic.partitions
            self.wanted = part.fetch_offset, part.last_fetched_epoch
        if self.wanted is None:
            broker.source.give({})
            return
        offset, epoch = self.wanted
        if offset > self.end:
            broker.give(data(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
            return
        headers = [read_header(each) for each in self.batches]
        ends = {each.partition_leader_epoch: each.next_offset for each in headers}
        known = max((each for each in ends if each <= epoch), default=epoch)
        if epoch >= 0 and ends.get(known, 0) < offset:
            broker.give(data(diverging=(known, ends.get(known, 0)), high_watermark=self.end))
            return
        found = [each for each in self.batches if read_header(each).last_offset >= offset]
        broker.give(data(b"".join(found[:_BATCHES]), high_watermark=self.end))


def named(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number}".encode() for number in range(count)]


def crcs(content: bytes) -> list[tuple[int, int]]:
    return [(header.base_offset, header.crc) for _, header in batches(content)]


def assert_equal(broker: MirroringBroker, source: Source) -> None:
    own = [
        crc
        for segment in broker.log.segments
        for crc in crcs(segment.file.read_at(segment.size, 0))
    ]
    assert own == crcs(b"".join(source.batches))
    assert not broker.mirror.problem


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
