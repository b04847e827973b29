"""A compacted log against a table: random batches, tombstones, producers, compactions and crashes.

After each step, a replay of the log gives the table; offsets, order and values do not change; a
retry of a producer's last batch is a duplicate.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.record.batch import ControlType
from barnabas.storage.config import CleanerConfig
from unit.storage.cleaner_fixtures import COMPACTED, CleanerBench, all_batches, keyed
from unit.storage.storage_fixtures import DIRECTORY, marker

PRODUCERS = 3
KEYS = 4
# A map of few keys, so that passes end in the midst of segments; blocks of a few batches.
CLEANER = CleanerConfig(
    log_cleaner_dedupe_buffer_size=160 * 5,
    log_cleaner_io_buffer_load_factor=1.0,
    log_cleaner_io_buffer_size=0,
)


class CompactedLog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        from msgspec.structs import replace

        config = replace(
            COMPACTED, segment_bytes=1200, delete_retention_ms=1000, file_delete_delay_ms=10
        )
        self.bench = CleanerBench(config, CLEANER)
        # The written records by offset; None for records of aborted transactions.
        self.written: dict[int, tuple[bytes, bytes | None] | None] = {}
        self.table: dict[bytes, bytes] = {}
        # The last batch of each producer, to send it again.
        self.last: dict[int, tuple[bytearray, int]] = {}
        self.sequence = dict.fromkeys(range(PRODUCERS), 0)
        self.counter = 0

    def values(self, choices: list[tuple[int, bool]]) -> list[tuple[bytes, bytes | None]]:
        pairs: list[tuple[bytes, bytes | None]] = []
        for key, is_tombstone in choices:
            self.counter += 1
            pairs.append((b"k%d" % key, None if is_tombstone else b"%d" % self.counter))
        return pairs

    def note(self, first: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        for offset, (key, value) in enumerate(pairs, first):
            self.written[offset] = (key, value)
            if value is None:
                self.table.pop(key, None)
            else:
                self.table[key] = value

    def now_ms(self) -> int:
        return self.bench.clock.wall_ms()

    records = st.lists(
        st.tuples(st.integers(0, KEYS - 1), st.sampled_from([False, False, False, True])),
        min_size=1,
        max_size=6,
    )

    @rule(choices=records, compression=st.sampled_from([0, 0, 2, 4]))
    def append(self, choices: list[tuple[int, bool]], compression: int) -> None:
        pairs = self.values(choices)
        batch = keyed(pairs, compression=compression, timestamp=self.now_ms())
        self.note(self.bench.append(batch).first_offset, pairs)

    @rule(choices=records, producer=st.integers(0, PRODUCERS - 1))
    def append_idempotent(self, choices: list[tuple[int, bool]], producer: int) -> None:
        pairs = self.values(choices)
        batch = keyed(
            pairs,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=self.sequence[producer],
            timestamp=self.now_ms(),
        )
        first = self.bench.append(batch).first_offset
        self.note(first, pairs)
        self.sequence[producer] += len(pairs)
        self.last[producer] = (batch, first)

    @rule(choices=records, is_aborted=st.booleans(), roll_between=st.booleans())
    def transaction(
        self, choices: list[tuple[int, bool]], is_aborted: bool, roll_between: bool
    ) -> None:
        producer = PRODUCERS
        pairs = self.values(choices)
        sequence = self.sequence.get(producer, 0)
        batch = keyed(
            pairs,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=True,
            timestamp=self.now_ms(),
        )
        first = self.bench.coordinate(batch).first_offset
        self.sequence[producer] = sequence + len(pairs)
        self.last[producer] = (batch, first)
        if roll_between:
            self.bench.log.roll()
        kind = ControlType.ABORT if is_aborted else ControlType.COMMIT
        self.bench.coordinate(marker(kind, producer))
        if is_aborted:
            self.written.update(dict.fromkeys(range(first, first + len(pairs))))
        else:
            self.note(first, pairs)

    @rule()
    def clean(self) -> None:
        self.bench.seal_and_clean()

    @rule(steps=st.integers(1, 25), loses_power=st.booleans(), seed=st.integers(0, 1 << 20))
    def crash_while_it_is_cleaned(self, steps: int, loses_power: bool, seed: int) -> None:
        bench = self.bench
        bench.seal()
        bench.cleaner.start()
        for _ in range(steps):
            if not bench.due.step():
                break
        point, start = bench.log.recovery_point, bench.log.log_start_offset
        if loses_power:
            bench.disk._rng.__init__(seed)
            bench.disk.sync_directory("/data")
            bench.disk.crash()
        else:
            bench.disk.kill()
        bench.open(recovery_point=point, log_start_offset=start)
        bench.replicate()

    @rule()
    def restart(self) -> None:
        self.bench.cleaner.stop()
        self.bench.reopen_cleanly()
        self.bench.replicate()
        for producer in self.last:
            self.send_again(producer)

    @rule()
    def recover_from_the_batches_alone(self) -> None:
        bench = self.bench
        bench.cleaner.stop()
        for name in bench.names():
            if name.endswith((".snapshot", "index")) and not name.endswith(".txnindex"):
                bench.disk.remove(f"{DIRECTORY}/{name}")
        bench.kill_and_reopen(recovery_point=0, log_start_offset=bench.log.log_start_offset)
        bench.replicate()
        for producer in self.last:
            self.send_again(producer)

    @rule(duration=st.sampled_from([10, 999, 1000]))
    def pass_time(self, duration: int) -> None:
        self.bench.clock.now_ms += duration
        self.bench.due.run_for(duration)

    def send_again(self, producer: int) -> None:
        if producer in self.last:
            batch, first = self.last[producer]
            info = self.bench.append(batch)
            assert (info.duplicate, info.first_offset) == (True, first)

    @invariant()
    def the_log_gives_the_table(self) -> None:
        found: dict[bytes, bytes] = {}
        last = -1
        for header, records in all_batches(self.bench.log):
            assert header.base_offset > last
            if header.is_control:
                last = header.last_offset
                continue
            for record in records:
                assert last < record.offset <= header.last_offset
                last = record.offset
                written = self.written[record.offset]
                if written is None:
                    continue
                assert (record.key, record.value) == written
                found.pop(record.key, None)
                if record.value is not None:
                    found[record.key] = record.value
            last = header.last_offset
        assert found == self.table

    @invariant()
    def nothing_that_was_superseded_stays_in_the_clean_part(self) -> None:
        clean_end = self.bench.checkpoint() or 0
        seen: set[bytes] = set()
        for header, records in all_batches(self.bench.log):
            if header.is_control or header.last_offset >= clean_end:
                continue
            for record in records:
                assert record.key not in seen, record.offset
                seen.add(record.key)

    @invariant()
    def the_log_ends_where_it_did(self) -> None:
        assert self.bench.log.log_end_offset >= max(self.written, default=-1) + 1


TestCompactedLog = CompactedLog.TestCase
TestCompactedLog.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    suppress_health_check=[HealthCheck.too_slow],
)
