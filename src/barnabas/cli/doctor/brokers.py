"""Diagnosis of a cluster's brokers, metadata quorum and replicas.

It covers brokers that are down or paused, advertised addresses, voters that do not answer, clocks,
partitions without a leader or in-sync replicas, unfinished reassignments, and throttles.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from barnabas.cli.admin.broker_removal import MIN_ISR, minimum_isrs
from barnabas.cli.admin.quorum import NO_QUORUM_LEADER, quorum_state
from barnabas.cli.common.advice import Advice
from barnabas.cli.common.machine_lines import fetch_time, silent_ms
from barnabas.cli.common.named_brokers import listed, named_brokers
from barnabas.cli.common.printable import some
from barnabas.cli.doctor.probe import BROKERS, Peer, Probes, Reply, tls_of
from barnabas.cli.why.reasons import duration
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.server.configs.endpoints import is_loopback, parse_voter

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from barnabas.cli.admin.quorum import QuorumState
    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.doctor.probe import Address
    from barnabas.client.admin.cluster import ClusterDescription
    from barnabas.client.connections.metadata_cache import NodeInfo, PartitionInfo, TopicInfo
    from barnabas.client.facade import Client

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
    """The state of the brokers after a second look at those that did not answer at first."""

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
    first, second = fetch_time(node, before.description), fetch_time(node, now.description)
    elapsed = silent_ms(node, now.description)
    return 0 <= first < second and elapsed is not None and elapsed <= _FETCH_AGE_MS_MAX


def _since(node: int, state: QuorumState) -> str:
    elapsed = silent_ms(node, state.description)
    if elapsed is None:
        return "; the time of its last fetch is unknown"
    at = time.strftime("%H:%M:%S", time.localtime(time.time() - elapsed / 1000))
    return f"; its last fetch was {duration(elapsed)} ago ({at})"


_VOTERS = "controller.quorum.voters"
_SKEW_MS_MAX = 2_000


def examine_quorum(client: Client, diagnosis: Diagnosis, *, is_again: bool = False) -> QuorumState:
    """Request the quorum state from its leader, and compare the leader's clock with ours.

    Args:
        is_again: Whether a first comparison has found a difference, which this one confirms.
    """
    before = time.time() * 1000
    state = quorum_state(client)
    after = time.time() * 1000
    if state.description is None:
        return state
    leader = next(
        (v for v in state.description.voters if v.node_id == state.description.leader_id), None
    )
    # The leader reports its own catch-up time as the current time of its clock.
    if leader is None or leader.last_caught_up_timestamp < 0:
        return state
    skew = leader.last_caught_up_timestamp - (before + after) / 2
    if abs(skew) > _SKEW_MS_MAX + (after - before) / 2:
        if not is_again:
            return examine_quorum(client, diagnosis, is_again=True)
        direction = "ahead of" if skew > 0 else "behind"
        diagnosis.wrong(
            f"controller {leader.node_id}'s clock is {abs(skew) / 1000:.0f} s {direction} ours",
            "set both clocks by NTP (timedatectl set-ntp true): the difference affects "
            "timestamps, retention and offset lookups by time",
        )
    else:
        diagnosis.ok(f"the clocks differ by at most {abs(skew):.0f} ms")
    return state


def report_lost_quorum(
    client: Client, cluster: ClusterDescription, probes: Probes, diagnosis: Diagnosis
) -> None:
    """Report first that the quorum has no leader, and which voters do not answer.

    Args:
        client: A client that reaches a broker.
        cluster: The brokers in the response of that broker.
        probes: The probes of their addresses.
    """
    # Report it before the voters respond, which may take too long.
    diagnosis.wrong_first(
        NO_QUORUM_LEADER, "start a majority of the controllers; do not delete their data"
    )
    found = {
        node.id: probes.reply((node.host, node.port)).peer
        for node in (*cluster.brokers, *cluster.fenced)
    }
    voters = _voters(client, [node for node, peer in found.items() if peer in BROKERS])
    lost: list[int] = []
    needed = len(voters) // 2 + 1
    if voters:
        answers = Probes(voters.values())
        lost = [node for node, at in voters.items() if answers.reply(at).peer not in BROKERS]
        words = f"{len(voters) - len(lost)} of {len(voters)} voters answer, {needed} are required"
        where = ", ".join(f"{node} ({voters[node][0]})" for node in lost)
    else:
        words = "its voters are unknown"
        where = ", ".join(str(n) for n, peer in sorted(found.items()) if peer not in BROKERS)
    if voters and len(voters) - len(lost) >= needed:
        remedy = (
            "an election may be in progress: repeat this command; otherwise, see the logs of the "
            "voters"
        )
    else:
        starting = f"start nodes {where}" if where else "start a majority of the controllers"
        remedy = f"{starting}: on each host, {Advice.START_NODE.text()}; do not delete their data"
    diagnosis.wrong_first(f"{NO_QUORUM_LEADER}; {words}", remedy)


def _voters(client: Client, answering: Iterable[int]) -> dict[int, Address]:
    """Return the addresses of the voters from a broker's configuration; empty if unknown."""
    for node in answering:
        resource = ConfigResource(ResourceType.BROKER, str(node))
        try:
            entries = client.admin.describe_configs([resource])[resource]
        except ClientError:
            continue
        for entry in () if isinstance(entries, ClientError) else entries:
            if entry.name == _VOTERS and entry.value:
                voters = (parse_voter(part.strip()) for part in entry.value.split(","))
                return dict(voter for voter in voters if voter is not None)
    return {}


# Pause before the second look at what an advice would change (s).
_CONFIRM_S = 1.0
_OFFSETS = "__consumer_offsets"
_FOLLOWER_RATE = "follower.replication.throttled.rate"
_LEADER_RATE = "leader.replication.throttled.rate"
_UNLIMITED = 2**63 - 1


def examine_partitions(
    client: Client, topics: Mapping[str, TopicInfo], down: Collection[int], diagnosis: Diagnosis
) -> None:
    """Report the leaders and replicas of all partitions.

    Args:
        topics: The topics from the metadata.
        down: Ids of brokers that are known to be down, as the cause of missing replicas.
    """
    every = [(f"{name}-{p.partition}", p) for name, t in topics.items() for p in _of(t)]
    offline = [name for name, p in every if p.leader < 0]
    under = [(name, p) for name, p in every if p.leader >= 0 and len(p.isr) < len(p.replicas)]
    if offline:
        holders = {node for _, p in every if p.leader < 0 for node in p.replicas} & set(down)
        topic, _, partition = offline[0].rpartition("-")
        why = Advice.WHY_PARTITION.text(topic=topic, partition=partition)
        diagnosis.wrong(
            f"{len(offline)} partition(s) have no leader: {some(offline)}",
            f"start the brokers that have replicas of them: {listed(holders)}"
            if holders
            else "their brokers run, so they get a leader when one with all committed records is "
            f"ready: repeat this command; if they stay without one: {why}",
        )
    if under:
        _report_under_replicated(under, down, diagnosis)
    _examine_min_isr(client, topics, down, diagnosis)
    away = [
        name
        for name, p in every
        if p.leader >= 0 and p.replicas and p.leader != p.replicas[0] and p.replicas[0] in p.isr
    ]
    if away:
        diagnosis.note(
            f"{len(away)} partition(s) are not led by their preferred replica: {some(away)}",
            Advice.ELECT.text(),
        )
    if not offline and not under:
        partitions = "1 partition" if len(every) == 1 else f"{len(every)} partitions"
        names = "1 topic" if len(topics) == 1 else f"{len(topics)} topics"
        diagnosis.ok(f"{partitions} of {names}, all with a leader and in sync")


def _of(topic: TopicInfo) -> Iterable[PartitionInfo]:
    return topic.partitions.values()


def _report_under_replicated(
    under: list[tuple[str, PartitionInfo]], down: Collection[int], diagnosis: Diagnosis
) -> None:
    missing = {node for _, p in under for node in p.replicas if node not in p.isr}
    names = [name for name, _ in under]
    internal = any(name.startswith(f"{_OFFSETS}-") for name in names)
    offsets = f"; one of them belongs to {_OFFSETS}, to which groups commit" if internal else ""
    what = f"{len(under)} partition(s) have replicas that are not in sync: {some(names)}{offsets}"
    if missing <= set(down):
        remedy = f"start {named_brokers(missing)}: their replicas then catch up automatically"
    else:
        lagging = missing - set(down)
        topic, _, partition = names[0].rpartition("-")
        remedy = (
            f"the replicas on {named_brokers(lagging)} lag, although the broker answers: "
            f"{Advice.WHY_PARTITION.text(topic=topic, partition=partition)}"
        )
    diagnosis.wrong(what, remedy)


def _examine_min_isr(
    client: Client, topics: Mapping[str, TopicInfo], down: Collection[int], diagnosis: Diagnosis
) -> None:
    """Report partitions that refuse acks=all, and separately topics with too few replicas."""
    minima = _minima(client, topics, diagnosis)
    narrow = [name for name, least in minima.items() if _replicas(topics[name], least) < least]
    if narrow:
        # A topic may be new, or get replicas at this moment: ask again before a change is advised.
        time.sleep(_CONFIRM_S)
        topics = {**topics, **client.describe_topics(narrow)}
        minima |= _minima(client, narrow, diagnosis)
    refusing: list[str] = []
    needed: set[int] = set()
    for name, minimum in minima.items():
        replicas = _replicas(topics[name], minimum)
        if replicas < minimum:
            diagnosis.note(
                f"{name}: {MIN_ISR}={minimum} is more than its {replicas} "
                f"replica{'' if replicas == 1 else 's'}; acks=all then waits for all replicas, and "
                "old brokers of Kafka reject it",
                f"{Advice.SET_MIN_ISR.text(topic=name, replicas=replicas)}; or add replicas by a "
                "reassignment",
            )
            continue
        partitions = _of(topics[name])
        for p in partitions:
            if p.leader >= 0 and len(p.isr) < minimum:
                refusing.append(f"{name}-{p.partition}")
                needed |= set(p.replicas) - set(p.isr)
    if refusing:
        diagnosis.wrong(
            f"{len(refusing)} partition(s) reject writes with acks=all, because fewer "
            f"than {MIN_ISR} replicas are in sync: {some(refusing)}",
            f"start {named_brokers(needed & set(down))}; do not lower {MIN_ISR}"
            if needed & set(down)
            else f"bring the replicas on {named_brokers(needed)} back in sync; do not lower "
            f"{MIN_ISR}",
        )


def _minima(client: Client, names: Iterable[str], diagnosis: Diagnosis) -> dict[str, int]:
    """Return min.insync.replicas of topics."""
    errors: list[ClientError] = []
    found = minimum_isrs(client, names, errors)
    if errors:
        diagnosis.unexamined(f"{MIN_ISR} of {len(errors)} topic(s): {errors[0]}")
    return found


def _replicas(topic: TopicInfo, default: int) -> int:
    """Return the smallest number of replicas of a partition."""
    return min((len(p.replicas) for p in _of(topic)), default=default)


def examine_moves(client: Client, nodes: Iterable[int], diagnosis: Diagnosis) -> None:
    """Report unfinished reassignments, and throttles that slow replication down."""
    moving = client.admin.list_reassignments()
    if moving:
        diagnosis.note(
            f"{len(moving)} reassignment(s) are not finished: {some(list(moving))}",
            f"{Advice.LIST_REASSIGNMENTS.text()} shows their progress; "
            f"{Advice.CANCEL_REASSIGNMENTS.text()} reverts them",
        )
    throttles = _throttles(client, nodes, diagnosis)
    if throttles and not moving:
        # A reassignment that has just finished removes its throttles itself.
        time.sleep(_CONFIRM_S)
        throttles &= _throttles(client, {node for node, _, _ in throttles}, diagnosis)
    for node, name, rate in sorted(throttles):
        remedy = Advice.UNSET_BROKER_CONFIG.text(broker=node, key=name)
        diagnosis.note(
            f"broker {node} is throttled: {name}={rate} bytes/s",
            f"wait for the reassignment, then {remedy}" if moving else remedy,
        )


def _throttles(
    client: Client, nodes: Iterable[int], diagnosis: Diagnosis
) -> set[tuple[int, str, str]]:
    """Return the throttles of brokers: the broker, the key and its value."""
    resources = [ConfigResource(ResourceType.BROKER, str(node)) for node in nodes]
    described = client.admin.describe_configs(resources) if resources else {}
    found = set()
    for resource, entries in described.items():
        if isinstance(entries, ClientError):
            diagnosis.unexamined(f"throttles of broker {resource.name}: {entries}")
            continue
        found |= {
            (int(resource.name), e.name, e.value)
            for e in entries
            if e.name in (_FOLLOWER_RATE, _LEADER_RATE) and e.value and int(e.value) < _UNLIMITED
        }
    return found
