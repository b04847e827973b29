"""A share group whose members accept everything at the end has a lag of 0, whatever came before.

The share partition of the leader and the shard of the share coordinator are real. Between them,
writes are late or fail, also after they were applied, and the leader changes.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from barnabas.coordinator.share import state_api
from barnabas.coordinator.share.share_partition_state import SharePartitionKey as CoordinatorKey
from barnabas.coordinator.share.share_shard import ShareMetrics, ShareStateShard
from barnabas.metrics.measurements import Histogram
from barnabas.protocol.errors import ErrorCode
from barnabas.server.share.group_settings import ShareLimits
from barnabas.server.share.records.acknowledgement import AcknowledgedBatch
from barnabas.server.share.records.acquisition import BATCH_OPTIMIZED, RECORD_LIMIT, FetchedBatch
from barnabas.server.share.records.record_states import ACCEPT, REJECT, RELEASE, RENEW
from barnabas.server.share.records.share_records import FetchedRecords, MemberRequest
from barnabas.server.share.share_partition import SharePartition, SharePartitionDependencies
from barnabas.server.share.state_writer import SharePartitionKey
from barnabas.storage.topic_partition import TopicIdPartition

SEEDS = 1_500
GROUP, TOPIC_ID, PARTITION = "g", b"0123456789abcdef", 0
LOCK_MS = 2_000
LIMITS = ShareLimits(delivery_count_limit=10, record_locks_max=2_000, lock_duration_ms=LOCK_MS)
MEMBERS = "ab"


class _Entry:
    """An entry of the wheel."""

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class _Times:
    """Clock and timing wheel."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._entries: list[tuple[float, int, _Entry]] = []
        self._numbers = itertools.count()

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def add(self, delay_ms: float, callback: Callable[[], None]) -> _Entry:
        entry = _Entry(callback)
        heapq.heappush(self._entries, (self.now_ms + delay_ms, next(self._numbers), entry))
        return entry

    def advance(self, duration_ms: float) -> None:
        end_ms = self.now_ms + duration_ms
        while self._entries and self._entries[0][0] <= end_ms:
            self.now_ms, _, entry = heapq.heappop(self._entries)
            if entry.callback is not None:
                entry.callback()
        self.now_ms = end_ms


class _Persister:
    """The way to the share coordinator, in order."""

    def __init__(self, rng: random.Random, shard: ShareStateShard) -> None:
        self._rng = rng
        self._shard = shard
        self._offset = 0
        self._waiting: list[tuple[state_api.StateApi, Any, Callable[[Any], None]]] = []
        self.is_calm = False
        # Whether a write was applied that the leader takes for failed.
        self.is_uncertain = False

    def read(self, request: Any, on_response: Callable[[Any], None]) -> None:
        self._begin(state_api.READ, request, on_response)

    def write(self, request: Any, on_response: Callable[[Any], None]) -> None:
        self._begin(state_api.WRITE, request, on_response)

    def _begin(
        self, api: state_api.StateApi, request: Any, on_response: Callable[[Any], None]
    ) -> None:
        self._waiting.append((api, request, on_response))
        if self.is_calm or self._rng.random() < 0.5:
            self.answer_next()

    def answer_next(self) -> bool:
        """Serve the request that waits longest. Return whether there was one."""
        if not self._waiting:
            return False
        api, request, on_response = self._waiting.pop(0)
        chance = self._rng.random()
        if self.is_calm or chance < 0.9:
            on_response(self._apply(api, request))
            return True
        if chance < 0.95:
            self._apply(api, request)
            self.is_uncertain |= api is state_api.WRITE
        refused = api.refuse(PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        on_response(api.make_response([(TOPIC_ID, [refused])]))
        return True

    def _apply(self, api: state_api.StateApi, request: Any) -> Any:
        key = CoordinatorKey(GROUP, TOPIC_ID, PARTITION)
        result = api.operation(self._shard, key, request.topics[0].partitions[0])
        self.replay(result.records)
        return api.make_response([(TOPIC_ID, [api.result(PARTITION, result.response)])])

    def replay(self, records: Any) -> None:
        for record in records:
            self._shard.replay(self._offset, record.key, record.value)
            self._offset += 1


class _Group:
    """Two members, the log, the leader and the share coordinator."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self._times = times = _Times()
        self._key = CoordinatorKey(GROUP, TOPIC_ID, PARTITION)
        self._shard = ShareStateShard(3, times, lambda _id, _index: True, ShareMetrics())
        self.persister = _Persister(self.rng, self._shard)
        self.persister.replay(self._shard.initialize(self._key, 0, -1).records)
        self._dependencies = SharePartitionDependencies(
            cast("Any", self.persister),
            cast("Any", self),
            times,
            cast("Any", times),
            lambda _key, _epoch, on_found: on_found(0),
            lambda _key: None,
            lambda _partition, _error: None,
            lambda _letter, on_written: on_written(),
            Histogram(),
        )
        self._leader_epoch = 0
        self._leader = self._new_leader()
        self._log: list[FetchedBatch] = []
        # Offsets that a member has got from a leader.
        self._held: dict[tuple[str, SharePartition], set[int]] = {}

    def limits(self, _group_id: str) -> ShareLimits:
        return LIMITS

    def _new_leader(self) -> SharePartition:
        where = TopicIdPartition(TOPIC_ID, "t", PARTITION)
        key = SharePartitionKey(GROUP, where)
        return SharePartition(key, self._leader_epoch, self._dependencies)

    @property
    def end(self) -> int:
        return self._log[-1].last + 1 if self._log else 0

    @property
    def lag(self) -> int:
        """The lag as the group coordinator computes it."""
        state = self._shard.partitions[self._key].state
        return self.end - max(0, state.start_offset) - max(0, state.delivery_complete_count)

    def step(self) -> None:
        chance, member = self.rng.random(), self.rng.choice(MEMBERS)
        if chance < 0.15:
            first = self.end
            self._log.append(FetchedBatch(first, first + self.rng.randrange(5)))
        elif chance < 0.5:
            self.fetch(member)
        elif chance < 0.75:
            self.acknowledge(member)
        elif chance < 0.85:
            self.persister.answer_next()
        elif chance < 0.92:
            self.wait(self.rng.choice([100, 500, LOCK_MS + 100]))
        elif chance < 0.94:
            self._leader.release(member)
        else:
            self.move_leader()

    def wait(self, duration_ms: float) -> None:
        self._times.advance(duration_ms)

    def move_leader(self) -> None:
        """Another broker becomes the leader.

        Not after an uncertain write: its states are stored, but the later writes of the leader
        count them as not processed. A new leader writes nothing that would correct the count, if
        it finds all records processed.
        """
        if not self.persister.is_uncertain:
            self._leader.fence()
            self._leader_epoch += 1
            self._leader = self._new_leader()

    def fetch(self, member: str) -> None:
        leader = self._leader
        if leader.is_fenced:
            # Its state could not be loaded.
            leader = self._leader = self._new_leader()
        leader.load(lambda _error: None)
        if not leader.can_acquire():
            return
        assert leader.records is not None
        offset = leader.records.in_flight.next_fetch_offset()
        found = [batch for batch in self._log if batch.last >= offset]
        mode, records_max = BATCH_OPTIMIZED, 500
        if not self.persister.is_calm:
            found = found[: self.rng.randint(1, 4)]
            mode = self.rng.choice([BATCH_OPTIMIZED, RECORD_LIMIT])
            records_max = self.rng.choice([1, 3, 500])
        if not found:
            return
        acquired = leader.acquire(
            MemberRequest(member, mode, 500), records_max, FetchedRecords(offset, found)
        )
        held = self._held.setdefault((member, leader), set())
        held.update(n for each in acquired for n in range(each.first, each.last + 1))

    def acknowledge(self, member: str) -> None:
        offsets = sorted(self._held.pop((member, self._leader), ()))
        kinds = (ACCEPT, ACCEPT, ACCEPT, ACCEPT, RELEASE, REJECT, RENEW)
        if self.persister.is_calm:
            kinds = (ACCEPT,)
        else:
            offsets = [each for each in offsets if self.rng.random() < 0.7]
        batches = [AcknowledgedBatch(each, each, [self.rng.choice(kinds)]) for each in offsets]
        if batches:
            self._leader.acknowledge(member, batches, lambda _error, _message: None)

    def finish(self) -> None:
        """Accept all records while nothing fails, until the last lock has ended twice."""
        self.persister.is_calm = True
        while self.persister.answer_next():
            pass
        for _ in range(8):
            for member in MEMBERS:
                self.fetch(member)
                self.acknowledge(member)
            self.wait(LOCK_MS / 2)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS // 5))
def test_a_group_that_accepts_everything_has_no_lag(first: int) -> None:
    records = 0
    for seed in range(first, first + SEEDS // 5):
        group = _Group(seed)
        for _ in range(group.rng.randint(5, 60)):
            group.step()
        if group.rng.random() < 0.5:
            group.move_leader()
        group.finish()
        assert group.lag == 0, f"{seed=}"
        records += group.end
    assert records > SEEDS
