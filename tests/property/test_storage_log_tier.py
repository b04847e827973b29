"""A log with a remote tier against a list: each record is local or in the tier, and never lost.

The model is the list of records by offset, and the records of the copies. The copies are made from
the files that the log names for a copy. Local retention, DeleteRecords, expiration of copies,
truncations, followers that begin after the tier, kills and power losses come in any order.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace

from barnabas.record.reader import read_batches
from barnabas.storage.config import SAME_AS_TOTAL, LogConfig
from barnabas.storage.errors import OffsetInRemoteTierError
from barnabas.storage.files.leader_epoch_cache import EpochEntry, decode_epochs
from barnabas.storage.remote.remote_storage import SegmentFiles
from barnabas.storage.results import FetchIsolation
from unit.storage.storage_fixtures import NOW_MS, Bench, all_records, batch

CONFIG = LogConfig(
    segment_bytes=800,
    index_interval_bytes=150,
    segment_index_bytes=120,
    retention_ms=-1,
    is_remote=True,
    remote_storage_enable=True,
)
PRODUCER = 3


class LogWithTier(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(CONFIG)
        self.values: list[bytes] = []
        self.start = 0
        self.epoch = 0
        self.counter = 0
        # Records in the tier by offset, and the copies by their exclusive end.
        self.tier: dict[int, bytes] = {}
        self.copies: dict[int, SegmentFiles] = {}
        # A loss of power may tear producer snapshots that a killed process wrote.
        self.has_lost_power = False

    @property
    def end(self) -> int:
        return self.start + len(self.values)

    @rule(seed=st.integers(0, 1 << 30))
    def reseed(self, seed: int) -> None:
        self.bench.disk._rng.__init__(seed)

    @rule(count=st.integers(1, 3), size=st.integers(50, 200))
    def append(self, count: int, size: int) -> None:
        self.bench.clock.now_ms += 1
        values = []
        for _ in range(count):
            self.counter += 1
            values.append(b"%d" % self.counter + bytes(size))
        entry = self.bench.log.producer_state.entries.get(PRODUCER)
        first = entry.last_sequence + 1 if entry else 0
        info = self.bench.append(
            batch(values, producer_id=PRODUCER, producer_epoch=0, base_sequence=first), self.epoch
        )
        assert info.first_offset == self.end
        self.values += values

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.bench.log.roll()

    @rule(part=st.sampled_from([0.5, 1.0, 1.0]))
    def commit(self, part: float) -> None:
        log = self.bench.log
        left = self.end - log.high_watermark
        log.update_high_watermark(log.high_watermark + int(part * left))

    @rule(count=st.integers(1, 8), size=st.integers(50, 200))
    def append_many(self, count: int, size: int) -> None:
        """Append committed batches, so that segments are closed."""
        for _ in range(count):
            self.append(2, size)
        self.commit(1.0)

    @rule(count=st.integers(1, 9), is_verified=st.sampled_from([True, True, False]))
    def copy(self, count: int, is_verified: bool) -> None:
        log = self.bench.log
        first = max(log.highest_remote_offset + 1, log.log_start_offset)
        for segment in log.copyable_segments(first, log.last_stable_offset, count):
            assert segment.next_base_offset <= log.high_watermark
            files = log.open_for_copy(segment.base_offset)
            assert files is not None
            content = self.bench.disk.read(files.log_path)
            assert len(content) == files.log_size == segment.size
            records = [record for _, found in read_batches(content) for record in found]
            self.tier |= {record.offset: record.value for record in records}
            self.copies[segment.next_base_offset] = files
            assert log.raise_highest_remote_offset(segment.next_base_offset - 1)
            if is_verified:
                log.raise_verified_remote_offset(segment.next_base_offset - 1)

    @rule(kept=st.sampled_from([0, 0, 500, 1000, 2000]))
    def retain_locally(self, kept: int) -> None:
        log = self.bench.log
        copied, active = log.offsets.copied_end_offset, log.segments.active.base_offset
        before = log.local_log_start_offset
        log.update_config(replace(CONFIG, local_retention_bytes=kept))
        log.delete_old_segments(NOW_MS)
        log.update_config(replace(CONFIG, local_retention_bytes=SAME_AS_TOTAL))
        assert log.log_start_offset == self.start
        assert log.local_log_start_offset in (before, log.segments[0].base_offset)
        assert log.local_log_start_offset <= max(before, copied)
        assert log.segments.active.base_offset in (active, self.end)

    @rule(count=st.integers(3, 12), kept=st.sampled_from([0, 500, 1000]))
    def move_to_the_tier(self, count: int, kept: int) -> None:
        """Append, copy and retain, which single rules in this order rarely do."""
        self.append_many(count, 150)
        self.copy(99, is_verified=True)
        self.retain_locally(kept)

    @rule(part=st.floats(0, 0.5))
    def delete_records(self, part: float) -> None:
        log = self.bench.log
        offset = self.start + int(part * (log.high_watermark - self.start))
        log.maybe_increment_log_start_offset(offset, "model")
        log.delete_old_segments(NOW_MS)
        self._forget_until(offset)

    @rule()
    def expire_in_the_tier(self) -> None:
        """Raise the log start to the end of the first copy, and delete the copy."""
        log = self.bench.log
        ends = [end for end in self.copies if self.start < end <= log.high_watermark]
        if ends:
            log.maybe_increment_log_start_offset(min(ends), "model")
            self._forget_until(min(ends))

    def _forget_until(self, offset: int) -> None:
        if offset > self.start:
            del self.values[: offset - self.start]
            self.start = offset
        self.tier = {at: value for at, value in self.tier.items() if at >= self.start}
        self.copies = {end: files for end, files in self.copies.items() if end > self.start}

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        target = self.start + int(part * len(self.values))
        log = self.bench.log
        log.truncate_to(target)
        assert log.log_end_offset <= target
        self._cut(log.log_end_offset)

    def _cut(self, end: int) -> None:
        self.start = min(self.start, end)
        del self.values[end - self.start :]
        self.tier = {at: value for at, value in self.tier.items() if at < end}
        self.copies = {at: files for at, files in self.copies.items() if at <= end}
        self.epoch += 1

    @rule(choice=st.integers(0, 50))
    def begin_after_the_tier(self, choice: int) -> None:
        """Lose the local records, and begin after a copy, as a new follower does."""
        if not self.copies:
            return
        end = sorted(self.copies)[choice % len(self.copies)]
        # The tier must have all records before.
        if any(offset not in self.tier for offset in range(self.start, end)):
            return
        files = self.copies[end]
        epochs = [each for each in decode_epochs(files.leader_epochs) if each.start_offset < end]
        self.bench.log.adopt_auxiliary_state(end, self.start, epochs, files.producer_snapshot)
        self._cut(end)

    @rule()
    def run_timers(self) -> None:
        self.bench.timer.run()
        self.bench.log.release_idle()

    @rule()
    def stop_and_start(self) -> None:
        log = self.bench.log
        log.close()
        self.bench.open(
            clean_shutdown=True,
            recovery_point=log.recovery_point,
            log_start_offset=self.start,
            high_watermark=log.high_watermark,
        )

    @rule()
    def kill(self) -> None:
        self.bench.kill_and_reopen(
            log_start_offset=self.start, high_watermark=self.bench.log.high_watermark
        )

    @rule()
    def lose_power(self) -> None:
        self.has_lost_power = True
        log = self.bench.log
        # A broker copies a segment when its sync has long ended.
        log.sync.flush(force=True)
        self.bench.disk.sync_directory("/data")
        self.bench.disk.crash()
        self.bench.open(
            recovery_point=log.recovery_point,
            log_start_offset=self.start,
            high_watermark=log.high_watermark,
        )
        assert self.bench.log.log_end_offset == self.end

    @invariant()
    def offsets_are_in_order(self) -> None:
        log = self.bench.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert self.start <= log.local_log_start_offset <= log.high_watermark <= self.end
        assert log.local_log_start_offset == max(self.start, log.segments[0].base_offset)

    @invariant()
    def local_records_are_those_of_the_model(self) -> None:
        log = self.bench.log
        local = log.local_log_start_offset
        records = all_records(log)
        assert [record.offset for record in records] == list(range(local, self.end))
        assert [record.value for record in records] == self.values[local - self.start :]

    @invariant()
    def records_before_the_local_start_are_in_the_tier(self) -> None:
        log = self.bench.log
        for offset in range(self.start, log.local_log_start_offset):
            assert self.tier[offset] == self.values[offset - self.start]
        if self.start < log.local_log_start_offset:
            try:
                log.reader.read(self.start, 1, FetchIsolation.LOG_END, True)
            except OffsetInRemoteTierError:
                return
            raise AssertionError("a record of the tier was read locally")

    @invariant()
    def epochs_cover_the_log(self) -> None:
        log = self.bench.log
        entries = log.leader_epochs.entries
        assert entries == sorted(entries)
        assert not log.lacks_epochs
        if self.values:
            assert entries[0].start_offset == self.start or entries[0] == EpochEntry(0, 0)

    @invariant()
    def producers_are_known(self) -> None:
        entry = self.bench.log.producer_state.entries.get(PRODUCER)
        if entry is not None:
            assert entry.last_offset < self.end

    @precondition(lambda self: not self.has_lost_power)
    @invariant()
    def no_damage_is_reported(self) -> None:
        assert not self.bench.log_dependencies.damage.counts


TestLogWithTier = LogWithTier.TestCase
TestLogWithTier.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
