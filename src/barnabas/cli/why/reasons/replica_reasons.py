"""Reasons why a replica is not in the ISR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.why.reasons.reason import Reason, duration, note, wrong
from barnabas.client.errors import ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cli.why.facts.facts import PartitionFacts

__all__ = ["replica_reason"]


def replica_reason(facts: PartitionFacts, node: int) -> Reason:
    """Return why `node`, a replica, is out of sync; the first reason that applies."""
    moving = facts.now.reassignment
    if moving is not None and node in moving.removing:
        return note("replica-leaves", f"replica {node} is out of the ISR: it is being removed")
    condition = facts.brokers.condition(node)
    if condition == "gone":
        return wrong(
            "replica-gone",
            f"replica {node} is out of the ISR: broker {node} is not registered"
            f"{_since(facts, node)}",
            f"start broker {node}{_move(facts)}",
        )
    if condition == "fenced":
        return wrong(
            "replica-fenced",
            f"replica {node} is out of the ISR: broker {node} is registered and fenced, "
            "so it was stopped, died, or cannot reach the "
            f"controller{_since(facts, node)}",
            f"start broker {node}; if it runs, its log explains why its heartbeats do not arrive",
        )
    if node in facts.failed_directories or _has_lost_disk(facts, node):
        directory_error = facts.failed_directories.get(node)
        return wrong(
            "replica-disk-failed",
            f"replica {node} is out of the ISR: its log directory has failed on broker "
            f"{node}" + (f" ({directory_error})" if directory_error else ""),
            f"check the disk, then restart broker {node}; or move the replica to another broker",
        )
    if condition == "silent":
        return wrong(
            "replica-silent",
            f"replica {node} is out of the ISR: broker {node} is registered as active "
            f"but does not answer ({facts.brokers.silent[node]}){_since(facts, node)}",
            f"check whether broker {node} hangs or is paused",
        )
    own = facts.now.ends.get(node)
    if isinstance(own, ClientError) or own is None:
        return note(
            "replica-not-begun",
            f"replica {node} is out of the ISR: broker {node} is active but has not "
            f"begun to follow ({own or 'no error'})",
            "wait a moment; if the state stays the same, its metadata is behind: "
            f"`{Advice.DESCRIBE_QUORUM.text()}`",
        )
    return _lagging(facts, node)


def _lagging(facts: PartitionFacts, node: int) -> Reason:
    """Return the reason for a replica that lags although its broker answers."""
    lag = facts.now.lag_of(node) or 0
    moved = facts.moved(node) or 0
    throttled = node in facts.throttled_followers and node in facts.brokers.follower_rates
    leader_moved = facts.moved(facts.now.state.leader) or 0
    if not lag:
        return note(
            "replica-caught-up",
            f"replica {node} has caught up but is not in the ISR yet: the leader "
            "proposes it to the controller at its next fetch",
            "repeat this command; if the state stays the same, the controller rejects "
            f"the replica or does not answer: see `{Advice.DESCRIBE_QUORUM.text()}` and the "
            "leader's log",
        )
    since = _since(facts, node)
    if throttled:
        rate = facts.brokers.follower_rates[node]
        return note(
            "replica-throttled",
            f"replica {node} is out of the ISR, {lag} records behind, and throttled to "
            f"{rate} bytes/s{since}",
            f"raise follower.replication.throttled.rate of broker {node}, or wait; "
            f"`{Advice.LIST_REASSIGNMENTS.text()}` removes the throttle when all reassignments "
            "have finished",
        )
    if moved > leader_moved or (moved and not leader_moved):
        gain = (moved - leader_moved) / facts.seconds if facts.seconds else 0.0
        left = f", about {duration(1000 * lag / gain)} more" if gain else ""
        return note(
            "replica-catches-up",
            f"replica {node} is out of the ISR and catching up: {lag} records behind{left}{since}",
            "wait until it is back in the ISR before another broker is stopped",
        )
    if moved:
        return wrong(
            "replica-too-slow",
            f"replica {node} is out of the ISR, {lag} records behind, and does not "
            "catch up: it copies "
            f"{moved / facts.seconds:.0f} records/s while {leader_moved / facts.seconds:.0f} are "
            f"written{since}",
            f"check the disk and network of broker {node}; raise its "
            "num.replica.fetchers if one of its cores is busy",
        )
    metrics = "".join(
        f"; {address} counts {count} partitions whose fetching failed"
        for address, count in facts.failed_fetches.items()
    )
    return wrong(
        "replica-stalled",
        f"replica {node} is out of the ISR, {lag} records behind, but has not copied records "
        f"for {facts.seconds:.1f} s{since}{metrics}",
        f"search the log of broker {node} for {facts.partition}: its fetcher fails or "
        f"cannot reach broker {facts.now.state.leader}; a restart of broker {node} "
        "restarts the fetcher",
    )


def _has_lost_disk(facts: PartitionFacts, node: int) -> bool:
    end = facts.now.ends.get(node)
    return isinstance(end, ClientError) and end.error_code == ErrorCode.KAFKA_STORAGE_ERROR


def _since(facts: PartitionFacts, node: int) -> str:
    since = facts.behind_since_ms.get(node)
    if since is None:
        return ""
    return f"; the next record it needs was written {duration(facts.now_ms - since)} ago"


def _move(facts: PartitionFacts) -> str:
    """Return text about moving the replica; empty if there are too few brokers for it."""
    serving = sorted(facts.brokers.serving)
    if len(serving) < len(facts.now.state.replicas):
        return ""
    command = Advice.REASSIGN_TOPIC.text(
        topic=facts.partition.topic, brokers=",".join(map(str, serving))
    )
    return f", or move the replicas of the topic: `{command}` shows a plan, --execute executes it"
