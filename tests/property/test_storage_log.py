"""A log against a list: random appends, rolls, truncations, deletions, kills and power losses.

The model is the list of records by offset, and the end of the synced records. After a kill, all
records must exist; after a power loss, at least the synced ones, and the log must be a prefix of
the written records.
"""

from __future__ import annotations

from contextlib import suppress

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from barnabas.record import columns
from barnabas.record.batch import CREATE_TIME, set_max_timestamp
from barnabas.record.record import CorruptBatchError
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import InvalidRecordError, OutOfOrderSequenceError
from barnabas.storage.results import FetchIsolation
from barnabas.waiting.steps import run_steps
from producer_batches import Payload, packed
from unit.storage.storage_fixtures import NOW_MS, Bench, all_records, batch, content

CONFIG = LogConfig(
    segment_bytes=1500, index_interval_bytes=150, segment_index_bytes=120, retention_bytes=4000
)
AGE_MAX = 30


class LogAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench(CONFIG)
        self.values: list[bytes] = []
        self.start = 0
        self.epoch = 0
        self.sequence: dict[int, int] = {}
        self.counter = 0
        # Records of the log before truncations without a later sync: a loss of power may bring it
        # back.
        self.before_cuts: list[tuple[int, list[bytes]]] = []
        # A loss of power leaves partial writes, some of which look like damage.
        self.has_lost_power = False

    @initialize(interval=st.sampled_from([CONFIG.index_interval_bytes, CONFIG.segment_bytes]))
    def choose_index_interval(self, interval: int) -> None:
        """Create the log; with the longer interval, only sealed segments have index entries."""
        self.bench = Bench(replace(CONFIG, index_interval_bytes=interval))

    @property
    def end(self) -> int:
        return self.start + len(self.values)

    @rule(seed=st.integers(0, 1 << 30))
    def reseed(self, seed: int) -> None:
        self.bench.disk._rng.__init__(seed)

    @rule(
        count=st.integers(1, 5),
        size=st.integers(0, 200),
        compression=st.sampled_from([0, 4]),
        age=st.integers(0, AGE_MAX),
        claim=st.none() | st.sampled_from([-1, 0, NOW_MS - AGE_MAX, NOW_MS, 1 << 62]),
    )
    def append(self, count: int, size: int, compression: int, age: int, claim: int | None) -> None:
        # Later changes of a file have a later time.
        self.bench.clock.now_ms += 1
        values = []
        for _ in range(count):
            self.counter += 1
            values.append(b"%d" % self.counter + bytes(size))
        records = batch(values, compression=compression, timestamp=NOW_MS - age)
        if claim is not None:
            # The largest timestamp in the header is what the producer says.
            set_max_timestamp(records, 0, CREATE_TIME, claim)
        info = self.bench.append(records, self.epoch)
        assert info.first_offset == self.end
        self.values += values

    @rule(payload=st.binary(max_size=100), count=st.integers(1, 3))
    def append_garbage(self, payload: bytes, count: int) -> None:
        records = packed(Payload(payload, count), first=NOW_MS)
        try:
            list(columns.iter_records(bytes(records)))
        except CorruptBatchError:
            pass
        else:
            return
        with suppress(InvalidRecordError):
            self.bench.append(records, self.epoch)
            raise AssertionError("malformed records were stored")

    @rule(producer=st.integers(0, 2), again=st.booleans())
    def append_idempotent(self, producer: int, again: bool) -> None:
        entry = self.bench.log.producer_state.entries.get(producer)
        last = entry.last_sequence if entry else -1
        self.counter += 1
        value = b"%d" % self.counter
        options = {"producer_id": producer, "producer_epoch": 0}
        if again and last >= 0:
            assert self.bench.append(
                batch([value], base_sequence=last, **options), self.epoch
            ).duplicate
            return
        info = self.bench.append(batch([value], base_sequence=last + 1, **options), self.epoch)
        assert info.first_offset == self.end
        self.values.append(value)
        try:
            self.bench.append(batch([value], base_sequence=last + 5, **options), self.epoch)
        except OutOfOrderSequenceError:
            return
        raise AssertionError("a gap was taken")

    @rule()
    def new_epoch(self) -> None:
        self.epoch += 1

    @rule()
    def roll(self) -> None:
        self.bench.log.roll()

    @rule()
    def flush(self) -> None:
        self.bench.log.sync.flush(force=True)
        self.before_cuts.clear()

    @rule(part=st.floats(0, 1))
    def truncate(self, part: float) -> None:
        target = self.start + int(part * len(self.values))
        log = self.bench.log
        was_cut = target < log.log_end_offset
        self.before_cuts.append((self.start, list(self.values)))
        assert log.truncate_to(target) == was_cut
        # A batch of up to five records goes as a whole.
        assert target - 5 < log.log_end_offset <= target
        self.start = log.log_start_offset
        del self.values[max(0, log.log_end_offset - self.start) :]
        self.epoch += 1

    @rule(gap=st.integers(0, 50))
    def start_anew(self, gap: int) -> None:
        self.start, self.values, self.before_cuts = self.end + gap, [], []
        self.bench.log.truncate_fully_and_start_at(self.start)

    @rule(part=st.floats(0, 1))
    def forget_the_beginning(self, part: float) -> None:
        log = self.bench.log
        log.update_high_watermark(log.log_end_offset)
        start = self.start + int(part * len(self.values))
        log.maybe_increment_log_start_offset(start, "model")
        log.delete_old_segments(self.bench.clock.wall_ms())
        self._forget(log.log_start_offset - self.start)

    def _forget(self, gone: int) -> None:
        del self.values[:gone]
        self.before_cuts = [
            (max(start, self.start + gone), values[max(0, self.start + gone - start) :])
            for start, values in self.before_cuts
        ]
        self.start += gone

    @rule(age=st.integers(-1, AGE_MAX))
    def expire(self, age: int) -> None:
        log = self.bench.log
        log.update_high_watermark(log.log_end_offset)
        is_too_large = log.size > CONFIG.retention_bytes
        times = {record.offset: record.timestamp for record in all_records(log)}
        log.delete_old_segments(NOW_MS - age + CONFIG.retention_ms)
        gone = log.log_start_offset - self.start
        if not is_too_large:
            expired = range(self.start, self.start + gone)
            assert all(times[offset] < NOW_MS - age for offset in expired)
        self._forget(gone)

    @rule(age=st.integers(0, AGE_MAX))
    def look_up_by_time(self, age: int) -> None:
        records = all_records(self.bench.log)
        found = run_steps(self.bench.log.reader.offset_for_timestamp(NOW_MS - age))
        reaching = (record.offset for record in records if record.timestamp >= NOW_MS - age)
        assert (found and found[1]) == next(reaching, None)

    @rule()
    def run_timers(self) -> None:
        self.bench.timer.run()
        self.bench.log.release_idle()

    @rule()
    def stop_and_start(self) -> None:
        log = self.bench.log
        log.close()
        self.bench.open(
            clean_shutdown=True, recovery_point=log.recovery_point, log_start_offset=self.start
        )

    @rule()
    def kill(self) -> None:
        self.bench.kill_and_reopen(log_start_offset=self.start)

    @precondition(lambda self: self.bench.log.recovery_point >= self.start)
    @rule()
    def lose_power(self) -> None:
        self.has_lost_power = True
        synced = self.bench.log.recovery_point
        # The creator of the log's own directory syncs its name.
        self.bench.disk.sync_directory("/data")
        self.bench.disk.crash()
        self.bench.open(recovery_point=synced, log_start_offset=self.start)
        end = self.bench.log.log_end_offset
        assert synced <= end
        records = all_records(self.bench.log)
        histories = [(self.start, self.values), *self.before_cuts]
        assert any(
            [record.value for record in records if record.offset >= start]
            == values[: max(0, end - start)]
            for start, values in histories
        )
        self.values = [record.value for record in records]
        self.before_cuts.clear()
        self.epoch += 1

    @invariant()
    def log_and_model_agree(self) -> None:
        log = self.bench.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset
        assert log.recovery_point <= log.log_end_offset
        records = all_records(log)
        assert [record.value for record in records] == self.values
        assert [record.offset for record in records] == list(range(self.start, self.end))

    @invariant()
    def every_offset_is_found(self) -> None:
        log = self.bench.log
        for offset in range(self.start, self.end, 7):
            result = log.reader.read(offset, 1, FetchIsolation.LOG_END, True)
            assert int.from_bytes(content(result)[:8], "big") <= offset

    @precondition(lambda self: not self.has_lost_power)
    @invariant()
    def no_damage_is_reported(self) -> None:
        assert not self.bench.log_dependencies.damage.counts

    @invariant()
    def epochs_cover_the_log(self) -> None:
        entries = self.bench.log.leader_epochs.entries
        assert entries == sorted(entries)
        assert all(start <= self.end for _, start in entries)
        if self.values:
            assert entries[0][1] <= self.start


TestLogAgainstList = LogAgainstList.TestCase
TestLogAgainstList.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
