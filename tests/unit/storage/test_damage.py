"""Flipped bits in log files: truncation and log messages; every start succeeds."""

from __future__ import annotations

import pytest

from barnabas.record.batch import HEADER_SIZE, check_crc, read_header
from barnabas.record.reader import read_batches
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import CorruptRecordError, DamageKind
from unit.storage.storage_fixtures import (
    DIRECTORY,
    LEADER_EPOCH,
    Bench,
    all_records,
    batch,
    content,
    read,
)

FIRST = f"{DIRECTORY}/00000000000000000000"
# Bits of the header's fields that the CRC does not cover, and those that it covers.
HEADER_BITS = HEADER_SIZE * 8
BATCHES = 6
# Bits whose turning raises the leader epoch.
HIGHER_EPOCHS = [
    at * 8 + bit
    for at in range(12, 16)
    for bit in range(8)
    if (at, bit) != (12, 7) and not (at == 15 and LEADER_EPOCH >> bit & 1)
]
# Bits that are set in the last byte of the leader epoch.
LOWER_EPOCHS = [15 * 8 + bit for bit in range(8) if LEADER_EPOCH >> bit & 1]


def flip(bench: Bench, path: str, bit: int) -> None:
    """Flip one bit of a file."""
    file = bench.disk.open(path, create=False)
    byte = file.read_at(1, bit // 8)[0]
    file.write_at(bytes([byte ^ 1 << bit % 8]), bit // 8)


def values(bench: Bench) -> list[tuple[int, bytes | None]]:
    return [(record.offset, record.value) for record in all_records(bench.log)]


def bench_of(batches: int, config: LogConfig | None = None) -> tuple[Bench, int]:
    """A log of batches of one size, and that size."""
    bench = Bench(config)
    bench.append_many(batches)
    bench.log.update_high_watermark(batches)
    return bench, bench.log.size // batches


@pytest.mark.parametrize("which", [0, 3, BATCHES - 1])
def test_a_flipped_header_bit_truncates_the_log_after_a_kill(which: int) -> None:
    for bit in range(HEADER_BITS):
        bench, size = bench_of(BATCHES)
        whole = values(bench)
        flip(bench, f"{FIRST}.log", which * size * 8 + bit)
        bench.kill_and_reopen(recovery_point=0, high_watermark=BATCHES)
        is_first, is_last = which == 0, which == BATCHES - 1
        if (is_first and bit in LOWER_EPOCHS) or (is_last and bit in HIGHER_EPOCHS):
            # As if another leader had written the batch: nothing contradicts, nothing is lost.
            assert values(bench) == whole
            continue
        assert values(bench) == whole[:which], bit
        # Records that were acknowledged are lost: this is never done in silence.
        assert bench.log_dependencies.damage.counts[DamageKind.BATCH] == 1, bit
        bench.append_many(2)
        bench.kill_and_reopen(recovery_point=0)
        assert [offset for offset, _ in values(bench)] == list(range(which + 2)), bit


def test_a_flipped_header_bit_never_serves_another_record_after_a_clean_stop() -> None:
    config = LogConfig(index_interval_bytes=300)
    for bit in range(BATCHES * HEADER_BITS):
        which = bit // HEADER_BITS
        bench, size = bench_of(BATCHES, config)
        whole = values(bench)
        bench.log.close()
        flip(bench, f"{FIRST}.log", which * size * 8 + bit % HEADER_BITS)
        bench.open(clean_shutdown=True, recovery_point=BATCHES, high_watermark=BATCHES)
        assert bench.log.log_end_offset <= BATCHES, bit
        refused: set[int] = set()
        seen = [found for at in range(BATCHES) for found in read_one(bench, at, refused)]
        assert [found for found in seen if found not in whole] == [], bit
        # The broker has reported the missing records, or every consumer refuses them.
        missing = set(range(BATCHES)) - {offset for offset, _ in seen}
        assert missing <= refused or bench.log_dependencies.damage.counts, bit
        bench.append_many(1)


def read_one(bench: Bench, offset: int, refused: set[int]) -> list[tuple[int, bytes | None]]:
    """The records of the one batch that is served for an offset; none if its CRC is wrong."""
    if offset >= bench.log.log_end_offset:
        return []
    try:
        served = content(read(bench.log, offset, max_bytes=1))
    except CorruptRecordError:
        return []
    header = read_header(served)
    if not check_crc(served, 0, header):
        refused.add(offset)
        return []
    return [(each.offset, each.value) for _, found in read_batches(served) for each in found]


@pytest.mark.parametrize("interval", [0, 300])
def test_a_batch_of_many_records_with_a_wrong_base_offset_is_not_found_by_the_index(
    interval: int,
) -> None:
    """The index finds the batch; the last offset in the index reveals the damage."""
    for bit in range(64):
        bench = Bench(LogConfig(index_interval_bytes=interval))
        for number in range(4):
            bench.append(batch([b"%d-%d" % (number, each) + bytes(50) for each in range(5)]))
        bench.log.update_high_watermark(20)
        whole = values(bench)
        size = bench.log.size // 4
        bench.log.close()
        flip(bench, f"{FIRST}.log", 2 * size * 8 + bit)
        bench.open(clean_shutdown=True, recovery_point=20, high_watermark=20)
        refused: set[int] = set()
        seen = [found for at in range(20) for found in read_one(bench, at, refused)]
        assert [found for found in seen if found not in whole] == [], bit
        assert bench.log_dependencies.damage.counts, bit


def test_flipped_body_bits_truncate_the_log_after_a_kill() -> None:
    for bit in range(HEADER_BITS, HEADER_BITS + 400, 37):
        bench, size = bench_of(BATCHES)
        whole = values(bench)
        flip(bench, f"{FIRST}.log", 2 * size * 8 + bit)
        bench.kill_and_reopen(recovery_point=0)
        assert values(bench) == whole[:2], bit


def test_an_epoch_that_starts_at_the_end_of_an_empty_log_is_no_damage() -> None:
    # Kafka's leader of a partition writes its epoch before the first record.
    bench = Bench()
    bench.log.close()
    bench.disk.write_atomically(f"{DIRECTORY}/leader-epoch-checkpoint", b"0\n1\n4 0\n")
    bench.open(clean_shutdown=True)
    assert bench.log_dependencies.damage.counts[DamageKind.GAP] == 0
    assert bench.log.log_end_offset == 0
