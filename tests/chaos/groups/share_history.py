"""What the members of a share group saw and did: what `share_checker` judges.

Times are seconds of one clock, that of the observer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from barnabas.client.share.acknowledge_type import AcknowledgeType

FOREVER = float("inf")


class Answer(Enum):
    """The result of an acknowledgement."""

    # No response: the acknowledgement may have taken effect or not.
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    # The broker says that the member does not have the record.
    REFUSED = "refused"


@dataclass
class Acknowledgement:
    """One acknowledgement of a delivered record."""

    kind: AcknowledgeType
    asked: float
    # When the response was there.
    ended: float = FOREVER
    answer: Answer = Answer.UNKNOWN

    @property
    def is_final(self) -> bool:
        """Whether the record is never delivered again once this is accepted."""
        return self.kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass
class Delivery:
    """A record that a member got."""

    member: str
    partition: int
    offset: int
    # Identifies the record's value.
    code: int
    # The delivery count that came with it.
    count: int
    # The broker acquired the record for the member between these times.
    after: float
    at: float
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    # When the member died, left or lost its session: from then on the lock may be gone.
    ended: float = FOREVER

    @property
    def given_up(self) -> float:
        """When the member first asked to end its lock, or ended itself."""
        asked = [a.asked for a in self.acknowledgements if a.kind is not AcknowledgeType.RENEW]
        return min([self.ended, *asked])

    def __str__(self) -> str:
        acks = ", ".join(
            f"{a.kind.name} {a.asked:.3f}-{a.ended:.3f} {a.answer.value}"
            for a in self.acknowledgements
        )
        return (
            f"{self.member} got offset {self.offset} at {self.at:.3f} with count {self.count} "
            f"[{acks}]"
        )


@dataclass
class ShareHistory:
    """All of it, about one topic and one group."""

    # How long a lock lasts (s), and how often a record is delivered at most.
    lock_s: float
    delivery_limit: int
    deliveries: list[Delivery] = field(default_factory=list)
    # Times during which the cluster or the network was disturbed. Locks may end in them, and
    # acquisitions may be lost.
    disturbances: list[tuple[float, float]] = field(default_factory=list)
    # Times at which members may have dropped records that they never returned: deaths, leaves,
    # long pauses.
    drops: list[tuple[float, float]] = field(default_factory=list)
    # The codes of each partition by offset, read after the end.
    logs: dict[int, dict[int, int]] = field(default_factory=dict)
    # The group's start offset in each partition at the end, after long calm, and the number of
    # records that it has not processed. The start offset is that of the last write, so records
    # above it may be processed.
    start_offsets: dict[int, int] = field(default_factory=dict)
    lags: dict[int, int] = field(default_factory=dict)

    def is_disturbed(self, began: float, ended: float) -> bool:
        """Return whether the cluster was disturbed in a time."""
        return any(a <= ended and b >= began for a, b in self.disturbances)

    def has_drops(self, began: float, ended: float) -> bool:
        """Return whether acquired records may have been lost in a time."""
        return self.is_disturbed(began, ended) or any(
            a <= ended and b >= began for a, b in self.drops
        )
