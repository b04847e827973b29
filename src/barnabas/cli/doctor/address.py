"""Diagnosis of the broker at an address, and of the cluster behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.cli.common.advice import Advice
from barnabas.cli.doctor.brokers import examine_brokers, look_at_brokers, probe_brokers
from barnabas.cli.doctor.dangerous import dangers
from barnabas.cli.doctor.directory import check_space
from barnabas.cli.doctor.groups import examine_groups
from barnabas.cli.doctor.login import offered_mechanisms, report_failed_login
from barnabas.cli.doctor.probe import Peer, responder
from barnabas.cli.doctor.quorum import examine_quorum, report_lost_quorum
from barnabas.cli.doctor.replicas import examine_moves, examine_partitions
from barnabas.cli.doctor.transactions import examine_transactions
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.connections.versions import CLIENT_VERSIONS
from barnabas.client.errors import ClientError
from barnabas.protocol.api_keys import ApiKey
from barnabas.server.configs.endpoints import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.doctor.probe import Address, Probes
    from barnabas.client.connections.metadata_cache import NodeInfo
    from barnabas.client.facade import Client
    from barnabas.runtime.tls.tls_options import TlsOptions

__all__ = ["examine_address", "examine_cluster"]

# Common ports of brokers.
_USUAL_PORTS = (9092, 9093, 9094, 19092, 29092)
# The APIs that a client needs.
_NEEDED = (ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA, ApiKey.LIST_OFFSETS)
# Features that clients notice -> the effect of level 0.
_FEATURES = {
    "group.version": "consumers with group.protocol=consumer cannot join groups",
    "share.version": "share consumers cannot join groups",
    "transaction.version": "transactions use the older protocol, without the protection of KIP-890",
}


def examine_address(
    address: Address, probes: Probes, diagnosis: Diagnosis, tls: TlsOptions | None = None
) -> None:
    """Report what answers at an address, and a remedy if it is not a broker.

    Args:
        address: Host and port as the user gave them.
        probes: The probes of all addresses.
        diagnosis: Receives the findings.
        tls: TLS options of the client; None for a client without TLS.
    """
    host, port = address
    name = f"{host}:{port}"
    reply = probes.reply(address)
    if reply.peer is probes.wanted:
        diagnosis.ok(f"{name} {reply.peer.value}")
        if tls is not None:
            _examine_certificate(address, tls, diagnosis)
        return
    remedies = {
        Peer.UNKNOWN_NAME: "check the spelling of the host, or its entry in DNS or /etc/hosts",
        Peer.UNREACHABLE: "check host and network; a firewall may drop the packets",
        Peer.TLS: "give the client security.protocol=SSL (-X or --config-file)",
        Peer.KAFKA: "name a listener with TLS, or use a security.protocol without SSL",
        Peer.HTTP: "give the port of a Kafka listener, not that of metrics or a web console",
        Peer.SILENT: (
            "if it is a broker, its log says whether it waits for the metadata quorum or recovers "
            "its data: start the other nodes, or wait; if the log is silent, the process is paused "
            "or stuck: continue it (kill -CONT PID)"
        ),
        Peer.CLOSES: "the port is not a broker's, or max.connections is reached: read the broker's "
        "log",
        Peer.OTHER: "give the port of a broker's listener",
        Peer.REFUSED: f"start the broker that listens there: {Advice.START_NODE.text()}"
        + (
            f"; to create a new cluster: {Advice.START_NEW_BROKER.text(address=name)}"
            if is_loopback(host)
            else ""
        ),
    }
    remedy = remedies[reply.peer]
    if reply.peer is Peer.TLS:
        offered = offered_mechanisms(address, has_tls=True)
        if offered:
            remedy = (
                f"give the client security.protocol=SASL_SSL, sasl.mechanism={offered[0]} and its "
                f"credentials (--config-file)"
            )
    if probes.first_kafka() is not None:
        if reply.peer is Peer.REFUSED:
            # A new broker in place of an existing one would start an empty cluster of its own.
            remedy = f"start the broker that listens there: {Advice.START_NODE.text()}"
    elif reply.peer not in (Peer.UNKNOWN_NAME, Peer.UNREACHABLE):
        found = responder(host, (each for each in _USUAL_PORTS if each != port))
        if found is not None:
            # It may be a broker of another cluster: only the user knows.
            remedy += f"; a broker answers at {host}:{found}: is it the one that you mean?"
    detail = f" ({reply.detail})" if reply.detail else ""
    if reply.peer is Peer.TLS:
        detail = ", and the client does not"
    diagnosis.wrong(f"{name} {reply.peer.value}{detail}", remedy)


def _examine_certificate(address: Address, tls: TlsOptions, diagnosis: Diagnosis) -> None:
    # Imported only for listeners with TLS.
    from barnabas.cli.doctor.certificates import examine_peer_certificate

    if examine_peer_certificate(address, tls, diagnosis) and tls.verify_peer:
        diagnosis.ok(f"the certificate of {address[0]}:{address[1]} is valid for this client")


def examine_cluster(client: Client, host: str, port: int, diagnosis: Diagnosis) -> None:
    """Report everything that the brokers reveal about the cluster.

    Args:
        client: A client whose bootstrap server, at `host` and `port`, answers.
        host: The host as the user gave it.
        port: The port as the user gave it.
        diagnosis: Receives the findings.
    """
    try:
        cluster = client.describe_cluster()
    except ClientError as error:
        if not report_failed_login((host, port), client.config, error, diagnosis):
            diagnosis.wrong(
                f"the broker does not answer requests: {error}",
                "read the broker's log, which has the reason for each closed connection; if the "
                "listener wants a login (SASL), give the credentials in a file with --config-file",
            )
        return
    probes = probe_brokers(client, cluster)
    state = examine_quorum(client, diagnosis)
    leader = "no controller" if state.leader is None else f"controller {state.leader}"
    count = len(cluster.brokers) + len(cluster.fenced)
    words = f"cluster {cluster.cluster_id} with {count} broker{'' if count == 1 else 's'}"
    diagnosis.ok(f"{words}, {leader}")
    if state.is_lost:
        report_lost_quorum(client, cluster, probes, diagnosis)
    look = look_at_brokers(client, cluster, probes, state)
    found = examine_brokers(cluster, look, (host, port), diagnosis)
    down = {node.id for node in found.down}

    def partitions() -> None:
        examine_partitions(client, client.describe_topics(), down, diagnosis)

    checks: list[Callable[[], None]] = [
        partitions,
        lambda: _examine_versions(client, found.answering, diagnosis),
        lambda: _examine_features(client, found.answering, diagnosis),
        lambda: _examine_directories(client, found.answering, diagnosis),
        lambda: _examine_configs(client, found.answering, count, diagnosis),
    ]
    if not state.is_lost:
        checks.append(
            lambda: examine_moves(client, [node.id for node in found.answering], diagnosis)
        )
    if not down:
        # While a broker is down, a request to its coordinator would wait.
        checks.append(lambda: examine_transactions(client, diagnosis))
        checks.append(lambda: examine_groups(client, diagnosis))
    else:
        diagnosis.unexamined("transactions and groups, because brokers are down")
    for check in checks:
        try:
            check()
        except ClientError as error:
            diagnosis.unexamined(str(error))


def _examine_versions(client: Client, nodes: list[NodeInfo], diagnosis: Diagnosis) -> None:
    for node in nodes:
        versions = client.admin.describe_versions(node.id)
        unusable = []
        for api in _NEEDED:
            low, high = CLIENT_VERSIONS[api]
            served = versions.apis.get(api, (1, 0))
            if max(low, served[0]) > min(high, served[1]):
                unusable.append(f"{api.name} {served[0]}-{served[1]}")
        level = versions.finalized_features.get("metadata.version")
        metadata = "" if level is None else f", metadata.version {level}"
        if unusable:
            diagnosis.wrong(
                f"broker {node.id} and this client have no version in common for "
                f"{', '.join(unusable)}",
                "use a broker of Apache Kafka 2.1 or later",
            )
        else:
            diagnosis.ok(f"broker {node.id} serves {len(versions.apis)} APIs{metadata}")


def _examine_features(client: Client, nodes: list[NodeInfo], diagnosis: Diagnosis) -> None:
    """Report features that all brokers support, but that are disabled in the cluster."""
    versions = [client.admin.describe_versions(node.id) for node in nodes]
    for name, disables in _FEATURES.items():
        levels = (each.supported_features.get(name, (0, 0))[1] for each in versions)
        supported = min(levels, default=0)
        if supported > 0 and not any(each.finalized_features.get(name) for each in versions):
            diagnosis.note(
                f"the feature {name} has level 0: {disables}",
                f"to enable it: {Advice.ENABLE_FEATURE.text(feature=name, level=supported)}",
            )


def _examine_directories(client: Client, nodes: list[NodeInfo], diagnosis: Diagnosis) -> None:
    for node, found in client.admin.describe_log_dirs(node.id for node in nodes).items():
        if isinstance(found, ClientError):
            raise found
        for directory in found:
            if directory.error is not None:
                diagnosis.wrong(
                    f"broker {node} has lost {directory.path}: {directory.error}",
                    "check the disk and the broker's log; restart the broker when the disk works",
                )
            elif directory.total_bytes > 0:
                name = f"broker {node}, {directory.path}"
                check_space(name, directory.total_bytes, directory.usable_bytes, diagnosis)


def _examine_configs(
    client: Client, nodes: list[NodeInfo], brokers: int, diagnosis: Diagnosis
) -> None:
    resources = [ConfigResource(ResourceType.BROKER, str(node.id)) for node in nodes]
    for resource, entries in client.admin.describe_configs(resources).items():
        if isinstance(entries, ClientError):
            raise entries
        values: Mapping[str, str] = {e.name: e.value for e in entries if e.value is not None}
        given = {e.name for e in entries if not e.is_default}
        for what, remedy in dangers(values, given, brokers=brokers):
            diagnosis.note(f"broker {resource.name}: {what}", remedy)
