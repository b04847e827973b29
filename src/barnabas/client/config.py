"""The client's configuration: the keys of Kafka's clients, with '_' for '.' in attribute names.

Defaults are Kafka's unless the line says otherwise.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientConfigError
from barnabas.record.compression import CODES, LEVELS

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ClientConfig"]

_MAX = 2**31 - 1

# Smallest and greatest value of each number, both inclusive.
RANGES: dict[str, tuple[int, int]] = {
    "request_timeout_ms": (1, _MAX),
    "default_api_timeout_ms": (1, _MAX),
    "retry_backoff_ms": (0, _MAX),
    "retry_backoff_max_ms": (0, _MAX),
    "reconnect_backoff_ms": (0, _MAX),
    "reconnect_backoff_max_ms": (0, _MAX),
    "socket_connection_setup_timeout_ms": (1, _MAX),
    "connections_max_idle_ms": (-1, _MAX),
    "metadata_max_age_ms": (0, _MAX),
    "fetch_min_bytes": (0, _MAX),
    "fetch_max_bytes": (0, _MAX),
    "fetch_max_wait_ms": (0, _MAX),
    "max_partition_fetch_bytes": (0, _MAX),
    "queued_max_bytes": (1, 2**40),
    "batch_size": (0, _MAX),
    "linger_ms": (0, _MAX),
    "buffer_memory": (1, 2**40),
    "max_block_ms": (0, _MAX),
    "delivery_timeout_ms": (0, _MAX),
    "max_request_size": (1, _MAX),
    "max_in_flight_requests_per_connection": (1, _MAX),
    "retries": (0, _MAX),
    "compression_level": (-(2**17), 22),
    "max_poll_interval_ms": (1, _MAX),
    "max_poll_records": (1, _MAX),
    "auto_commit_interval_ms": (0, _MAX),
    "consumer_timeout_ms": (-1, _MAX),
    "session_timeout_ms": (1, _MAX),
    "heartbeat_interval_ms": (1, _MAX),
    "transaction_timeout_ms": (1, _MAX),
    "partitioner_availability_timeout_ms": (0, _MAX),
}

CHOICES: dict[str, tuple[str, ...]] = {
    "security_protocol": ("PLAINTEXT",),
    "isolation_level": ("read_uncommitted", "read_committed"),
    "compression_type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "acks": ("all", "0", "1"),
    "group_protocol": ("classic", "consumer"),
}

# Kafka's client keys that change nothing here: taken without a word, so that a file of client
# properties written for Java works.
IGNORED = frozenset({
    "auto_include_jmx_reporter", "client_dns_lookup", "enable_metrics_push",
    "interceptor_classes",
    "key_deserializer", "key_serializer", "log_level",
    "metric_reporters", "metrics_num_samples", "metrics_recording_level",
    "metrics_sample_window_ms", "partitioner_class", "receive_buffer_bytes", "send_buffer_bytes",
    "socket_connection_setup_timeout_max_ms", "value_deserializer", "value_serializer",
})  # fmt: skip


# Kafka refuses these with the consumer protocol (KIP-848): they are the broker's there.
_OF_THE_BROKER = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """All keys of the client, checked. Made by `ClientConfig.parse`."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "barnabas"
    security_protocol: str = "PLAINTEXT"
    # Bound of one request from its send to its answer.
    request_timeout_ms: int = 30_000
    # Bound of one blocking call, retries included.
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    # Off unlike in Kafka's consumer: reading a misspelt topic must not create it. The producer
    # asks for auto creation whatever this says, as Kafka's does.
    allow_auto_create_topics: bool = False
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1024 * 1024
    isolation_level: str = "read_uncommitted"
    check_crcs: bool = True
    # Ours: fetched bytes that wait for the user; no fetch is sent while there are more.
    queued_max_bytes: int = 32 * 1024 * 1024
    # Where reading begins without a committed offset: earliest, latest, none, by_duration:P1DT2H.
    auto_offset_reset: str = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    max_poll_records: int = 500
    # Whether a pattern leaves out the cluster's own topics.
    exclude_internal_topics: bool = True
    # kafka-python's: iterating over a consumer ends when nothing came for so long; -1 for never.
    consumer_timeout_ms: int = -1
    group_id: str | None = None
    # A static member's name (KIP-345).
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    # The broker's assignor for the consumer protocol (KIP-848), None to leave it to the broker.
    group_remote_assignor: str | None = None
    client_rack: str | None = None
    # How long a member of a group may do without poll before the group goes on without it.
    max_poll_interval_ms: int = 300_000
    # Of the classic protocol: without a heartbeat for so long a member counts as dead.
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    # Assignors of the classic protocol in order of preference: names, Java's class names, classes
    # or objects of one's own (`client.group.assignors.assignor.Assignor`).
    partition_assignment_strategy: tuple[object, ...] = ("range", "cooperative-sticky")
    acks: str = "all"
    enable_idempotence: bool = True
    # Kafka's is 16 KiB. linger.ms bounds the wait whatever the size, and sending costs a request
    # per batch and partition: 128 KiB carry 3 times as many records per second.
    batch_size: int = 131_072
    linger_ms: int = 5
    buffer_memory: int = 32 * 1024 * 1024
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    max_request_size: int = 1_048_576
    max_in_flight_requests_per_connection: int = 5
    retries: int = _MAX
    compression_type: str = "none"
    # Level of the codec, None for its own default.
    compression_level: int | None = None
    # Set for transactions (KIP-98): whoever starts with the same one fences those before it.
    transactional_id: str | None = None
    # How long the coordinator lets a transaction be open before it aborts it.
    transaction_timeout_ms: int = 60_000
    # Records without a key go rather to brokers that are quick (KIP-794).
    partitioner_adaptive_partitioning_enable: bool = True
    # A broker that took nothing for so long gets no records without a key; 0: whatever it does.
    partitioner_availability_timeout_ms: int = 0
    partitioner_ignore_keys: bool = False

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> ClientConfig:
        """Check keys (dots or underscores) and values, which may be strings.

        Raises:
            ClientConfigError: an unknown key, or a value out of its range; names both.
        """
        values = _checked(given)
        if "bootstrap_servers" not in values:
            raise ClientConfigError("bootstrap.servers is missing: give HOST:PORT[,HOST:PORT...]")
        config = cls(**values)  # type: ignore[arg-type]
        config._check_together(values)
        return config

    def override(self, given: Mapping[str, object]) -> ClientConfig:
        """The same with other values for some keys, checked as in `parse`."""
        values = _checked(given)
        config = replace(self, **values)  # type: ignore[arg-type]
        config._check_together(values)
        return config

    def _check_together(self, given: Mapping[str, object]) -> None:
        """Check the keys that bound one another."""
        self._check_group(given)
        self._check_level()
        self._settle_idempotence(given_idempotence="enable_idempotence" in given)

    def _check_group(self, given: Mapping[str, object]) -> None:
        """Refuse keys of one group protocol given with the other, and sessions without a beat."""
        if self.group_instance_id == "":
            raise ClientConfigError("group.instance.id is empty: name the member, or leave it out")
        if self.group_protocol == "consumer":
            for name in _OF_THE_BROKER:
                if name in given:
                    key = name.replace("_", ".")
                    raise ClientConfigError(
                        f"{key} has no meaning with group.protocol=consumer, where the broker "
                        f"decides it: leave it out"
                    )
        elif given.get("group_remote_assignor"):
            raise ClientConfigError("group.remote.assignor needs group.protocol=consumer")
        elif self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ClientConfigError(
                f"heartbeat.interval.ms={self.heartbeat_interval_ms} must be less than "
                f"session.timeout.ms={self.session_timeout_ms}: a third of it is usual"
            )

    def _check_level(self) -> None:
        """Refuse a level that the codec does not have."""
        code = CODES[self.compression_type]
        if self.compression_level is None or code not in LEVELS:
            return
        low, high, _ = LEVELS[code]
        if not low <= self.compression_level <= high:
            raise ClientConfigError(
                f"compression.level={self.compression_level} is out of range for "
                f"{self.compression_type}: {low} to {high}"
            )

    def _settle_idempotence(self, *, given_idempotence: bool) -> None:
        """Idempotence needs acks=all, at most 5 in flight and retries; transactions need it."""
        safe = (
            self.acks == "all" and self.max_in_flight_requests_per_connection <= 5 and self.retries
        )
        if self.transactional_id is not None and not (self.enable_idempotence and safe):
            raise ClientConfigError(
                "transactional.id needs enable.idempotence=true, acks=all, retries > 0 and "
                "max.in.flight.requests.per.connection <= 5: change those or leave it out"
            )
        if not self.enable_idempotence or safe:
            return
        if given_idempotence:
            raise ClientConfigError(
                "enable.idempotence=true needs acks=all, retries > 0 and "
                "max.in.flight.requests.per.connection <= 5: change those or turn it off"
            )
        object.__setattr__(self, "enable_idempotence", False)


_LEVEL_KEYS = {f"compression_{codec}_level": codec for codec in ("gzip", "lz4", "zstd")}


def _checked(given: Mapping[str, object]) -> dict[str, object]:
    """Values by attribute name, each of its type and in its range."""
    types = {field.name: str(field.type) for field in fields(ClientConfig)}
    values: dict[str, object] = {}
    for key, value in given.items():
        name = key.replace(".", "_").replace("-", "_")
        codec = _LEVEL_KEYS.get(name)
        if codec is not None:
            # Of the three levels that Java has the one of the codec in use counts.
            level = _coerce("compression_level", "int | None", value)
            if str(given.get("compression_type", given.get("compression.type"))) == codec:
                values["compression_level"] = level
        elif name in types:
            values[name] = _coerce(name, types[name], value)
        elif name not in IGNORED:
            raise _unknown_key(key, types)
    return values


def _unknown_key(key: str, known: Mapping[str, str]) -> ClientConfigError:
    close = difflib.get_close_matches(key.replace(".", "_"), list(known), n=1)
    hint = f"; did you mean {close[0].replace('_', '.')}?" if close else ""
    return ClientConfigError(f"unknown configuration key {key}{hint}")


def _coerce(name: str, kind: str, value: object) -> object:
    key = name.replace("_", ".")
    if name == "bootstrap_servers":
        return parse_addresses(value)
    if value is None and kind == "str | None":
        return None
    if kind == "bool":
        return _boolean(key, value)
    if kind.startswith("int"):
        return _integer(name, key, value)
    if name == "partition_assignment_strategy":
        return _strategies(key, value)
    if value is None and kind.endswith("None"):
        return None
    text = str(value)
    if name in CHOICES:
        text = {"-1": "all"}.get(text, text) if name == "acks" else text
        text = text.upper() if name == "security_protocol" else text.lower()
        if text not in CHOICES[name]:
            allowed = ", ".join(CHOICES[name])
            raise ClientConfigError(f"{key}={value} is not one of: {allowed}")
    return text


def _strategies(key: str, value: object) -> tuple[object, ...]:
    """Assignors by name, as classes or as objects; a string lists names."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    listed = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not listed:
        raise ClientConfigError(f"{key} is empty: name an assignor")
    return listed


def _boolean(key: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text not in ("true", "false"):
        raise ClientConfigError(f"{key}={value} is neither true nor false")
    return text == "true"


def _integer(name: str, key: str, value: object) -> int | None:
    if value is None and name == "compression_level":
        return None
    try:
        number = int(str(value))
    except ValueError:
        raise ClientConfigError(f"{key}={value} is not a whole number") from None
    low, high = RANGES[name]
    if not low <= number <= high:
        raise ClientConfigError(f"{key}={value} is out of range: {low} to {high}")
    return number


def parse_addresses(value: object) -> tuple[tuple[str, int], ...]:
    """HOST:PORT pairs from a comma separated string or a sequence; [::1]:9092 is an IPv6 one."""
    parts = value.split(",") if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    addresses = []
    for part in parts:
        text = str(part).strip()
        if not text:
            continue
        text = text.removeprefix("PLAINTEXT://")
        host, separator, port = text.rpartition(":")
        if not separator or not port.isdigit() or not 0 < int(port) < 65536:
            raise ClientConfigError(f"bootstrap.servers: {text} is not HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ClientConfigError("bootstrap.servers is empty: give HOST:PORT[,HOST:PORT...]")
    return tuple(addresses)
