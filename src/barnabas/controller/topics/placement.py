"""Placement of new replicas on brokers (Kafka's ReplicaPlacer; racks: KIP-36).

Leaders are spread evenly over the live brokers, and replicas over the racks. The partitions led by
one broker have different brokers as second replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from barnabas.controller.result import Refusal
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.runtime.rng import Rng


_T = TypeVar("_T")


class UsableBroker(NamedTuple):
    """A broker that may be given replicas."""

    id: int
    rack: str | None
    # A fenced broker takes replicas only if live brokers do not suffice, and never the first one.
    fenced: bool


class PlacementSpec(NamedTuple):
    """The number of partitions and replicas to place."""

    partition_count: int
    replication_factor: int


class ReplicaPlacer(Protocol):
    """A placement strategy."""

    def place(self, spec: PlacementSpec, brokers: Sequence[UsableBroker]) -> list[list[int]]:
        """Return the replicas of each new partition, the preferred leader first.

        Raises:
            Refusal: INVALID_REPLICATION_FACTOR if there are not enough brokers.
        """
        ...


class StripedPlacer:
    """Takes the racks in turn, and the brokers of a rack in turn (StripedReplicaPlacer).

    Leaders are spread over the racks and over the live brokers of each rack. The replicas of a
    partition are spread over as many racks as possible. Within a rack, a fenced broker is taken
    only if no live broker is left.

    Each round starts one broker later, so that the same leader has other followers. For the same
    reason, all orders are shuffled after as many partitions as there are live brokers.
    """

    __slots__ = ("_rng",)

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def place(self, spec: PlacementSpec, brokers: Sequence[UsableBroker]) -> list[list[int]]:
        """Return the replicas of each new partition, the preferred leader first."""
        factor = spec.replication_factor
        if all(broker.fenced for broker in brokers):
            raise Refusal(ErrorCode.INVALID_REPLICATION_FACTOR, "no broker is live")
        if len(brokers) < factor:
            raise Refusal(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {factor} exceeds the number of registered brokers, "
                f"{len(brokers)}",
            )
        racks = _Racks(brokers, self._rng)
        return [racks.place(factor) for _ in range(spec.partition_count)]


class _Ring:
    """Brokers in turn: a round returns each broker once, and the next round starts one later."""

    __slots__ = ("_brokers", "_offset", "_round", "_taken")

    def __init__(self, brokers: list[int], rng: Rng) -> None:
        self._brokers = sorted(brokers)
        self._offset = rng.randint(0, len(brokers) - 1) if brokers else 0
        self._round = 0
        self._taken = 0

    def next(self, turn: int) -> int | None:
        """Return the next broker of round `turn`; None after all brokers."""
        count = len(self._brokers)
        if count and turn != self._round:
            self._round = turn
            self._taken = 0
            self._offset = (self._offset + 1) % count
        if self._taken >= count:
            return None
        broker = self._brokers[(self._offset + self._taken) % count]
        self._taken += 1
        return broker

    def shuffle(self, rng: Rng) -> None:
        """Shuffle the order of the brokers."""
        _shuffle(self._brokers, rng)


class _Rack:
    """The brokers of one rack, or the brokers without a rack."""

    __slots__ = ("fenced", "live")

    def __init__(self, brokers: list[UsableBroker], rng: Rng) -> None:
        self.live = _Ring([broker.id for broker in brokers if not broker.fenced], rng)
        self.fenced = _Ring([broker.id for broker in brokers if broker.fenced], rng)

    def next(self, turn: int) -> int | None:
        """Return a live broker if one is left, otherwise a fenced one; None if none is left."""
        broker = self.live.next(turn)
        return self.fenced.next(turn) if broker is None else broker


class _Racks:
    """All racks in turn."""

    __slots__ = ("_first", "_live_count", "_racks", "_rng", "_turn")

    def __init__(self, brokers: Sequence[UsableBroker], rng: Rng) -> None:
        by_name: dict[str | None, list[UsableBroker]] = {}
        for broker in sorted(brokers, key=lambda each: (each.rack or "", each.id)):
            by_name.setdefault(broker.rack, []).append(broker)
        self._rng = rng
        self._racks = [_Rack(each, rng) for each in by_name.values()]
        self._live_count = sum(not broker.fenced for broker in brokers)
        # Index of the rack that gives the next partition its leader.
        self._first = rng.randint(0, len(self._racks) - 1)
        # Number of placed partitions.
        self._turn = 0

    def place(self, factor: int) -> list[int]:
        """Return the replicas of the next partition."""
        if self._turn and self._turn % self._live_count == 0:
            self._shuffle()
        count = len(self._racks)
        rack = self._first % count
        leader = self._racks[rack].live.next(self._turn)
        while leader is None:
            rack = (rack + 1) % count
            leader = self._racks[rack].live.next(self._turn)
        replicas = [leader]
        while len(replicas) < factor:
            rack = (rack + 1) % count
            broker = self._racks[rack].next(self._turn)
            if broker is not None:
                replicas.append(broker)
        self._turn += 1
        self._first = (self._first + 1) % count
        return replicas

    def _shuffle(self) -> None:
        _shuffle(self._racks, self._rng)
        for rack in self._racks:
            rack.live.shuffle(self._rng)
            rack.fenced.shuffle(self._rng)


def _shuffle(items: list[_T], rng: Rng) -> None:
    for last in range(len(items) - 1, 0, -1):
        other = rng.randint(0, last)
        items[last], items[other] = items[other], items[last]
