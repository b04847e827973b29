"""Diagnosis of a node's files: its properties, and its data directory in use or not."""

from __future__ import annotations

import difflib
import errno
import os
import socket
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

import click

from barnabas.cli.common.advice import Advice
from barnabas.cli.common.printable import counted
from barnabas.cli.common.units import size
from barnabas.cli.common.variables import without_variables
from barnabas.cli.doctor.diagnosis import dangers
from barnabas.cli.doctor.tiering import examine_store
from barnabas.cli.log.segment_files import (
    METADATA_TOPIC,
    FileFindings,
    is_locked,
    needs_recovery,
    partition_directories,
)
from barnabas.cli.nodes.node_plans import plan_node
from barnabas.cli.nodes.registry_child import LISTENER_KEY, take_registry_properties
from barnabas.network.principal import ANONYMOUS
from barnabas.runtime.disk import RealDisk
from barnabas.runtime.interpreter import UNOPTIMIZED, is_optimized
from barnabas.runtime.sockets import is_wildcard
from barnabas.runtime.system_calls import open_files_limits
from barnabas.runtime.tls.contexts import check_mutual_trust
from barnabas.runtime.tls.tls_options import TlsOptionsError
from barnabas.server.configs.config import AuthorizerConfig, log_directories
from barnabas.server.configs.configuration import (
    BROKER_KEYS,
    RENAMED_KEYS,
    is_listener_key,
    may_be_secret,
    read_configuration,
)
from barnabas.server.configs.endpoints import advertised_endpoints, shared_voter_machines
from barnabas.server.configs.node_keys import BROKERS_KEY
from barnabas.server.listeners.listener_tls import ListenerTls
from barnabas.server.quorum.node_principals import refused_principals
from barnabas.settings.key import ConfigError
from barnabas.settings.properties import PropertiesError, parse_properties
from barnabas.storage.config import TOPIC_CONFIGS
from barnabas.storage.errors import InconsistentDirectoryError
from barnabas.storage.files.log_directory import LOCK_FILE
from barnabas.storage.files.metadata_files import CLEAN_SHUTDOWN, MetaProperties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.server.configs.configuration import Configuration
    from barnabas.server.configs.endpoints import Endpoint
    from barnabas.settings.definition import ParsedConfig


# With less free space than this share or this number of bytes, a broker soon stops. On small disks,
# another share takes the place of the number of bytes.
_FREE_PART_MIN = 0.05
_FREE_BYTES_MIN = 1 << 30
_FREE_PART_OF_SMALL_MIN = 0.1
# Descriptors for an active segment: the log file and its indexes.
_FILES_PER_PARTITION = 4


def examine_directory(
    path: str, diagnosis: Diagnosis, *, node_id: int | None = None, cluster_id: str | None = None
) -> MetaProperties | None:
    """Examine a data directory.

    Args:
        path: The directory.
        node_id: The node that will use the directory, if it is known.
        cluster_id: The cluster that the directory must belong to, if it is known.

    Returns:
        The content of its meta.properties; None if it cannot be read.
    """
    if not RealDisk().is_directory(path):
        _examine_absent(path, diagnosis)
        return None
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        diagnosis.wrong(
            f"{path} cannot be read and written by this user",
            f"run the broker as the owner, or: chown -R $(id -un) {path}",
        )
        return None
    in_use = is_locked(f"{path}/{LOCK_FILE}")
    if in_use:
        diagnosis.note(f"{path} is used by a broker", "a second broker needs a separate directory")
    meta = _examine_identity(path, diagnosis, node_id, cluster_id)
    try:
        partitions = len(partition_directories(path)) if RealDisk().list(path) else 0
    except click.UsageError as error:
        if meta is None:
            diagnosis.note(f"{error.message}: it contains other files", "use an empty directory")
        partitions = 0
    if meta is not None and not in_use:
        _examine_shutdown(path, partitions, diagnosis)
        _examine_metadata_log(path, diagnosis)
    check_space(path, *RealDisk().space(path), diagnosis)
    _examine_descriptors(partitions, diagnosis)
    if not is_optimized():
        diagnosis.note(
            UNOPTIMIZED, "use the Python of the Linux distribution, or one of uv or conda"
        )
    return meta


def _examine_absent(path: str, diagnosis: Diagnosis) -> None:
    if RealDisk().exists(path):
        diagnosis.wrong(f"{path} is a file", "use a directory")
        return
    parent = PurePosixPath(RealDisk().absolute(path))
    while not RealDisk().exists(str(parent)):
        parent = parent.parent
    if os.access(parent, os.W_OK | os.X_OK):
        diagnosis.ok(f"{path} does not exist yet: the broker creates it")
    else:
        diagnosis.wrong(
            f"{path} does not exist, and this user cannot write to {parent}",
            f"create it and make the broker's user its owner: mkdir -p {path}",
        )


def _examine_identity(
    path: str, diagnosis: Diagnosis, node_id: int | None, cluster_id: str | None
) -> MetaProperties | None:
    try:
        meta = MetaProperties.read(RealDisk(), path)
    except InconsistentDirectoryError as error:
        diagnosis.wrong(
            str(error),
            "a directory from a ZooKeeper cluster must first be migrated with Apache Kafka 3.9"
            if "version '0'" in str(error)
            else "copy meta.properties from another data directory of the same node",
        )
        return None
    if meta is None:
        names = [name for name in RealDisk().list(path) if name != LOCK_FILE]
        if any("-" in name for name in names):
            diagnosis.wrong(
                f"{path} contains logs but no meta.properties, which identifies their node",
                "copy the file from another data directory of the node, or from a backup",
            )
        else:
            diagnosis.ok(f"{path} is not formatted: the broker formats it at its start")
        return None
    if node_id is not None and meta.node_id != node_id:
        diagnosis.wrong(
            f"{path} belongs to node {meta.node_id}, but this is node {node_id}",
            f"set node.id={meta.node_id}, or use another directory",
        )
    elif cluster_id is not None and meta.cluster_id != cluster_id:
        diagnosis.wrong(
            f"{path} belongs to cluster {meta.cluster_id}, but cluster.id={cluster_id}",
            f"set cluster.id={meta.cluster_id}; or, to join the other cluster, use "
            "another directory",
        )
    else:
        diagnosis.ok(f"{path} belongs to node {meta.node_id} of cluster {meta.cluster_id}")
    return meta


def _examine_shutdown(path: str, partitions: int, diagnosis: Diagnosis) -> None:
    if RealDisk().exists(f"{path}/{CLEAN_SHUTDOWN}"):
        diagnosis.ok(f"{path} was closed cleanly, with {counted(partitions, 'partition')}")
    elif needs_recovery(path):
        diagnosis.note(
            f"{path} was not closed cleanly: the next start recovers "
            f"{counted(partitions, 'partition')}",
            f"no action is needed; to check first: {Advice.VERIFY_LOG.text(directory=path)}",
        )


def _examine_metadata_log(path: str, diagnosis: Diagnosis) -> None:
    """Check the metadata log: a node does not start if it is damaged."""
    from barnabas.cli.log.verify import VerifyOptions, verify_partition

    options = VerifyOptions(deep=False, is_running=False, advance=lambda _count: None)
    for partition in partition_directories(path):
        if partition.topic != METADATA_TOPIC:
            continue
        findings = FileFindings()
        verify_partition(partition, options, findings)
        # The next start rebuilds indexes and checkpoints from the segments.
        in_segments = [each for each in findings.problems if each.path.endswith(".log")]
        for finding in in_segments[:1]:
            diagnosis.wrong(
                f"the metadata log is damaged, so the node does not start: {finding.path}: "
                f"{finding.what}",
                f"{Advice.REPAIR_LOG_APPLY.text(directory=path)}; without --apply, it shows what "
                "would be lost. If there are other voters, the node can copy their log "
                f"instead: move {path} aside and start the node",
            )


def check_space(name: str, total: int, free: int, diagnosis: Diagnosis) -> None:
    """Report whether a disk has enough free space."""
    words = f"{name}: {size(free)} of {size(total)} free"
    needed = max(total * _FREE_PART_MIN, min(_FREE_BYTES_MIN, total * _FREE_PART_OF_SMALL_MIN))
    if free < needed:
        diagnosis.wrong(
            words,
            f"free space: `{Advice.PURGE_TOPIC.text()}`, a shorter retention.ms, or another "
            "directory in log.dirs",
        )
    else:
        diagnosis.ok(words)


def _examine_descriptors(partitions: int, diagnosis: Diagnosis) -> None:
    """Check the hard limit of open files; the broker raises its soft limit itself."""
    _, hard = open_files_limits()
    needed = 1024 + _FILES_PER_PARTITION * partitions
    if hard is not None and hard < needed:
        diagnosis.wrong(
            f"{hard} open files are allowed; {partitions} partitions may need {needed}",
            "raise the limit: LimitNOFILE= of the service, or ulimit -Hn",
        )
    else:
        allowed = "any number of" if hard is None else str(hard)
        diagnosis.ok(f"{allowed} open files are allowed")


_ZOOKEEPER = "zookeeper."
_CLOSE = 0.8


def examine_properties(path: str, diagnosis: Diagnosis) -> None:
    """Examine the file, and the listeners and directories that it names."""
    text = RealDisk().read(path).decode("latin-1")
    try:
        given = parse_properties(text)
    except PropertiesError as error:
        diagnosis.wrong(f"{path}: {error}", "write the escape with four hexadecimal digits")
        return
    _examine_repeats(text, given, diagnosis)
    try:
        given = without_variables(given)
    except ConfigError as error:
        diagnosis.wrong(str(error), "create it, or correct the variable or its provider")
        return
    given = {RENAMED_KEYS.get(name, name): value for name, value in given.items()}
    _examine_registry(given, diagnosis)
    good = {name: value for name, value in given.items() if _is_good(name, value, diagnosis)}
    # Report unknown keys first: that works even if the values contradict each other.
    if _examine_unknown(BROKER_KEYS.parse(good), diagnosis) and len(good) == len(given):
        diagnosis.ok(f"{counted(len(given), 'key')}, all known and with allowed values")
    configuration = _read(good, diagnosis)
    if configuration is None:
        return
    values = {
        key.name: value
        for key in BROKER_KEYS
        if (value := configuration.parsed.text(key.name)) is not None
    }
    for what, remedy in dangers(values, set(given), brokers=_voters(configuration)):
        diagnosis.note(what, remedy)
    voters = configuration.cluster.voters
    for what, remedy in shared_voter_machines({id_: host for id_, (host, _) in voters.items()}):
        diagnosis.note(what, remedy)
    _examine_principals(configuration, diagnosis)
    _examine_tls(configuration, diagnosis)
    _examine_issuers(configuration, diagnosis)
    if good.get(BROKERS_KEY):
        _examine_node(good, configuration, diagnosis)
        return
    _examine_listeners(configuration, diagnosis)
    _examine_directories(configuration, diagnosis)


def _examine_node(
    given: Mapping[str, str], configuration: Configuration, diagnosis: Diagnosis
) -> None:
    """Examine the listeners and directories of the processes of a node."""
    try:
        # Port 0 stands for a free port, which the start finds.
        plans = plan_node(given, configuration.parsed, lambda _: 0)
    except (ConfigError, InconsistentDirectoryError, OSError) as error:
        diagnosis.wrong(str(error), "correct the configuration of the node: docs/node.md")
        return
    diagnosis.ok(f"a node of several processes: {', '.join(plan.name for plan in plans)}")
    for plan in plans:
        _examine_listeners(plan.configuration, diagnosis)
        _examine_directories(plan.configuration, diagnosis)


def _examine_repeats(text: str, given: Mapping[str, str], diagnosis: Diagnosis) -> None:
    seen: dict[str, int] = {}
    for line in text.splitlines():
        key = line.strip().partition("=")[0].strip()
        seen[key] = seen.get(key, 0) + 1
    for key, count in seen.items():
        if count > 1 and key in given:
            value = "(hidden)" if may_be_secret(key) else repr(given[key])
            diagnosis.note(f"{key} is given {count} times: the last one counts, {value}")


def _is_good(name: str, value: str, diagnosis: Diagnosis) -> bool:
    """Return whether the value is allowed. All invalid values are reported, not only the first."""
    key = BROKER_KEYS.get(name)
    if key is None:
        return True
    try:
        key.parse(value)
    except ConfigError as error:
        diagnosis.wrong(str(error), f"correct {name}, or remove it")
        return False
    return True


def _read(good: Mapping[str, str], diagnosis: Diagnosis) -> Configuration | None:
    try:
        # `_examine_unknown` reports unknown keys.
        return read_configuration(good, warns=False)
    except ConfigError as error:
        diagnosis.wrong(str(error), f"correct {error.key}")
        return None


def _examine_unknown(parsed: ParsedConfig, diagnosis: Diagnosis) -> bool:
    """Report the keys that the broker does not use. Return whether there are none."""
    names = [key.name for key in BROKER_KEYS]
    synonyms = {key.name: key.synonyms[0].name for key in TOPIC_CONFIGS if key.synonyms}
    useless = [name for name in parsed.unknown if not is_listener_key(parsed, name)]
    for name in useless:
        if name in synonyms:
            remedy = f"to set it for all topics, use {synonyms[name]}"
            diagnosis.wrong(f"{name} is a key of topics, not of brokers", remedy)
            continue
        close = difflib.get_close_matches(name, names, n=1, cutoff=_CLOSE)
        if close:
            diagnosis.wrong(f"{name} is an unknown key", f"did you mean {close[0]}?")
        elif name.startswith(_ZOOKEEPER):
            diagnosis.note(f"{name} has no effect: there is no ZooKeeper", "remove it")
        else:
            diagnosis.note(f"{name} has no effect here", "remove it, or use another key")
    return not useless


def _voters(configuration: Configuration) -> int:
    return max(1, len(configuration.parsed.strings("controller.quorum.voters")))


def _examine_principals(configuration: Configuration, diagnosis: Diagnosis) -> None:
    """Report principals of nodes that the authorizer of other nodes refuses."""
    authorizer = AuthorizerConfig.of(configuration.parsed)
    for refused in refused_principals(configuration):
        what = (
            f"nodes connect to listener {refused.listener} ({refused.protocol}) as "
            f"{refused.principal}, which is not in super.users"
        )
        remedy = f"add {refused.principal} to super.users of all nodes"
        if refused.principal == str(ANONYMOUS):
            remedy += (
                f", as long as only nodes reach that listener; or give {refused.listener} a "
                "protocol with a login (SASL_SSL, or SSL with ssl.client.auth=required), and add "
                "the principals of the nodes"
            )
        if refused.is_controller:
            diagnosis.wrong(
                f"{what}: controllers refuse their requests (CLUSTER_AUTHORIZATION_FAILED), at the "
                "latest after all nodes have stopped",
                remedy,
            )
        elif authorizer is not None and not authorizer.allows_by_default:
            diagnosis.note(
                f"{what}: brokers refuse each other's requests, unless an access control entry "
                "allows CLUSTER_ACTION on the cluster",
                remedy,
            )


def _examine_tls(configuration: Configuration, diagnosis: Diagnosis) -> None:
    """Read the key stores of all listeners with TLS."""
    listening = {
        each.name for each in [*configuration.endpoints, *configuration.controller_endpoints]
    }
    advertised = [
        *advertised_endpoints(configuration.parsed, configuration.endpoints),
        *configuration.advertised_controller_endpoints,
    ]
    for name, protocol in configuration.protocols.items():
        if not protocol.has_tls:
            continue
        tls = ListenerTls(name, protocol, is_listening=name in listening, connects_to_itself=False)
        try:
            tls.reload(configuration.parsed, configuration.given)
        except ConfigError as error:
            diagnosis.wrong(str(error), f"correct {error.key}")
        else:
            hosts = {each.host for each in advertised if each.name == name and each.host}
            if name not in listening or _examine_own(name, tls, sorted(hosts), diagnosis):
                diagnosis.ok(f"the key stores of listener {name} can be used")


def _examine_issuers(configuration: Configuration, diagnosis: Diagnosis) -> None:
    """Read the files with the keys of issuers of tokens."""
    settings = [
        each.oauth for sasl in configuration.sasl.values() for each in sasl.mechanisms.values()
    ]
    paths = {each.keys.path for each in settings if each is not None and each.keys is not None}
    for path in sorted(path for path in paths if path is not None):
        try:
            RealDisk().read(path)
        except OSError as error:
            diagnosis.wrong(
                f"the keys of the issuer of tokens cannot be read: {path}: {error.strerror}",
                "write the issuer's key set to this file, or correct "
                "sasl.oauthbearer.jwks.endpoint.url",
            )


def _examine_registry(given: dict[str, str], diagnosis: Diagnosis) -> None:
    """Take the keys of a registry out of the broker's, and check that its packages are there."""
    try:
        if not take_registry_properties(given):
            return
        import_module("barnabas.registry.serving")
    except ConfigError as error:
        diagnosis.wrong(str(error), f"give {error.key}, or remove the other keys of the registry")
    except ImportError as error:
        diagnosis.wrong(
            f"{LISTENER_KEY} is given, but the package {error.name} is missing",
            "install the extra `registry`, in a clone by: pip install '.[registry]'",
        )


def _examine_own(name: str, tls: ListenerTls, hosts: list[str], diagnosis: Diagnosis) -> bool:
    """Examine the certificate of a listener. Return whether nothing is wrong."""
    # Imported only for listeners with TLS.
    from barnabas.cli.doctor.certificates import examine_certificate

    server = tls.server()
    assert server.own_certificate is not None, "a listener has a certificate"
    if not examine_certificate(server.own_certificate, f"listener {name}", hosts, diagnosis):
        return False
    try:
        # The contexts are not used after this.
        check_mutual_trust(server, tls.client())
    except TlsOptionsError as error:
        diagnosis.note(
            f"the trust store of listener {name} does not accept its own certificate: "
            f"{error.reason}",
            "append the certificates of intermediate authorities to the key store, or add the "
            "authority to the trust store",
        )
    return True


def _examine_listeners(configuration: Configuration, diagnosis: Diagnosis) -> None:
    directories = log_directories(configuration.parsed)
    used = next((path for path in directories if is_locked(f"{path}/{LOCK_FILE}")), None)
    for endpoint in configuration.endpoints:
        if endpoint.port == 0:
            diagnosis.ok(f"{endpoint} takes any free port")
            continue
        family = socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        with socket.socket(family) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((endpoint.host, endpoint.port))
            except OSError as error:
                if error.errno == errno.EADDRINUSE and used is not None:
                    diagnosis.note(
                        f"{endpoint} and {used} are in use: this broker runs already",
                        "to examine the running broker: "
                        f"{Advice.DOCTOR_ADDRESS.text(address=_address(endpoint))}",
                    )
                    continue
                _report_unbound(str(endpoint), error, diagnosis)
            else:
                diagnosis.ok(f"{endpoint} is free to listen on")


def _address(endpoint: Endpoint) -> str:
    """Return an address to connect to."""
    if is_wildcard(endpoint.host):
        endpoint = endpoint._replace(host="localhost")
    return endpoint.address


def _report_unbound(endpoint: str, error: OSError, diagnosis: Diagnosis) -> None:
    remedies = {
        errno.EADDRINUSE: "another program listens on this port: stop it, or use another port",
        errno.EADDRNOTAVAIL: "this machine does not have that address: use one of its addresses",
        errno.EACCES: "ports below 1024 are reserved for the administrator: use a higher port",
    }
    remedy = remedies.get(error.errno or 0, "use an address of this machine")
    diagnosis.wrong(f"the broker cannot listen on {endpoint}: {error.strerror}", remedy)


def _examine_directories(configuration: Configuration, diagnosis: Diagnosis) -> None:
    clusters: dict[str, str] = {}
    for path in log_directories(configuration.parsed):
        meta = examine_directory(
            path,
            diagnosis,
            node_id=configuration.node_id,
            cluster_id=configuration.cluster.cluster_id,
        )
        if meta is not None:
            clusters.setdefault(meta.cluster_id, path)
    if len(clusters) > 1:
        words = ", ".join(f"{path} to {cluster}" for cluster, path in clusters.items())
        remedy = "remove the directories of the other cluster"
        diagnosis.wrong(f"the directories belong to several clusters: {words}", remedy)
        return
    examine_store(configuration, next(iter(clusters), None), diagnosis)
