"""The brokers: which of them serve, are down or paused, and which addresses they advertise."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.quorum_state import quorum_state
from barnabas.cli.doctor.probe import BROKERS, Peer, Probes, Reply, tls_of
from barnabas.cli.why.reasons.reason import duration
from barnabas.server.configs.endpoints import is_loopback

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.common.quorum_state import QuorumState
    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.doctor.probe import Address
    from barnabas.client.admin.cluster import ClusterDescription, QuorumDescription
    from barnabas.client.connections.metadata_cache import NodeInfo
    from barnabas.client.facade import Client

__all__ = ["BrokerCondition", "BrokerLook", "examine_brokers", "look_at_brokers", "probe_brokers"]

# Brokers fetch the metadata log about twice a second. In this time between two looks, a broker that
# runs has fetched.
_PAUSE_S = 1.5
_FETCH_AGE_MS_MAX = 1_000


class BrokerCondition(NamedTuple):
    """The brokers, by their condition."""

    answering: list[NodeInfo]
    # Registered brokers that cannot be reached or are fenced.
    down: list[NodeInfo]


class BrokerLook(NamedTuple):
    """What is known about the brokers after a second look at those that did not answer at first."""

    # Reply by broker id.
    replies: dict[int, Reply]
    # The quorum state of the last look; the quorum leader knows when each broker last fetched.
    state: QuorumState
    # Brokers whose requests the quorum leader received between the two looks.
    fetching: frozenset[int] = frozenset()


def probe_brokers(client: Client, cluster: ClusterDescription) -> Probes:
    """Start a probe of every registered broker, including fenced ones."""
    return _probe(client, (*cluster.brokers, *cluster.fenced))


def _probe(client: Client, nodes: Iterable[NodeInfo]) -> Probes:
    return Probes(((node.host, node.port) for node in nodes), tls=tls_of(client.config))


def look_at_brokers(
    client: Client, cluster: ClusterDescription, probes: Probes, state: QuorumState
) -> BrokerLook:
    """Collect the replies of the brokers; look again at those that did not answer.

    A broker that has just died looks like one that runs at another address: the quorum leader
    received its last request a moment ago. So the second look comes after a pause.

    Args:
        client: A client of the cluster.
        cluster: The brokers in the response of one of them.
        probes: The probes of their addresses.
        state: The quorum state before the probes.
    """
    nodes = (*cluster.brokers, *cluster.fenced)
    replies = {node.id: probes.reply((node.host, node.port)) for node in nodes}
    silent = [node for node in nodes if replies[node.id].peer not in BROKERS]
    if not silent:
        return BrokerLook(replies, state)
    time.sleep(_PAUSE_S)
    again = _probe(client, silent)
    later = quorum_state(client)
    fetching = frozenset(node.id for node in silent if _has_fetched(node.id, state, later))
    replies |= {node.id: again.reply((node.host, node.port)) for node in silent}
    return BrokerLook(replies, later, fetching)


def examine_brokers(
    cluster: ClusterDescription, look: BrokerLook, given_address: Address, diagnosis: Diagnosis
) -> BrokerCondition:
    """Report the condition of each broker.

    Args:
        cluster: The brokers in the response of one of them.
        look: What is known about them.
        given_address: The address that the user gave.
        diagnosis: Receives the findings.
    """
    condition = BrokerCondition([], [])
    for node in cluster.brokers:
        if look.replies[node.id].peer in BROKERS:
            condition.answering.append(node)
            _report_reachable(node, given_address, diagnosis)
        else:
            condition.down.append(node)
            _report_unreached(node, look, diagnosis)
    for node in cluster.fenced:
        condition.down.append(node)
        if look.replies[node.id].peer in BROKERS:
            diagnosis.wrong(
                f"broker {node.id} is fenced, although it answers at {node.address}: it "
                f"is starting, or it cannot reach the controller{_since(node.id, look.state)}",
                "wait until it has caught up; if it stays fenced, check in the log of "
                f"broker {node.id} which controller it cannot reach, and check its "
                "clock and network",
            )
        else:
            _report_unreached(node, look, diagnosis)
    return condition


def _report_reachable(node: NodeInfo, given_address: Address, diagnosis: Diagnosis) -> None:
    host, _ = given_address
    claim = f"broker {node.id} tells clients to connect to {node.address}"
    if is_loopback(node.host) and not is_loopback(host):
        diagnosis.wrong(
            f"{claim}: clients on other machines would connect to themselves",
            f"set advertised.listeners of broker {node.id} to the address of its machine (if it "
            f"runs on {host}: {host}:{node.port}), and restart it",
        )
    else:
        diagnosis.ok(f"{claim}, where it answers")


def _report_unreached(node: NodeInfo, look: BrokerLook, diagnosis: Diagnosis) -> None:
    """Report a broker that does not answer: its address is wrong, or it is paused or down."""
    reply = look.replies[node.id]
    if node.id in look.fetching and reply.peer is not Peer.SILENT:
        diagnosis.wrong(
            f"broker {node.id} tells clients to connect to {node.address}, which "
            f"{reply.peer.value} from here, but the controller receives its requests",
            f"set advertised.listeners of broker {node.id} to an address and port that clients "
            f"reach, and restart that broker",
        )
        return
    since = _since(node.id, look.state)
    if reply.peer is Peer.SILENT:
        diagnosis.wrong(
            f"broker {node.id} does not answer at {node.address}, although its port is "
            f"open: its process is paused or stuck, or it starts and waits for the quorum or its "
            f"data{since}",
            f"on {node.host}: read the end of its log, which says what a starting broker waits "
            "for; if the log is silent, continue the process (kill -CONT PID), or restart broker "
            f"{node.id} if it stays silent",
        )
        return
    if reply.peer in (Peer.UNREACHABLE, Peer.UNKNOWN_NAME):
        diagnosis.wrong(
            f"broker {node.id} cannot be reached: {node.address} {reply.peer.value}{since}",
            f"start broker {node.id} on {node.host}: {Advice.START_NODE.text()}; if it runs, check "
            "network, firewall and name from here; do not change the configuration",
        )
        return
    diagnosis.wrong(
        f"broker {node.id} is down: {node.address} {reply.peer.value}{since}",
        f"start broker {node.id} on {node.host}: {Advice.START_NODE.text()}; do "
        "not change the configuration",
    )


def _has_fetched(node: int, before: QuorumState, now: QuorumState) -> bool:
    """Return whether the quorum leader received a fetch of a broker between two looks."""
    if before.description is None or now.description is None:
        return False
    if before.leader != now.leader:
        # Each leader has its own times.
        return False
    if node == now.leader:
        return True
    first, second = _fetch_time(node, before.description), _fetch_time(node, now.description)
    elapsed = _silent_ms(node, now)
    return 0 <= first < second and elapsed is not None and elapsed <= _FETCH_AGE_MS_MAX


def _fetch_time(node: int, found: QuorumDescription) -> int:
    """Return the time of a node's last fetch of the metadata log; -1 if it is unknown."""
    times = {each.node_id: each.last_fetch_timestamp for each in (*found.observers, *found.voters)}
    return times.get(node, -1)


def _silent_ms(node: int, state: QuorumState) -> int | None:
    """Return the time since a broker's last fetch of the metadata log, by the leader's clock."""
    found = state.description
    if found is None:
        return None
    if node == found.leader_id:
        return 0
    now, last = _fetch_time(found.leader_id, found), _fetch_time(node, found)
    return now - last if now >= 0 and last >= 0 else None


def _since(node: int, state: QuorumState) -> str:
    elapsed = _silent_ms(node, state)
    if elapsed is None:
        return "; the time of its last fetch is unknown"
    at = time.strftime("%H:%M:%S", time.localtime(time.time() - elapsed / 1000))
    return f"; its last fetch was {duration(elapsed)} ago ({at})"
