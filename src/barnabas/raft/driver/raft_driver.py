"""Runs the quorum core over a real log, clock and disk (Kafka's KafkaRaftClient).

The driver carries out the core's effects in their order, syncs the log outside the event loop, and
delivers committed batches to the listeners. A failed sync or write is fatal: the process must not
continue with a log that may be wrong.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.raft.core.messages import (
    ControlRecords,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
)
from barnabas.raft.core.raft_core import RaftCore
from barnabas.raft.core.roles import NEVER
from barnabas.raft.driver.delivery import Delivery
from barnabas.raft.driver.quorum_status import QuorumStatus, RaftMetrics, RoleLog, quorum_status
from barnabas.raft.election_state import UnprovenVoterFile, at_least_epoch
from barnabas.raft.listener import (
    NO_LEADER,
    CommittedBatch,
    NotLeaderError,
    RaftError,
    RaftListener,
    SnapshotError,
)
from barnabas.raft.log.metadata_batch import (
    check_fetched,
    encode_control_records,
    encode_metadata_batch,
    replay_control_batches,
)
from barnabas.raft.log.metadata_check import CommittedOffsetFile
from barnabas.raft.log.metadata_log import MetadataLogView, metadata_snapshots, replay_log
from barnabas.raft.log.snapshot import (
    BOOTSTRAP_SNAPSHOT,
    SnapshotReceiver,
    SnapshotWriter,
    clean,
    delete_snapshot,
    delete_unfinished,
    list_snapshots,
    read_slice,
    read_snapshot,
)
from barnabas.raft.transport.transport import NoTransport, RaftTransport
from barnabas.raft.voter_set import VoterHistory, VoterSet
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.results import AppendOrigin, FetchIsolation

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from barnabas.protocol.schema import Record
    from barnabas.raft.config import RaftConfig
    from barnabas.raft.core.messages import Effects, Message, Request, Response, SnapshotSlice
    from barnabas.raft.election_state import QuorumStateStore
    from barnabas.raft.listener import SnapshotId
    from barnabas.raft.log.metadata_batch import MetadataBatchEncoder
    from barnabas.raft.transport.transport import TransportStatistics
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.rng import Rng
    from barnabas.storage.log.log import Log
    from barnabas.storage.log_dependencies import LogDependencies


_log = logging.getLogger(__name__)

# How often old segments and snapshots are deleted, ms, as in Kafka.
_CLEANING_INTERVAL_MS = 60_000


class RaftDependencies(msgspec.Struct, frozen=True):
    """The dependencies of a driver."""

    log: Log
    store: QuorumStateStore
    log_dependencies: LogDependencies
    rng: Rng
    # Called once when the log or the quorum state cannot be written: the process has to stop.
    on_fatal: Callable[[BaseException], None]
    transport: RaftTransport = NoTransport()
    # Directory of the metadata log. It holds the marker file of a voter that may not vote yet.
    data_directory: str = ""


class RaftDriver:
    """One replica of the metadata quorum."""

    def __init__(self, config: RaftConfig, dependencies: RaftDependencies) -> None:
        self.config = config
        self._dependencies = dependencies
        self.log = dependencies.log
        snapshots = metadata_snapshots(
            dependencies.log_dependencies.disk, dependencies.log.directory
        )
        self._view = MetadataLogView(dependencies.log, snapshots)
        static = VoterSet.static(config.voters, config.voter_endpoints, config.listener_name)
        self._history = VoterHistory(static)
        election = at_least_epoch(dependencies.store.read(), self._view.last_epoch)
        self.core = RaftCore(config, self._view, dependencies.rng, election, self._history)
        self._delivery = Delivery(config.node_id, dependencies.log, self.core)
        self._committed_offset_file = CommittedOffsetFile(
            dependencies.log_dependencies, dependencies.log.directory
        )
        # Number of truncations so far. A sync that began before a truncation is ignored.
        self._cuts = 0
        # Timer of the core's next deadline; None while no timer is needed.
        self._timer: Cancellable | None = None
        # Timer of the next deletion of old segments and snapshots.
        self._cleaning_timer: Cancellable | None = None
        # Receives the leader's snapshot; None while no snapshot is being fetched.
        self._receiver: SnapshotReceiver | None = None
        # Whether the driver was shut down or has failed; never reset.
        self._is_stopped = False
        self._role_log = RoleLog()
        self.metrics = RaftMetrics(dependencies.log_dependencies.clock)
        # Whether effects are being carried out. Nested calls belong to the same busy period.
        self._is_busy = False

    # -- queries -----------------------------------------------------------------------------------

    @property
    def is_stopped(self) -> bool:
        """Whether this replica has stopped taking part in the quorum."""
        return self._is_stopped

    @property
    def log_dependencies(self) -> LogDependencies:
        """The clock, timer, disk and executor that the log uses."""
        return self._dependencies.log_dependencies

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The latest snapshot of the log; None if there is none."""
        return self._view.latest_snapshot

    @property
    def log_end_epoch(self) -> int:
        """Epoch of the last record; 0 if the log never had a record."""
        return self._view.last_epoch

    def transport_statistics(self) -> TransportStatistics:
        """Return the counters of requests to other replicas."""
        return self._dependencies.transport.statistics()

    def status(self) -> QuorumStatus:
        """Return the state of the quorum for DescribeQuorum."""
        return quorum_status(self.core, self.config, self.log.log_end_offset)

    def leader_endpoint(self) -> tuple[int, str, int] | None:
        """Return (node id, host, port) of the leader's controller listener; None while unknown."""
        leader_id = self.core.leader_and_epoch.leader_id
        address = self.core.leader_address()
        if leader_id == NO_LEADER or address is None:
            return None
        return leader_id, address.host, address.port

    # -- lifecycle ---------------------------------------------------------------------------------

    def add_listener(self, listener: RaftListener) -> None:
        """Deliver all committed batches to `listener` too. Call this before `start`."""
        self._delivery.add_listener(listener)

    def start(self) -> None:
        """Load the latest snapshot and join the quorum. A lone voter leads when this returns.

        The listeners receive all records that are already committed before this returns.

        Raises:
            SnapshotError: the latest snapshot is damaged.
        """
        directory = self.log.directory
        disk = self.log_dependencies.disk
        delete_unfinished(disk, directory)
        self._delivery.begin_at(self.log.log_start_offset)
        latest = self._view.latest_snapshot
        if latest is not None:
            self._delivery.load(read_snapshot(disk, directory, latest, self._history))
        elif BOOTSTRAP_SNAPSHOT in list_snapshots(disk, directory):
            # The bootstrap snapshot holds no log state, but may name the first voters of a new
            # cluster.
            read_snapshot(disk, directory, BOOTSTRAP_SNAPSHOT, self._history)
        replay_log(self.log, self._history)
        self._dependencies.transport.start(self.receive)
        self._carry_out(self.core.start(self._now()))
        self._arm_cleaning()

    def shutdown(self) -> None:
        """Resign, fail the pending appends, and close the log."""
        if self._is_stopped:
            return
        self._carry_out(self.core.resign(self._now()))
        self._is_stopped = True
        for timer in (self._timer, self._cleaning_timer):
            if timer is not None:
                timer.cancel()
        self._delivery.fail_pending()
        self._dependencies.transport.close()
        if self._receiver is not None:
            self._receiver.abandon()
        self._committed_offset_file.close()
        self.log.close()

    # -- input -------------------------------------------------------------------------------------

    def append(
        self,
        records: Sequence[tuple[Record, int]],
        on_committed: Callable[[int, RaftError | None], None],
        encoded: MetadataBatchEncoder | None = None,
    ) -> int:
        """Append records as one batch, which is committed as a whole or not at all.

        Args:
            records: at least one record, each with the version to write it in.
            on_committed: called once with the last record's offset, or with (-1, error) if
                leadership is lost first. With the inline executor it may be called before this
                returns.
            encoded: the same records, if they are already encoded.

        Returns:
            The offset of the last record. The offsets are consecutive, from `log_end_offset` on.

        Raises:
            NotLeaderError: this replica does not lead; nothing was appended.
            MetadataBatchTooLargeError: too many records for one batch; nothing was appended.
        """
        if not self.core.is_leader or self._is_stopped:
            raise NotLeaderError("this controller is not the leader of the quorum")
        base_offset, epoch = self.log.log_end_offset, self.core.epoch
        if encoded is None:
            wall_ms = self.log_dependencies.clock.wall_ms()
            batch = encode_metadata_batch(records, base_offset, epoch, wall_ms)
        else:
            assert len(encoded) == len(records), (len(encoded), len(records))
            wall_ms = encoded.timestamp_ms
            batch = encoded.build(base_offset, epoch)
        last_offset = base_offset + len(records) - 1
        self._delivery.expect(
            CommittedBatch(base_offset, last_offset, epoch, wall_ms, len(batch), records),
            on_committed,
        )
        self._write(batch, epoch)
        return last_offset

    def receive(self, message: Message) -> None:
        """Handle a request, a response, or the failure of a request."""
        if not self._is_stopped:
            self._carry_out(self.core.step(self._now(), message))

    def snapshot_writer(self, snapshot_id: SnapshotId, timestamp: int) -> SnapshotWriter:
        """Start a snapshot of the committed records below its end offset.

        Args:
            snapshot_id: end offset and epoch of the last record in the snapshot.
            timestamp: append time of that record, ms.
        """
        control = None
        level = self._history.kraft_version_at(snapshot_id.end_offset)
        voters = self._history.voters_at(snapshot_id.end_offset)
        if level > 0 and voters is not None:
            control = ControlRecords(snapshot_id.epoch, None, level, voters)
        directory, wall_ms = self.log.directory, self.log_dependencies.clock.wall_ms()
        return SnapshotWriter(
            self.log_dependencies.disk, directory, snapshot_id, timestamp, wall_ms, control
        )

    def note_snapshot(self, snapshot: SnapshotId) -> None:
        """Register a completed snapshot in the log's directory, and delete old ones."""
        if snapshot.end_offset < self.log.log_start_offset:
            # A snapshot of the leader replaced the log while this one was being written.
            delete_snapshot(self.log_dependencies.disk, self.log.directory, snapshot)
            return
        self._view.snapshots = metadata_snapshots(self.log_dependencies.disk, self.log.directory)
        self._clean()

    def upgrade_kraft_version(self, level: int, *, validate_only: bool) -> str | None:
        """As leader, make the voters dynamic (KIP-853).

        Returns:
            The reason of a refusal; None if the upgrade is accepted.
        """
        problem, effects = self.core.upgrade_kraft_version(
            self._now(), level, validate_only=validate_only
        )
        self._carry_out(effects)
        return problem

    @property
    def kraft_version(self) -> int:
        """The finalized kraft.version; 0 while the voters are static."""
        return self._history.kraft_version

    # -- effects -----------------------------------------------------------------------------------

    def _carry_out(self, effects: Effects) -> None:
        if self._is_stopped:
            return
        is_outermost, self._is_busy = not self._is_busy, True
        since_ms = self._now()
        try:
            self._carry_out_all(effects)
        except (OSError, KafkaStorageError) as error:
            # Do not raise to the caller, such as a peer's request: the process is about to stop.
            self.fail(error)
        except Exception as error:
            self.fail(error)
            raise
        finally:
            if is_outermost:
                self._is_busy = False
                self.metrics.on_busy(since_ms)

    def _carry_out_all(self, effects: Effects) -> None:
        if self._role_log.check(self.core):
            self.metrics.on_role(self.core)
        has_appended = self._write_effects(effects)
        if effects.high_watermark is not None:
            self.log.update_high_watermark(effects.high_watermark)
            # A follower may know of committed records that it has not synced itself.
            self._committed_offset_file.note(min(effects.high_watermark, self.log.recovery_point))
            self.metrics.on_high_watermark(effects.high_watermark)
        if effects.leadership is not None:
            self._delivery.on_leadership(effects.leadership)
        for request, response in effects.responses:
            self._respond(request, response)
        for destination, request in effects.requests:
            address = self.core.address_of(destination)
            self._dependencies.transport.send(destination, address, request)
        if effects.control_records is not None:
            self._append_control_records(effects.control_records)
        if effects.truncate_to is not None:
            # A truncated voters record is no longer in force. The core may also fetch again now.
            self._carry_out(self.core.on_voters_changed(self._now()))
        if not has_appended:
            self._carry_out(self.core.on_nothing_appended(self._now()))
        self._delivery.run()
        self._arm()

    def _write_effects(self, effects: Effects) -> bool:
        """Write the election state and the log, which must come before all other effects.

        Returns:
            False if the fetched records do not continue the log; otherwise True.
        """
        if effects.has_vote:
            UnprovenVoterFile(
                self.log_dependencies.disk, self._dependencies.data_directory
            ).remove()
            _log.info("Voter starts to vote in the metadata quorum")
        if effects.persist is not None:
            static = None if self._history.kraft_version else self._history.last.ids
            self._dependencies.store.write(effects.persist, static)
        if effects.truncate_to is not None:
            self._truncate(effects.truncate_to)
        if effects.snapshot_slice is not None:
            self._receive_slice(effects.snapshot_slice)
        if effects.append is None:
            return True
        assert isinstance(effects.append, bytes | bytearray | memoryview)
        return self._append_fetched(memoryview(effects.append))

    def _truncate(self, offset: int) -> None:
        committed = self.core.high_watermark
        assert offset >= committed, f"CommittedNeverLost: truncate_to={offset} end={committed}"
        self._cuts += 1
        self.log.truncate_to(offset)
        self._history.truncate_to(self.log.log_end_offset)

    def _append_fetched(self, records: memoryview) -> bool:
        fetched = check_fetched(records, self.log.log_end_offset, self.core.epoch)
        if not fetched.size:
            return False
        end_offset = self.log.log_end_offset
        self.log.appender.append_as_follower(records[: fetched.size])
        self.metrics.on_fetched(self.log.log_end_offset - end_offset)
        for batch in fetched.control_batches:
            replay_control_batches(batch, self._history)
        self._sync()
        return True

    def _receive_slice(self, part: SnapshotSlice) -> None:
        disk, directory = self.log_dependencies.disk, self.log.directory
        receiver = self._receiver
        if receiver is None or part.position == 0:
            if receiver is not None:
                receiver.abandon()
            receiver = self._receiver = SnapshotReceiver(disk, directory, part.id)
        receiver.write(part)
        if part.is_last:
            self.log_dependencies.executor.submit(
                receiver.freeze, lambda _, error: self._on_received(receiver, error)
            )

    def _on_received(self, receiver: SnapshotReceiver, error: BaseException | None) -> None:
        """Replace the log by the leader's completely received snapshot."""
        if self._is_stopped or self._receiver is not receiver:
            return
        self._receiver = None
        if error is not None:
            self.fail(error)
            return
        if not self.core.expects_snapshot(receiver.id):
            # The core no longer expects this snapshot, for example after a change of the leader.
            # Records that were fetched since then must not be lost.
            delete_snapshot(self.log_dependencies.disk, self.log.directory, receiver.id)
            return
        try:
            self._install(receiver.id)
        except SnapshotError as damage:
            _log.warning("Damaged snapshot from the leader is fetched again: error=%s", damage)
            delete_snapshot(self.log_dependencies.disk, self.log.directory, receiver.id)
            self._carry_out(self.core.on_snapshot_installed(self._now(), None))
        except (OSError, KafkaStorageError) as failure:
            self.fail(failure)
        except Exception as failure:
            self.fail(failure)
            raise

    def _install(self, snapshot_id: SnapshotId) -> None:
        disk, directory = self.log_dependencies.disk, self.log.directory
        history = VoterHistory(self._history.static)
        loaded = read_snapshot(disk, directory, snapshot_id, history)
        committed = self.core.high_watermark
        assert snapshot_id.end_offset >= committed, f"CommittedNeverLost: {snapshot_id} {committed}"
        self._cuts += 1
        self.log.truncate_fully_and_start_at(snapshot_id.end_offset)
        self._history.replace_by(history)
        for older in self._view.snapshots:
            if older != snapshot_id:
                delete_snapshot(disk, directory, older)
        self._view.snapshots = [snapshot_id]
        effects = self.core.on_snapshot_installed(self._now(), snapshot_id)
        self._delivery.load(loaded)
        self._carry_out(effects)
        self._carry_out(self.core.on_voters_changed(self._now()))

    def _append_control_records(self, records: ControlRecords) -> None:
        wall_ms = self.log_dependencies.clock.wall_ms()
        batch = encode_control_records(records, self.log.log_end_offset, wall_ms)
        self._write(batch, records.epoch)
        if records.voters is not None or records.kraft_version is not None:
            replay_control_batches(batch, self._history)
            self._carry_out(self.core.on_voters_changed(self._now()))

    def _write(self, batch: bytearray, epoch: int) -> None:
        """Append a batch as leader, complete the fetches that wait for it, and start a sync."""
        now_ms = self.log_dependencies.clock.wall_ms()
        end_offset = self.log.log_end_offset
        try:
            self.log.appender.append_as_leader(memoryview(batch), epoch, AppendOrigin.RAFT, now_ms)
        except KafkaStorageError as error:
            self.fail(error)
            return
        except Exception as error:
            self.fail(error)
            raise
        self.metrics.on_appended(self.log.log_end_offset, self.log.log_end_offset - end_offset)
        self._carry_out(self.core.on_appended(self._now()))
        self._sync()

    def _sync(self) -> None:
        end_offset, cuts = self.log.log_end_offset, self._cuts

        def on_done(error: BaseException | None) -> None:
            if self._is_stopped:
                return
            if error is not None:
                self.fail(error)
            elif cuts == self._cuts:
                self._carry_out(self.core.on_synced(self._now(), end_offset))

        self.log.sync.flush_async(on_done)

    def _respond(self, request: Request, response: Response) -> None:
        if isinstance(request, FetchRequest) and isinstance(response, FetchResponse):
            response = self._with_records(request, response)
        elif isinstance(request, FetchSnapshotRequest) and response.error is ErrorCode.NONE:
            assert isinstance(response, FetchSnapshotResponse)
            max_bytes = min(request.max_bytes, self.config.fetch_snapshot_max_bytes)
            limited = replace(request, max_bytes=max_bytes)
            disk, directory = self.log_dependencies.disk, self.log.directory
            response = read_slice(disk, directory, self._view.snapshots, limited, response)
        if request.reply_to is not None:
            request.reply_to(response)

    def _with_records(self, request: FetchRequest, response: FetchResponse) -> FetchResponse:
        """Add records from the fetch offset on, unless the response reports something else."""
        is_other = response.diverging is not None or response.snapshot_id is not None
        if response.error is not ErrorCode.NONE or is_other:
            return response
        max_bytes = min(request.max_bytes, self.config.fetch_max_bytes)
        read = self.log.reader.read(request.fetch_offset, max_bytes, FetchIsolation.LOG_END, True)
        return replace(response, records=read.records)

    def fail(self, error: BaseException) -> None:
        """Stop this replica and report an error, such as a directory that cannot be written."""
        if not self._is_stopped:
            self._is_stopped = True
            self._delivery.fail_pending()
            self._dependencies.transport.close()
            self._dependencies.on_fatal(error)

    # -- timers ------------------------------------------------------------------------------------

    def _clean(self) -> None:
        try:
            disk, now_ms = self.log_dependencies.disk, self.log_dependencies.clock.wall_ms()
            self._view.snapshots = clean(self.log, disk, self.config, now_ms)
        except OSError as error:
            self.fail(error)
        self._history.forget_below(self.log.log_start_offset)

    def _arm_cleaning(self) -> None:
        """Schedule the next deletion of old segments and snapshots."""
        timer = self.log_dependencies.timer
        self._cleaning_timer = timer.call_later(_CLEANING_INTERVAL_MS, self._on_cleaning_timer)

    def _on_cleaning_timer(self) -> None:
        if self._is_stopped:
            return
        try:
            self._clean()
        finally:
            self._arm_cleaning()

    def _arm(self) -> None:
        """Set the single timer to the core's next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.core.next_deadline()
        if deadline < NEVER and not self._is_stopped:
            delay = max(0.0, deadline - self._now())
            self._timer = self.log_dependencies.timer.call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        try:
            effects = self.core.tick(self._now())
        except Exception as error:
            # Without a timer this replica would neither elect a leader nor resign.
            self.fail(error)
            raise
        self._carry_out(effects)

    def _now(self) -> float:
        return self.log_dependencies.clock.monotonic_ms()
