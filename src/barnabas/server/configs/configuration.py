"""Configuration of a node: reads the keys of all packages together, and warns of unknown keys."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.controller.config import CONTROLLER_CONFIGS
from barnabas.controller.remote_rules import check_local_retention
from barnabas.coordinator.group.group_config import DEFINITION as COORDINATOR_KEYS
from barnabas.coordinator.group.kind_configs import check_group_limits
from barnabas.coordinator.share.config import DEFINITION as SHARE_KEYS
from barnabas.coordinator.transaction.config import DEFINITION as TRANSACTION_KEYS
from barnabas.raft.config import RAFT_CONFIGS
from barnabas.replication.config import DEFINITION as REPLICATION_KEYS
from barnabas.server.configs.config import SERVER_KEYS, log_directories, request_memory
from barnabas.server.configs.endpoints import (
    ClusterSettings,
    advertised_controller_endpoints,
    advertised_endpoints,
    bound_endpoints,
    cluster_settings,
    controller_endpoints,
    inter_broker_listener,
    is_loopback,
    security_protocols,
    shared_voter_machines,
)
from barnabas.server.configs.node_keys import OVERRIDE
from barnabas.server.configs.policies import check_policies, has_policies
from barnabas.server.configs.sasl_keys import SASL_KEYS, sasl_listener_keys
from barnabas.server.configs.tls_config import TLS_KEYS, check_classes, listener_prefix
from barnabas.server.quotas.config import (
    ConnectionBounds,
    check_connection_bounds,
    connection_bounds,
    listener_keys,
)
from barnabas.settings.key import without_listener
from barnabas.storage.config import BROKER_CONFIGS, log_config, topic_defaults
from barnabas.storage.remote_keys import (
    IGNORED_REMOTE_KEYS,
    METADATA_PREFIX,
    METADATA_TOPIC_KEYS,
    STORE_PREFIX,
    STORE_PREFIX_DEFAULT,
    SYSTEM_ENABLE,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.configs.endpoints import Endpoint, SecurityProtocol
    from barnabas.server.configs.listener_sasl import ListenerSasl, LoginSettings
    from barnabas.server.configs.oauth_settings import TokenLoginSettings
    from barnabas.settings.definition import ParsedConfig


_log = logging.getLogger(__name__)

# Kafka keys that need no warning, because this broker has nothing that they configure.
_THREADS = frozenset({
    "background.threads",
    "num.io.threads",
    "num.network.threads",
    "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads",
    "queued.max.requests",
})  # fmt: skip

_METRICS = frozenset({
    "auto.include.jmx.reporter",
    "kafka.metrics.polling.interval.secs",
    "kafka.metrics.reporters",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
})  # fmt: skip

_COORDINATORS = frozenset({
    "group.coordinator.threads",
    "offsets.load.buffer.size",
    "share.coordinator.append.linger.ms",
    "share.coordinator.cached.buffer.max.bytes",
    "share.coordinator.load.buffer.size",
    "share.coordinator.threads",
    "transaction.state.log.load.buffer.size",
})  # fmt: skip

# Names of Java's algorithms and providers.
_JAVA_TLS = frozenset({
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.trustmanager.algorithm",
    "ssl.engine.factory.class",
    "principal.builder.class",
})  # fmt: skip

# Why each of these keys has no effect.
IGNORED_KEYS: dict[str, str] = {
    **dict.fromkeys(_THREADS, "the broker has one event loop, and no pools of threads to size"),
    **dict.fromkeys(_METRICS, "metrics are read from metrics.listener, not from JMX"),
    **dict.fromkeys(_COORDINATORS, "coordinators share the event loop, and size their own buffers"),
    **dict.fromkeys(_JAVA_TLS, "TLS comes from OpenSSL, not from Java"),
    **IGNORED_REMOTE_KEYS,
}


BROKER_KEYS = (
    SERVER_KEYS
    | BROKER_CONFIGS
    | REPLICATION_KEYS
    | RAFT_CONFIGS
    | CONTROLLER_CONFIGS
    | COORDINATOR_KEYS
    | TRANSACTION_KEYS
    | SHARE_KEYS
    | SASL_KEYS
)

# Current name of each renamed Kafka key, by its old name.
RENAMED_KEYS = {"broker.id": "node.id"}


class Configuration(msgspec.Struct, frozen=True):
    """The checked configuration at the start of a node."""

    parsed: ParsedConfig
    # Given values as text, under the current names of their keys.
    given: Mapping[str, str]
    # Roles, voters and cluster id.
    cluster: ClusterSettings
    # Endpoints to bind for clients and brokers. Port 0 stands for a free port.
    endpoints: list[Endpoint]
    # Endpoints to bind for the controller. Empty without a controller, or if no other node uses it.
    controller_endpoints: list[Endpoint]
    # Endpoints where other nodes reach the controller.
    advertised_controller_endpoints: list[Endpoint]
    # Limits for the number and rate of connections.
    connections: ConnectionBounds
    # Security protocol of each listener that the node opens or connects to, by listener name.
    protocols: dict[str, SecurityProtocol]
    # SASL settings by name of the listener, for listeners where clients log in by SASL.
    sasl: Mapping[str, ListenerSasl]
    # Credentials of this node by name of the listener of other nodes.
    logins: Mapping[str, LoginSettings | TokenLoginSettings]

    @property
    def node_id(self) -> int:
        """Id of the node."""
        return self.parsed.integer("node.id")

    @property
    def is_single(self) -> bool:
        """Whether the cluster has no other nodes: no other voter, and no controller listener."""
        return self.cluster.is_alone and not self.controller_endpoints

    @property
    def inter_broker_listener(self) -> str | None:
        """Name of the listener for traffic between brokers, or None without client listeners."""
        return inter_broker_listener(self.parsed, self.endpoints)


def read_configuration(properties: Mapping[str, str], *, warns: bool = True) -> Configuration:
    """Check the given properties and add the defaults.

    Args:
        properties: the values by key.
        warns: whether to log unknown keys, and voters that share a machine.

    Raises:
        ConfigError: an invalid value. The message has the key, the value and the allowed values.
    """
    given: dict[str, str] = {}
    for name, value in properties.items():
        given[RENAMED_KEYS.get(name, name)] = value
    parsed = BROKER_KEYS.parse(given)
    check_classes(given)
    check_policies(parsed, given)
    if warns:
        unknown = [name for name in parsed.unknown if not is_listener_key(parsed, name)]
        unknown = [name for name in unknown if not _is_metadata_topic_key(parsed, name)]
        prefixes = (parsed.string(METADATA_PREFIX), given.get(STORE_PREFIX) or STORE_PREFIX_DEFAULT)
        _log_unknown_keys(unknown, prefixes, with_policies=has_policies(parsed))
    request_memory(parsed)
    check_connection_bounds(parsed)
    check_group_limits(parsed)
    cluster = cluster_settings(parsed)
    if warns:
        for problem, remedy in shared_voter_machines(_hosts(cluster)):
            _log.warning("Metadata quorum: %s; %s", problem, remedy)
    endpoints = bound_endpoints(parsed, cluster)
    if cluster.is_broker and parsed.boolean(SYSTEM_ENABLE):
        _check_remote_tier(parsed, given, endpoints)
    for_controller = controller_endpoints(parsed, cluster)
    advertised_for_controller = advertised_controller_endpoints(parsed, cluster, for_controller)
    # Report invalid values now, before the ports are bound.
    advertised_endpoints(parsed, endpoints)
    opened = [*endpoints, *for_controller]
    protocols = security_protocols(parsed, cluster, opened)
    return Configuration(
        parsed,
        given,
        _with_own_quorum(cluster, advertised_for_controller),
        endpoints,
        for_controller,
        advertised_for_controller,
        connection_bounds(parsed, given),
        protocols,
        _sasl_settings(parsed, given, opened),
        {} if cluster.is_alone else _logins(parsed, given, cluster, protocols, endpoints),
    )


def is_listener_key(config: ParsedConfig, name: str) -> bool:
    """Return whether a key is set for one listener or one process of a node, and has an effect."""
    if OVERRIDE.fullmatch(name):
        return True
    listeners = _listener_names(config)
    if name in listener_keys(config) or name in sasl_listener_keys({name: ""}, listeners):
        return True
    prefixes = map(listener_prefix, listeners)
    return any(
        name.startswith(prefix) and name.removeprefix(prefix) in TLS_KEYS for prefix in prefixes
    )


def _logins(
    parsed: ParsedConfig,
    given: Mapping[str, str],
    cluster: ClusterSettings,
    protocols: Mapping[str, SecurityProtocol],
    endpoints: list[Endpoint],
) -> dict[str, LoginSettings | TokenLoginSettings]:
    """Return the credentials for those listeners of other nodes that use SASL."""
    mechanism_keys = {cluster.controller_listeners[0]: "sasl.mechanism.controller.protocol"}
    between_brokers = inter_broker_listener(parsed, endpoints)
    if between_brokers is not None:
        mechanism_keys[between_brokers] = "sasl.mechanism.inter.broker.protocol"
    found = {
        name: key
        for name, key in mechanism_keys.items()
        if name in protocols and protocols[name].has_sasl
    }
    if not found:
        return {}
    # Imported only for listeners with SASL.
    from barnabas.server.configs.listener_sasl import login_settings

    return {name: login_settings(parsed, given, name, key) for name, key in found.items()}


def _sasl_settings(
    parsed: ParsedConfig, given: Mapping[str, str], endpoints: list[Endpoint]
) -> dict[str, ListenerSasl]:
    """Return the SASL settings of those endpoints that use SASL."""
    names = [each.name for each in endpoints if each.security_protocol.has_sasl]
    if not names:
        return {}
    # Imported only for listeners with SASL.
    from barnabas.server.configs.listener_sasl import listener_sasl

    return {name: listener_sasl(parsed, given, name) for name in names}


def _listener_names(parsed: ParsedConfig) -> list[str]:
    """Return the names of all listeners that the configuration mentions."""
    return [
        *(text.partition("://")[0] for text in parsed.strings("listeners")),
        # A node logs in to controllers with the settings of their listener.
        *parsed.strings("controller.listener.names"),
    ]


def _with_own_quorum(cluster: ClusterSettings, own: list[Endpoint]) -> ClusterSettings:
    """Allow a node to found a dynamic quorum if its only bootstrap server is its loopback address.

    Kafka's example file for a first start has this configuration, but Kafka also requires
    `kafka-storage format --standalone`. With another address the node may be one of several nodes
    and may have lost its disk. It must not found a second cluster under the same address.
    """
    addresses = {(each.host, each.port) for each in own}
    servers = cluster.bootstrap_servers
    if not (cluster.is_broker and cluster.is_controller and servers):
        return cluster
    is_own = addresses.issuperset(servers) and all(is_loopback(host) for host, _ in servers)
    return replace(cluster, is_standalone=True) if is_own else cluster


def _hosts(cluster: ClusterSettings) -> dict[int, str]:
    return {voter: host for voter, (host, _) in cluster.voters.items()}


def _check_remote_tier(
    parsed: ParsedConfig, given: Mapping[str, str], endpoints: list[Endpoint]
) -> None:
    """Check the keys of a broker with a remote tier, together with the rest of its keys."""
    # Imported only for brokers with a remote tier.
    from barnabas.storage.remote.config import check_remote_log_config

    names = [each.name for each in endpoints]
    check_remote_log_config(parsed, given, names, log_directories(parsed))
    check_local_retention(log_config({}, topic_defaults(parsed)), "log.")


def _is_metadata_topic_key(parsed: ParsedConfig, name: str) -> bool:
    """Return whether a key of Kafka's metadata manager has an effect on this node."""
    if not parsed.boolean(SYSTEM_ENABLE):
        return False
    prefix = parsed.string(METADATA_PREFIX)
    return name.startswith(prefix) and name.removeprefix(prefix) in METADATA_TOPIC_KEYS


def _log_unknown_keys(
    names: list[str], plug_in_prefixes: tuple[str, ...], *, with_policies: bool
) -> None:
    ignored = sorted(
        name for name in names if name in IGNORED_KEYS or name.startswith(plug_in_prefixes)
    )
    if ignored:
        _log.info("Keys of Kafka that this broker ignores: %s", ", ".join(ignored))
    for name in names:
        if name in ignored:
            continue
        # The value is not logged: it may be a secret.
        if with_policies:
            _log.info("%s is no key of this broker; the policies receive it", name)
        else:
            _log.warning("%s has no effect: %s", name, _unknown(name))


def may_be_secret(name: str) -> bool:
    """Return whether the value of a key must not be shown."""
    return name.startswith(("ssl.", "sasl.", "listener.name.")) or any(
        word in name for word in ("password", "secret", "jaas", "token", "credential")
    )


def _unknown(name: str) -> str:
    """Return the warning for an unknown key, with the most similar known key."""
    base = without_listener(name)
    if base != name and base in BROKER_KEYS:
        return "the listener does not exist, or the key cannot be set for one listener"
    import difflib

    close = difflib.get_close_matches(
        name, [*(key.name for key in BROKER_KEYS), *IGNORED_KEYS], n=1, cutoff=0.85
    )
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"this broker does not know the key{hint}"
