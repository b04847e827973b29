"""Plans of reassignments that balance brokers by size, traffic and number of replicas.

Each broker has a load in three dimensions: the bytes of its replicas, the bytes per second that its
replicas receive, and the number of its replicas. Loads are divided by the average load of the
brokers, so that 1 is the average in each dimension.

First, replicas leave the brokers that must be empty, and machines that have another replica of the
same partition, if a machine without one is there. Then replicas move from a broker above the
average to a broker below it. A broker that differs from the average by more than the tolerance
starts this, and it goes on until all brokers are within half of the tolerance: after the moves,
a little more traffic is no reason for further ones. Of the replicas that fit, the replica with the
largest effect per copied byte moves. At last, preferred leaders change, which copies nothing.

Each move reduces the weighted sum of all squared loads. Planning ends when no move does, so a
second plan has nothing to move; thousands of partitions may need more passes than the limit. The
number of racks, and of machines, with a replica of a partition never becomes smaller, except when
a rack has no broker left.

A search for the best plan was turned down: it takes minutes for thousands of partitions, and the
loads change before the moves end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.partitions.planning import too_few_brokers
from barnabas.metadata.machines import told_apart

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from barnabas.client.topic_partition import TopicPartition

# A broker within this share of the average load is balanced.
TOLERANCE = 0.1
# A move closes at least half of the difference between two brokers, unless it fits completely.
_SHARE_OF_GAP_MAX = 0.75
# Differences of loads, and of squared loads, below this are rounding errors.
_EPSILON = 1e-9
# Most plans need fewer passes over the brokers; thousands of partitions would need many more.
_PASSES_MAX = 20

# Size, traffic and number of replicas, divided by the average of the brokers.
Load = tuple[float, float, float]
_SIZE = 0
_DIMENSIONS = range(3)
# How much each dimension counts: balanced bytes are never given up for equal numbers of replicas.
_IMPORTANCE = (64.0, 8.0, 1.0)


class PartitionLoad(NamedTuple):
    """The load that one replica of a partition puts on its broker."""

    # Bytes.
    size: int
    # Bytes per second that producers write.
    rate: float = 0.0


class BrokerLoad(NamedTuple):
    """The load of one broker."""

    replicas: int = 0
    # Number of partitions whose preferred leader the broker is.
    leaders: int = 0
    # Bytes.
    size: int = 0
    # Bytes per second that the replicas receive.
    rate: float = 0.0


def broker_loads(
    replicas: Mapping[TopicPartition, Sequence[int]],
    loads: Mapping[TopicPartition, PartitionLoad],
    brokers: Iterable[int],
) -> dict[int, BrokerLoad]:
    """Return the load of each broker with these replicas."""
    found = dict.fromkeys(sorted(brokers), BrokerLoad())
    for tp, nodes in replicas.items():
        for node in nodes:
            has = found.get(node, BrokerLoad())
            found[node] = BrokerLoad(
                has.replicas + 1,
                has.leaders + (node == nodes[0]),
                has.size + loads[tp].size,
                has.rate + loads[tp].rate,
            )
    return found


def plan_balance(
    current: Mapping[TopicPartition, Sequence[int]],
    loads: Mapping[TopicPartition, PartitionLoad],
    racks: Mapping[int, str | None],
    *,
    movable: Collection[TopicPartition] | None = None,
    tolerance: float = TOLERANCE,
    machines: Mapping[int, str] | None = None,
) -> dict[TopicPartition, list[int]]:
    """Return the planned replicas of each partition, preferred leader first.

    Args:
        current: The current replicas of all partitions.
        loads: The load of each partition.
        racks: The brokers to use, with their racks. All other brokers become empty.
        movable: The partitions that may change; None for all of them.
        tolerance: The share of the average load by which a broker may differ from it.
        machines: Machine by broker; None if each broker has its own.

    Raises:
        PlanError: There are fewer brokers than replicas of a partition.
    """
    places = {
        broker: _Place(racks[broker], machine)
        for broker, machine in told_apart(machines or {}, sorted(racks)).items()
    }
    balancer = _Balancer(current, loads, places, current if movable is None else movable, tolerance)
    balancer.empty_other_brokers()
    balancer.separate_machines()
    balancer.even_out()
    balancer.spread_leaders()
    return balancer.replicas


class _Place(NamedTuple):
    """Where a broker runs."""

    rack: str | None
    machine: object


class _Balancer:
    """The computation of one plan."""

    def __init__(
        self,
        current: Mapping[TopicPartition, Sequence[int]],
        loads: Mapping[TopicPartition, PartitionLoad],
        places: Mapping[int, _Place],
        movable: Collection[TopicPartition],
        tolerance: float,
    ) -> None:
        self._current = current
        # The brokers to use.
        self._places = places
        self._movable = frozenset(movable)
        # Brokers outside these bounds are balanced, until they are within the inner bounds.
        self._high, self._low = 1 + tolerance, 1 - tolerance
        self._inner_high, self._inner_low = 1 + tolerance / 2, 1 - tolerance / 2
        self.replicas = {tp: list(nodes) for tp, nodes in current.items()}
        # Bytes that a move of a replica copies.
        self._sizes = {tp: load.size for tp, load in loads.items()}
        size, rate, count = self._averages(loads)
        # The load of one replica.
        self._weights: dict[TopicPartition, Load] = {
            tp: (
                _divided(loads[tp].size, size),
                _divided(loads[tp].rate, rate),
                _divided(1, count),
            )
            for tp in current
        }
        self._load: dict[int, list[float]] = {broker: [0.0, 0.0, 0.0] for broker in places}
        # The partitions of each broker; a dictionary keeps their order.
        self._on: dict[int, dict[TopicPartition, None]] = {broker: {} for broker in self._load}
        for tp, nodes in self.replicas.items():
            for node in nodes:
                if node in self._load:
                    self._add(tp, node)

    def _averages(self, loads: Mapping[TopicPartition, PartitionLoad]) -> Load:
        """Return the average size, traffic and number of replicas of a broker after the plan."""
        size, rate, count = 0.0, 0.0, 0.0
        for tp, nodes in self._current.items():
            # Replicas of other partitions stay where they are, also on brokers that are not used.
            is_movable = tp in self._movable
            replicas = len(nodes) if is_movable else sum(node in self._places for node in nodes)
            size += loads[tp].size * replicas
            rate += loads[tp].rate * replicas
            count += replicas
        brokers = len(self._places)
        return size / brokers, rate / brokers, count / brokers

    def _add(self, tp: TopicPartition, broker: int) -> None:
        self._on[broker][tp] = None
        for dimension, weight in enumerate(self._weights[tp]):
            self._load[broker][dimension] += weight

    def _remove(self, tp: TopicPartition, broker: int) -> None:
        del self._on[broker][tp]
        for dimension, weight in enumerate(self._weights[tp]):
            self._load[broker][dimension] -= weight

    def empty_other_brokers(self) -> None:
        """Replace replicas on brokers that are not used, the largest partitions first.

        Raises:
            PlanError: There are fewer brokers than replicas of a partition.
        """
        leaving = [
            tp
            for tp, nodes in self.replicas.items()
            if tp in self._movable and not all(node in self._places for node in nodes)
        ]
        for tp in sorted(leaving, key=lambda tp: (-self._sizes[tp], tp)):
            nodes = self.replicas[tp]
            if len(nodes) > len(self._places):
                raise too_few_brokers(tp, len(nodes), self._places)
            for index, node in enumerate(nodes):
                if node not in self._places:
                    nodes[index] = self._target(tp, index)
                    self._add(tp, nodes[index])

    def _target(self, tp: TopicPartition, index: int) -> int:
        """Return the broker for a replica: with few replicas on its machine, and little load.

        Of brokers with equally few replicas on their machines, one in a rack without another
        replica is chosen.
        """
        nodes = self.replicas[tp]
        others = self._places_of(node for place, node in enumerate(nodes) if place != index)
        weights = self._weights[tp]

        def rank(broker: int) -> tuple[int, bool, float, int]:
            place = self._places[broker]
            load = max(has + more for has, more in zip(self._load[broker], weights, strict=True))
            shares_rack = place.rack is not None and any(place.rack == o.rack for o in others)
            return _count_on(place.machine, others), shares_rack, load, broker

        return min((broker for broker in self._load if broker not in nodes), key=rank)

    def _places_of(self, nodes: Iterable[int]) -> list[_Place]:
        """Return the places of those nodes that the plan uses."""
        return [self._places[node] for node in nodes if node in self._places]

    def separate_machines(self) -> None:
        """Move replicas that share a machine to machines with fewer replicas of the partition."""
        for tp in sorted(self._movable, key=lambda tp: (-self._sizes[tp], tp)):
            nodes = self.replicas[tp]
            if len(nodes) == len(self._places):
                continue
            # The preferred leader comes last, so that it stays if another replica can move.
            for index in reversed(range(len(nodes))):
                others = self._places_of(node for node in nodes if node != nodes[index])
                shared = _count_on(self._places[nodes[index]].machine, others)
                if not shared:
                    continue
                target = self._target(tp, index)
                if _count_on(self._places[target].machine, others) < shared:
                    self._remove(tp, nodes[index])
                    nodes[index] = target
                    self._add(tp, target)

    def even_out(self) -> None:
        """Move replicas from brokers above the average to brokers below it."""
        for _ in range(_PASSES_MAX):
            if not any(map(self._even_out, filter(self._is_uneven, _DIMENSIONS))):
                break

    def _is_uneven(self, dimension: int) -> bool:
        return self._are_uneven([load[dimension] for load in self._load.values()])

    def _are_uneven(self, loads: Sequence[float]) -> bool:
        """Return whether loads differ too much from their average, which is 1, or 0 if idle."""
        return max(loads) > self._high or min(loads) < self._low <= max(loads)

    def _even_out(self, dimension: int) -> bool:
        """Even out the loads in one dimension. Return whether a replica moved."""
        candidates: dict[int, list[TopicPartition]] = {}
        # Pairs of brokers between which no replica could move. Later moves may change this, and
        # then the next call finds the replica.
        tried: set[tuple[int, int]] = set()
        has_moved = False
        while (pair := self._next_pair(dimension, tried)) is not None:
            over, under = pair
            if over not in candidates:
                candidates[over] = self._ordered(dimension, over)
            tp = self._choose(candidates[over], dimension, over, under)
            if tp is None:
                tried.add(pair)
                continue
            nodes = self.replicas[tp]
            nodes[nodes.index(over)] = under
            self._remove(tp, over)
            self._add(tp, under)
            has_moved = True
        return has_moved

    def _next_pair(self, dimension: int, tried: set[tuple[int, int]]) -> tuple[int, int] | None:
        """Return the most different brokers, above and below the average, that were not tried."""
        by_load = sorted(self._load, key=lambda broker: (self._load[broker][dimension], broker))
        for over in reversed(by_load):
            above = self._load[over][dimension]
            if above <= 1 + _EPSILON:
                break
            for under in by_load:
                below = self._load[under][dimension]
                if below >= 1 - _EPSILON or (
                    above <= self._inner_high and below >= self._inner_low
                ):
                    break
                if (over, under) not in tried:
                    return over, under
        return None

    def _ordered(self, dimension: int, broker: int) -> list[TopicPartition]:
        """Return the partitions of a broker that may move, those with the best effect first.

        The replicas that were created by this plan are copied anyway. The others are ordered by
        their effect per copied byte.
        """

        def rank(tp: TopicPartition) -> tuple[bool, float]:
            weight = self._weights[tp][dimension]
            effect = weight if dimension == _SIZE else weight / (self._sizes[tp] + 1)
            return broker not in self._current[tp], effect

        found = [
            tp
            for tp in self._on[broker]
            if tp in self._movable and self._weights[tp][dimension] > 0
        ]
        return sorted(found, key=rank, reverse=True)

    def _choose(
        self, candidates: Sequence[TopicPartition], dimension: int, over: int, under: int
    ) -> TopicPartition | None:
        """Return the partition whose replica should move between two brokers, if any may move.

        A replica fits if neither broker crosses the average. If none fits, the smallest one moves.
        """
        above, below = self._load[over][dimension], self._load[under][dimension]
        fitting = min(above - 1, 1 - below) + _EPSILON
        largest = (above - below) * _SHARE_OF_GAP_MAX
        weights = self._weights
        larger = []
        for tp in candidates:
            weight = weights[tp][dimension]
            if weight <= min(fitting, largest):
                if self._may_move(tp, over, under):
                    return tp
            elif weight <= largest:
                larger.append(tp)
        larger.sort(key=lambda tp: weights[tp][dimension])
        return next((tp for tp in larger if self._may_move(tp, over, under)), None)

    def _may_move(self, tp: TopicPartition, over: int, under: int) -> bool:
        """Return whether the move is possible, and reduces the sum of the squared loads."""
        nodes = self.replicas[tp]
        if under in nodes or over not in nodes:
            return False
        change = sum(
            importance * weight * (gets + weight - has)
            for importance, weight, has, gets in zip(
                _IMPORTANCE, self._weights[tp], self._load[over], self._load[under], strict=True
            )
        )
        return change < -_EPSILON and self._keeps_apart(nodes, over, under)

    def _keeps_apart(self, nodes: Sequence[int], over: int, under: int) -> bool:
        """Return whether the move lets replicas share neither more racks nor more machines."""
        places = self._places
        others = self._places_of(node for node in nodes if node != over)
        racks = {place.rack for place in others}
        if places[under].rack in racks and places[over].rack not in racks:
            return False
        new, old = (_count_on(places[each].machine, others) for each in (under, over))
        return new <= old

    def spread_leaders(self) -> None:
        """Change preferred leaders, until no change of one partition spreads them better."""
        led = {tp: nodes for tp, nodes in self.replicas.items() if nodes[0] in self._places}
        total_rate = sum(self._weights[tp][1] for tp in led)
        weights = {
            tp: (
                _divided(self._weights[tp][1], total_rate / len(self._places)),
                len(self._places) / len(led),
            )
            for tp in led
        }
        leads = {broker: [0.0, 0.0] for broker in self._places}
        for tp, nodes in led.items():
            for dimension, weight in enumerate(weights[tp]):
                leads[nodes[0]][dimension] += weight
        if not any(map(self._are_uneven, zip(*leads.values(), strict=True))):
            return
        order = sorted(self._movable & led.keys(), key=lambda tp: (weights[tp], tp), reverse=True)
        has_changed = True
        while has_changed:
            has_changed = False
            for tp in order:
                leader = self._better_leader(self.replicas[tp], weights[tp], leads)
                if leader is None:
                    continue
                nodes = self.replicas[tp]
                for dimension, weight in enumerate(weights[tp]):
                    leads[nodes[0]][dimension] -= weight
                    leads[leader][dimension] += weight
                nodes.remove(leader)
                nodes.insert(0, leader)
                has_changed = True

    def _better_leader(
        self,
        nodes: Sequence[int],
        weights: tuple[float, float],
        leads: Mapping[int, Sequence[float]],
    ) -> int | None:
        """Return the follower that should be the preferred leader; None for the current leader."""
        leader = nodes[0]
        best, best_change = None, -_EPSILON
        for follower in nodes[1:]:
            if follower not in leads:
                continue
            change = 0.0
            is_unbalanced = False
            for weight, has, gets in zip(weights, leads[leader], leads[follower], strict=True):
                change += weight * (gets + weight - has)
                is_outside = has > self._inner_high or gets < self._inner_low
                is_unbalanced = is_unbalanced or (weight > 0 and is_outside)
            if is_unbalanced and change < best_change:
                best, best_change = follower, change
        return best


def _count_on(machine: object, places: Iterable[_Place]) -> int:
    return sum(place.machine == machine for place in places)


def _divided(value: float, average: float) -> float:
    return value / average if average else 0.0
