"""Random readers of the remote tier: the memory stays within its limit, and all bytes are right."""

from __future__ import annotations

from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from barnabas.storage.remote.remote_storage import RemoteSegment, RemoteStorageError
from unit.storage.remote.tiered_log import TieredLog

SEGMENTS = 3
LIMIT = 1 << 20
PARTS = st.integers(0, 99)


class Reader:
    """A load of a reader, and the views that it lends to responses."""

    def __init__(self, segment: RemoteSegment, position: int, needed: int) -> None:
        self.segment = segment
        self.position = position
        self.needed = needed
        self.outcome: list[RemoteStorageError | None] = []


class RangeCacheMachine(RuleBasedStateMachine):
    """Readers load, lend, give back and cancel; the store fails; the limit changes."""

    def __init__(self) -> None:
        super().__init__()
        self.tiered = TieredLog()
        self.tiered.tier(SEGMENTS, batches=4, size=300_000)
        self.limit = LIMIT
        self.tiered.range_limits = self.tiered.range_limits._replace(
            bytes_max=LIMIT, range_bytes_max=LIMIT // 2, read_ahead=1
        )
        self.contents = [
            bytes(self.tiered.storage.read(each, 0, each.size))
            for each in self.tiered.remote.segments()
        ]
        self.readers: list[Reader] = []
        self.lent: list[tuple[memoryview, bytes]] = []
        # The largest range that was needed: it may be alone above the limit.
        self.largest = 0

    def pick(self, number: int, part: int) -> tuple[RemoteSegment, int]:
        segment = self.tiered.remote.segments()[number]
        return segment, segment.size * part // 100

    @rule(number=st.integers(0, SEGMENTS - 1), part=PARTS, needed=st.integers(1, 2 * LIMIT))
    def load(self, number: int, part: int, needed: int) -> None:
        segment, position = self.pick(number, part)
        needed = min(needed, segment.size - position)
        self.largest = max(self.largest, needed, LIMIT // 2)
        reader = Reader(segment, position, needed)
        self.tiered.ranges.load(segment, position, needed, reader.outcome.append)
        self.readers.append(reader)

    @rule(number=st.integers(0, SEGMENTS - 1), part=PARTS)
    def load_and_cancel(self, number: int, part: int) -> None:
        segment, position = self.pick(number, part)
        outcome: list[object] = []
        self.tiered.ranges.load(segment, position, 1, outcome.append).cancel()
        self.tiered.world.run_for(5)
        assert not outcome

    @rule(number=st.integers(0, SEGMENTS - 1), part=PARTS)
    def read_ahead(self, number: int, part: int) -> None:
        self.tiered.ranges.read_ahead(*self.pick(number, part))

    @rule(milliseconds=st.integers(1, 100))
    def wait(self, milliseconds: int) -> None:
        self.tiered.world.run_for(milliseconds)

    @rule(number=st.integers(0, SEGMENTS - 1), part=PARTS, size=st.integers(1, 1_000))
    def lend(self, number: int, part: int, size: int) -> None:
        segment, position = self.pick(number, part)
        size = min(size, segment.size - position)
        loaded = self.tiered.ranges.find(segment.id, position, size)
        if loaded is not None:
            expected = self.contents[number][position : position + size]
            self.lent.append((loaded.lend(position, position + size), expected))

    @rule()
    def give_back(self) -> None:
        if self.lent:
            self.lent.pop(0)

    @rule(probability=st.sampled_from([0.0, 0.0, 0.5]))
    def fail(self, probability: float) -> None:
        self.tiered.store.faults.unavailable = probability

    @rule(number=st.integers(0, SEGMENTS - 1))
    def forget(self, number: int) -> None:
        self.tiered.ranges.forget([self.tiered.remote.segments()[number].id])

    @invariant()
    def memory_is_limited(self) -> None:
        ranges = self.tiered.ranges
        assert 0 <= ranges.bytes_used <= max(self.limit, self.largest)

    @invariant()
    def lent_bytes_are_right(self) -> None:
        for view, expected in self.lent:
            assert view == expected

    def teardown(self) -> None:
        """All loads end once the responses have left."""
        self.lent.clear()
        self.tiered.run_until(lambda: all(each.outcome for each in self.readers))
        for reader in self.readers:
            assert len(reader.outcome) == 1
        assert self.tiered.ranges.waiting == 0


TestRangeCache = RangeCacheMachine.TestCase
TestRangeCache.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
