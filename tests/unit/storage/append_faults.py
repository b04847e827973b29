"""Appends in which one system call fails, and a check for lost and duplicate records.

A plan is a list of appends of a producer. One of them, the victim, runs on a failing disk. Then the
producer sends the unacknowledged appends again, and all later ones.
"""

from __future__ import annotations

import errno
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from barnabas.record.batch import ControlType
from barnabas.record.reader import read_batches
from barnabas.sim.disk import FailingCall
from barnabas.storage.config import LogConfig
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.results import AppendOrigin
from unit.storage.storage_fixtures import NOW_MS, Bench, all_records, batch, content, marker, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from barnabas.record.batch import BatchHeader
    from barnabas.storage.log.log import Log

PRODUCER = 7
NO_DESCRIPTOR = (errno.EMFILE, errno.ENFILE)
ERRORS = (errno.EIO, errno.ENOSPC, *NO_DESCRIPTOR)
VALUE_BYTES = 90


class Append(msgspec.Struct, frozen=True):
    """One append of a plan."""

    # Sequence of the batch, also its value; -1 for the abort marker of the transaction.
    sequence: int
    epoch: int = 3
    is_transactional: bool = False

    def records(self) -> bytearray:
        """Return the bytes of the append, which are the same for each retry."""
        if self.sequence < 0:
            return marker(ControlType.ABORT, PRODUCER)
        return batch(
            [b"%06d" % self.sequence + bytes(VALUE_BYTES)],
            timestamp=NOW_MS + self.sequence,
            producer_id=PRODUCER,
            producer_epoch=0,
            base_sequence=self.sequence,
            transactional=self.is_transactional,
        )


class Plan(msgspec.Struct, frozen=True):
    """The appends before the victim, the victim, and the appends after it."""

    config: LogConfig
    before: list[Append]
    victim: Append
    after: list[Append]
    # Prepares the log directly before the victim.
    prepare: Callable[[Log], None] = lambda _: None
    # Whether the victim needs a file that is closed.
    needs_file: bool = False


def _idle(log: Log) -> None:
    log.sync.flush()
    log.close_files()
    for segment in log.segments:
        segment.offset_index.unload()
        segment.time_index.unload()


def _appends(first: int, end: int, **options: object) -> list[Append]:
    return [Append(sequence, **options) for sequence in range(first, end)]


_DENSE = LogConfig(index_interval_bytes=1)
PLANS = {
    "the first of a leader epoch": Plan(
        _DENSE, _appends(0, 3), Append(3, 4), _appends(4, 6, epoch=4), needs_file=True
    ),
    "one that rolls": Plan(
        LogConfig(index_interval_bytes=1, segment_bytes=600),
        _appends(0, 3),
        Append(3, 4),
        _appends(4, 9, epoch=4),
        needs_file=True,
    ),
    # The time index writes 64 entries at a time.
    "one that writes the index": Plan(_DENSE, _appends(0, 64), Append(64), _appends(65, 67)),
    "one after a long time": Plan(_DENSE, _appends(0, 5), Append(5), _appends(6, 8), _idle, True),
    "an abort marker": Plan(
        _DENSE,
        _appends(0, 3, is_transactional=True),
        Append(-1),
        _appends(3, 5, is_transactional=True),
    ),
    "one that is synced": Plan(
        LogConfig(flush_messages=1), _appends(0, 2), Append(2), _appends(3, 5)
    ),
}


class Side:
    """A log, and the acknowledged appends."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.bench = Bench(plan.config)
        self.acknowledged: list[int] = []

    @property
    def log(self) -> Log:
        """The current log."""
        return self.bench.log

    def put(self, append: Append) -> None:
        """Append; raise the error of a failure."""
        raise NotImplementedError

    def take(self, append: Append) -> None:
        """Append, and record the append as acknowledged."""
        self.put(append)
        if append.sequence >= 0:
            self.acknowledged.append(append.sequence)

    def sync_if_due(self) -> None:
        """Sync if the append requires it, like the broker."""
        if not self.log.sync.is_due:
            return
        errors: list[BaseException | None] = []
        self.log.sync.flush_async(errors.append)
        for _ in range(3):
            # A timer retries a sync without a free descriptor.
            self.bench.timer.run()
        if not errors or errors[0] is not None:
            raise KafkaStorageError("not synced")


class LeaderSide(Side):
    """A leader's log, which appends a producer's batches."""

    def put(self, append: Append) -> None:
        origin = AppendOrigin.CLIENT if append.sequence >= 0 else AppendOrigin.COORDINATOR
        records = memoryview(append.records())
        self.log.appender.append_as_leader(records, append.epoch, origin, NOW_MS)
        self.sync_if_due()


class JointSide(LeaderSide):
    """A leader's log, which appends the victim together with the two appends after it."""

    def take(self, append: Append) -> None:
        if append != self.plan.victim or append.sequence < 0:
            if append.sequence < 0 or append.sequence not in self.acknowledged:
                super().take(append)
            return
        joined = []
        together = (append, *self.plan.after[:2])
        for each in together:
            records = memoryview(each.records())
            header = self.log.appender.validate_for_joint_append(records, NOW_MS)
            assert header is not None
            joined.append((records, header))
        for outcome in self.log.appender.append_jointly(joined, append.epoch, NOW_MS):
            if isinstance(outcome, KafkaStorageError):
                raise outcome
        self.sync_if_due()
        self.acknowledged += [each.sequence for each in together]


class FollowerSide(Side):
    """A follower's log, which appends the leader's bytes from its log end on, with retries."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self._leader = LeaderSide(Plan(_DENSE, [], plan.victim, []))
        self._led: list[Append] = []

    def put(self, append: Append) -> None:
        leader = self._leader.log
        if append not in self._led:
            self._led.append(append)
            self._leader.put(append)
        while self.log.log_end_offset < leader.log_end_offset:
            self.log.appender.append_as_follower(content(read(leader, self.log.log_end_offset)))
        self.sync_if_due()


def calls_of_victim(side: Side) -> list[tuple[str, str]]:
    """Return the system calls of the victim on an intact disk."""
    _run_before(side)
    side.bench.disk.call_log = []
    side.take(side.plan.victim)
    calls, side.bench.disk.call_log = side.bench.disk.call_log, None
    return calls


def faults_for(calls: list[tuple[str, str]]) -> Iterator[FailingCall]:
    """Return the failures: each call with each of its possible errors."""
    for number, (operation, _) in enumerate(calls):
        # Only opening a file needs a descriptor.
        errors = ERRORS if operation == "open" else (errno.EIO, errno.ENOSPC)
        shares = (0.0, 0.5, 1.0) if operation == "write" else (0.0,)
        for error in errors:
            for share in shares:
                for lasts in (False, True):
                    yield FailingCall(number, error, share, lasts)


def _run_before(side: Side) -> None:
    for append in side.plan.before:
        side.take(append)
    side.plan.prepare(side.log)


def run_with(side: Side, failing: FailingCall, ending: str, what: str) -> None:
    """Run the victim with the failure, continue like a client, and check after each step.

    Args:
        ending: the next step if the log is still online: "go on", "kill" or "stop".
    """
    bench, plan = side.bench, side.plan
    _run_before(side)
    bench.disk.call_log, bench.disk.failing_call = [], failing
    before = state_of(side.log)
    raised: KafkaStorageError | None = None
    try:
        side.take(plan.victim)
    except KafkaStorageError as error:
        raised = error
    bench.disk.call_log = bench.disk.failing_call = None
    is_offline = bool(bench.failures)
    if failing.error in NO_DESCRIPTOR:
        assert not is_offline, what
        assert raised is None or plan.needs_file, f"{what}: rejected without need"
    if raised is None:
        assert not is_offline, f"{what}: acknowledged by a log whose disk has failed"
    elif not is_offline:
        assert state_of(side.log) == before, f"{what}: rejected, but the log changed"
    if is_offline or ending == "kill":
        bench.kill_and_reopen()
    elif ending == "stop":
        bench.reopen_cleanly()
    check(side, f"{what}, at once")
    if raised is not None:
        side.take(plan.victim)
    for append in plan.after:
        side.take(append)
    bench.timer.run()
    check(side, f"{what}, later")
    bench.kill_and_reopen()
    check(side, f"{what}, after a kill")
    bench.reopen_cleanly()
    check(side, f"{what}, after a clean stop")


def state_of(log: Log) -> object:
    """Return the state that a rejected append must not change."""
    entries = [entry for entry in log.leader_epochs.entries if entry[1] < log.log_end_offset]
    size = sum(segment.size for segment in log.segments)
    return log.log_end_offset, size, dict(log.producer_state.entries), entries


def check(side: Side, what: str) -> None:
    """Check that no record is lost or duplicate, and that memory and file agree."""
    log = side.log
    headers = list(headers_of(log))
    markers = {header.base_offset for header in headers if header.is_control}
    values = [int(each.value[:6]) for each in all_records(log) if each.offset not in markers]
    assert len(values) == len(set(values)), f"{what}: duplicates in {values}"
    lost = [sequence for sequence in side.acknowledged if sequence not in values]
    assert not lost, f"{what}: lost {lost}"
    assert values == sorted(values), f"{what}: out of order {values}"
    end = headers[-1].next_offset if headers else log.log_start_offset
    assert log.log_end_offset == end, (
        f"{what}: the log end is {log.log_end_offset} instead of {end}"
    )
    for header in headers:
        first = next(iter(read_batches(content(read(log, header.base_offset)))))[0]
        assert first.base_offset == header.base_offset, f"{what}: {header.base_offset} is not found"
    epochs: dict[int, int] = {}
    for header in headers:
        epochs.setdefault(header.partition_leader_epoch, header.base_offset)
    known = [entry for entry in log.leader_epochs.entries if entry[1] < end]
    assert known == list(epochs.items()), f"{what}: epochs {known}, the log has {epochs}"
    check_producer(log, headers, what)
    # A marker that is sent again after a missing acknowledgement ends no transaction.
    ended = [
        header
        for before, header in pairwise(headers)
        if header.is_control and not before.is_control
    ]
    assert len(log.reader.aborted_transactions_below(end)) == len(ended), f"{what}: aborted ones"


def check_producer(log: Log, headers: list[BatchHeader], what: str) -> None:
    """Check that the producer's last sequence is that of its last batch."""
    data = [header for header in headers if not header.is_control]
    entry = log.producer_state.entries.get(PRODUCER)
    last = entry.last_sequence if entry else -1
    expected = data[-1].last_sequence if data else -1
    assert last == expected, f"{what}: last sequence {last}, the log has {expected}"


def headers_of(log: Log) -> Iterator[BatchHeader]:
    """Return the header of each batch in the log."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        for header, _ in read_batches(content(read(log, offset))):
            yield header
            offset = header.next_offset
