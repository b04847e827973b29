"""Random operations on a share partition, compared with a model that has one entry per offset."""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.server.share.group_settings import ShareLimits
from barnabas.server.share.records.acknowledgement import AcknowledgedBatch, Refusal
from barnabas.server.share.records.acquisition import RECORD_LIMIT, FetchedBatch
from barnabas.server.share.records.in_flight_records import StoredBatch
from barnabas.server.share.records.record_states import RecordState, StateChange
from barnabas.server.share.records.share_records import FetchedRecords, MemberRequest, ShareRecords
from tests.property.share_model import TERMINAL, Entry, acknowledged, entries, timed_out

LIMITS = ShareLimits(delivery_count_limit=3, record_locks_max=40, lock_duration_ms=100)
MEMBERS = st.sampled_from(["a", "b"])
LOG_END = 400


class SharePartitionMachine(RuleBasedStateMachine):
    """Members acquire and acknowledge, locks time out, writes fail, the log loses records."""

    def __init__(self) -> None:
        super().__init__()
        self.records = ShareRecords(0)
        self.now_ms = 0.0
        # Changes that are not written yet, with the entries before each of them.
        self.pending: list[tuple[StateChange, dict[int, Entry]]] = []
        self.seen_start = 0
        # Record batches of the log by first offset.
        self.log = {first: first + 3 for first in range(0, LOG_END, 4)}

    @property
    def entries(self) -> dict[int, Entry]:
        return entries(self.records)

    def read(self, count: int) -> FetchedRecords:
        """Return record batches from the one with the next fetch offset."""
        offset = self.records.in_flight.next_fetch_offset()
        found = [FetchedBatch(*each) for each in self.log.items() if each[1] >= offset]
        return FetchedRecords(offset, found[:count])

    @rule(
        member=MEMBERS,
        mode=st.integers(0, 1),
        batch_size=st.integers(-2, 12),
        records_max=st.integers(0, 20),
        count=st.integers(0, 6),
    )
    def acquire(
        self, member: str, mode: int, batch_size: int, records_max: int, count: int
    ) -> None:
        before = self.entries
        start = self.records.in_flight.start_offset
        fetched = self.read(count)
        request = MemberRequest(member, mode, batch_size)
        acquired = self.records.acquire(request, records_max, fetched, LIMITS, self.now_ms)
        after = self.entries
        offsets = [
            (offset, each.delivery_count)
            for each in acquired
            for offset in range(each.first, each.last + 1)
        ]
        assert [offset for offset, _ in offsets] == sorted({offset for offset, _ in offsets})
        if mode == RECORD_LIMIT:
            assert len(offsets) <= records_max
        for offset, deliveries in offsets:
            old = before.get(offset)
            is_free = old is None or (old.state is RecordState.AVAILABLE and not old.is_changing)
            assert is_free, f"AcquiredByOne: offset={offset} before={old}"
            assert old is not None or offset >= start or fetched.batches[0].first < start
            earlier = old.deliveries if old else 0
            assert deliveries == earlier + 1, f"DeliveryCountsGrow: {offset=} {earlier=}"
            assert deliveries <= LIMITS.delivery_count_limit
            lock_ends_ms = self.now_ms + LIMITS.lock_duration_ms
            acquired_entry = Entry(RecordState.ACQUIRED, deliveries, member, lock_ends_ms, False)
            assert after[offset] == acquired_entry
        taken = {offset for offset, _ in offsets}
        for offset, old in before.items():
            if offset not in taken and after[offset] != old:
                # Compaction removed it.
                assert old.state is RecordState.AVAILABLE
                assert after[offset].state is RecordState.ARCHIVED
                assert fetched.fetch_offset <= offset < fetched.batches[0].first
        for offset in after.keys() - before.keys() - taken:
            assert mode == RECORD_LIMIT
            assert after[offset] == Entry(RecordState.AVAILABLE, 0, "", None, False)

    @rule(
        member=MEMBERS,
        first=st.integers(0, 60),
        length=st.integers(1, 12),
        types=st.lists(st.integers(0, 4), min_size=12, max_size=12),
        is_single=st.booleans(),
    )
    def acknowledge(
        self, member: str, first: int, length: int, types: list[int], is_single: bool
    ) -> None:
        before = self.entries
        start = self.records.in_flight.start_offset
        first += max(0, start - 10)
        last = first + length - 1
        kinds = types[:1] if is_single else types[:length]
        batch = AcknowledgedBatch(first, last, kinds)
        result = self.records.acknowledge(member, [batch], LIMITS, self.now_ms)
        named = [offset for offset in before if max(first, start) <= offset <= last]
        owned = all(
            before[offset].member == member and before[offset].state is RecordState.ACQUIRED
            for offset in named
        )
        after = self.entries
        if isinstance(result, Refusal):
            assert last >= start
            assert not owned or not named or last not in before or first not in before
            assert states_of(after) == states_of(before)
            return
        assert owned
        for offset, old in before.items():
            expected = old
            if offset in named:
                kind = kinds[0] if len(kinds) == 1 else kinds[offset - first]
                if kind != 4:
                    expected = acknowledged(old, kind, LIMITS.delivery_count_limit)
            new = after[offset]
            assert (new.state, new.deliveries, new.member) == (
                expected.state,
                expected.deliveries,
                expected.member,
            )
        if result:
            self.pending.append((result, before))

    @rule(member=MEMBERS)
    def end_session(self, member: str) -> None:
        before = self.entries
        start = self.records.in_flight.start_offset
        change = self.records.release_member(member, LIMITS)
        after = self.entries
        for offset, old in before.items():
            new = after[offset]
            if old.member != member:
                assert new == old
            else:
                expected = timed_out(old, offset < start, LIMITS.delivery_count_limit)
                assert (new.state, new.deliveries) == (expected.state, old.deliveries)
        if change:
            self.pending.append((change, before))

    @precondition(lambda self: self.pending)
    @rule(is_written=st.booleans())
    def end_change(self, is_written: bool) -> None:
        change, _ = self.pending.pop(0)
        changed = {
            offset: run.is_removed
            for run in change.runs
            for offset in range(run.first, run.last + 1)
        }
        before = self.entries
        self.records.end_change(change, is_written, self.now_ms, LIMITS)
        after = self.entries
        start = self.records.in_flight.start_offset
        for offset, old in before.items():
            if offset not in after:
                assert offset < start
                continue
            new = after[offset]
            if offset not in changed:
                assert new == old
            elif is_written or changed[offset]:
                assert (new.state, new.lock_ends_ms, new.is_changing) == (old.state, None, False)
            elif new.state is RecordState.ACQUIRED:
                assert new.member in {"a", "b"}
                assert new.lock_ends_ms is not None
                assert new.lock_ends_ms > self.now_ms
            else:
                assert (new.member, new.lock_ends_ms, new.is_changing) == ("", None, False)

    @rule(wait_ms=st.integers(1, 120))
    def wait(self, wait_ms: int) -> None:
        before = self.entries
        start = self.records.in_flight.start_offset
        self.now_ms += wait_ms
        expired = self.records.expire(self.now_ms, LIMITS)
        after = self.entries
        due = {
            offset
            for offset, old in before.items()
            if old.state is RecordState.ACQUIRED
            and old.lock_ends_ms is not None
            and old.lock_ends_ms <= self.now_ms
        }
        listed = [offset for run in expired for offset in range(run.first, run.last + 1)]
        assert sorted(listed) == sorted(due)
        for offset, old in before.items():
            expected = old
            if offset in due:
                expected = timed_out(old, offset < start, LIMITS.delivery_count_limit)
            assert after[offset] == expected
        self.records.in_flight.advance()

    @rule(distance=st.integers(1, 30))
    def move_log_start(self, distance: int) -> None:
        before = self.entries
        old_start = self.records.in_flight.start_offset
        log_start = old_start + distance
        self.records.in_flight.move_log_start(log_start)
        assert self.records.in_flight.start_offset == log_start
        for offset, new in self.entries.items():
            old = before[offset]
            if old_start <= offset < log_start and old.state is RecordState.AVAILABLE:
                assert new.state is RecordState.ARCHIVED
            else:
                assert new == old
        for first in [first for first, last in self.log.items() if last < log_start]:
            del self.log[first]

    @rule(index=st.integers(0, 12))
    def compact(self, index: int) -> None:
        firsts = list(self.log)
        if index < len(firsts) - 1:
            del self.log[firsts[index]]

    @rule()
    def change_leader(self) -> None:
        """The new leader has only the written states: neither locks nor pending changes."""
        stored: list[StoredBatch] = []
        start = self.records.in_flight.start_offset
        for offset, entry in self.entries.items():
            if offset >= start and (entry.state in TERMINAL or entry.deliveries > 1):
                state = RecordState.AVAILABLE if entry.state not in TERMINAL else entry.state
                deliveries = min(entry.deliveries, LIMITS.delivery_count_limit - 1)
                stored.append(StoredBatch(offset, offset, state, deliveries))
        self.records = ShareRecords(start, stored)
        self.pending.clear()
        self.seen_start = min(self.seen_start, start)

    @invariant()
    def start_offset_never_goes_back(self) -> None:
        assert self.records.in_flight.start_offset >= self.seen_start
        self.seen_start = self.records.in_flight.start_offset

    @invariant()
    def terminal_records_are_counted(self) -> None:
        in_flight = self.records.in_flight
        assert in_flight.delivery_complete_count == sum(
            offset >= in_flight.start_offset and entry.state in TERMINAL
            for offset, entry in self.entries.items()
        )

    @invariant()
    def acquired_records_time_out(self) -> None:
        locks = [
            entry.lock_ends_ms
            for entry in self.entries.values()
            if entry.state is RecordState.ACQUIRED
        ]
        assert None not in locks
        if locks:
            next_ms = self.records.next_timeout_ms
            assert next_ms is not None
            assert next_ms <= min(lock for lock in locks if lock is not None)

    @invariant()
    def available_records_are_fetched(self) -> None:
        available = [
            offset
            for offset, entry in self.entries.items()
            if entry.state is RecordState.AVAILABLE and not entry.is_changing
        ]
        if available:
            assert self.records.in_flight.next_fetch_offset() <= available[0]


def states_of(found: dict[int, Entry]) -> list[tuple[int, RecordState, int, str, bool]]:
    """Return the entries without the locks, which renewals change."""
    return [
        (offset, each.state, each.deliveries, each.member, each.is_changing)
        for offset, each in found.items()
    ]


TestSharePartition = SharePartitionMachine.TestCase
TestSharePartition.settings = settings(
    max_examples=150, stateful_step_count=40, deadline=None, derandomize=True
)
