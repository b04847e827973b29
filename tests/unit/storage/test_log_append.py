"""Appending as leader and as follower."""

from __future__ import annotations

import pytest

from barnabas.record.batch import check_crc, read_header
from barnabas.sim.disk import DiskFault
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    KafkaStorageError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    UnexpectedAppendOffsetError,
)
from barnabas.storage.results import AppendOrigin
from unit.storage.storage_fixtures import (
    DIRECTORY,
    LEADER_EPOCH,
    NOW_MS,
    Bench,
    all_records,
    batch,
    content,
    read,
)


def test_the_leader_assigns_offsets_and_its_epoch_in_place() -> None:
    bench = Bench()
    bench.append(batch([b"a", b"b"]))
    records = bytearray(batch([b"c", b"d", b"e"]))
    info = bench.log.appender.append_as_leader(memoryview(records), 7, AppendOrigin.CLIENT, NOW_MS)
    assert (info.first_offset, info.last_offset, info.record_count) == (2, 4, 3)
    header = read_header(records)
    assert (header.base_offset, header.partition_leader_epoch) == (2, 7)
    assert content(read(bench.log, 2)) == bytes(records)


def test_an_append_changes_only_offset_and_epoch() -> None:
    bench = Bench()
    sent = batch([b"a"], compression=4)
    bench.append(sent)
    stored = content(read(bench.log))
    assert stored[:12] == sent[:12]
    assert stored[16:] == sent[16:]


def test_an_append_advances_the_log_end_but_not_the_high_watermark() -> None:
    bench = Bench()
    bench.append(batch([b"a", b"b"]))
    assert bench.log.log_end_offset == 2
    assert bench.log.high_watermark == 0


def test_batches_of_one_append_get_consecutive_offsets() -> None:
    bench = Bench()
    info = bench.coordinate(batch([b"a", b"b"]) + batch([b"c"]))
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 2, 3)
    assert [record.offset for record in all_records(bench.log)] == [0, 1, 2]


def test_an_empty_append_does_nothing() -> None:
    bench = Bench()
    info = bench.append(b"")
    assert (info.first_offset, info.record_count, info.size) == (-1, 0, 0)
    assert bench.log.log_end_offset == 0


def test_a_flipped_bit_is_a_corrupt_message_and_nothing_is_written() -> None:
    bench = Bench()
    damaged = batch([b"abc"])
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        bench.append(damaged)
    assert bench.log.size == 0


def test_an_incomplete_batch_is_a_corrupt_message() -> None:
    bench = Bench()
    with pytest.raises(CorruptRecordError):
        bench.append(batch([b"abc"])[:-1])


def test_an_unknown_magic_is_a_corrupt_message() -> None:
    bench = Bench()
    damaged = batch([b"abc"])
    damaged[16] = 9
    with pytest.raises(CorruptRecordError):
        bench.append(damaged)


def test_a_batch_above_max_message_bytes_is_refused() -> None:
    bench = Bench(LogConfig(max_message_bytes=200))
    with pytest.raises(RecordTooLargeError):
        bench.append(batch([bytes(200)]))


def test_an_append_above_the_segment_size_is_refused() -> None:
    bench = Bench(LogConfig(segment_bytes=200))
    with pytest.raises(RecordBatchTooLargeError):
        bench.append(batch([bytes(200)]))


def test_control_batches_of_clients_are_refused() -> None:
    bench = Bench()
    with pytest.raises(InvalidRecordError):
        bench.append(batch([b"a"], control=True))


def test_a_base_offset_other_than_zero_is_refused() -> None:
    bench = Bench()
    with pytest.raises(InvalidRecordError):
        bench.append(batch([b"a"], base_offset=5))


def test_a_record_count_that_contradicts_the_offsets_is_refused() -> None:
    from barnabas.record.batch import set_crc

    bench = Bench()
    forged = batch([b"a"])
    forged[57:61] = (2).to_bytes(4, "big")
    set_crc(forged, 0, len(forged))
    with pytest.raises(InvalidRecordError):
        bench.append(forged)


def test_a_timestamp_too_far_ahead_is_refused() -> None:
    bench = Bench()
    with pytest.raises(InvalidTimestampError):
        bench.append(batch([b"a"], timestamp=NOW_MS + 3_600_001))
    bench.append(batch([b"a"], timestamp=NOW_MS + 3_600_000))


def test_a_timestamp_older_than_the_topics_limit_is_refused() -> None:
    bench = Bench(LogConfig(message_timestamp_before_max_ms=1000))
    with pytest.raises(InvalidTimestampError):
        bench.append(batch([b"a"], timestamp=NOW_MS - 1001))
    bench.append(batch([b"a"], timestamp=NOW_MS - 1000))


def test_log_append_time_replaces_the_producers_time() -> None:
    bench = Bench(LogConfig(message_timestamp_type="LogAppendTime"))
    info = bench.append(batch([b"a", b"b"], timestamp=5))
    assert info.log_append_time == NOW_MS
    assert [record.timestamp for record in all_records(bench.log)] == [NOW_MS, NOW_MS]


def test_log_append_time_of_a_producer_is_corrected_or_refused() -> None:
    bench = Bench()
    bench.append(batch([b"a"], timestamp_type=1, log_append_time_ms=NOW_MS))
    stored = content(read(bench.log))
    assert read_header(stored).timestamp_type == 0
    assert check_crc(stored, 0, read_header(stored))
    bench = Bench(LogConfig(message_timestamp_type="LogAppendTime"))
    with pytest.raises(InvalidTimestampError):
        bench.append(batch([b"a"], timestamp_type=1, log_append_time_ms=NOW_MS))


def test_a_batch_that_decompresses_beyond_the_limit_is_refused() -> None:
    packed = batch([bytes(10_000)], compression=1)
    bench = Bench(LogConfig(max_message_bytes=2000, compression_type="uncompressed"))
    with pytest.raises(RecordTooLargeError):
        bench.append(packed)
    Bench(LogConfig(max_message_bytes=2000)).append(packed)


@pytest.mark.parametrize(
    ("name", "code"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)]
)
def test_a_topic_compression_applies_to_all_batches(name: str, code: int) -> None:
    bench = Bench(LogConfig(compression_type=name))
    for source in range(5):
        bench.append(batch([b"value" * 20, None], compression=source))
    stored = content(read(bench.log))
    assert read_header(stored).compression == code
    assert [record.value for record in all_records(bench.log)] == [b"value" * 20, None] * 5
    assert [record.offset for record in all_records(bench.log)] == list(range(10))


def test_a_compacted_topic_refuses_and_names_records_without_a_key() -> None:
    bench = Bench(LogConfig(cleanup_policy=("compact",)))
    with pytest.raises(InvalidRecordError) as caught:
        bench.append(batch([b"a", b"b"], key=None))
    assert [index for index, _ in caught.value.record_errors] == [0, 1]


def test_an_old_message_set_is_converted() -> None:
    from barnabas.record.legacy import write_message_set
    from barnabas.record.record import Record

    bench = Bench()
    old = [Record(0, NOW_MS, 0, b"k", b"v"), Record(1, NOW_MS, 0, None, b"w")]
    bench.append(write_message_set(1, old, 0))
    assert [record.value for record in all_records(bench.log)] == [b"v", b"w"]


def test_raft_batches_must_have_the_expected_offsets() -> None:
    bench = Bench()
    right = memoryview(batch([b"a"], base_offset=0))
    bench.log.appender.append_as_leader(right, 1, AppendOrigin.RAFT, NOW_MS)
    wrong = memoryview(batch([b"a"], base_offset=5))
    with pytest.raises(InvalidRecordError):
        bench.log.appender.append_as_leader(wrong, 1, AppendOrigin.RAFT, NOW_MS)


def test_a_follower_keeps_the_leaders_bytes() -> None:
    bench = Bench()
    records = batch([b"a", b"b"], leader_epoch=4) + batch([b"c"], base_offset=2, leader_epoch=5)
    info = bench.log.appender.append_as_follower(bytes(records))
    assert (info.first_offset, info.last_offset) == (0, 2)
    assert content(read(bench.log)) == bytes(records)
    assert bench.log.leader_epochs.entries == [(4, 0), (5, 2)]


def test_a_follower_refuses_records_below_its_log_end() -> None:
    bench = Bench()
    bench.log.appender.append_as_follower(batch([b"a", b"b"]))
    with pytest.raises(UnexpectedAppendOffsetError) as caught:
        bench.log.appender.append_as_follower(batch([b"b"], base_offset=1))
    assert (caught.value.first_offset, caught.value.log_end_offset) == (1, 2)


def test_a_follower_refuses_offsets_that_do_not_increase() -> None:
    bench = Bench()
    with pytest.raises(CorruptRecordError):
        bench.log.appender.append_as_follower(batch([b"a", b"b"]) + batch([b"c"], base_offset=1))


def test_a_follower_checks_crcs() -> None:
    bench = Bench()
    damaged = batch([b"a"])
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecordError):
        bench.log.appender.append_as_follower(damaged)


def test_a_disk_failure_is_reported_once_and_the_log_rejects_appends() -> None:
    bench = Bench()
    bench.append(batch([b"a"]))
    bench.disk.faults.append(DiskFault(DIRECTORY, ("write",)))
    for _ in range(2):
        with pytest.raises(KafkaStorageError):
            bench.append(batch([b"b"]))
    assert [path for path, _ in bench.failures] == [DIRECTORY]
    assert bench.log.log_end_offset == 1


def test_each_new_leader_epoch_is_stored_with_its_start_offset() -> None:
    bench = Bench()
    bench.append(batch([b"a"]), epoch=1)
    bench.append(batch([b"b"]), epoch=1)
    bench.append(batch([b"c"]), epoch=LEADER_EPOCH)
    assert bench.log.leader_epochs.entries == [(1, 0), (LEADER_EPOCH, 2)]
    assert bench.log.latest_epoch == LEADER_EPOCH
    assert bench.log.end_offset_for_epoch(1) == (1, 2)
    assert bench.log.end_offset_for_epoch(2) == (1, 2)
    assert bench.log.end_offset_for_epoch(3) == (3, 3)
    assert bench.log.end_offset_for_epoch(4) == (-1, -1)
