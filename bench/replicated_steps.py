"""Counts the interpreter's instructions of three nodes for a Produce with acks=all.

The nodes run in virtual time, so other programs have no influence. Their code is the same as with
real sockets and files. The code of the simulation is not counted. See `bench.steps`.
"""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from barnabas.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.record.builder import BatchBuilder
from barnabas.sim.network import NetworkConditions
from bench.brokers import find_tests
from bench.flame import TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from barnabas.sim.clock import SimTimer

    Trace = Callable[[FrameType, str, Any], Any]

REQUESTS = 20
SETTLED_MS = 20.0
ACKS_ALL = -1
_SIMULATION = f"{os.sep}sim{os.sep}"


class NodeSteps:
    """Counts the instructions of simulated nodes by function."""

    def __init__(self) -> None:
        # All code of a node runs in callbacks of its timer.
        self.by_timer: defaultdict[SimTimer, Counter[str]] = defaultdict(Counter)
        self._current: Counter[str] = Counter()

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Trace | None:
        """Count an instruction. The interpreter calls this method."""
        code = frame.f_code
        if _SIMULATION in code.co_filename:
            if code.co_qualname == "_SimCallback._run":
                self._current = self.by_timer[frame.f_locals["self"]._timer]
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        if event == "opcode":
            self._current[f"{os.path.basename(code.co_filename)}:{code.co_qualname}"] += 1
        return self.trace


def count_replicated() -> dict[str, Counter[str]]:
    """Return the usual instructions of the leader and of both followers for a Produce."""
    find_tests()
    from unit.server.simulated_cluster import three_nodes

    cluster = three_nodes()
    world = cluster.world
    world.network.conditions = NetworkConditions(whole_read_share=1.0)
    topic = CreatableTopic(
        name=TOPIC,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2, 3])],
        configs=[],
    )
    cluster.ask(cluster.active, CreateTopicsRequest(topics=[topic]), 5)
    world.run_for(1_000)
    batch = BatchBuilder()
    batch.append(world.host("node-1").clock.wall_ms(), None, bytes(100))
    data = PartitionProduceData(index=0, records=bytes(batch.build()))
    request = ProduceRequest(
        acks=ACKS_ALL,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=TOPIC, partition_data=[data])],
    )
    counted: list[NodeSteps] = []
    for _ in range(REQUESTS):
        steps = NodeSteps()
        sys.settrace(steps.trace)
        response = cluster.ask(1, request, 7)
        assert response.responses[0].partition_responses[0].error_code == 0, response
        world.run_for(SETTLED_MS)
        sys.settrace(None)
        counted.append(steps)
    names = {"Leader": 1, "Follower": 2, "Other follower": 3}
    return {
        name: _usual([each.by_timer[world.host(f"node-{node}").timer] for each in counted])
        for name, node in names.items()
    }


def _usual(counted: list[Counter[str]]) -> Counter[str]:
    """Return the count with the most frequent total."""
    usual = Counter(each.total() for each in counted).most_common(1)[0][0]
    return next(each for each in counted if each.total() == usual)
