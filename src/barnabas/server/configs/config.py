"""Configuration keys of the server: roles, listeners, requests and observation.

Names and defaults are those of KafkaConfig, SocketServerConfigs and KRaftConfigs. Only keys with an
effect are declared, so that a start can report every key without one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.configs.endpoint import parse_address
from barnabas.server.quotas.config import CONNECTION_KEYS, QUOTA_KEYS
from barnabas.settings.definition import ConfigDefinition, ConfigError, ConfigKey, ConfigType
from barnabas.settings.range import at_least, not_empty, one_of, satisfying

if TYPE_CHECKING:
    from barnabas.runtime.disk import Disk
    from barnabas.settings.definition import ParsedConfig
    from barnabas.settings.range import ConfigValue

INT_MAX = 0x7FFF_FFFF

B, S, I, L, LIST = (  # noqa: E741
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


def _is_empty(value: ConfigValue) -> bool:
    return not value


def _is_buffer_size(value: ConfigValue) -> bool:
    return isinstance(value, int) and (value == -1 or value >= 1)


NODE_KEYS = [
    ConfigKey(
        "process.roles",
        LIST,
        ["broker", "controller"],
        "What this process is in its cluster.",
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
    ConfigKey("node.id", I, 1, "The number of this node in its cluster.", at_least(0)),
    ConfigKey("broker.rack", S, None, "The rack or zone of this broker."),
    ConfigKey(
        "log.dir",
        LIST,
        ["barnabas-data"],
        "Where data is kept, when log.dirs is not set.",
        not_empty(),
    ),
    ConfigKey("log.dirs", LIST, None, "The directories that data is kept in.", not_empty()),
    ConfigKey(
        "metadata.log.dir",
        S,
        None,
        "The directory of the metadata log; the first of log.dirs when not set.",
    ),
    ConfigKey(
        "controller.quorum.voters",
        LIST,
        [],
        "The static voters of the metadata quorum, ID@HOST:PORT each; this node when empty.",
    ),
    ConfigKey(
        "controller.quorum.bootstrap.servers",
        LIST,
        [],
        "Controllers to ask for the quorum's leader, HOST:PORT each, where voters are dynamic.",
    ),
    ConfigKey(
        "controller.listener.names",
        LIST,
        ["CONTROLLER"],
        "The listeners that controllers use among themselves and brokers to reach them.",
        not_empty(),
    ),
]

# Keys of security features that are not implemented. A configuration that asks for them is
# rejected.
PROTECTION_KEYS = [
    ConfigKey(
        "listener.security.protocol.map",
        LIST,
        [f"{name}:{name}" for name in ("SASL_SSL", "PLAINTEXT", "SSL", "SASL_PLAINTEXT")],
        "The security protocol of each listener, NAME:PROTOCOL each; only PLAINTEXT is opened.",
        satisfying("NAME:PROTOCOL,...", _is_protocol_map),
    ),
    ConfigKey(
        "security.inter.broker.protocol",
        S,
        "PLAINTEXT",
        "The security protocol that brokers use among themselves.",
        one_of("PLAINTEXT"),
    ),
    ConfigKey(
        "authorizer.class.name",
        S,
        "",
        "Who decides what clients may do; there is no authorisation yet: everybody may do all.",
        satisfying("empty (there is no authorisation yet; take the key out to let everybody "
                   "do everything)", _is_empty),
    ),
]  # fmt: skip

LISTENER_KEYS = [
    ConfigKey(
        "listeners",
        LIST,
        ["PLAINTEXT://127.0.0.1:9092"],
        "Where to accept connections, NAME://HOST:PORT each; port 0 takes a free port.",
        not_empty(),
    ),
    ConfigKey(
        "advertised.listeners",
        LIST,
        None,
        "What clients are told to connect to; the same as listeners when not set.",
    ),
    ConfigKey(
        "inter.broker.listener.name",
        S,
        None,
        "The listener that brokers use among themselves; the first one when not set.",
    ),
    ConfigKey(
        "socket.request.max.bytes",
        I,
        100 << 20,
        "The largest request taken; a larger one costs its sender the connection.",
        at_least(1),
    ),
    ConfigKey(
        "queued.max.request.bytes",
        L,
        256 << 20,
        "How much memory requests may take that have not arrived in full, all connections"
        " together. Beyond it, connections with large requests are read from one at a time, and"
        " those whose request takes longer than half a minute are closed. At least"
        " socket.request.max.bytes (the default is never below it); 0 or negative: no limit.",
    ),
    ConfigKey(
        "connections.max.idle.ms",
        L,
        600_000,
        "A connection on which nothing came for so long is closed; negative: never.",
    ),
    ConfigKey(
        "socket.listen.backlog.size",
        I,
        50,
        "How many connections wait to be accepted: in the kernel, and as many at a limit.",
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
]


def _is_address(value: ConfigValue) -> bool:
    return isinstance(value, str) and parse_address(value) is not None


OBSERVATION_KEYS = [
    ConfigKey(
        "metrics.listener",
        S,
        None,
        "HOST:PORT where /metrics (Prometheus), /healthz and /readyz are answered; not set: off.",
        satisfying("HOST:PORT", _is_address),
    ),
    ConfigKey(
        "telemetry.max.bytes",
        I,
        1 << 20,
        "The most that one push of a client's metrics may have.",
        at_least(1),
    ),
    ConfigKey(
        "barnabas.client.telemetry",
        S,
        "none",
        "Where the metrics go that clients push: nowhere, so that none are asked for; or, as JSON,"
        " into the log.",
        one_of("none", "log"),
    ),
    ConfigKey(
        "barnabas.log.format",
        S,
        "text",
        "How the log on standard error is written: lines to read, or a JSON object each.",
        one_of("text", "json"),
    ),
    ConfigKey(
        "barnabas.log.level",
        S,
        "warning",
        "What the log tells of at least.",
        one_of("debug", "info", "warning", "error"),
    ),
]

REQUEST_KEYS = [
    ConfigKey(
        "controlled.shutdown.enable",
        B,
        True,
        "Whether a stop lets the controller choose other leaders first.",
    ),
    ConfigKey(
        "initial.broker.registration.timeout.ms",
        I,
        60_000,
        "How long a broker tries to be taken in by the controller before it gives up.",
        at_least(1),
    ),
    ConfigKey(
        "controller.socket.timeout.ms",
        I,
        30_000,
        "How long a request to the active controller that names no time of its own may take.",
        at_least(1),
    ),
    ConfigKey(
        "auto.create.topics.enable",
        B,
        True,
        "Create a topic when a client asks for one that does not exist.",
    ),
    ConfigKey(
        "fetch.max.bytes", I, 55 << 20, "The most that one fetch answers with.", at_least(1024)
    ),
    ConfigKey(
        "max.request.partition.size.limit",
        I,
        2000,
        "How many partitions one DescribeTopicPartitions answers with at most.",
        at_least(1),
    ),
]

SERVER_KEYS = (
    ConfigDefinition(
        [*NODE_KEYS, *LISTENER_KEYS, *PROTECTION_KEYS, *REQUEST_KEYS, *OBSERVATION_KEYS]
    )
    | QUOTA_KEYS
    | CONNECTION_KEYS
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


def metadata_directory(config: ParsedConfig, disk: Disk) -> str:
    """Return the absolute path of the data directory that holds the metadata log."""
    configured = config.optional_string("metadata.log.dir") or log_directories(config)[0]
    return disk.absolute(configured)
