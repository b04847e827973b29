"""Plans of reassignments from the choices of a form, by the functions of `barnabas rebalance`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.machine_lines import machines_of
from barnabas.cli.partitions.balancing import BrokerLoad, broker_loads, plan_balance
from barnabas.cli.partitions.move_progress import bytes_to_copy
from barnabas.cli.partitions.planning import Move, PlanError, moves, plan_assignment
from barnabas.cli.partitions.reassign import current_replicas
from barnabas.cli.partitions.rebalance import measure_loads
from barnabas.console.absent import absent_topics
from barnabas.console.forms import FormError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.facade import Client
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.console.forms import Fields

# Moves that are started at once.
MOVES_MAX = 500
_TOLERANCE = 0.1


class Broker(NamedTuple):
    """A broker that may get replicas."""

    id: int
    rack: str | None
    machine: str
    is_serving: bool
    # Whether the plan uses it.
    is_used: bool


class MovePlan(NamedTuple):
    """The brokers to choose from and, if it was asked for, a plan."""

    brokers: list[Broker]
    planned: list[Move]
    # Load of each broker before and after the plan.
    loads: dict[int, tuple[BrokerLoad, BrokerLoad]]
    # Bytes that the new replicas copy.
    bytes_to_copy: int
    # Number of partitions whose replicas move now.
    active: int
    # Why there is no plan; "" if there is one.
    problem: str = ""
    # Whether the problem is that a topic does not exist.
    is_absent: bool = False


def load_plan(client: Client, query: Fields, *, is_asked: bool) -> MovePlan:
    """Return the brokers and, if it is asked for, the plan.

    Args:
        client: The client.
        query: `topics` (names; empty: all), `partitions` (numbers; empty: all), `use` (ids of
            brokers; none: all that serve), `how` ("balance" by bytes, or "even" by numbers of
            replicas) and `replicas` (number of replicas, for "even"; empty: unchanged).
        is_asked: Whether to plan.
    """
    cluster = client.describe_cluster()
    chosen = set(query.texts("use"))
    machines = machines_of((*cluster.brokers, *cluster.fenced))
    brokers = [
        Broker(
            node.id,
            node.rack,
            machines[node.id],
            serves,
            serves and (not chosen or str(node.id) in chosen),
        )
        for nodes, serves in ((cluster.brokers, True), (cluster.fenced, False))
        for node in nodes
    ]
    active = len(client.admin.list_reassignments())
    empty = MovePlan(sorted(brokers), [], {}, 0, active)
    absent = absent_topics(client, _names(query))
    if absent:
        problem = f"This cluster has no topic {', '.join(absent)}."
        return empty._replace(problem=problem, is_absent=True)
    if not is_asked:
        return empty
    try:
        return _planned(client, query, empty)
    except (PlanError, FormError) as error:
        return empty._replace(problem=str(error))


def _planned(client: Client, query: Fields, empty: MovePlan) -> MovePlan:
    racks = {each.id: each.rack for each in empty.brokers if each.is_used}
    machines = {each.id: each.machine for each in empty.brokers}
    if not racks:
        raise FormError("choose a broker that serves")
    if empty.active:
        raise FormError("wait until no replicas move, or cancel the moves: plans may collide")
    current = current_replicas(client, ())
    movable = _movable(current, query)
    loads = measure_loads(client, current, 0)
    wanted: Mapping[TopicPartition, Sequence[int]]
    if query.text("how") == "even":
        count = query.number("replicas", least=1) if query.stripped("replicas") else None
        chosen = {tp: current[tp] for tp in movable}
        wanted = {**current, **plan_assignment(chosen, racks, count, machines)}
    else:
        wanted = plan_balance(
            current, loads, racks, movable=movable, tolerance=_TOLERANCE, machines=machines
        )
    planned = moves(current, wanted)
    before = broker_loads(current, loads, [each.id for each in empty.brokers])
    after = broker_loads(wanted, loads, before)
    copied = bytes_to_copy(planned, {tp: load.size for tp, load in loads.items()})
    both = {broker: (before[broker], after[broker]) for broker in sorted(before)}
    return empty._replace(planned=planned, loads=both, bytes_to_copy=copied)


def _names(query: Fields) -> set[str]:
    return set(re.split(r"[\s,]+", query.stripped("topics"))) - {""}


def _movable(
    current: Mapping[TopicPartition, Sequence[int]], query: Fields
) -> list[TopicPartition]:
    """Return the partitions that the plan may change."""
    names = _names(query)
    numbers = set(query.integers("partitions")) if query.stripped("partitions") else None
    found = [
        tp
        for tp in current
        if (not names or tp.topic in names) and (numbers is None or tp.partition in numbers)
    ]
    if not found:
        raise FormError("there are no such partitions")
    return found
