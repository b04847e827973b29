"""What a follower reads from the remote tier before its first fetch (KIP-405).

If the leader has the next records of a follower only in the remote tier, the follower does not copy
them. It takes the leader epochs and the producers at the end of a stored segment, empties its log,
and fetches from the end of that segment. Kafka: TierStateMachine.buildRemoteLogAuxState.

`load` finds the segment in the metadata. The store is read by a worker thread, a few segments at a
time: a new broker with thousands of partitions must not fill the queue that consumers use. The
content is checked here, before the follower empties its log.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.replication.remote.segment_end import AuxiliaryState, read_state
from barnabas.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.replication.remote.remote_access import RemoteAccess
    from barnabas.storage.remote.remote_storage import RemoteSegment
    from barnabas.storage.topic_partition import TopicIdPartition
    from barnabas.waiting.timing_wheel import TimingWheel, WheelEntry

# Segments that are read at a time.
READS_MAX = 4
# A read that takes longer has failed. The follower then asks its leader again.
TIMEOUT_MS = 60_000.0


class LoadProblem(NamedTuple):
    """Why the state could not be loaded. A later call may succeed."""

    text: str
    # Whether this is expected after a start or an election, and so is not an error.
    is_usual: bool = False


if TYPE_CHECKING:
    OnLoaded = Callable[[AuxiliaryState | LoadProblem], None]


class AuxiliaryStates:
    """Loads auxiliary states. All calls are made on the loop."""

    __slots__ = ("_reading", "_remote", "_waiting", "_wheel")

    def __init__(self, remote: RemoteAccess, wheel: TimingWheel) -> None:
        self._remote = remote
        self._wheel = wheel
        # Loads that wait for a read, oldest first. A fetcher has at most one load per partition.
        self._waiting: deque[_Load] = deque()
        # Number of reads in progress, at most `READS_MAX`. Reads that timed out are included.
        self._reading = 0

    @property
    def starts_at_last_tiered(self) -> bool:
        """Whether an empty follower skips all records of the tier (KIP-1023).

        Otherwise it skips only those that the leader has deleted locally.
        """
        return self._remote.starts_at_last_tiered()

    def is_ready(self, where: TopicIdPartition) -> bool:
        """Whether the metadata of the partition's segments is known."""
        return self._remote.metadata.log_of(where) is not None

    def load(self, where: TopicIdPartition, epoch: int, offset: int, on_loaded: OnLoaded) -> None:
        """Load the state at the end of the segment that has a record.

        Args:
            where: the partition.
            epoch: leader epoch of the record.
            offset: offset of the record.
            on_loaded: called once, never before this returns.
        """
        self._remote.metrics.topics[where.topic].build_aux_requests += 1
        remote = self._remote.metadata.log_of(where)
        segment = None if remote is None else remote.segment_at(epoch, offset)
        load = _Load(where, segment, on_loaded)
        if remote is None:
            problem = LoadProblem("the metadata of its segments is not read yet", is_usual=True)
        elif segment is None:
            problem = LoadProblem(
                f"no remote segment has the record before the leader's local log: offset={offset} "
                f"leader_epoch={epoch}",
                is_usual=True,
            )
        else:
            load.timeout = self._wheel.add(TIMEOUT_MS, partial(self._on_timeout, load))
            self._waiting.append(load)
            self._read_next()
            return
        load.timeout = self._wheel.add(0, partial(self._end, load, problem))

    def _read_next(self) -> None:
        while self._waiting and self._reading < READS_MAX:
            load = self._waiting.popleft()
            if load.is_over:
                continue
            assert load.segment is not None, load.where
            work = partial(read_state, self._remote.storage, load.segment)
            ticket = self._remote.reads.submit(work, partial(self._on_read, load))
            if ticket is None:
                full = LoadProblem("the queue of reads of the remote tier is full", is_usual=True)
                self._wheel.add(0, partial(self._end, load, full))
            else:
                self._reading += 1

    def _on_read(
        self, load: _Load, state: AuxiliaryState | None, error: BaseException | None
    ) -> None:
        self._reading -= 1
        assert self._reading >= 0, self._reading
        if state is not None:
            self._end(load, state)
        elif isinstance(error, StorageError):
            self._end(load, LoadProblem(str(error)))
        else:
            self._end(load, LoadProblem(f"unexpected error of the remote storage: {error!r}"))
        self._read_next()

    def _on_timeout(self, load: _Load) -> None:
        self._end(load, LoadProblem(f"no answer of the remote storage in {TIMEOUT_MS:.0f} ms"))

    def _end(self, load: _Load, outcome: AuxiliaryState | LoadProblem) -> None:
        if load.is_over:
            return
        load.is_over = True
        if load.timeout is not None:
            load.timeout.cancel()
        if isinstance(outcome, LoadProblem):
            self._remote.metrics.topics[load.where.topic].build_aux_errors += 1
        load.on_loaded(outcome)


class _Load:
    """One call of `load`."""

    __slots__ = ("is_over", "on_loaded", "segment", "timeout", "where")

    def __init__(
        self, where: TopicIdPartition, segment: RemoteSegment | None, on_loaded: OnLoaded
    ) -> None:
        self.where = where
        # None if the metadata has no such segment.
        self.segment = segment
        self.on_loaded = on_loaded
        # Timer of the time limit.
        self.timeout: WheelEntry | None = None
        # Whether `on_loaded` was called.
        self.is_over = False
