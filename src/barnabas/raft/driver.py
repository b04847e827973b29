"""Runs the quorum core over a real log, clock and disk (Kafka's KafkaRaftClient).

Carries out the core's effects in their order, syncs the log off the loop, and hands committed
batches to the listeners. A failed sync or write is fatal: the process must not go on with a log
that may be wrong.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.raft.commit_queue import CommitQueue
from barnabas.raft.core import RaftCore
from barnabas.raft.errors import NotLeaderError, RaftError
from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, RaftListener
from barnabas.raft.messages import FetchResponse, Message
from barnabas.raft.metadata_batch import encode_leader_change, encode_metadata_batch
from barnabas.raft.metadata_log import MetadataLogView, latest_snapshot
from barnabas.raft.quorum_status import QuorumStatus, quorum_status
from barnabas.raft.roles import NEVER
from barnabas.raft.snapshot import delete_unfinished, read_snapshot
from barnabas.raft.transport import NoTransport, RaftTransport
from barnabas.storage.append_info import AppendOrigin
from barnabas.storage.read_result import FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.schema import Record
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.effects import Effects, LeaderChange
    from barnabas.raft.election_state import QuorumStateStore
    from barnabas.raft.listener import SnapshotId
    from barnabas.runtime.rng import Rng
    from barnabas.runtime.timer import Cancellable
    from barnabas.storage.doors import LogDoors
    from barnabas.storage.log import Log


_FETCH_BYTES_MAX = 8 * 1024 * 1024


class RaftParts(msgspec.Struct, frozen=True):
    """What a driver is joined from."""

    log: Log
    store: QuorumStateStore
    doors: LogDoors
    rng: Rng
    # Called once when the log or the quorum state cannot be written: the process has to stop.
    on_fatal: Callable[[BaseException], None]
    transport: RaftTransport = NoTransport()


class _Waiting(msgspec.Struct):
    """An append that is not committed yet."""

    last_offset: int
    on_committed: Callable[[int, RaftError | None], None]


class RaftDriver:
    """One replica of the metadata quorum."""

    def __init__(self, config: RaftConfig, parts: RaftParts) -> None:
        self._config = config
        self._parts = parts
        self._log = parts.log
        self._snapshot = latest_snapshot(parts.doors, parts.log.directory)
        view = MetadataLogView(parts.log, self._snapshot)
        self._core = RaftCore(config, view, parts.rng, parts.store.read())
        self._queue = CommitQueue(parts.log)
        self._listeners: list[RaftListener] = []
        self._waiting: deque[_Waiting] = deque()
        # Leaderships that the listeners have not been told yet.
        self._untold: deque[LeaderAndEpoch] = deque()
        # Goes up when the log is cut: a sync from before does not count.
        self._cuts = 0
        self._timer: Cancellable | None = None
        self._is_delivering = False
        self._is_stopped = False

    # -- facts ------------------------------------------------------------------------------------

    @property
    def log_end_offset(self) -> int:
        """The offset that the next appended record gets."""
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed; -1 while unknown."""
        return self._core.high_watermark

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        """Who leads, as far as this replica knows."""
        return self._core.leader_and_epoch

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return self._core.is_leader

    @property
    def log(self) -> Log:
        """The log itself, for snapshots and inspection."""
        return self._log

    @property
    def doors(self) -> LogDoors:
        """The doors that the log uses."""
        return self._parts.doors

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The latest snapshot of the log; None if there is none."""
        return self._snapshot

    def status(self) -> QuorumStatus:
        """The quorum as DescribeQuorum shows it."""
        return quorum_status(self._core, self._config, self._log.log_end_offset)

    # -- life -------------------------------------------------------------------------------------

    def add_listener(self, listener: RaftListener) -> None:
        """Hand everything to `listener` too; before `start`."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Load the latest snapshot and take part. A lone voter leads when this returns.

        Listeners are called before this returns for all that is committed already.

        Raises:
            SnapshotError: the latest snapshot is damaged.
        """
        directory = self._log.directory
        delete_unfinished(self._parts.doors.disk, directory)
        self._queue.next_offset = self._log.log_start_offset
        if self._snapshot is not None:
            loaded = read_snapshot(self._parts.doors.disk, directory, self._snapshot)
            for listener in self._listeners:
                listener.on_snapshot(loaded)
            self._queue.next_offset = self._snapshot.end_offset
        self._carry_out(self._core.start(self._now()))

    def shutdown(self) -> None:
        """Step down, tell waiting appends that they are lost, close the log."""
        if self._is_stopped:
            return
        self._carry_out(self._core.resign(self._now()))
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._fail_waiting()
        self._log.close()

    # -- what comes in ----------------------------------------------------------------------------

    def append(
        self,
        records: Sequence[tuple[Record, int]],
        on_committed: Callable[[int, RaftError | None], None],
    ) -> int:
        """Append records as one batch, which is committed whole or not at all.

        Args:
            records: at least one, each with the version to write it in.
            on_committed: called once with the last record's offset, or with (-1, error) if the
                leadership is lost first; may be called before this returns (inline executor).

        Returns:
            The offset of the last record; they follow each other from `log_end_offset` on.

        Raises:
            NotLeaderError: this replica does not lead; nothing was appended.
            MetadataBatchTooLargeError: too many records for one batch; nothing was appended.
        """
        if not self._core.is_leader or self._is_stopped:
            raise NotLeaderError("this controller is not the leader of the quorum")
        base_offset, epoch = self._log.log_end_offset, self._core.epoch
        wall_ms = self._parts.doors.clock.wall_ms()
        batch = encode_metadata_batch(records, base_offset, epoch, wall_ms)
        last_offset = base_offset + len(records) - 1
        self._queue.expect(
            CommittedBatch(base_offset, last_offset, epoch, wall_ms, len(batch), records)
        )
        self._waiting.append(_Waiting(last_offset, on_committed))
        self._write(batch, epoch)
        return last_offset

    def receive(self, message: Message) -> None:
        """A message of another replica arrived."""
        if not self._is_stopped:
            self._carry_out(self._core.step(self._now(), message))

    def note_snapshot(self, snapshot: SnapshotId) -> None:
        """A snapshot was completed in the log's directory."""
        self._snapshot = snapshot

    def fail(self, error: BaseException) -> None:
        """The directory cannot be written: stop taking part, and tell the process to stop."""
        self._stop_hard(error)

    # -- carrying out -----------------------------------------------------------------------------

    def _carry_out(self, effects: Effects) -> None:
        if self._is_stopped:
            return
        try:
            self._write_effects(effects)
        except Exception as error:
            self._stop_hard(error)
            raise
        if effects.high_watermark is not None:
            self._log.update_high_watermark(effects.high_watermark)
        if effects.leadership is not None:
            self._on_leadership(effects.leadership)
        for destination, message in effects.messages:
            self._send(destination, message)
        if effects.leader_change is not None:
            self._begin_epoch(effects.leader_change)
        self._deliver()
        self._arm()

    def _write_effects(self, effects: Effects) -> None:
        if effects.persist is not None:
            self._parts.store.write(effects.persist)
        if effects.truncate_to is not None:
            self._cuts += 1
            self._log.truncate_to(effects.truncate_to)
        if effects.append is not None:
            assert isinstance(effects.append, bytes | bytearray | memoryview)
            self._log.append_as_follower(memoryview(effects.append))
            self._sync()

    def _begin_epoch(self, change: LeaderChange) -> None:
        wall_ms = self._parts.doors.clock.wall_ms()
        self._write(encode_leader_change(change, self._log.log_end_offset, wall_ms), change.epoch)

    def _write(self, batch: bytearray, epoch: int) -> None:
        """Write a batch as leader, have it synced, and tell who waits for it."""
        now_ms = self._parts.doors.clock.wall_ms()
        try:
            self._log.append_as_leader(memoryview(batch), epoch, AppendOrigin.RAFT, now_ms)
        except Exception as error:
            self._stop_hard(error)
            raise
        self._carry_out(self._core.on_appended(self._now()))
        self._sync()

    def _sync(self) -> None:
        end_offset, cuts = self._log.log_end_offset, self._cuts

        def on_done(error: BaseException | None) -> None:
            if self._is_stopped:
                return
            if error is not None:
                self._stop_hard(error)
            elif cuts == self._cuts:
                self._carry_out(self._core.on_synced(self._now(), end_offset))

        self._log.flush_async(on_done)

    def _send(self, destination: int, message: Message) -> None:
        if isinstance(message, FetchResponse) and not (message.refusal or message.diverging):
            read = self._log.read(
                message.fetch_offset, _FETCH_BYTES_MAX, FetchIsolation.LOG_END, True
            )
            message = replace(message, records=read.records)
        self._parts.transport.send(destination, message)

    def _on_leadership(self, leadership: LeaderAndEpoch) -> None:
        if leadership.leader_id != self._config.node_id:
            self._queue.forget_expected()
            self._fail_waiting()
        self._untold.append(leadership)

    def _fail_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            each.on_committed(-1, NotLeaderError("the leadership was lost before the commit"))

    def _stop_hard(self, error: BaseException) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self._fail_waiting()
            self._parts.on_fatal(error)

    # -- handing over -----------------------------------------------------------------------------

    def _deliver(self) -> None:
        """Hand over what is committed, then new leaderships; a listener may append meanwhile."""
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
        if self._untold and self._may_tell(self._untold[0]):
            leadership = self._untold.popleft()
            for listener in self._listeners:
                listener.on_leader_change(leadership)
            return True
        return False

    def _acknowledge(self) -> None:
        while self._waiting and self._waiting[0].last_offset < self._queue.next_offset:
            done = self._waiting.popleft()
            done.on_committed(done.last_offset, None)

    def _may_tell(self, leadership: LeaderAndEpoch) -> bool:
        """Own leadership only once everything of earlier epochs was handed over."""
        start = self._core.epoch_start_offset
        if leadership.leader_id != self._config.node_id or start is None:
            return True
        return self._queue.next_offset > start

    def _arm(self) -> None:
        """One timer, for what the core does next by time alone."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self._core.next_deadline()
        if deadline < NEVER and not self._is_stopped:
            delay = max(0.0, deadline - self._now())
            self._timer = self._parts.doors.timer.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._carry_out(self._core.tick(self._now()))

    def _now(self) -> float:
        return self._parts.doors.clock.monotonic_ms()
