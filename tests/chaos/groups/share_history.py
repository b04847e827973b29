"""Operations of the members of a share group: the input of `share_checker`.

Times are seconds of one clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from barnabas.client.share.acknowledgements import AcknowledgeType

FOREVER = float("inf")


class Answer(Enum):
    """The result of an acknowledgement."""

    # No response, so it is unknown whether the acknowledgement has taken effect.
    UNKNOWN = "unknown"
    ACCEPTED = "accepted"
    # The broker reports that the member does not have the record.
    REFUSED = "refused"


@dataclass
class Acknowledgement:
    """One acknowledgement of a delivered record."""

    kind: AcknowledgeType
    asked: float
    # When the response arrived.
    ended: float = FOREVER
    answer: Answer = Answer.UNKNOWN

    @property
    def is_final(self) -> bool:
        """Whether the record is never delivered again once this is accepted."""
        return self.kind in (AcknowledgeType.ACCEPT, AcknowledgeType.REJECT)


@dataclass
class Delivery:
    """A record that was delivered to a member."""

    member: str
    partition: int
    offset: int
    # Identifies the record's value.
    code: int
    # The delivery count of the record.
    count: int
    # The broker acquired the record for the member between these times.
    after: float
    at: float
    acknowledgements: list[Acknowledgement] = field(default_factory=list)
    # When the member died, left or lost its session, which ends the lock.
    ended: float = FOREVER

    @property
    def given_up(self) -> float:
        """When the member first sent an acknowledgement that ends its lock, or ended itself."""
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
    """The history of one topic and one group."""

    # Duration of a lock (s), and maximum number of deliveries.
    lock_s: float
    delivery_limit: int
    deliveries: list[Delivery] = field(default_factory=list)
    # Times of faults of the cluster or the network, in which locks and acquisitions may be lost.
    disturbances: list[tuple[float, float]] = field(default_factory=list)
    # Times at which members may have dropped records that they never returned: deaths, leaves,
    # long pauses.
    drops: list[tuple[float, float]] = field(default_factory=list)
    # The codes of each partition by offset, read at the end.
    logs: dict[int, dict[int, int]] = field(default_factory=dict)
    # The group's final start offset in each partition, and the number of unprocessed
    # records. The start offset is that of the last write, so records
    # above it may be processed.
    start_offsets: dict[int, int] = field(default_factory=dict)
    lags: dict[int, int] = field(default_factory=dict)

    def is_disturbed(self, began: float, ended: float) -> bool:
        """Return whether there were faults of the cluster in a time."""
        return any(a <= ended and b >= began for a, b in self.disturbances)

    def has_drops(self, began: float, ended: float) -> bool:
        """Return whether acquired records may have been lost in a time."""
        return self.is_disturbed(began, ended) or any(
            a <= ended and b >= began for a, b in self.drops
        )
