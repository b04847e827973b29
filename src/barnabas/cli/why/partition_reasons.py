"""Reasons why a partition does not advance: leader, high watermark, ISR, last stable offset.

Reasons of the whole cluster and of damaged files are among them. This module only computes from
facts. The docstring of each function gives the rule behind its reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.admin.quorum import NO_QUORUM_LEADER
from barnabas.cli.common.advice import Advice
from barnabas.cli.partitions.snapshot import NO_LEADER
from barnabas.cli.why.reasons import Reason, duration, note, ok, transaction_reasons, wrong
from barnabas.cli.why.tier_reasons import tier_reasons
from barnabas.client.errors import ClientError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.why.facts import BrokerFacts, PartitionFacts


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
    if facts.tier is not None:
        reasons += tier_reasons(facts.tier)
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


def no_controller() -> Reason:
    """Return the reason for a metadata quorum without a leader."""
    return wrong(
        "no-controller",
        f"{NO_QUORUM_LEADER}, and no ISR changes",
        "a majority of the metadata quorum's voters must run: start the controllers "
        f"that are down; `{Advice.DOCTOR.text()}` lists them",
    )


def cluster_reasons(brokers: BrokerFacts) -> list[Reason]:
    """Return the problems of the cluster; empty if there are none."""
    reasons = []
    if brokers.controller is None:
        reasons.append(no_controller())
    for broker, error in sorted(brokers.silent.items()):
        reasons.append(
            wrong(
                "broker-silent",
                f"broker {broker} is registered as active but does not answer: {error}",
                f"check whether broker {broker} hangs or is paused, and whether its "
                "advertised.listeners are reachable from here",
            )
        )
    if brokers.fenced:
        names = ", ".join(map(str, sorted(brokers.fenced)))
        reasons.append(
            note(
                "brokers-fenced",
                f"broker {names} is registered but fenced: stopped, dead, or not ready",
                "start it; if it will not return, move its replicas and unregister it",
            )
        )
    reasons += [note("machine", machine.line()) for machine in brokers.machines if machine.down]
    return reasons


# Kinds of damage that lose records or make them unreadable.
_LOSING_KINDS = frozenset({"batch", "gap", "identity", "log"})


def damage_reasons(damage: Mapping[str, Mapping[str, int]]) -> list[Reason]:
    """Return a reason for each broker that has found damage since its start."""
    return [_reason(address, kinds) for address, kinds in damage.items()]


def _reason(address: str, kinds: Mapping[str, int]) -> Reason:
    places = ", ".join(f"{count} of kind {kind}" for kind, count in kinds.items())
    what = f"the broker at {address} has found damaged files since its start: {places}"
    lines = "its log has a line `Damage found` for each of them"
    if _LOSING_KINDS & set(kinds):
        remedy = (
            f"{lines}; `{Advice.VERIFY_LOG.text(directory='DIRECTORY')}` finds the current "
            "damage, and with the broker stopped, "
            f"`{Advice.REPAIR_LOG.text(directory='DIRECTORY')}` lists the possible repairs"
        )
        return wrong("damaged-files", what, remedy)
    return note("damaged-files", what, f"{lines}; the broker rebuilt them, no record is lost")


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
