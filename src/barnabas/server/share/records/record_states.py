"""States of consecutive records of a share partition, and changes of states (KIP-932)."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.server.share.group_settings import ShareLimits


class RecordState(IntEnum):
    """The state of a record in a share partition. The values are stored by share coordinators."""

    # The record can be acquired.
    AVAILABLE = 0
    # A member has the record until it acknowledges it or until the acquisition lock times out.
    ACQUIRED = 1
    # The record is processed. Terminal.
    ACKNOWLEDGED = 2
    # The record is not delivered again, but is not yet in the group's dead-letter topic (KIP-1191).
    ARCHIVING = 3
    # The record is not delivered again. Terminal.
    ARCHIVED = 4


# Transitions by requests and timeouts. A record is also archived in any state if its log or its
# transaction removes it.
TRANSITIONS: dict[RecordState, frozenset[RecordState]] = {
    RecordState.AVAILABLE: frozenset({RecordState.ACQUIRED}),
    RecordState.ACQUIRED: frozenset(
        {
            RecordState.AVAILABLE,
            RecordState.ACKNOWLEDGED,
            RecordState.ARCHIVING,
            RecordState.ARCHIVED,
        }
    ),
    RecordState.ARCHIVING: frozenset({RecordState.ARCHIVED}),
    RecordState.ACKNOWLEDGED: frozenset(),
    RecordState.ARCHIVED: frozenset(),
}

STATE_BY_VALUE: dict[int, RecordState] = {int(state): state for state in RecordState}


def is_terminal(state: RecordState) -> bool:
    """Whether the state is final."""
    return state is RecordState.ACKNOWLEDGED or state is RecordState.ARCHIVED


# Acknowledge types of the protocol.
GAP = 0
ACCEPT = 1
RELEASE = 2
REJECT = 3
RENEW = 4

# State after an acknowledgement. A renewal (KIP-1222) keeps the state. A rejected record of a group
# with a dead-letter topic is ARCHIVING.
STATE_BY_ACKNOWLEDGE_TYPE: dict[int, RecordState] = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVED,
}


# Member of records that are not acquired.
NO_MEMBER = ""
# Maximum of the 16-bit field of responses and of the stored state. A stored count may be any value.
DELIVERY_COUNT_MAX = 32_767


class RecordRun:
    """Consecutive offsets with the same state, delivery count, member and lock."""

    __slots__ = (
        "_member_before",
        "_state_before",
        "change",
        "delivery_count",
        "first",
        "is_rejected",
        "is_removed",
        "last",
        "lock_ends_ms",
        "member_id",
        "state",
    )

    def __init__(
        self, first: int, last: int, state: RecordState, delivery_count: int, member_id: str
    ) -> None:
        # Offsets of the first and the last record. `split` moves the last one.
        self.first = first
        self.last = last
        self.state = state
        # Number of deliveries. Incremented by each acquisition up to the maximum; never decreases.
        self.delivery_count = delivery_count
        # Owner of acquired records, else NO_MEMBER.
        self.member_id = member_id
        # When the acquisition lock times out, in ms of the monotonic clock. None without a lock.
        # It stays set during a change, since a failed change restores the lock.
        self.lock_ends_ms: float | None = None
        # The change that is being written; None if the state is final for now.
        self.change: StateChange | None = None
        # State and member before `change`.
        self._state_before = state
        self._member_before = member_id
        # Whether the log or a transaction has removed the records. A failed change then keeps them
        # archived.
        self.is_removed = False
        # Whether the member has rejected the records. Valid in the state ARCHIVING.
        self.is_rejected = False

    def __len__(self) -> int:
        return self.last - self.first + 1

    def split(self, offset: int) -> RecordRun:
        """Cut the run before `offset` and return the second part."""
        assert self.first < offset <= self.last, f"{self.first}-{self.last} split={offset}"
        rest = RecordRun(offset, self.last, self.state, self.delivery_count, self.member_id)
        rest.lock_ends_ms = self.lock_ends_ms
        rest._state_before = self._state_before
        rest._member_before = self._member_before
        rest.is_removed = self.is_removed
        rest.is_rejected = self.is_rejected
        self.last = offset - 1
        if self.change is not None:
            rest.change = self.change
            self.change.runs.append(rest)
        return rest

    @property
    def can_be_acquired(self) -> bool:
        """Whether the records are available and no change of them is being written."""
        return self.state is RecordState.AVAILABLE and self.change is None

    def acquire(self, member_id: str, lock_ends_ms: float) -> None:
        """Give the records to a member."""
        assert self.can_be_acquired, (
            f"AcquiredByOne: offsets={self.first}-{self.last} state={self.state.name} "
            f"owner={self.member_id} is_changing={self.change is not None} member={member_id}"
        )
        self._move(RecordState.ACQUIRED, member_id)
        self.delivery_count = min(self.delivery_count + 1, DELIVERY_COUNT_MAX)
        self.lock_ends_ms = lock_ends_ms

    def time_out(self, state: RecordState) -> None:
        """Take the records from their member after the timeout of the lock."""
        self._move(state, NO_MEMBER)
        self.lock_ends_ms = None

    def begin_change(self, change: StateChange, state: RecordState) -> None:
        """Leave the acquired state for `state`, until the change is written or has failed."""
        assert self.change is None, f"{self.first}-{self.last} is being changed"
        self._state_before, self._member_before = self.state, self.member_id
        self._move(state, NO_MEMBER)
        self.change = change
        change.runs.append(self)

    def end_change(self, is_written: bool, now_ms: float, limits: ShareLimits) -> None:
        """Keep the new state if it was written, else restore the state before the change.

        If the lock has timed out meanwhile, a failed change makes the records available, or
        archives them after their last delivery.
        """
        assert self.change is not None, f"{self.first}-{self.last} is not being changed"
        self.change = None
        if is_written or self.is_removed:
            self.lock_ends_ms = None
            return
        if self.lock_ends_ms is not None and self.lock_ends_ms <= now_ms:
            # The states were not written, so the dead-letter topic does not get the records.
            is_last = self.delivery_count >= limits.delivery_count_limit
            self.state = RecordState.ARCHIVED if is_last else RecordState.AVAILABLE
            self.member_id = NO_MEMBER
            self.lock_ends_ms = None
            return
        self.state, self.member_id = self._state_before, self._member_before

    def archive(self) -> None:
        """Archive records whose dead-letter write has ended."""
        self._move(RecordState.ARCHIVED, NO_MEMBER)

    def remove(self) -> None:
        """Archive the records in whatever state they are, because the log lost them."""
        self.state = RecordState.ARCHIVED
        self.member_id = NO_MEMBER
        self.lock_ends_ms = None
        self.is_removed = True

    def _move(self, state: RecordState, member_id: str) -> None:
        assert state in TRANSITIONS[self.state], f"{self.first}-{self.last}: {self.state} {state}"
        self.state = state
        self.member_id = member_id


class StateChange:
    """Records whose new states are being written. All of them succeed or fail together."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        # In order of their change; splits append their second parts.
        self.runs: list[RecordRun] = []

    def __bool__(self) -> bool:
        return bool(self.runs)

    def states(self) -> Iterator[tuple[int, int, RecordState, int]]:
        """Yield first offset, last offset, new state and delivery count to be written."""
        for run in self.runs:
            yield run.first, run.last, run.state, run.delivery_count


def released_state(delivery_count: int, limits: ShareLimits) -> RecordState:
    """Return the state of records that their member did not process.

    After the last allowed delivery they are archived.
    """
    if delivery_count < limits.delivery_count_limit:
        return RecordState.AVAILABLE
    return given_up_state(limits)


def given_up_state(limits: ShareLimits) -> RecordState:
    """Return the state of records that the group does not deliver again."""
    return RecordState.ARCHIVING if limits.has_dead_letters else RecordState.ARCHIVED


def terminal_count(run: RecordRun, start_offset: int) -> int:
    """Return the number of terminal records of a run from the start offset on."""
    if not is_terminal(run.state):
        return 0
    return max(0, run.last - max(start_offset, run.first) + 1)
