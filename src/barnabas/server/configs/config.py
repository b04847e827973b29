"""Configuration keys of the server: roles, listeners, requests, observation and the authorizer.

Names and defaults are those of KafkaConfig, SocketServerConfigs, ServerConfigs, KRaftConfigs and
StandardAuthorizer. Only keys with an effect are declared, so that a start can report every key
without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.server.configs.endpoints import parse_address
from barnabas.server.configs.node_keys import SUPERVISOR_KEYS
from barnabas.server.configs.tls_config import TLS_KEYS
from barnabas.server.quotas.config import CONNECTION_KEYS, QUOTA_KEYS
from barnabas.settings.definition import ConfigDefinition, ConfigError, ConfigKey, ConfigType
from barnabas.settings.key import at_least, between, not_empty, one_of, satisfying

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk
    from barnabas.settings.definition import ParsedConfig
    from barnabas.settings.key import ConfigValue


STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def parse_super_users(text: str) -> frozenset[str] | None:
    """Parse "TYPE:NAME;..." into principals, and return None for invalid text."""
    users = [part.strip() for part in text.split(";")]
    found = frozenset(user for user in users if user)
    return found if all(":" in user for user in found) else None


def _are_super_users(value: ConfigValue) -> bool:
    return isinstance(value, str) and parse_super_users(value) is not None


AUTHORIZER_KEYS = ConfigDefinition(
    [
        ConfigKey(
            "authorizer.class.name",
            ConfigType.STRING,
            "",
            "The authorizer. Empty: every client may do everything. StandardAuthorizer denies every"
            " operation that no access control entry allows.",
            one_of("", STANDARD_AUTHORIZER),
        ),
        ConfigKey(
            "super.users",
            ConfigType.STRING,
            "",
            "Principals that may do everything, TYPE:NAME each, separated by semicolons.",
            satisfying("TYPE:NAME;...", _are_super_users),
        ),
        ConfigKey(
            "allow.everyone.if.no.acl.found",
            ConfigType.BOOLEAN,
            False,
            "Whether everything is allowed on a resource without any access control entry.",
        ),
        ConfigKey(
            "early.start.listeners",
            ConfigType.LIST,
            None,
            "Listeners that serve requests before the access control entries are loaded; the"
            " controller listeners if not set. Only super users are allowed then.",
        ),
    ]
)


class AuthorizerConfig(msgspec.Struct, frozen=True):
    """Settings of the authorizer besides the access control entries."""

    # Principals that may do everything.
    super_users: frozenset[str] = frozenset()
    # Whether everything is allowed on resources without any entry.
    allows_by_default: bool = False

    @classmethod
    def of(cls, config: ParsedConfig) -> AuthorizerConfig | None:
        """Return the authorizer's configuration; None if everything is allowed."""
        if not config.string("authorizer.class.name"):
            return None
        return cls(
            parse_super_users(config.string("super.users")) or frozenset(),
            config.boolean("allow.everyone.if.no.acl.found"),
        )


INT_MAX = 0x7FFF_FFFF

B, S, I, L, LIST = (  # noqa: E741 - short names keep the table readable
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.LIST,
)


def _roles_are_known(value: ConfigValue) -> bool:
    return (
        isinstance(value, list)
        and 0 < len(value) == len(set(value))
        and set(value) <= {"broker", "controller"}
    )


def _is_protocol_map(value: ConfigValue) -> bool:
    return isinstance(value, list) and all(
        len(entry.split(":")) == 2 and all(part.strip() for part in entry.split(":"))
        for entry in value
    )


def _is_buffer_size(value: ConfigValue) -> bool:
    return isinstance(value, int) and (value == -1 or value >= 1)


NODE_KEYS = [
    ConfigKey(
        "process.roles",
        LIST,
        ["broker", "controller"],
        "The roles of this process: broker, controller, or both.",
        satisfying("broker, controller or broker,controller", _roles_are_known),
    ),
    ConfigKey(
        "cluster.id",
        S,
        None,
        "The cluster that an empty data directory is formatted for; a lone node chooses one.",
    ),
    ConfigKey(
        "cluster.standalone",
        ConfigType.BOOLEAN,
        False,
        "Whether an empty data directory is formatted as the first voter of a dynamic quorum"
        " (Kafka: `kafka-storage format --standalone`).",
    ),
    ConfigKey("node.id", I, 1, "The id of this node, unique in its cluster.", at_least(0)),
    ConfigKey("broker.rack", S, None, "The rack or zone of this broker."),
    ConfigKey(
        "log.dir",
        LIST,
        ["barnabas-data"],
        "The data directory, if log.dirs is not set.",
        not_empty(),
    ),
    ConfigKey("log.dirs", LIST, None, "The data directories.", not_empty()),
    ConfigKey(
        "metadata.log.dir",
        S,
        None,
        "The directory of the metadata log; the first of log.dirs if not set.",
    ),
    ConfigKey(
        "controller.quorum.voters",
        LIST,
        [],
        "The static voters of the metadata quorum, ID@HOST:PORT each; this node if empty.",
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        LIST,
        [],
        "Controllers that know the leader of a quorum with dynamic voters, HOST:PORT each.",
    ),
    ConfigKey(
        "controller.listener.names",
        LIST,
        ["CONTROLLER"],
        "The listeners that controllers use among themselves and brokers to reach them.",
        not_empty(),
    ),
    *SUPERVISOR_KEYS,
]

PROTECTION_KEYS = [
    ConfigKey(
        "listener.security.protocol.map",
        LIST,
        [f"{name}:{name}" for name in ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")],
        "The security protocol of each listener, NAME:PROTOCOL each.",
        satisfying("NAME:PROTOCOL,...", _is_protocol_map),
    ),
    ConfigKey(
        "security.inter.broker.protocol",
        S,
        "PLAINTEXT",
        "The security protocol that brokers use among themselves, if inter.broker.listener.name is"
        " not set.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
]  # fmt: skip

LISTENER_KEYS = [
    ConfigKey(
        "listeners",
        LIST,
        ["PLAINTEXT://127.0.0.1:9092"],
        "Addresses that accept connections, NAME://HOST:PORT each; port 0 chooses a free port.",
        not_empty(),
    ),
    ConfigKey(
        "advertised.listeners",
        LIST,
        None,
        "Addresses that clients receive in responses; the same as listeners if not set.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        S,
        None,
        "The listener that brokers use among themselves; the first one if not set.",
    ),
    ConfigKey(
        "socket.request.max.bytes",
        I,
        100 << 20,
        "The largest size of a request; the connection of a larger one is closed.",
        at_least(1),
    ),
    ConfigKey(
        "queued.max.request.bytes",
        L,
        256 << 20,
        "The memory for partially received requests of all connections together. Above this limit,"
        " large requests are received one at a time, and a connection is closed if its request"
        " takes longer than 30 seconds. At least socket.request.max.bytes (the default is never"
        " below it); 0 or negative: no limit.",
    ),
    ConfigKey(
        "connections.max.idle.ms",
        L,
        600_000,
        "A connection without a request for this time is closed; negative: never.",
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        I,
        50,
        "The queue of new connections: in the kernel, and as many above a connection limit.",
        at_least(1),
    ),
    ConfigKey(
        "socket.send.buffer.bytes",
        I,
        -1,
        "The kernel's send buffer of a connection; -1 leaves it to the kernel.",
        satisfying("-1, or at least 1", _is_buffer_size),
    ),
    ConfigKey(
        "socket.receive.buffer.bytes",
        I,
        -1,
        "The kernel's receive buffer of a connection; -1 leaves it to the kernel.",
        satisfying("-1, or at least 1", _is_buffer_size),
    ),
    ConfigKey(
        "barnabas.busy.poll.us",
        I,
        60,
        "The time after a response in which the broker polls for the next request instead of"
        " waiting for it, while requests usually arrive in that time and no other process wants the"
        " processor; 0: never.",
        between(0, 1000),
    ),
]


def _is_address(value: ConfigValue) -> bool:
    return isinstance(value, str) and parse_address(value) is not None


OBSERVATION_KEYS = [
    ConfigKey(
        "metrics.listener",
        S,
        None,
        "HOST:PORT that serves /metrics (Prometheus), /healthz and /readyz; not set: off.",
        satisfying("HOST:PORT", _is_address),
    ),
    ConfigKey(
        "unstable.api.versions.enable",
        B,
        False,
        "Whether API versions are served that Kafka may still change: InitProducerId 6 (KIP-939).",
    ),
    ConfigKey(
        "telemetry.max.bytes",
        I,
        1 << 20,
        "The largest size of one push of metrics by a client, before and after decompression.",
        at_least(1),
    ),
    ConfigKey(
        "barnabas.client.telemetry",
        S,
        "none",
        "The receiver of metrics that clients push. none: clients send no metrics; log: the log, as"
        " JSON.",
        one_of("none", "log"),
    ),
    ConfigKey(
        "barnabas.log.format",
        S,
        "text",
        "The format of the log on standard error: lines of text, or one JSON object per line.",
        one_of("text", "json"),
    ),
    ConfigKey(
        "barnabas.log.level",
        S,
        "warning",
        "The lowest level that is logged.",
        one_of("debug", "info", "warning", "error"),
    ),
]

REQUEST_KEYS = [
    ConfigKey(
        "controlled.shutdown.enable",
        B,
        True,
        "Whether a broker that stops lets the controller elect other leaders first.",
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms",
        I,
        60_000,
        "How long a broker waits for an accepted registration before the process ends.",
        at_least(1),
    ),
    ConfigKey(
        "controller.socket.timeout.ms",
        I,
        30_000,
        "The timeout of requests to the active controller that have no timeout of their own.",
        at_least(1),
    ),
    ConfigKey(
        "auto.create.topics.enable",
        B,
        True,
        "Whether a topic is created when a client requests metadata of a missing one.",
    ),
    ConfigKey(
        "fetch.max.bytes", I, 55 << 20, "The largest size of a fetch response.", at_least(1024)
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        I,
        2000,
        "The largest number of partitions in a DescribeTopicPartitions response.",
        at_least(1),
    ),
]

SERVER_KEYS = (
    ConfigDefinition(
        [*NODE_KEYS, *LISTENER_KEYS, *PROTECTION_KEYS, *REQUEST_KEYS, *OBSERVATION_KEYS]
    )
    | QUOTA_KEYS
    | CONNECTION_KEYS
    | TLS_KEYS
    | AUTHORIZER_KEYS
)


def request_memory(config: ParsedConfig) -> int | None:
    """Return the effective limit of `queued.max.request.bytes`, or None without a limit.

    Raises:
        ConfigError: the value is smaller than the largest allowed request.
    """
    key = "queued.max.request.bytes"
    value = config.integer(key)
    largest = config.integer("socket.request.max.bytes")
    if value <= 0:
        return None
    if value < largest and key in config.given:
        allowed = f"at least socket.request.max.bytes ({largest}); 0 or negative for no limit"
        raise ConfigError(key, str(value), allowed)
    return max(value, largest)


def log_directories(config: ParsedConfig) -> list[str]:
    """Return the data directories: log.dirs, or log.dir if it is not set."""
    if config["log.dirs"] is not None:
        return config.strings("log.dirs")
    return config.strings("log.dir")


def node_directories(config: ParsedConfig) -> list[str]:
    """Return log.dirs and metadata.log.dir, each directory once."""
    metadata = config.optional_string("metadata.log.dir")
    found = [*log_directories(config), *([] if metadata is None else [metadata])]
    return list(dict.fromkeys(found))


def metadata_directory(config: ParsedConfig, disk: Disk) -> str:
    """Return the absolute path of the data directory that holds the metadata log."""
    configured = config.optional_string("metadata.log.dir") or log_directories(config)[0]
    return disk.absolute(configured)
