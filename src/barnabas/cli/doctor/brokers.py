"""The brokers: which of them serve, are down or paused, and which addresses they advertise."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.advice import Advice
from barnabas.cli.doctor.probe import BROKERS, Peer, Probes, Reply
from barnabas.cli.why.reasons.reason import duration
from barnabas.server.configs.endpoint import is_loopback

if TYPE_CHECKING:
    from barnabas.cli.common.quorum_state import QuorumState
    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.doctor.probe import Address
    from barnabas.client.admin.cluster.cluster_info import ClusterDescription
    from barnabas.client.connections.metadata_cache import NodeInfo

__all__ = ["BrokerCondition", "examine_brokers", "probe_brokers"]

# Brokers fetch the metadata log about twice a second. A longer silence means a failure.
_FETCH_AGE_MS_MAX = 3_000


class BrokerCondition(NamedTuple):
    """The brokers, by their condition."""

    answering: list[NodeInfo]
    # Registered brokers that cannot be reached or are fenced.
    down: list[NodeInfo]


def probe_brokers(cluster: ClusterDescription) -> Probes:
    """Start a probe of every registered broker, including fenced ones."""
    return Probes((node.host, node.port) for node in (*cluster.brokers, *cluster.fenced))


def examine_brokers(
    cluster: ClusterDescription,
    probes: Probes,
    state: QuorumState,
    given_address: Address,
    diagnosis: Diagnosis,
) -> BrokerCondition:
    """Report the condition of each broker.

    Args:
        cluster: The brokers in the response of one of them.
        probes: The probes of their addresses.
        state: The quorum state; the quorum leader knows when each broker last fetched.
        given_address: The address that the user gave.
        diagnosis: Receives the findings.
    """
    condition = BrokerCondition([], [])
    for node in cluster.brokers:
        reply = probes.reply((node.host, node.port))
        if reply.peer in BROKERS:
            condition.answering.append(node)
            _report_reachable(node, given_address, diagnosis)
        else:
            condition.down.append(node)
            _report_unreached(node, reply, state, diagnosis)
    for node in cluster.fenced:
        reply = probes.reply((node.host, node.port))
        condition.down.append(node)
        if reply.peer in BROKERS:
            diagnosis.wrong(
                f"broker {node.id} is fenced, although it answers at {node.address}: it "
                f"is starting, or it cannot reach the controller{_since(node.id, state)}",
                "wait until it has caught up; if it stays fenced, check in the log of "
                f"broker {node.id} which controller it cannot reach, and check its "
                "clock and network",
            )
        else:
            _report_unreached(node, reply, state, diagnosis)
    return condition


def _report_reachable(node: NodeInfo, given_address: Address, diagnosis: Diagnosis) -> None:
    host, port = given_address
    claim = f"broker {node.id} tells clients to connect to {node.address}"
    if is_loopback(node.host) and not is_loopback(host):
        diagnosis.wrong(
            f"{claim}: clients on other machines would connect to themselves",
            f"set advertised.listeners=PLAINTEXT://{host}:{port} of broker {node.id}, "
            "and restart it",
        )
    else:
        diagnosis.ok(f"{claim}, where it answers")


def _report_unreached(
    node: NodeInfo, reply: Reply, state: QuorumState, diagnosis: Diagnosis
) -> None:
    """Report a broker that does not answer: its address is wrong, or it is paused or down."""
    if _has_recent_fetch(node.id, state) and reply.peer is not Peer.SILENT:
        diagnosis.wrong(
            f"broker {node.id} tells clients to connect to {node.address}, which "
            f"{reply.peer.value} from here, but the controller receives its requests",
            f"set advertised.listeners of broker {node.id} to an address and port that clients "
            f"reach, and restart that broker",
        )
        return
    since = _since(node.id, state)
    if reply.peer is Peer.SILENT:
        diagnosis.wrong(
            f"broker {node.id} does not answer at {node.address}, although its port is "
            f"open: its process is paused or stuck{since}",
            f"on {node.host}: continue the process (kill -CONT PID), or restart broker {node.id} "
            f"if it stays silent",
        )
        return
    diagnosis.wrong(
        f"broker {node.id} is down: {node.address} {reply.peer.value}{since}",
        f"start broker {node.id} on {node.host}: {Advice.START_NODE.text()}; do "
        "not change the configuration",
    )


def _has_recent_fetch(node: int, state: QuorumState) -> bool:
    """Return whether the quorum leader has received a recent fetch from a broker."""
    elapsed = _silent_ms(node, state)
    return elapsed is not None and elapsed <= _FETCH_AGE_MS_MAX


def _silent_ms(node: int, state: QuorumState) -> int | None:
    """Return the time since a broker's last fetch of the metadata log, by the leader's clock."""
    found = state.description
    if found is None:
        return None
    if node == found.leader_id:
        return 0
    times = {each.node_id: each.last_fetch_timestamp for each in (*found.observers, *found.voters)}
    now, last = times.get(found.leader_id, -1), times.get(node, -1)
    return now - last if now >= 0 and last >= 0 else None


def _since(node: int, state: QuorumState) -> str:
    elapsed = _silent_ms(node, state)
    if elapsed is None:
        return "; the time of its last fetch is unknown"
    at = time.strftime("%H:%M:%S", time.localtime(time.time() - elapsed / 1000))
    return f"; its last fetch was {duration(elapsed)} ago ({at})"
