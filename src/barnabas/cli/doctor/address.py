"""What is wrong with a broker at an address, and with the cluster behind it."""

from __future__ import annotations

import ipaddress
import time
from typing import TYPE_CHECKING

from barnabas.cli.doctor.dangerous import dangers
from barnabas.cli.doctor.directory import check_space
from barnabas.cli.doctor.probe import Peer, knock, responder
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.client.versions import CLIENT_VERSIONS
from barnabas.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.client.admin.cluster_info import ClusterDescription
    from barnabas.client.facade import Client
    from barnabas.client.metadata_cache import NodeInfo

__all__ = ["examine_address", "examine_cluster"]

# Ports that brokers are often found at.
_USUAL_PORTS = (9092, 9093, 9094, 19092, 29092)
_SKEW_MS_MAX = 2_000
_SHOWN = 5
# What a client cannot do without.
_NEEDED = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS)


def examine_address(host: str, port: int, diagnosis: Diagnosis) -> bool:
    """Whether a broker answers there; says what does, and what to do."""
    address = f"{host}:{port}"
    reply = knock(host, port)
    if reply.peer is Peer.KAFKA:
        diagnosis.ok(f"{address} {reply.peer.value}")
        return True
    remedies = {
        Peer.UNKNOWN_NAME: "check the spelling of the host, or its entry in DNS or /etc/hosts",
        Peer.UNREACHABLE: "check host and network; a firewall may drop the packets",
        Peer.TLS: "name the PLAINTEXT listener: this client does not speak TLS yet",
        Peer.HTTP: "name the port of a listener, not the one of metrics or a web console",
        Peer.SILENT: "that is not a broker, or it is stuck: look at its log",
        Peer.CLOSES: "not a broker's port, or max.connections is reached: look at its log",
        Peer.STRANGE: "name the port of a broker's listener",
        Peer.REFUSED: f"start one: barnabas start --listen {address}",
    }
    remedy = remedies[reply.peer]
    others = tuple(each for each in _USUAL_PORTS if each != port)
    if reply.peer not in (Peer.UNKNOWN_NAME, Peer.UNREACHABLE):
        found = responder(host, others)
        if found is not None:
            remedy = f"a broker answers at {host}:{found}: use that one, or else {remedy}"
    detail = f" ({reply.detail})" if reply.detail else ""
    diagnosis.wrong(f"{address} {reply.peer.value}{detail}", remedy)
    return False


def examine_cluster(client: Client, host: str, port: int, diagnosis: Diagnosis) -> None:
    """Look at everything that the brokers tell about themselves."""
    try:
        cluster = client.describe_cluster()
    except ClientError as error:
        diagnosis.wrong(
            f"the broker does not answer requests: {error}",
            "the listener may want authentication (SASL), which this client does not speak yet",
        )
        return
    count = len(cluster.brokers)
    words = f"cluster {cluster.cluster_id} with {count} broker{'' if count == 1 else 's'}"
    diagnosis.ok(f"{words}, controller {cluster.controller_id}")
    reachable = [
        node for node in cluster.brokers if _examine_advertised(node, (host, port), diagnosis)
    ]
    checks: tuple[Callable[[], None], ...] = (
        lambda: _examine_versions(client, reachable, diagnosis),
        lambda: _examine_clock(client, diagnosis),
        lambda: _examine_partitions(client, diagnosis),
        lambda: _examine_directories(client, reachable, diagnosis),
        lambda: _examine_configs(client, reachable, cluster, diagnosis),
    )
    for check in checks:
        try:
            check()
        except ClientError as error:
            diagnosis.note(f"not looked at: {error}")


def _examine_advertised(node: NodeInfo, asked: tuple[str, int], diagnosis: Diagnosis) -> bool:
    """Whether clients reach a broker at the address that it tells them."""
    host, port = asked
    reply = knock(node.host, node.port)
    told = f"broker {node.id} tells clients to connect to {node.address}"
    if reply.peer is not Peer.KAFKA:
        diagnosis.wrong(
            f"{told}, which {reply.peer.value} from here",
            f"set advertised.listeners of broker {node.id} to an address that clients reach, such "
            f"as PLAINTEXT://{host}:{node.port}; or start the broker if it is down",
        )
        return False
    if _is_loopback(node.host) and not _is_loopback(host):
        diagnosis.wrong(
            f"{told}: every other machine would connect to itself",
            f"set advertised.listeners=PLAINTEXT://{host}:{port}",
        )
    else:
        diagnosis.ok(f"{told}, where it answers")
    return True


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _examine_versions(client: Client, nodes: list[NodeInfo], diagnosis: Diagnosis) -> None:
    for node in nodes:
        versions = client.admin.describe_versions(node.id)
        unusable = []
        for api in _NEEDED:
            low, high = CLIENT_VERSIONS[api]
            theirs = versions.apis.get(api, (1, 0))
            if max(low, theirs[0]) > min(high, theirs[1]):
                unusable.append(f"{api.name} {theirs[0]}-{theirs[1]}")
        level = versions.finalized_features.get("metadata.version")
        metadata = "" if level is None else f", metadata.version {level}"
        if unusable:
            diagnosis.wrong(
                f"broker {node.id} shares no version of {', '.join(unusable)} with this client",
                "use a broker of Apache Kafka 2.1 or later",
            )
        else:
            diagnosis.ok(f"broker {node.id} serves {len(versions.apis)} APIs{metadata}")


def _examine_clock(client: Client, diagnosis: Diagnosis) -> None:
    """Compare clocks by what the quorum's leader says of itself, which is its time now."""
    before = time.time() * 1000
    quorum = client.admin.describe_quorum()
    after = time.time() * 1000
    leader = next((each for each in quorum.voters if each.node_id == quorum.leader_id), None)
    if leader is None or leader.last_caught_up_timestamp < 0:
        return
    skew = leader.last_caught_up_timestamp - (before + after) / 2
    if abs(skew) > _SKEW_MS_MAX + (after - before) / 2:
        direction = "ahead of" if skew > 0 else "behind"
        diagnosis.wrong(
            f"controller {leader.node_id}'s clock is {abs(skew) / 1000:.0f} s {direction} ours",
            "have both set by NTP: records' times, retention and offsets by time are off by that",
        )
    else:
        diagnosis.ok(f"the clocks differ by {abs(skew):.0f} ms at most")


def _examine_partitions(client: Client, diagnosis: Diagnosis) -> None:
    topics = client.describe_topics()
    partitions = [(name, p) for name, topic in topics.items() for p in topic.partitions.values()]
    offline = [f"{name}-{p.partition}" for name, p in partitions if p.leader < 0]
    under = [
        f"{name}-{p.partition}"
        for name, p in partitions
        if p.leader >= 0 and len(p.isr) < len(p.replicas)
    ]
    if offline:
        diagnosis.wrong(
            f"{len(offline)} partition(s) have no leader: {_some(offline)}",
            "start the brokers that hold them; `barnabas topics describe` says which replicas",
        )
    if under:
        diagnosis.wrong(
            f"{len(under)} partition(s) lack replicas in sync: {_some(under)}",
            "look at the brokers that are missing in `barnabas topics describe`",
        )
    if not offline and not under:
        words = f"{len(partitions)} partitions of {len(topics)} topics"
        diagnosis.ok(f"{words}, all with a leader and in sync")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _examine_directories(client: Client, nodes: list[NodeInfo], diagnosis: Diagnosis) -> None:
    for node, found in client.admin.describe_log_dirs(node.id for node in nodes).items():
        if isinstance(found, ClientError):
            raise found
        for directory in found:
            if directory.error is not None:
                diagnosis.wrong(
                    f"broker {node} has lost {directory.path}: {directory.error}",
                    "look at the disk and at the broker's log; restart it when the disk is well",
                )
            elif directory.total_bytes > 0:
                name = f"broker {node}, {directory.path}"
                check_space(name, directory.total_bytes, directory.usable_bytes, diagnosis)


def _examine_configs(
    client: Client, nodes: list[NodeInfo], cluster: ClusterDescription, diagnosis: Diagnosis
) -> None:
    resources = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in nodes]
    for resource, entries in client.admin.describe_configs(resources).items():
        if isinstance(entries, ClientError):
            raise entries
        values: Mapping[str, str] = {e.name: e.value for e in entries if e.value is not None}
        given = {e.name for e in entries if not e.is_default}
        for what, remedy in dangers(values, given, brokers=len(cluster.brokers)):
            diagnosis.note(f"broker {resource.name}: {what}", remedy)
