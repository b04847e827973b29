"""The placement of new replicas on brokers, machines and racks.

The placement is that of Kafka's ReplicaPlacer, with machines added. Leaders are spread evenly over
the live brokers, and replicas over the racks (KIP-36). The partitions led by one broker have
different brokers as second replica.

Several brokers may run on one machine, which fails as a whole. Two replicas of a partition share a
machine only if every other usable machine has a replica of it. For this, a rack that has only
brokers on such machines is passed over, and a fenced broker on another machine is taken before a
live one: like a fenced broker in Kafka's placement, it joins the ISR when it returns. If each
broker has its own machine, or all brokers share one, the result is the same as Kafka's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from barnabas.controller.result import Refusal
from barnabas.metadata.machines import told_apart
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence

    from barnabas.runtime.rng import Rng


_T = TypeVar("_T")


class UsableBroker(NamedTuple):
    """A broker that may be given replicas."""

    id: int
    rack: str | None
    # A fenced broker takes replicas only if live brokers do not suffice, and never the first one.
    fenced: bool
    # The name of the broker's machine; None if no other broker is on it.
    machine: str | None = None


class PlacementSpec(NamedTuple):
    """The number of partitions and replicas to place."""

    partition_count: int
    replication_factor: int


class ReplicaPlacer(Protocol):
    """A placement strategy."""

    def place(self, spec: PlacementSpec, brokers: Sequence[UsableBroker]) -> Iterator[list[int]]:
        """Return the replicas of each new partition, the preferred leader first.

        Each partition is placed when the iterator is asked for it.

        Raises:
            Refusal: INVALID_REPLICATION_FACTOR if there are not enough brokers.
        """
        ...


class StripedPlacer:
    """Takes the racks in turn, and the brokers of a rack in turn (StripedReplicaPlacer).

    Leaders are spread over the racks and over the live brokers of each rack. The replicas of a
    partition are spread over as many racks as possible, and then over as many machines. Within a
    rack, a fenced broker is taken only if no live broker is left.

    Each round starts one broker later, so that the same leader has other followers. For the same
    reason, all orders are shuffled after as many partitions as there are live brokers.
    """

    def __init__(self, rng: Rng) -> None:
        self._rng = rng

    def place(self, spec: PlacementSpec, brokers: Sequence[UsableBroker]) -> Iterator[list[int]]:
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
        return (racks.place(factor) for _ in range(spec.partition_count))


def _interleaved(brokers: Sequence[int], machines: Mapping[int, Hashable]) -> list[int]:
    """Return the first broker of each machine, then the second of each, and so on.

    Neighbors are then on different machines as far as possible. Without this order, the broker
    that follows a machine's last broker would get the replicas of all brokers on that machine.
    """
    seen: dict[Hashable, int] = {}
    ranks: dict[int, int] = {}
    for broker in brokers:
        machine = machines[broker]
        ranks[broker] = seen.get(machine, 0)
        seen[machine] = ranks[broker] + 1
    return sorted(brokers, key=ranks.__getitem__)


class _MachineUse:
    """The number of replicas of one partition on each machine, and the limit for it."""

    __slots__ = ("_counts", "_limit", "_machines")

    def __init__(self, machines: Mapping[int, Hashable]) -> None:
        self._machines = machines
        self._counts: dict[Hashable, int] = {}
        # Replicas that a machine may have. It rises only if every machine has reached it.
        self._limit = 1

    def admits(self, broker: int) -> bool:
        """Return whether the broker's machine may have one more replica."""
        return self._counts.get(self._machines[broker], 0) < self._limit

    def add(self, broker: int) -> None:
        """Count a replica."""
        machine = self._machines[broker]
        self._counts[machine] = self._counts.get(machine, 0) + 1

    def raise_limit(self) -> None:
        """Allow one more replica on each machine."""
        self._limit += 1


class _Ring:
    """Brokers in turn: a round returns each broker once, and the next round starts one later."""

    __slots__ = ("_brokers", "_machines", "_offset", "_passed_over", "_round", "_taken")

    def __init__(self, brokers: list[int], machines: Mapping[int, Hashable], rng: Rng) -> None:
        self._machines = machines
        self._brokers = _interleaved(sorted(brokers), machines)
        self._offset = rng.randint(0, len(brokers) - 1) if brokers else 0
        self._round = 0
        self._taken = 0
        # Brokers of this round that come later, because their machine had a replica.
        self._passed_over: list[int] = []

    def next(self, turn: int, use: _MachineUse) -> int | None:
        """Return the next broker of round `turn` that `use` admits; None if there is none."""
        count = len(self._brokers)
        if count and turn != self._round:
            self._round = turn
            self._taken = 0
            self._offset = (self._offset + 1) % count
            self._passed_over = []
        for index, broker in enumerate(self._passed_over):
            if use.admits(broker):
                return self._passed_over.pop(index)
        while self._taken < count:
            broker = self._brokers[(self._offset + self._taken) % count]
            self._taken += 1
            if use.admits(broker):
                return broker
            self._passed_over.append(broker)
        return None

    def shuffle(self, rng: Rng) -> None:
        """Shuffle the order of the brokers."""
        _shuffle(self._brokers, rng)
        self._brokers = _interleaved(self._brokers, self._machines)


class _Rack:
    """The brokers of one rack, or the brokers without a rack."""

    __slots__ = ("fenced", "live")

    def __init__(
        self, brokers: list[UsableBroker], machines: Mapping[int, Hashable], rng: Rng
    ) -> None:
        self.live = _Ring([broker.id for broker in brokers if not broker.fenced], machines, rng)
        self.fenced = _Ring([broker.id for broker in brokers if broker.fenced], machines, rng)

    def next(self, turn: int, use: _MachineUse) -> int | None:
        """Return a live broker if one is left, otherwise a fenced one; None if none is left."""
        broker = self.live.next(turn, use)
        return self.fenced.next(turn, use) if broker is None else broker


class _Racks:
    """All racks in turn."""

    __slots__ = ("_first", "_live_count", "_machines", "_racks", "_rng", "_turn")

    def __init__(self, brokers: Sequence[UsableBroker], rng: Rng) -> None:
        by_name: dict[str | None, list[UsableBroker]] = {}
        for broker in sorted(brokers, key=lambda each: (each.rack or "", each.id)):
            by_name.setdefault(broker.rack, []).append(broker)
        self._rng = rng
        machines = {each.id: each.machine for each in brokers}
        self._machines = told_apart(machines, machines)
        self._racks = [_Rack(each, self._machines, rng) for each in by_name.values()]
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
        use = _MachineUse(self._machines)
        rack = self._first % count
        leader = self._racks[rack].live.next(self._turn, use)
        while leader is None:
            rack = (rack + 1) % count
            leader = self._racks[rack].live.next(self._turn, use)
        use.add(leader)
        replicas = [leader]
        # Number of racks in a row without a broker that the limit admits.
        in_vain = 0
        while len(replicas) < factor:
            if in_vain == count:
                use.raise_limit()
                in_vain = 0
            rack = (rack + 1) % count
            broker = self._racks[rack].next(self._turn, use)
            if broker is None:
                in_vain += 1
                continue
            use.add(broker)
            replicas.append(broker)
            in_vain = 0
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
