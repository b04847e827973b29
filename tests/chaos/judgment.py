"""The judgment at the end of a campaign: of the records, the groups, the logs and the files."""

from __future__ import annotations

import gc
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from chaos.checker import Verdict, check
from chaos.cluster_view import await_that
from chaos.damage import verify
from chaos.evidence import evidence, producer_epochs
from chaos.failing_node import InjectedTimerError
from chaos.group_load import SHARE_GROUP
from chaos.history import History, Run
from chaos.outcome import Outcome
from chaos.streams_load import STREAMS_GROUP
from chaos.stress import (
    COMPACTED_TOPICS,
    HEAL_TIMEOUT_S,
    OFFSETS_TOPIC,
    REPLICAS,
    TOPIC,
    Stress,
)
from chaos.tier.tier_checker import await_clean_tier
from chaos.tier.tier_loads import TierReading
from chaos.transaction_checker import check_transactions
from jvm.kafka_node import KafkaNode
from loop_turns import long_turns_in
from scenario.segments import read_replica

# Lines that a node's log must not have: unexpected errors.
UNEXPECTED = re.compile(r"Traceback|AssertionError|never retrieved")
# The warning of our clients that a program has dropped.
NOT_CLOSED = "was not closed"
_ENTRY_START = re.compile(r"\n(?=\S)")


@contextmanager
def watched_clients() -> Iterator[Callable[[], list[str]]]:
    """Yield a function that returns our clients which a load has dropped without closing them."""
    with warnings.catch_warnings(record=True) as caught:
        # What others have dropped is not counted.
        gc.collect()
        caught.clear()
        warnings.simplefilter("always", ResourceWarning)

        def dropped() -> list[str]:
            gc.collect()
            messages = [str(each.message) for each in caught]
            return [f"a load: {each}" for each in messages if NOT_CLOSED in each]

        yield dropped


def judge(stress: Stress, outcome: Outcome) -> None:
    """Stop the load, and check everything."""
    try:
        _judge_transactions(stress, outcome)
        _judge_sides(stress, outcome)
        history = stress.load.finish()
        history.runs += _runs_of_sides(stress)
        _judge_groups(stress, history, outcome)
    except AssertionError as error:
        outcome.problems.append(str(error))
        return
    outcome.records = stress.load.records()
    outcome.failed_sends = stress.load.failures()
    outcome.read_by_group = sum(len(run.offsets) for run in history.member_runs)
    verdict: Verdict = check(history)
    if not verdict.is_clean:
        # Producer epochs show whether the client or the cluster has created a duplicate.
        for log in history.logs.values():
            holder = holders_of(stress.cluster, TOPIC, log.partition)[0]
            log.producer_epochs = producer_epochs(holder.data_directory, TOPIC, log.partition)
            if stress.tier is not None:
                log.producer_epochs |= stress.tier.producer_epochs(TOPIC, log.partition)
        verdict = check(history)
    outcome.verdict = str(verdict)
    if not verdict.is_clean:
        outcome.problems.append(str(verdict))
        brokers = {node.node_id: node.data_directory for node in stress.cluster.brokers}
        outcome.evidence = evidence(verdict, TOPIC, brokers)
    tiered: set[str] = set()
    if stress.tier is not None:
        tiered = stress.tier.topics
        outcome.problems += await_clean_tier(stress.tier, stress.view, stress.cluster.bootstrap)
    for topic, partitions in stress.topics.items():
        if topic != OFFSETS_TOPIC:
            is_tiered = topic in tiered
            outcome.problems += compare_replicas(
                stress.cluster, partitions, topic, is_tiered=is_tiered
            )
    outcome.problems += verify_directories(stress.cluster)


def _judge_groups(stress: Stress, history: History, outcome: Outcome) -> None:
    """Check share and streams group, and add the events of the consumer group to the history."""
    if stress.groups is None:
        return
    verdicts = stress.groups.finish(history)
    outcome.read_by_modern_group = stress.groups.read
    outcome.delivered_to_share_group = stress.groups.delivered
    outcome.committed_by_streams_group = stress.groups.committed
    outcome.share_verdict = str(verdicts[SHARE_GROUP])
    outcome.streams_verdict = str(verdicts[STREAMS_GROUP])
    outcome.problems += [f"{group}: {x}" for group, x in verdicts.items() if not x.is_clean]


def _judge_sides(stress: Stress, outcome: Outcome) -> None:
    for side in stress.sides:
        verdict = side.settle()
        outcome.sides[side.name] = f"{side.figures()}, {verdict}"
        if not verdict.is_clean:
            outcome.problems.append(f"{side.name}: {verdict}")


def _runs_of_sides(stress: Stress) -> list[Run]:
    """Return what side loads have read of the topic of the load."""
    return [run for side in stress.sides if isinstance(side, TierReading) for run in side.runs]


def _judge_transactions(stress: Stress, outcome: Outcome) -> None:
    transactional = stress.transactional
    if transactional is None:
        return
    try:
        verdict = check_transactions(transactional.finish())
    finally:
        outcome.transactions = transactional.figures()
        outcome.transactional_errors = transactional.errors()
    outcome.transactions_verdict = str(verdict)
    if not verdict.is_clean:
        outcome.problems.append(f"transactions: {verdict}")


def holders_of(cluster: ClusterProcess, topic: str, partition: int) -> list[NodeProcess]:
    """Return the brokers whose directories have the partition."""
    name = f"{topic}-{partition}"
    return [node for node in cluster.brokers if (node.data_directory / name).is_dir()]


def compare_replicas(
    cluster: ClusterProcess, partitions: int, topic: str = TOPIC, *, is_tiered: bool = False
) -> list[str]:
    """Return replicas whose segment files differ in bytes (LogMatching).

    Replicas of a compacted topic may be compacted at different times: there, the last record of
    each key must be the same. Replicas of a tiered topic may begin at different offsets: there, the
    common part must be the same.
    """

    def are_equal(nodes: tuple[NodeProcess, NodeProcess], partition: int) -> bool:
        first, second = (read_replica(each.data_directory, topic, partition) for each in nodes)
        if topic in COMPACTED_TOPICS:
            return first.latest() == second.latest()
        starts = [first.start_offset, second.start_offset]
        if not is_tiered or None in starts:
            return is_tiered or first.data == second.data
        start = max(each for each in starts if each is not None)
        return first.data_from(start) == second.data_from(start)

    found = []
    factor = min(REPLICAS, len(cluster.brokers))
    for partition in range(partitions):
        name = f"{topic}-{partition}"
        holders = holders_of(cluster, topic, partition)
        if len(holders) != factor:
            found.append(f"{name} is in the directories of {len(holders)} brokers, not {factor}")
            continue
        for node in holders[1:]:
            try:
                await_that(
                    lambda nodes=(holders[0], node), partition=partition: are_equal(
                        nodes, partition
                    ),
                    bool,
                    HEAL_TIMEOUT_S,
                    f"the same content of {name} on {node.node_id}",
                )
            except AssertionError as error:
                found.append(str(error))
    return found


def verify_directories(cluster: ClusterProcess) -> list[str]:
    """Stop our nodes, and return what `barnabas log verify` finds in their directories."""
    nodes = {node.node_id: node for node in (*cluster.brokers, *cluster.controllers)}
    ours = {number: node for number, node in nodes.items() if not isinstance(node, KafkaNode)}
    if ours:
        cluster.stop()
    found = {number: verify(node.data_directory) for number, node in ours.items()}
    return [f"files of node {number}: {words}" for number, words in found.items() if words]


def long_turns(cluster: ClusterProcess) -> list[str]:
    """Return log lines of the nodes about turns of the event loop over 100 ms of CPU time."""
    return [
        f"node {number}: {line}"
        for number, node in cluster.nodes.items()
        if not isinstance(node, KafkaNode)
        for line in long_turns_in(node.log())
    ]


def unexpected_errors(cluster: ClusterProcess) -> list[str]:
    """Return unexpected errors in the logs of Barnabas nodes."""
    return [
        f"log of node {number}: {found}"
        for number, node in cluster.nodes.items()
        if not isinstance(node, KafkaNode)
        for found in unexpected_in(node.log())
    ]


def unexpected_in(log: str) -> list[str]:
    """Return the surroundings of the first unexpected error of a log, which was not injected."""
    # Every entry begins at the margin, and the lines of its traceback are indented.
    entries = _ENTRY_START.split(log)
    rest = "\n".join(each for each in entries if InjectedTimerError.__name__ not in each)
    hit = UNEXPECTED.search(rest)
    return [rest[max(0, hit.start() - 300) :][:3000]] if hit else []
