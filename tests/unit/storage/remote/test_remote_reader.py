"""Reads of records that only the remote tier has."""

from __future__ import annotations

import pytest

from barnabas.record.batch import HEADER_SIZE, ControlType
from barnabas.record.reader import read_batches
from barnabas.storage.errors import OffsetInRemoteTierError, OffsetOutOfRangeError
from barnabas.storage.remote.batch_walk import BATCHES_PER_WALK, ReadRequest, walk
from barnabas.storage.remote.remote_reader import Miss
from barnabas.storage.remote.remote_storage import RemoteDamagedError, RemoteMissingError
from barnabas.storage.results import AbortedTransaction, FetchIsolation, ReadResult
from unit.storage.remote.tiered_log import MIB, TieredLog
from unit.storage.storage_fixtures import marker

COMMITTED = FetchIsolation.TXN_COMMITTED
PRODUCER = 7


@pytest.fixture
def tiered() -> TieredLog:
    """Offsets 0 to 7 are in four remote segments of two batches; the local log begins at 8."""
    tiered = TieredLog()
    tiered.fill(4)
    tiered.append(b"local")
    tiered.copy()
    tiered.leave()
    assert tiered.log.local_log_start_offset == 8
    assert tiered.log.log_start_offset == 0
    return tiered


def offsets(result: ReadResult) -> list[int]:
    """Return the base offsets of the whole batches of a read."""
    return [header.base_offset for header, _ in read_batches(result.records)]


def test_the_local_log_refuses_what_only_the_tier_has(tiered: TieredLog) -> None:
    with pytest.raises(OffsetInRemoteTierError):
        tiered.log.reader.read(7, MIB, FetchIsolation.HIGH_WATERMARK, True)


def test_a_read_needs_the_indexes_and_then_a_range(tiered: TieredLog) -> None:
    first = tiered.read_once(3)
    segment = tiered.remote.segments()[1]
    assert first == Miss(segment, None, 0)
    assert isinstance(first, Miss)
    tiered.load(first)
    second = tiered.read_once(3)
    assert isinstance(second, Miss)
    assert second.segment == segment
    assert second.position
    tiered.load(second)
    found = tiered.read_once(3)
    assert isinstance(found, ReadResult)
    assert offsets(found) == [3]
    position = found.position
    assert (position.message_offset, position.segment_base_offset) == (3, 2)
    assert position.relative_position == second.position
    assert found.aborted_transactions is None


def test_the_records_are_those_that_were_appended(tiered: TieredLog) -> None:
    values = [
        record.value
        for offset in range(0, 8, 2)
        for _, records in read_batches(tiered.read(offset).records)
        for record in records
    ]
    assert [value[:8] for value in values if value] == [b"%08d" % each for each in range(8)]


def test_a_second_read_comes_from_memory(tiered: TieredLog) -> None:
    tiered.read(0)
    assert tiered.loads == ["indexes", "range"]
    assert isinstance(tiered.read_once(0), ReadResult)
    assert isinstance(tiered.read_once(1), ReadResult)


def test_a_read_within_a_batch_begins_with_the_batch() -> None:
    tiered = TieredLog()
    tiered.append(b"a", b"b", b"c")
    tiered.append(b"d", b"e")
    tiered.log.roll()
    tiered.copy()
    tiered.leave()
    assert offsets(tiered.read(1)) == [0, 3]
    assert offsets(tiered.read(4)) == [3]


def test_limits_are_those_of_a_local_read(tiered: TieredLog) -> None:
    both = tiered.read(0)
    assert offsets(both) == [0, 1]
    one = len(both.records) // 2
    assert len(tiered.read(0, one).records) == one
    assert len(tiered.read(0, one + 10).records) == one + 10, "the second batch is cut off"
    assert offsets(tiered.read(0, one + 10)) == [0]
    assert len(tiered.read(0, 1).records) == one, "the first batch is returned whole"
    nothing = tiered.read(0, one - 1, min_one=False)
    assert len(nothing.records) == 0
    assert nothing.position.is_known


def test_a_batch_above_the_size_of_a_range_is_loaded_whole() -> None:
    tiered = TieredLog()
    tiered.range_limits = tiered.range_limits._replace(range_bytes_max=1_000)
    tiered.append(bytes(600_000))
    tiered.append(bytes(700_000))
    tiered.log.roll()
    tiered.copy()
    tiered.leave()
    assert offsets(tiered.read(0)) == [0]
    assert offsets(tiered.read(1)) == [1]
    assert len(tiered.read(1, 5, min_one=False).records) == 0


def test_offsets_without_a_segment_are_out_of_range(tiered: TieredLog) -> None:
    tiered.remote = type(tiered.remote)(tiered.remote._where)
    with pytest.raises(OffsetOutOfRangeError):
        tiered.read_once(3)


def test_records_above_the_visible_end_are_not_returned(tiered: TieredLog) -> None:
    # A follower that serves consumers may know an older end than the leader that has copied.
    tiered.read(4)
    segment = tiered.remote.segments()[2]
    loaded = tiered.ranges.find(segment.id, 0, 1)
    assert loaded is not None
    found = walk(segment, loaded, 0, ReadRequest(4, MIB, min_one=True, end_offset=5))
    assert (found.first, found.next_offset) == (0, 5)
    found = walk(segment, loaded, 0, ReadRequest(4, MIB, min_one=True, end_offset=4))
    assert (found.first, found.next_offset) == (0, -1)
    assert found.is_limited


def test_reads_follow_the_leader_epochs_across_segments() -> None:
    tiered = TieredLog()
    tiered.append(b"a")
    tiered.epoch = 1
    tiered.append(b"b")
    tiered.log.roll()
    tiered.epoch = 4
    tiered.append(b"c")
    tiered.log.roll()
    tiered.copy()
    tiered.leave()
    assert [each.leader_epochs for each in tiered.remote.segments()] == [
        ((0, 0), (1, 1)),
        ((4, 2),),
    ]
    assert [offsets(tiered.read(each)) for each in range(3)] == [[0, 1], [1], [2]]


def test_many_small_batches_are_returned_in_several_reads() -> None:
    tiered = TieredLog()
    count = BATCHES_PER_WALK + 100
    for number in range(count):
        tiered.append(b"%d" % number)
    tiered.log.roll()
    tiered.copy()
    tiered.leave()
    assert offsets(tiered.read(0)) == list(range(BATCHES_PER_WALK))
    assert offsets(tiered.read(BATCHES_PER_WALK)) == list(range(BATCHES_PER_WALK, count))


def test_a_segment_without_an_index_is_walked_in_parts() -> None:
    tiered = TieredLog(index_interval_bytes=1 << 30)
    tiered.range_limits = tiered.range_limits._replace(range_bytes_max=1_000)
    count = 3 * BATCHES_PER_WALK
    for number in range(count):
        tiered.append(b"%d" % number + bytes(300))
    tiered.log.roll()
    tiered.copy()
    tiered.leave()
    last = count - 1
    assert offsets(tiered.read(last)) == [last]
    loads = len(tiered.loads)
    assert offsets(tiered.read(last)) == [last]
    assert len(tiered.loads) == loads, "the way there is remembered"


def test_ranges_are_read_ahead_for_a_reader_in_sequence() -> None:
    tiered = TieredLog()
    tiered.range_limits = tiered.range_limits._replace(range_bytes_max=256 << 10, read_ahead=1)
    tiered.tier(1, batches=10, size=100_000)
    loads: list[int] = []
    offset = 0
    while offset < 10:
        loads.append(len(tiered.loads))
        offset = offsets(tiered.read(offset, 1))[-1] + 1
        tiered.world.run_for(100)
    assert tiered.loads == ["indexes", "range"]
    assert tiered.store.bytes_read == tiered.remote.segments()[0].size, "nothing is read twice"


def test_a_damaged_batch_is_loaded_once_more_and_then_reported(tiered: TieredLog) -> None:
    segment = tiered.remote.segments()[0]
    whole = tiered.read(0)
    second = len(whole.records) // 2
    del whole
    disk, path = tiered.store.disk, tiered.store._path(segment) + ".log"
    file = disk.open(path)
    original = file.read_at(1, second + HEADER_SIZE + 5)
    file.write_at(bytes([original[0] ^ 1]), second + HEADER_SIZE + 5)
    tiered.open_caches()
    assert offsets(tiered.read(0)) == [0], "the batches before it are served"
    tiered.loads.clear()
    with pytest.raises(RemoteDamagedError, match="CRC"):
        tiered.read(1)
    assert tiered.loads.count("range") <= 2
    file.write_at(original, second + HEADER_SIZE + 5)
    assert offsets(tiered.read(1)) == [1], "the store returns the right bytes again"


def test_bytes_that_are_no_batches_are_reported(tiered: TieredLog) -> None:
    segment = tiered.remote.segments()[0]
    path = tiered.store._path(segment) + ".log"
    tiered.store.disk.write_atomically(path, bytes(segment.size))
    with pytest.raises(RemoteDamagedError):
        tiered.read(0)


def test_an_index_that_leads_beyond_the_offset_skips_no_record(tiered: TieredLog) -> None:
    tiered.read(0)
    segment = tiered.remote.segments()[0]
    indexes = tiered.indexes.get(segment.id)
    assert indexes is not None
    indexes.learn(0, indexes.position_of(1))
    assert offsets(tiered.read(0)) == [0, 1], "the indexes are loaded once more"


def test_a_lost_object_is_reported(tiered: TieredLog) -> None:
    tiered.store.lose(tiered.remote.segments()[2])
    with pytest.raises(RemoteMissingError):
        tiered.read(4)
    assert offsets(tiered.read(6)) == [6, 7]


# Transactions.


def transactional(tiered: TieredLog, producer: int, sequence: int, *values: bytes) -> None:
    tiered.append(
        *values, producer_id=producer, producer_epoch=0, base_sequence=sequence, transactional=True
    )


def abort(tiered: TieredLog, producer: int) -> None:
    tiered.coordinate(marker(ControlType.ABORT, producer))


def test_a_committed_read_names_the_aborted_transactions_of_the_segment() -> None:
    tiered = TieredLog()
    transactional(tiered, 7, 0, b"a")
    transactional(tiered, 8, 0, b"b")
    abort(tiered, 8)
    abort(tiered, 7)
    tiered.log.roll()
    tiered.copy()
    tiered.leave()
    found = tiered.read(0, isolation=COMMITTED)
    assert offsets(found) == [0, 1, 2, 3]
    assert found.aborted_transactions == [AbortedTransaction(8, 1), AbortedTransaction(7, 0)]
    assert tiered.read(0).aborted_transactions is None
    assert tiered.read(3, isolation=COMMITTED).aborted_transactions == [AbortedTransaction(7, 0)]


def test_a_transaction_may_end_in_a_later_segment_or_in_the_local_log() -> None:
    tiered = TieredLog()
    transactional(tiered, 7, 0, b"a")
    transactional(tiered, 8, 0, b"b")
    transactional(tiered, 9, 0, b"c")
    tiered.log.roll()
    abort(tiered, 9)
    tiered.log.roll()
    abort(tiered, 8)
    tiered.log.roll()
    abort(tiered, 7)
    assert len(tiered.copy()) == 3
    tiered.leave()
    assert tiered.log.local_log_start_offset == 5
    found = tiered.read(0, isolation=COMMITTED)
    # In the order of their ends, as in Kafka's indexes.
    expected = [AbortedTransaction(9, 2), AbortedTransaction(8, 1), AbortedTransaction(7, 0)]
    assert found.aborted_transactions == expected
    assert tiered.read(0, 1, COMMITTED).aborted_transactions == expected[-1:]
    assert tiered.loads.count("indexes") == 3


def test_segments_without_aborted_transactions_are_not_loaded_for_them() -> None:
    tiered = TieredLog()
    transactional(tiered, 7, 0, b"a")
    tiered.log.roll()
    tiered.append(b"other")
    tiered.log.roll()
    abort(tiered, 7)
    tiered.log.roll()
    tiered.copy()
    tiered.leave()
    assert [each.has_transactions for each in tiered.remote.segments()] == [False, False, True]
    found = tiered.read(0, isolation=COMMITTED)
    assert found.aborted_transactions == [AbortedTransaction(7, 0)]
    assert tiered.loads == ["indexes", "range", "indexes"]


def test_committed_reads_without_transactions_name_none(tiered: TieredLog) -> None:
    assert tiered.read(0, isolation=COMMITTED).aborted_transactions == []
