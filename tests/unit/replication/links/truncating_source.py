"""A source of mirrors whose log a test defines: it loses records, and gets others."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchRequest, SnapshotId
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
        # Number of truncations in the leader epoch, of a source that is a mirror itself.
        self.truncations = 0
        self.extend(*values, epoch=epoch)

    @property
    def end(self) -> int:
        return read_header(self.batches[-1]).next_offset if self.batches else 0

    def extend(self, *values: bytes, epoch: int = 3) -> None:
        for value in values:
            self.batches.append(records(value, offset=self.end, epoch=epoch))

    def truncate(self, offset: int) -> None:
        self.batches = [each for each in self.batches if read_header(each).base_offset < offset]

    def follow(self, offset: int, *values: bytes) -> None:
        """Replace the records from an offset on in one leader epoch, as a mirror does."""
        self.truncate(offset)
        self.extend(*values)
        self.truncations += 1

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
        count = self.truncations if epoch >= 0 and self.truncations else -1
        content = b"".join(found[:_BATCHES])
        broker.give(
            data(content, high_watermark=self.end, snapshot_id=SnapshotId(end_offset=count))
        )


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
