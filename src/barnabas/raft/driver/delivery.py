"""Delivers committed batches to the listeners, and completes the appends of this leader.

The batches come in log order: from memory if this leader appended them, else from the log.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from barnabas.raft.listener import NotLeaderError
from barnabas.raft.log.metadata_batch import decode_metadata_batches
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.raft.core.raft_core import RaftCore
    from barnabas.raft.listener import (
        CommittedBatch,
        LeaderAndEpoch,
        LoadedSnapshot,
        RaftError,
        RaftListener,
    )
    from barnabas.storage.log.log import Log


_READ_BYTES_MAX = 8 * 1024 * 1024


class CommitQueue:
    """Returns each batch below the high watermark exactly once."""

    def __init__(self, log: Log) -> None:
        self._log = log
        # Offset of the first record that `take` has not returned yet.
        self.next_offset = 0
        # Batches that this leader appended and that `take` has not returned yet, in log order.
        self._expected: deque[CommittedBatch] = deque()

    def expect(self, batch: CommittedBatch) -> None:
        """Keep a batch that this leader is about to append, which avoids decoding it again."""
        self._expected.append(batch)

    def forget_expected(self) -> None:
        """Drop the kept batches after leadership is lost, because they may be truncated."""
        self._expected.clear()

    def take(self, high_watermark: int) -> list[CommittedBatch]:
        """Return the next batches below the high watermark, including control batches.

        One call returns about 8 MiB at most, and an empty list when all batches are delivered.
        """
        if self.next_offset >= high_watermark:
            return []
        batches: list[CommittedBatch] = []
        expected = self._expected
        while expected and expected[0].base_offset == self.next_offset:
            if expected[0].last_offset >= high_watermark:
                break
            batches.append(expected.popleft())
            self.next_offset = batches[-1].last_offset + 1
        return batches or self._read()

    def _read(self) -> list[CommittedBatch]:
        result = self._log.reader.read(
            self.next_offset, _READ_BYTES_MAX, FetchIsolation.HIGH_WATERMARK, True
        )
        content = result.content()
        batches = [
            batch
            for batch in decode_metadata_batches(content)
            if batch.last_offset >= self.next_offset
        ]
        assert batches, f"nothing to read at {self.next_offset}"
        self.next_offset = batches[-1].last_offset + 1
        return batches


class _PendingAppend(msgspec.Struct):
    """An append that is not committed yet."""

    last_offset: int
    on_committed: Callable[[int, RaftError | None], None]


class Delivery:
    """Delivers batches in log order, and each leader change after the batches that precede it."""

    def __init__(self, node_id: int, log: Log, core: RaftCore) -> None:
        self._node_id = node_id
        self._core = core
        self._queue = CommitQueue(log)
        self._listeners: list[RaftListener] = []
        # Uncommitted appends of this leader, in log order.
        self._pending: deque[_PendingAppend] = deque()
        # Leader changes that the listeners have not received yet.
        self._undelivered: deque[LeaderAndEpoch] = deque()
        self._is_delivering = False

    def add_listener(self, listener: RaftListener) -> None:
        """Deliver all committed batches to `listener` too."""
        self._listeners.append(listener)

    def begin_at(self, offset: int) -> None:
        """Start at `offset`, because the listeners already know everything below it."""
        self._queue.next_offset = offset

    def load(self, snapshot: LoadedSnapshot) -> None:
        """Let the listeners load a snapshot, and continue after its end."""
        for listener in self._listeners:
            listener.on_snapshot(snapshot)
        self._queue.forget_expected()
        self._queue.next_offset = snapshot.id.end_offset

    def expect(
        self, batch: CommittedBatch, on_committed: Callable[[int, RaftError | None], None]
    ) -> None:
        """Prepare for a batch that this leader is about to append."""
        self._queue.expect(batch)
        self._pending.append(_PendingAppend(batch.last_offset, on_committed))

    def on_leadership(self, leadership: LeaderAndEpoch) -> None:
        """Queue a leader change for `run`. If leadership is lost, fail the pending appends."""
        if leadership.leader_id != self._node_id:
            self._queue.forget_expected()
            self.fail_pending()
        self._undelivered.append(leadership)

    def fail_pending(self) -> None:
        """Fail the pending appends, because their records may be lost."""
        pending, self._pending = self._pending, deque()
        for append in pending:
            append.on_committed(-1, NotLeaderError("the leadership was lost before the commit"))

    def run(self) -> None:
        """Deliver committed batches, then leader changes.

        A listener may append records meanwhile.
        """
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._deliver_some():
                pass
        finally:
            self._is_delivering = False

    def _deliver_some(self) -> bool:
        batches = self._queue.take(self._core.high_watermark)
        if batches:
            filled = [batch for batch in batches if batch.records]
            if filled:
                for listener in self._listeners:
                    listener.on_commit(filled)
            self._acknowledge()
            return True
        if self._undelivered and self._may_deliver(self._undelivered[0]):
            leadership = self._undelivered.popleft()
            for listener in self._listeners:
                listener.on_leader_change(leadership)
            return True
        return False

    def _acknowledge(self) -> None:
        while self._pending and self._pending[0].last_offset < self._queue.next_offset:
            done = self._pending.popleft()
            done.on_committed(done.last_offset, None)

    def _may_deliver(self, leadership: LeaderAndEpoch) -> bool:
        """Return whether to deliver a leader change now.

        This replica's own leadership is delivered only after all records of earlier epochs.
        """
        start = self._core.epoch_start_offset
        if leadership.leader_id != self._node_id or start is None:
            return True
        return self._queue.next_offset > start
