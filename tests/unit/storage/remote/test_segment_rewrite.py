"""Segments of a lost topic as segments of a new one."""

from __future__ import annotations

from itertools import count

import pytest
from msgspec.structs import replace

from barnabas.record.batch import batches, check_crc
from barnabas.record.builder import BatchBuilder
from barnabas.record.compression import GZIP, LZ4, NONE, SNAPPY, ZSTD
from barnabas.record.reader import read_batches
from barnabas.storage.files.leader_epoch_cache import EpochEntry, decode_epochs
from barnabas.storage.producers.producer_entry import (
    ProducerEntry,
    RememberedBatch,
    decode_snapshot,
    encode_snapshot,
)
from barnabas.storage.remote import whole_log
from barnabas.storage.remote.remote_storage import (
    RemoteDamagedError,
    RemoteSegment,
    SegmentIndexes,
    SegmentState,
)
from barnabas.storage.remote.segment_rewrite import (
    restored_files,
    restored_id,
    restored_segment,
    restored_snapshot,
    rewritten_log,
)
from unit.storage.remote.epoch_segments import segment

KINDS = [
    {"compression": NONE},
    {"compression": GZIP},
    {"compression": SNAPPY},
    {"compression": LZ4},
    {"compression": ZSTD},
    {"producer_id": 7, "producer_epoch": 3, "base_sequence": 5},
    {"producer_id": 7, "producer_epoch": 3, "base_sequence": 8, "transactional": True},
    {"producer_id": 7, "producer_epoch": 3, "transactional": True, "control": True},
]


def log_of(epochs: tuple[int, ...] = (4, 9)) -> tuple[RemoteSegment, bytes]:
    """Return a segment from offset 100 on with batches of all kinds, of each epoch."""
    content, offset = bytearray(), 100
    for epoch in epochs:
        for kind in KINDS:
            builder = BatchBuilder(base_offset=offset, leader_epoch=epoch, **kind)
            for number in range(3):
                builder.append(1_000 + number, b"key", b"value" * 20, [("header", b"h")])
            content += builder.build()
            offset += 3
    found = segment(offset - 1, *((epoch, 100 + 24 * at) for at, epoch in enumerate(epochs)))
    return replace(found, size=len(content)), bytes(content)


def rewritten(found: RemoteSegment, content: bytes) -> bytes:
    return b"".join(rewritten_log(found, lambda start, end: memoryview(content)[start:end]))


@pytest.mark.parametrize("piece_bytes", [61, 100, 500, 1 << 20])
def test_only_the_epochs_of_batches_change(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(whole_log, "_PIECE_BYTES", piece_bytes)
    found, content = log_of()
    result = rewritten(found, content)
    assert len(result) == len(content)
    pairs = list(zip(batches(content), batches(result), strict=True))
    assert len(pairs) == 2 * len(KINDS)
    for (_, before), (at, after) in pairs:
        assert after == before._replace(partition_leader_epoch=0)
        assert check_crc(result, at, after)
    read = [[records for _, records in read_batches(each)] for each in (result, content)]
    assert read[0] == read[1]


@pytest.mark.parametrize("position", [3, 16, 30, 70])
def test_a_damaged_log_is_refused(position: int) -> None:
    found, content = log_of()
    changed = bytearray(content)
    changed[position] ^= 0x40
    with pytest.raises(RemoteDamagedError, match="at position 0"):
        rewritten(found, bytes(changed))


def test_a_log_that_ends_within_a_batch_is_refused() -> None:
    found, content = log_of()
    for less in (1, 70):
        shorter = replace(found, size=found.size - less)
        with pytest.raises(RemoteDamagedError):
            rewritten(shorter, content)


def test_repeated_batches_are_refused() -> None:
    found, content = log_of((4,))
    with pytest.raises(RemoteDamagedError, match="cannot have offsets"):
        rewritten(replace(found, size=2 * found.size), content + content)


def test_ids_follow_from_the_old_id_and_the_new_topic() -> None:
    ids = {
        restored_id(bytes([topic] * 16), bytes([old] * 16)) for topic in (1, 2) for old in (3, 4)
    }
    assert len(ids) == 4
    assert restored_id(bytes([1] * 16), bytes([3] * 16)) in ids
    assert all(len(each) == 16 for each in ids)


def test_the_copy_of_a_segment_begins_with_the_epoch_of_the_new_topic() -> None:
    old, _ = log_of()
    new = restored_segment(replace(old, custom=b"x"), "new", b"n" * 16, (5, 999))
    assert new.leader_epochs == ((0, 100),)
    assert (new.topic, new.topic_id, new.partition) == ("new", b"n" * 16, old.partition)
    assert (new.start_offset, new.end_offset, new.size) == (100, old.end_offset, old.size)
    assert (new.broker_id, new.event_ms, new.custom) == (5, 999, None)
    assert new.state is SegmentState.COPY_SEGMENT_STARTED


def test_the_epochs_of_the_log_become_one() -> None:
    indexes = SegmentIndexes(b"o", b"t", b"", encode_snapshot([]), b"0\n1\n9 100\n")
    files = restored_files(indexes, "/tmp/log", 12, 40)
    assert decode_epochs(files.leader_epochs) == [EpochEntry(0, 40)]
    assert (files.offset_index, files.time_index, files.transaction_index) == (b"o", b"t", None)


def test_producers_are_forgotten_except_for_the_start_of_open_transactions() -> None:
    numbers = count()
    batch = RememberedBatch(3, 5, 10, 12, 7)
    entries = [
        ProducerEntry(next(numbers), 4, (batch,), 7, 2),
        ProducerEntry(next(numbers), 4, (batch,), 7, 2, 10),
    ]
    found = decode_snapshot(restored_snapshot(encode_snapshot(entries)))
    assert found == [ProducerEntry(1, 0, (), 7, -1, 10)]
    with pytest.raises(RemoteDamagedError, match="snapshot"):
        restored_snapshot(b"damaged")
