"""A share partition without I/O, and short texts for its records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.share.group_settings import ShareLimits
from barnabas.server.share.records.acknowledgement import AcknowledgedBatch, Refusal
from barnabas.server.share.records.acquisition import BATCH_OPTIMIZED, FetchedBatch
from barnabas.server.share.records.in_flight_records import StoredBatch
from barnabas.server.share.records.record_states import StateChange
from barnabas.server.share.records.share_records import FetchedRecords, MemberRequest, ShareRecords

if TYPE_CHECKING:
    from collections.abc import Sequence

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)


class Bench:
    """A share partition over a log of record batches, and its clock."""

    def __init__(
        self, *stored: tuple[int, int, int, int], start_offset: int = 0, **limits: int | bool
    ) -> None:
        values = {"delivery_count_limit": 5, "record_locks_max": 200, "lock_duration_ms": 1_000}
        self.limits = ShareLimits(**{**values, **limits})  # type: ignore[arg-type]  # mixed values
        self.records = ShareRecords(start_offset, [StoredBatch(*each) for each in stored])
        self.log: list[FetchedBatch] = []
        self.now_ms = 0.0

    def append(self, *sizes: int) -> None:
        """Append a record batch with each number of records."""
        for size in sizes:
            first = self.log[-1].last + 1 if self.log else 0
            self.log.append(FetchedBatch(first, first + size - 1))

    def fetch(
        self,
        member: str = "a",
        records_max: int = 500,
        batch_size: int = 500,
        mode: int = BATCH_OPTIMIZED,
        batches_max: int = 100,
    ) -> list[tuple[int, int, int]]:
        """Read the log at the next fetch offset, and return the acquired records."""
        offset = self.records.in_flight.next_fetch_offset()
        found = [each for each in self.log if each.last >= offset][:batches_max]
        acquired = self.records.acquire(
            MemberRequest(member, mode, batch_size),
            records_max,
            FetchedRecords(offset, found),
            self.limits,
            self.now_ms,
        )
        return [(each.first, each.last, each.delivery_count) for each in acquired]

    def begin(self, *batches: tuple[int, int, Sequence[int]], member: str = "a") -> StateChange:
        """Acknowledge without the end of the write."""
        result = self._acknowledge(batches, member)
        assert isinstance(result, StateChange), result
        return result

    def acknowledge(self, *batches: tuple[int, int, Sequence[int]], member: str = "a") -> None:
        """Acknowledge and write."""
        self.end(self.begin(*batches, member=member))

    def refusal(self, *batches: tuple[int, int, Sequence[int]], member: str = "a") -> str:
        """Return the error of refused acknowledgements."""
        result = self._acknowledge(batches, member)
        assert isinstance(result, Refusal), result
        return result.error.name

    def _acknowledge(
        self, batches: Sequence[tuple[int, int, Sequence[int]]], member: str
    ) -> StateChange | Refusal:
        made = [AcknowledgedBatch(*each) for each in batches]
        return self.records.acknowledge(member, made, self.limits, self.now_ms)

    def end(self, change: StateChange, *, is_written: bool = True) -> None:
        """End a change."""
        self.records.end_change(change, is_written, self.now_ms, self.limits)

    def wait(self, duration_ms: float) -> None:
        """Let time pass."""
        self.now_ms += duration_ms
        self.records.expire(self.now_ms, self.limits)
        self.records.in_flight.advance()

    @property
    def states(self) -> str:
        """The ranges with one state: first-last, the state's letter, and the deliveries.

        V is available, A acquired, D acknowledged (done), G archiving, X archived.
        """
        letters = {0: "V", 1: "A", 2: "D", 3: "G", 4: "X"}
        found: list[list[object]] = []
        for run in self.records.in_flight.runs():
            state = f"{letters[run.state]}{run.delivery_count}{run.member_id}"
            if found and found[-1][1:] == [run.first - 1, state]:
                found[-1][1] = run.last
            else:
                found.append([run.first, run.last, state])
        return " ".join(f"{first}-{last}:{state}" for first, last, state in found)

    @property
    def offsets(self) -> tuple[int, int, int]:
        """Start offset, end offset and next fetch offset."""
        in_flight = self.records.in_flight
        return in_flight.start_offset, in_flight.end_offset, in_flight.next_fetch_offset()
