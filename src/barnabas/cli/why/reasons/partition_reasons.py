"""Reasons why a partition does not advance: leader, high watermark, ISR, last stable offset.

This module only computes from facts. The docstring of each function gives the rule behind its
reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.why.reasons.damage_reasons import damage_reasons
from barnabas.cli.why.reasons.reason import Reason, duration, note, ok, wrong
from barnabas.cli.why.reasons.replica_reasons import replica_reason
from barnabas.cli.why.reasons.transaction_reasons import transaction_reasons
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from barnabas.cli.why.facts.facts import PartitionFacts
    from barnabas.client.errors import ClientError

__all__ = ["partition_reasons", "watermark_reasons"]

NO_LEADER = -1


def partition_reasons(facts: PartitionFacts) -> list[Reason]:
    """Return all reasons for the state of a partition, the most serious first."""
    state = facts.now.state
    damage = damage_reasons(facts.damage)
    if state.leader == NO_LEADER:
        return [_no_leader(facts), *damage]
    if facts.end is None:
        return [_silent_leader(facts), *damage]
    reasons = watermark_reasons(facts) + damage
    reasons += [replica_reason(facts, replica) for replica in facts.now.out_of_sync]
    reasons += transaction_reasons(facts.held_back)
    moving = facts.now.reassignment
    if moving is not None:
        adding = _nodes(moving.adding) or "none"
        removing = _nodes(moving.removing) or "none"
        reasons.append(
            note(
                "reassignment",
                f"it is being reassigned: replicas are added on {adding}, removed from {removing}",
                f"`{Advice.LIST_REASSIGNMENTS.text()}` shows the progress, "
                f"`{Advice.CANCEL_REASSIGNMENTS.text()}` reverts it",
            )
        )
    if state.leader != state.replicas[0] and state.replicas[0] in state.isr:
        reasons.append(
            note(
                "not-preferred",
                f"broker {state.leader} leads, although {state.replicas[0]} is preferred",
                f"`{Advice.ELECT_PARTITION.text(**facts.partition._asdict())}`",
            )
        )
    if all(reason.verdict == "ok" for reason in reasons):
        reasons.insert(0, _healthy(facts))
    return reasons


def _healthy(facts: PartitionFacts) -> Reason:
    state = facts.now.state
    return ok(
        "well",
        f"broker {state.leader} leads in epoch {state.leader_epoch}, all replicas "
        f"({_nodes(state.replicas)}) are in sync, high watermark {facts.high_watermark} of "
        f"{facts.end}",
    )


def _no_leader(facts: PartitionFacts) -> Reason:
    """Return the reason for a partition without a leader.

    Only members of ISR and ELR have all committed records, and none of them is available to lead.
    """
    state = facts.now.state
    complete = [*state.isr, *(node for node in state.elr or () if node not in state.isr)]
    if not complete and state.last_known_elr:
        complete = list(state.last_known_elr)
    elsewhere = [node for node in state.replicas if node not in complete]
    conditions = ", ".join(f"{node} {_condition(facts, node)}" for node in complete)
    elect = Advice.ELECT_UNCLEAN.text(**facts.partition._asdict())
    remedy = f"start broker {_nodes(complete)}: it then leads, and no record is lost"
    if len(complete) > 1:
        remedy = (
            f"start one of the brokers {_nodes(complete)}: it then leads, and no record is lost"
        )
    if alive := [node for node in elsewhere if facts.brokers.condition(node) == "serves"]:
        remedy += (
            f"; if none ever returns, `{elect}` lets "
            f"{_nodes(alive)} lead without the records it lacks"
        )
    return wrong(
        "no-leader",
        "it has no leader, so it cannot be written or read. Only "
        f"{_nodes(complete) or 'no broker'} certainly has all committed records "
        f"({conditions or 'none is known'})",
        remedy,
    )


def _condition(facts: PartitionFacts, node: int) -> str:
    if node in facts.failed_directories:
        return "has lost the disk of this replica"
    return {
        "serves": "runs",
        "silent": "does not answer",
        "fenced": "is fenced",
        "gone": "is gone",
    }[facts.brokers.condition(node)]


def _silent_leader(facts: PartitionFacts) -> Reason:
    """Return the reason for a leader that is not fenced but does not answer."""
    leader = facts.now.state.leader
    error = facts.now.ends.get(leader) or facts.brokers.silent.get(leader)
    detail = f" ({error})" if error is not None and not isinstance(error, int) else ""
    if _code(error) == ErrorCode.KAFKA_STORAGE_ERROR or leader in facts.failed_directories:
        return wrong(
            "leader-disk-failed",
            f"broker {leader} leads, but has lost the disk of the replica, or its log is damaged"
            f"{_reason_of_directory(facts, leader)}",
            f"check the disk and the log of broker {leader} (`Damage found` shows a "
            "damaged file); another in-sync replica becomes leader after the broker "
            "has reported the failure to the controller",
        )
    if _code(error) in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
        return note(
            "leader-not-ready",
            f"broker {leader} is the leader of epoch {facts.now.state.leader_epoch}, "
            f"but does not lead yet{detail}",
            "wait a moment; if the state stays the same, its metadata is behind: "
            f"`{Advice.DESCRIBE_QUORUM.text()}`",
        )
    return wrong(
        "leader-silent",
        f"broker {leader} leads but does not answer{detail}: the partition cannot be written or "
        "read",
        f"check whether broker {leader} hangs, is paused, or is unreachable from here; "
        "if it cannot reach the controller either, it is fenced after "
        "broker.session.timeout.ms, and another broker becomes leader",
    )


def watermark_reasons(facts: PartitionFacts) -> list[Reason]:
    """Return why the high watermark is below the log end offset, or why writes are refused."""
    watermark, end = facts.high_watermark, facts.end
    state, minimum = facts.now.state, facts.now.min_isr
    assert end is not None
    too_few = minimum is not None and len(state.isr) < minimum
    if watermark is None:
        return [_new_leader(facts)]
    if too_few:
        return [_under_min_isr(facts, watermark, end)]
    if watermark >= end:
        return []
    blocking = [
        node
        for node in state.isr
        if node != state.leader and (facts.now.end_of(node) or 0) <= watermark
    ]
    if facts.watermark_moved:
        return [
            ok(
                "watermark-moves",
                f"the high watermark advances: {watermark} of {end}, replication is in progress",
            )
        ]
    if not blocking:
        return [_change_in_flight(facts, watermark, end)]
    return [_member_at_watermark(facts, node, watermark, end) for node in blocking]


def _new_leader(facts: PartitionFacts) -> Reason:
    """Return the reason for an unknown high watermark.

    OFFSET_NOT_AVAILABLE: the high watermark of a new leader is below the start of its epoch.
    """
    error = facts.now.high_watermark
    assert not isinstance(error, int)
    if _code(error) == ErrorCode.OFFSET_NOT_AVAILABLE:
        return note(
            "new-leader",
            f"broker {facts.now.state.leader} has just become leader (epoch "
            f"{facts.now.state.leader_epoch}) and does not know the high watermark yet",
            "it learns the high watermark when the in-sync replicas have fetched from "
            f"it; if the state stays the same, one of {_nodes(facts.now.state.isr)} "
            "does not fetch",
        )
    return wrong("watermark-unknown", f"the leader does not report the high watermark: {error}", "")


def _under_min_isr(facts: PartitionFacts, watermark: int, end: int) -> Reason:
    """Return the reason for an ISR smaller than min.insync.replicas.

    The leader then refuses acks=all, and the high watermark does not advance (KIP-966).
    """
    state, minimum = facts.now.state, facts.now.min_isr
    waits = f", {end - watermark} records are not committed" if end > watermark else ""
    set_min_isr = Advice.SET_MIN_ISR.text(
        topic=facts.partition.topic, replicas=max(1, len(state.isr))
    )
    return wrong(
        "under-min-isr",
        f"only {len(state.isr)} of {len(state.replicas)} replicas are in sync "
        f"({_nodes(state.isr)}), but min.insync.replicas is {minimum}: writes with "
        "acks=all are rejected, and the high watermark stays at "
        f"{watermark}{waits}{_waiting(facts)}",
        f"bring {_nodes(facts.now.out_of_sync)} back in sync, see below; or accept fewer replicas: "
        f"`{set_min_isr}`",
    )


def _member_at_watermark(facts: PartitionFacts, node: int, watermark: int, end: int) -> Reason:
    """Return the reason for an ISR member whose end is not above the high watermark.

    The high watermark is the smallest log end offset in the ISR.
    """
    behind = f"{end - watermark} records are not committed"
    if facts.uncommitted_since_ms is not None:
        oldest = duration(facts.now_ms - facts.uncommitted_since_ms)
        behind += f", the oldest was written {oldest} ago"
    leaves = (
        f"after replica.lag.time.max.ms ({duration(facts.lag_time_max_ms)}) without "
        "catching up, it leaves the ISR, and the high watermark advances without it"
    )
    condition = facts.brokers.condition(node)
    if condition != "serves":
        how = {
            "silent": "is registered as active but does not answer",
            "fenced": "is fenced",
            "gone": "is not registered",
        }[condition]
        return wrong(
            "isr-member-away",
            f"the high watermark stays at {watermark}: broker {node} is in the ISR and {how}; "
            f"{behind}{_waiting(facts)}",
            f"check whether broker {node} hangs or is paused; {leaves}",
        )
    moved = facts.moved(node)
    if moved:
        rate = moved / facts.seconds if facts.seconds else 0.0
        return note(
            "isr-member-slow",
            f"broker {node} is in the ISR and {facts.now.lag_of(node)} records behind, copying "
            f"{rate:.0f} records/s; {behind}{_waiting(facts)}",
            f"check the disk and network of broker {node}; {leaves}",
        )
    return wrong(
        "isr-member-stalled",
        f"the high watermark stays at {watermark}: broker {node} is in the ISR but has not copied "
        f"records for {facts.seconds:.1f} s; {behind}{_waiting(facts)}",
        f"check in the log of broker {node} whether its fetcher fails or cannot reach "
        f"broker {facts.now.state.leader}; {leaves}",
    )


def _change_in_flight(facts: PartitionFacts, watermark: int, end: int) -> Reason:
    """Return the reason for a low high watermark although all ISR members are above it.

    Either an ISR change is pending or the leader has not seen the next fetches yet. While an ISR
    change is pending, the leader includes the proposed members (the maximal ISR).
    """
    candidates = [
        node for node in facts.now.out_of_sync if (facts.now.end_of(node) or 0) <= watermark
    ]
    if candidates:
        return note(
            "isr-change-in-flight",
            f"all of the ISR ({_nodes(facts.now.state.isr)}) are beyond the high "
            f"watermark {watermark} of {end}; the leader has proposed to add "
            f"{_nodes(candidates)} to the ISR, and already waits for these replicas",
            "the controller normally responds within a moment; otherwise: "
            f"`{Advice.DESCRIBE_QUORUM.text()}`",
        )
    return note(
        "watermark-late",
        f"all of the ISR ({_nodes(facts.now.state.isr)}) are beyond the high watermark "
        f"{watermark} of {end}: their next fetches will advance it",
        "repeat this command; if the problem stays, see the log of the leader",
    )


def _waiting(facts: PartitionFacts) -> str:
    """Return text about producers that wait, from the metrics listeners."""
    return "".join(
        f"; {count} produce request{'' if count == 1 else 's'} wait at {address}"
        for address, count in facts.waiting_produces.items()
    )


def _reason_of_directory(facts: PartitionFacts, node: int) -> str:
    reason = facts.failed_directories.get(node)
    return f" ({reason})" if reason else ""


def _code(error: int | ClientError | None) -> ErrorCode | None:
    return None if error is None or isinstance(error, int) else error.error_code


def _nodes(nodes: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, nodes))
