"""The examination of one address: its broker, and the cluster behind it.

Each part runs in its own thread, so that no broker can block the command.
"""

from __future__ import annotations

import threading
import time
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from barnabas.cli.admin.held_back import gather_held_back
from barnabas.cli.common.advice import Advice
from barnabas.cli.doctor.brokers import (
    examine_brokers,
    examine_moves,
    examine_partitions,
    examine_quorum,
    look_at_brokers,
    probe_brokers,
    report_lost_quorum,
)
from barnabas.cli.doctor.diagnosis import Diagnosis, dangers
from barnabas.cli.doctor.directory import check_space
from barnabas.cli.doctor.groups import examine_groups
from barnabas.cli.doctor.links import examine_links
from barnabas.cli.doctor.machines import (
    examine_machines,
    examine_racks_of_machines,
    examine_replica_machines,
    examine_voter_machines,
)
from barnabas.cli.doctor.probe import Peer, offered_mechanisms, report_failed_login, responder
from barnabas.cli.doctor.tiering import examine_tier
from barnabas.cli.doctor.traffic import examine_traffic, partitions_of, read_ends
from barnabas.cli.doctor.versions import examine_versions
from barnabas.cli.why.reasons import transaction_reasons
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.errors import ClientError
from barnabas.client.facade import Client
from barnabas.server.configs.endpoints import is_loopback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.cli.admin.held_back import HeldBack
    from barnabas.cli.doctor.probe import Address, Probes
    from barnabas.client.admin.cluster import ClusterDescription
    from barnabas.client.connections.metadata_cache import NodeInfo
    from barnabas.client.fetch.offset_lookups import ListedOffset
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.runtime.tls.tls_options import TlsOptions

# Common ports of brokers.
_USUAL_PORTS = (9092, 9093, 9094, 19092, 29092)
# Beginning of the keys that only brokers of Barnabas describe.
_OWN_KEYS = "barnabas."


def examine_address(
    address: Address, probes: Probes, diagnosis: Diagnosis, tls: TlsOptions | None = None
) -> None:
    """Report what answers at an address, and a remedy if it is not a broker.

    Args:
        address: Host and port as the user gave them.
        probes: The probes of all addresses.
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


def _is_trusted(address: Address, tls: TlsOptions) -> bool:
    """Return whether the client accepts the certificate; the findings about it are elsewhere."""
    # Imported only for listeners with TLS.
    from barnabas.cli.doctor.certificates import examine_peer_certificate

    return not tls.verify_peer or examine_peer_certificate(address, tls, Diagnosis())


def examine_cluster(client: Client, host: str, port: int, diagnosis: Diagnosis) -> None:
    """Report everything that the brokers reveal about the cluster.

    Args:
        client: A client whose bootstrap server, at `host` and `port`, answers.
        host: The host as the user gave it.
        port: The port as the user gave it.
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
    examine_machines(cluster, look.state.description, down, diagnosis)
    # While a broker is down, a request to it would wait.
    ends = None if down else read_ends(client)

    def partitions() -> None:
        topics = client.describe_topics()
        examine_partitions(client, topics, down, diagnosis)
        examine_replica_machines(cluster, topics, diagnosis)
        examine_voter_machines(state.description, diagnosis)
        examine_tier(client, found.answering, topics, diagnosis)

    checks: list[Callable[[], None]] = [
        partitions,
        lambda: examine_versions(client, found.answering, diagnosis),
        lambda: _examine_directories(client, found.answering, diagnosis),
        lambda: _examine_configs(client, found.answering, count, diagnosis),
        lambda: _examine_controller(client, cluster, state.leader, diagnosis),
    ]
    if not state.is_lost:
        checks.append(
            lambda: examine_moves(client, [node.id for node in found.answering], diagnosis)
        )
    if ends is not None:
        checks.append(lambda: examine_traffic(client, ends, diagnosis))
        checks.append(lambda: examine_transactions(client, diagnosis))
        checks.append(lambda: examine_groups(client, diagnosis))
        checks.append(lambda: examine_links(client, diagnosis))
    else:
        diagnosis.unexamined("records, transactions and groups, because brokers are down")
    for check in checks:
        try:
            check()
        except ClientError as error:
            diagnosis.unexamined(str(error))


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


def _examine_controller(
    client: Client, cluster: ClusterDescription, leader: int | None, diagnosis: Diagnosis
) -> None:
    """Report machines without racks, if a broker of Apache Kafka is the active controller.

    The configs of a controller that is no broker cannot be read from brokers.
    """
    if not any(node.id == leader for node in cluster.brokers):
        return
    resource = ConfigResource(ResourceType.BROKER, str(leader))
    entries = client.admin.describe_configs([resource])[resource]
    if isinstance(entries, ClientError):
        raise entries
    if not any(entry.name.startswith(_OWN_KEYS) for entry in entries):
        examine_racks_of_machines(cluster, diagnosis)


def examine_all(
    probes: Probes,
    tls: TlsOptions | None,
    config: Mapping[str, str] | None,
    limit_s: float,
    diagnosis: Diagnosis,
) -> None:
    """Examine addresses, and the cluster behind the first one at which a broker answers.

    Args:
        probes: The probes of the addresses.
        tls: TLS options of the client; None for a client without usable options.
        config: Configuration of the client; None to examine the addresses only.
        limit_s: Limit of the whole examination (s). Parts that are late are abandoned.

    Raises:
        Exception: The error that ended a part.
    """
    deadline = time.monotonic() + limit_s
    parts = [_Part(partial(_examine_addresses, probes, tls))]
    if config is not None:
        parts.append(_Part(partial(_examine_cluster, probes, tls, config)))
    for part in parts:
        part.start()
    are_late = False
    for part in parts:
        part.join(max(0.0, deadline - time.monotonic()))
        are_late |= part.is_alive()
        if part.error is not None:
            raise part.error
        diagnosis.add(part.diagnosis)
    if are_late:
        diagnosis.unexamined(
            f"the rest: the brokers did not answer all requests within {limit_s:.1f} s",
            "repair the reported problems first, then run this command again with a longer "
            "time (--timeout)",
        )


class _Part(threading.Thread):
    """A thread with findings of its own."""

    def __init__(self, examine: Callable[[Diagnosis], None]) -> None:
        super().__init__(name="barnabas-doctor", daemon=True)
        self._examine = examine
        self.diagnosis = Diagnosis()
        self.error: Exception | None = None
        # The options that the advised commands need.
        self._context = copy_context()

    def run(self) -> None:
        """Examine; keep an unexpected error for the command."""
        try:
            self._context.run(self._examine, self.diagnosis)
        except Exception as error:  # noqa: BLE001 - raised again by `examine_all`
            self.error = error


def _examine_addresses(probes: Probes, tls: TlsOptions | None, diagnosis: Diagnosis) -> None:
    for address in probes.addresses:
        examine_address(address, probes, diagnosis, tls)


def _examine_cluster(
    probes: Probes, tls: TlsOptions | None, config: Mapping[str, str], diagnosis: Diagnosis
) -> None:
    first = probes.first_kafka()
    if first is None:
        return
    if tls is not None and not _is_trusted(first, tls):
        diagnosis.unexamined(f"the cluster: the client refuses the certificate of {_text(first)}")
        return
    with Client(_text(first), **config) as client:
        examine_cluster(client, *first, diagnosis)
        others = [
            address
            for address in probes.addresses
            if address != first and probes.reply(address).peer is probes.wanted
        ]
        if len(probes.addresses) > 1:
            _examine_ids(client, first, others, config, diagnosis)


def _examine_ids(
    client: Client,
    first: Address,
    others: Iterable[Address],
    config: Mapping[str, str],
    diagnosis: Diagnosis,
) -> None:
    """Report addresses that belong to another cluster than the first address."""
    try:
        known = client.describe_cluster().cluster_id
    except ClientError as error:
        diagnosis.unexamined(f"whether all addresses are of one cluster: {error}")
        return
    for address in others:
        try:
            with Client(_text(address), **config) as other:
                found = other.describe_cluster().cluster_id
        except ClientError as error:
            diagnosis.unexamined(f"the cluster of {_text(address)}: {error}")
            continue
        if found != known:
            diagnosis.wrong(
                f"{_text(address)} belongs to cluster {found}, but {_text(first)} "
                f"belongs to cluster {known}",
                "list only brokers of one cluster in bootstrap.servers",
            )


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# Transactions usually end within seconds, so younger ones are not reported.
_OPEN_MS_MIN = 10_000
# Maximum number of examined partitions, and of reported findings.
_EXAMINED_MAX = 20
_REPORTED_MAX = 5


def examine_transactions(client: Client, diagnosis: Diagnosis) -> None:
    """Report transactions that have been open for a long time, or that no coordinator will end."""
    wanted = partitions_of(client.describe_topics())
    ends = client.admin.list_offsets(dict.fromkeys(wanted, "latest"))
    stable = client.admin.list_offsets(dict.fromkeys(wanted, "latest"), read_committed=True)
    held = [
        (tp, low, high)
        for tp in sorted(wanted)
        for low, high in ((_offset(stable, tp), _offset(ends, tp)),)
        if low is not None and high is not None and low < high
    ]
    if len(held) > _EXAMINED_MAX:
        diagnosis.unexamined(
            f"transactions that are open in {len(held) - _EXAMINED_MAX} more partitions"
        )
    reported: set[int] = set()
    for tp, low, high in held[:_EXAMINED_MAX]:
        found = gather_held_back(client, tp, low, high)
        producer = found.first
        if producer is None or producer.producer_id in reported or _open_ms(found) < _OPEN_MS_MIN:
            continue
        reported.add(producer.producer_id)
        for reason in transaction_reasons(found):
            add = diagnosis.wrong if reason.verdict == "wrong" else diagnosis.note
            add(f"{tp}: {reason.what}", reason.remedy)
        if len(reported) == _REPORTED_MAX:
            return


def _offset(
    found: Mapping[TopicPartition, ListedOffset | ClientError], tp: TopicPartition
) -> int | None:
    listed = found.get(tp)
    return None if listed is None or isinstance(listed, ClientError) else listed.offset


def _open_ms(held: HeldBack) -> int:
    """Return how long the first transaction has been open, or since its last write."""
    producer = held.first
    assert producer is not None
    owner = held.owners.get(producer.producer_id)
    if owner is None or isinstance(owner.description, ClientError) or held.is_hanging(producer):
        return held.now_ms - producer.last_timestamp
    return held.now_ms - owner.description.start_time_ms
