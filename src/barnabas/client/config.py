"""The client's configuration: the keys of Kafka's clients, with '_' for '.' in attribute names.

Defaults are Kafka's unless the comment of a field says otherwise.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum, auto
from typing import Any

from barnabas.client.accepted_keys import IGNORED, ONLY_VALUES, UNSUPPORTED
from barnabas.client.errors import ClientConfigError
from barnabas.record.compression import CODES, GZIP, LEVELS, NONE, codecs_for

__all__ = ["ClientConfig", "is_secret", "keys_with_servers"]

_MAX = 2**31 - 1

_DICTIONARY = 'Settings in a dictionary are given with two stars: Consumer("topic", **settings)'

# Minimum and maximum of each number, both inclusive.
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
    "security_protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "ssl_keystore_type": ("JKS", "PKCS12", "PEM"),
    "ssl_truststore_type": ("JKS", "PKCS12", "PEM"),
    "ssl_endpoint_identification_algorithm": ("https", "none"),
    "sasl_mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    "isolation_level": ("read_uncommitted", "read_committed"),
    "compression_type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "acks": ("all", "0", "1"),
    "group_protocol": ("classic", "consumer"),
    "share_acknowledgement_mode": ("implicit", "explicit"),
    "share_acquire_mode": ("batch_optimized", "record_limit"),
}

# Names of other clients for keys with other names here.
ALIASES = {
    "ssl_ca_pem": "ssl_truststore_certificates",
    "ssl_certificate_pem": "ssl_keystore_certificate_chain",
    "ssl_key_pem": "ssl_keystore_key",
    "partitioner": "partitioner_class",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_username": "sasl_plain_username",
    "sasl_password": "sasl_plain_password",
    "sasl_oauthbearer_client_id": "sasl_oauthbearer_client_credentials_client_id",
    "sasl_oauthbearer_client_secret": "sasl_oauthbearer_client_credentials_client_secret",
}
# The values of these keys are upper case. Those of the others are lower case.
_UPPER_CASE = ("security_protocol", "sasl_mechanism", "ssl_keystore_type", "ssl_truststore_type")

# With the consumer protocol (KIP-848) the broker decides these, and Kafka's client refuses the
# keys.
_CLASSIC_PROTOCOL_KEYS = (
    "session_timeout_ms",
    "heartbeat_interval_ms",
    "partition_assignment_strategy",
)


class _WrittenKeys:
    """The keys that the user gave, as the user wrote them, by attribute name."""

    __slots__ = ("written",)

    written: Mapping[str, str]

    def spell(self, name: str) -> str:
        """Return the name of a key as the user would write it: with dots or with underscores."""
        written = self.written
        has_underscores = any("_" in key for key in written.values())
        return written.get(name) or (name if has_underscores else name.replace("_", "."))


@dataclass(frozen=True, slots=True)
class ClientConfig(_WrittenKeys):
    """All configuration keys of the client, validated. Create it with `ClientConfig.parse`."""

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "barnabas"
    security_protocol: str = "PLAINTEXT"
    # Trusted certificates: a PEM file or a folder of them (librdkafka), or a store (Java).
    # Without any, those of the system.
    ssl_ca_location: str | None = None
    ssl_truststore_location: str | None = None
    ssl_truststore_type: str = "JKS"
    ssl_truststore_password: str | None = field(default=None, repr=False)
    ssl_truststore_certificates: str | None = None
    # From librdkafka: a PEM file with certificates that their authority has revoked.
    ssl_crl_location: str | None = None
    # Own certificate: PEM files (librdkafka), a store, or PEM text.
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_keystore_location: str | None = None
    ssl_keystore_type: str = "JKS"
    ssl_keystore_password: str | None = field(default=None, repr=False)
    ssl_keystore_key: str | None = field(default=None, repr=False)
    ssl_keystore_certificate_chain: str | None = None
    ssl_enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ssl_cipher_suites: tuple[str, ...] = ()
    # https: the certificate of a broker must be valid for the host name; none: not checked.
    ssl_endpoint_identification_algorithm: str = "https"
    # From librdkafka: whether certificates of brokers are checked at all.
    enable_ssl_certificate_verification: bool = True
    # Without a default: Kafka's is GSSAPI, which is not implemented.
    sasl_mechanism: str | None = None
    sasl_plain_username: str | None = None
    sasl_plain_password: str | None = field(default=None, repr=False)
    # A login module with user name and password, as in properties files of Java clients.
    sasl_jaas_config: str | None = field(default=None, repr=False)
    # OAUTHBEARER: a function that returns a token, or an object with a method `token`.
    sasl_oauth_token_provider: object | None = field(default=None, repr=False)
    # OAUTHBEARER: a server that issues tokens, and the client's credentials there.
    sasl_oauthbearer_token_endpoint_url: str | None = None
    sasl_oauthbearer_client_credentials_client_id: str | None = None
    sasl_oauthbearer_client_credentials_client_secret: str | None = field(default=None, repr=False)
    # Whether id and secret are URL-encoded before they are sent, as RFC 6749 requires.
    sasl_oauthbearer_header_urlencode: bool = False
    # From librdkafka: trusted certificates of the server that issues tokens, as a PEM file or a
    # folder of them, or as text. Without any, those of the system.
    https_ca_location: str | None = None
    https_ca_pem: str | None = None
    # From librdkafka: tokens without a signature, for development, such as "principal=alice".
    enable_sasl_oauthbearer_unsecure_jwt: bool = False
    sasl_oauthbearer_config: str | None = None
    sasl_oauthbearer_scope: str | None = None
    # Extensions that are sent with a token: NAME=VALUE,...
    sasl_oauthbearer_extensions: str | None = None
    # Limit of one request, from sending to its response.
    request_timeout_ms: int = 30_000
    # Limit of one blocking call, including retries.
    default_api_timeout_ms: int = 60_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    socket_connection_setup_timeout_ms: int = 10_000
    connections_max_idle_ms: int = 540_000
    metadata_max_age_ms: int = 300_000
    # False, unlike in Kafka's consumer: reading a misspelled topic must not create it. The producer
    # requests auto creation regardless of this key, as Kafka's producer does.
    allow_auto_create_topics: bool = False
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 50 * 1024 * 1024
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1024 * 1024
    isolation_level: str = "read_uncommitted"
    check_crcs: bool = True
    # Specific to Barnabas: limit of fetched bytes that the user has not read; at this limit no
    # fetch is sent.
    queued_max_bytes: int = 32 * 1024 * 1024
    # Where reading begins without a committed offset: earliest, latest, none or by_duration:P1DT2H.
    auto_offset_reset: str = "latest"
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    max_poll_records: int = 500
    # Whether a pattern ignores internal topics such as __consumer_offsets.
    exclude_internal_topics: bool = True
    # From kafka-python: iteration over a consumer ends after this time without records; -1 for
    # never.
    consumer_timeout_ms: int = -1
    group_id: str | None = None
    # Id of a static member (KIP-345).
    group_instance_id: str | None = None
    group_protocol: str = "classic"
    # Server-side assignor for the consumer protocol (KIP-848); None lets the broker choose.
    group_remote_assignor: str | None = None
    client_rack: str | None = None
    # Maximum time between two polls; after that the member leaves the group.
    max_poll_interval_ms: int = 300_000
    # Classic protocol only: without a heartbeat for this time the coordinator removes the member.
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    # Assignors of the classic protocol in order of preference: names, Java class names, or the
    # user's own classes or objects (see `client.group.assignor.Assignor`).
    partition_assignment_strategy: tuple[object, ...] = ("range", "cooperative-sticky")
    # Share consumers only: whether a poll accepts the records of the previous poll (implicit), or
    # the user acknowledges each record (explicit).
    share_acknowledgement_mode: str = "implicit"
    # Share consumers only: whether max.poll.records is exceeded to acquire whole batches
    # (batch_optimized), or is a strict limit (record_limit, KIP-1206).
    share_acquire_mode: str = "batch_optimized"
    acks: str = "all"
    enable_idempotence: bool = True
    # Kafka's default is 16 KiB. linger.ms limits the delay regardless of the size, and each batch
    # costs a request per partition: 128 KiB achieves 3 times the records per second.
    batch_size: int = 131_072
    linger_ms: int = 5
    buffer_memory: int = 32 * 1024 * 1024
    max_block_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    max_request_size: int = 1_048_576
    max_in_flight_requests_per_connection: int = 5
    retries: int = _MAX
    compression_type: str = "none"
    # Compression level; None for the default of the codec.
    compression_level: int | None = None
    # Enables transactions (KIP-98). A new producer with the same id fences older ones.
    transactional_id: str | None = None
    # The coordinator aborts a transaction that is open for longer.
    transaction_timeout_ms: int = 60_000
    # Whether transactions may be prepared and never time out (KIP-939). The broker must allow it.
    transaction_two_phase_commit_enable: bool = False
    # Whether records without a key prefer brokers that respond quickly (KIP-794).
    partitioner_adaptive_partitioning_enable: bool = True
    # A broker that accepted no batch for this time receives no records without a key; 0 disables
    # this.
    partitioner_availability_timeout_ms: int = 0
    partitioner_ignore_keys: bool = False
    # How a producer chooses the partition of a record: a name in `PARTITIONERS`, or a function of
    # (key, partitions, available). None or "" for Kafka's default partitioner.
    partitioner_class: object | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "written", {})

    @classmethod
    def parse(cls, given: Mapping[str, object]) -> ClientConfig:
        """Validate keys (with dots or underscores) and values; values may be strings.

        With `config.providers`, variables such as `${env:NAME}` in the values are resolved first.

        Raises:
            ClientConfigError: A key is unknown, a value is out of range, keys contradict each
                other, or a variable cannot be resolved.
        """
        if "config.providers" in given or "config_providers" in given:
            # Imported only for configurations with variables.
            from barnabas.client.config_variables import parse_with_variables

            return parse_with_variables(given, cls.parse)
        values = _checked(given)
        if "bootstrap_servers" not in values:
            raise ClientConfigError(
                f"bootstrap.servers is missing: give HOST:PORT[,HOST:PORT...]. {_DICTIONARY}"
            )
        config = cls(**values)
        object.__setattr__(config, "written", _written(given))
        config._check_together(values)
        return config

    def override(self, given: Mapping[str, object]) -> ClientConfig:
        """Return a copy with other values for some keys, validated as in `parse`.

        Raises:
            ClientConfigError: As for `parse`.
        """
        values = _checked(given)
        config = replace(self, **values)
        object.__setattr__(config, "written", {**self.written, **_written(given)})
        config._check_together(values)
        return config

    def _check_together(self, given: Mapping[str, object]) -> None:
        """Validate the keys that depend on each other."""
        if self.security_protocol != "PLAINTEXT" or any(name.startswith("sasl_") for name in given):
            # Imported only for clients that log in.
            from barnabas.client.sasl import check_sasl

            check_sasl(self)
        self._check_group(given)
        self._check_level()
        if self.transaction_two_phase_commit_enable and "transaction_timeout_ms" in given:
            raise ClientConfigError(
                f"{self.spell('transaction_timeout_ms')} has no meaning with "
                f"{self.spell('transaction_two_phase_commit_enable')}=true, where transactions do "
                f"not time out: leave it out"
            )
        self._resolve_idempotence(given_idempotence="enable_idempotence" in given)

    def _check_group(self, given: Mapping[str, object]) -> None:
        """Refuse keys of the other group protocol; check heartbeat interval and session timeout."""
        if self.group_instance_id == "":
            key = self.spell("group_instance_id")
            raise ClientConfigError(f"{key} is empty: name the member, or leave it out")
        if self.group_protocol == "consumer":
            for name in _CLASSIC_PROTOCOL_KEYS:
                if name in given:
                    raise ClientConfigError(
                        f"{self.spell(name)} has no meaning with "
                        f"{self.spell('group_protocol')}=consumer, where the broker decides it: "
                        f"leave it out"
                    )
        elif given.get("group_remote_assignor"):
            raise ClientConfigError(
                f"{self.spell('group_remote_assignor')} needs "
                f"{self.spell('group_protocol')}=consumer"
            )
        elif self.heartbeat_interval_ms >= self.session_timeout_ms:
            heartbeats, session = map(self.spell, ("heartbeat_interval_ms", "session_timeout_ms"))
            raise ClientConfigError(
                f"{heartbeats}={self.heartbeat_interval_ms} must be less than "
                f"{session}={self.session_timeout_ms}: a third of it is usual"
            )

    def _check_level(self) -> None:
        """Refuse a codec that is not installed, and a level that the codec does not support."""
        code = CODES[self.compression_type]
        if code not in (NONE, GZIP):
            codecs_for(code)
        if self.compression_level is None or code not in LEVELS:
            return
        low, high, _ = LEVELS[code]
        if not low <= self.compression_level <= high:
            raise ClientConfigError(
                f"{self.spell('compression_level')}={self.compression_level} is out of range for "
                f"{self.compression_type}: {low} to {high}"
            )

    def _resolve_idempotence(self, *, given_idempotence: bool) -> None:
        """Check the preconditions of idempotence, or turn it off where it is only the default.

        Idempotence needs acks=all, retries, and at most 5 requests in flight. Transactions need
        idempotence.
        """
        safe = (
            self.acks == "all" and self.max_in_flight_requests_per_connection <= 5 and self.retries
        )
        idempotence = self.spell("enable_idempotence")
        preconditions = (
            f"acks=all, retries > 0 and {self.spell('max_in_flight_requests_per_connection')} <= 5"
        )
        if self.transactional_id is not None and not (self.enable_idempotence and safe):
            raise ClientConfigError(
                f"{self.spell('transactional_id')} needs {idempotence}=true, {preconditions}: "
                f"change those or leave it out"
            )
        if not self.enable_idempotence or safe:
            return
        if given_idempotence:
            raise ClientConfigError(
                f"{idempotence}=true needs {preconditions}: change those or turn it off"
            )
        object.__setattr__(self, "enable_idempotence", False)


# The types of the fields, as text, by name.
_TYPES = {each.name: str(each.type) for each in fields(ClientConfig)}
_LEVEL_KEYS = {f"compression_{codec}_level": codec for codec in ("gzip", "lz4", "zstd")}


class _Kind(Enum):
    """What the client does with a key."""

    FIELD = auto()
    # The level of one codec, for `compression_level`.
    LEVEL = auto()
    # Accepted without an effect.
    IGNORED = auto()
    # Only the value that the client has anyway is accepted.
    ONE_VALUE = auto()
    # Refused, with a reason.
    UNSUPPORTED = auto()
    UNKNOWN = auto()


def _kind_of(name: str) -> _Kind:
    """Return what the client does with a key, by its attribute name."""
    if name in _TYPES:
        return _Kind.FIELD
    if name in _LEVEL_KEYS:
        return _Kind.LEVEL
    if name in IGNORED:
        return _Kind.IGNORED
    if name in UNSUPPORTED:
        return _Kind.UNSUPPORTED
    return _Kind.ONE_VALUE if name in ONLY_VALUES else _Kind.UNKNOWN


def _checked(given: Mapping[str, object]) -> dict[str, Any]:
    """Return the values by attribute name, converted and checked against their ranges."""
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = _attribute(key)
        match _kind_of(name):
            case _Kind.FIELD:
                values[name] = _coerce(name, _TYPES[name], key, value)
            case _Kind.LEVEL:
                _set_level(values, given, key, value)
            case _Kind.ONE_VALUE:
                if str(value).lower() != ONLY_VALUES[name]:
                    raise ClientConfigError(
                        f"{key}={value} is not supported: only {ONLY_VALUES[name]} is"
                    )
            case _Kind.UNSUPPORTED:
                raise ClientConfigError(f"{key} is not supported: {UNSUPPORTED[name]}")
            case _Kind.UNKNOWN:
                raise _unknown_key(key)
            case _Kind.IGNORED:
                pass
    return values


def _set_level(
    values: dict[str, Any], given: Mapping[str, object], key: str, value: object
) -> None:
    """Set the compression level from the key of one codec, if it is the configured codec.

    Java has one level key per codec.
    """
    codec = _LEVEL_KEYS[_attribute(key)]
    level = _coerce("compression_level", "int | None", key, value)
    # Java's default for gzip is -1: the default of zlib.
    is_default = codec == "gzip" and level == -1
    chosen = str(given.get("compression_type", given.get("compression.type")))
    if chosen == codec and not is_default:
        values["compression_level"] = level


def _attribute(key: str) -> str:
    """Return the attribute of a key as users of any client write it."""
    name = key.replace(".", "_").replace("-", "_")
    return ALIASES.get(name, name)


def _written(given: Mapping[str, object]) -> dict[str, str]:
    """Return the keys as the user wrote them. The constructors of clients name the servers."""
    return {_attribute(key): key for key in given if _attribute(key) != "bootstrap_servers"}


def keys_with_servers(
    bootstrap_servers: str | Sequence[str] | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return all keys of a client's constructor, which may contain "bootstrap.servers" itself.

    Raises:
        ClientConfigError: The servers are given twice.
    """
    if bootstrap_servers is None:
        return dict(given)
    if "bootstrap.servers" in given:
        raise ClientConfigError("bootstrap_servers and bootstrap.servers are both given")
    return {"bootstrap_servers": bootstrap_servers, **given}


def is_known(key: str) -> bool:
    """Return whether the client has a key, with dots or underscores, or ignores it."""
    name = _attribute(key)
    if name.startswith("config_providers"):
        # `parse` processes the keys of variables before the others.
        return True
    return _kind_of(name) not in (_Kind.UNSUPPORTED, _Kind.UNKNOWN)


def is_secret(key: str) -> bool:
    """Return whether the value of a key, with dots or underscores, must not be shown."""
    name = _attribute(key)
    return any(each.name == name and not each.repr for each in fields(ClientConfig))


def _unknown_key(key: str) -> ClientConfigError:
    close = difflib.get_close_matches(key.replace(".", "_"), list(_TYPES), n=1)
    meant = close[0] if close and "_" in key else "".join(close).replace("_", ".")
    hint = f"; did you mean {meant}?" if close else ""
    return ClientConfigError(f"unknown configuration key {key}{hint}")


def _coerce(name: str, kind: str, key: str, value: object) -> object:
    """Convert a value; `key` names it in errors, as the user wrote it."""
    if name == "bootstrap_servers":
        return parse_addresses(value)
    if kind == "object | None":
        return value
    if value is None and kind == "str | None":
        return None
    if kind == "bool":
        return _boolean(key, value)
    if kind.startswith("int"):
        return _integer(name, key, value)
    if name == "partition_assignment_strategy":
        return _strategies(key, value)
    if kind.startswith("tuple[str"):
        return _names(key, value)
    if value is None and kind.endswith("None"):
        return None
    text = str(value)
    if name in CHOICES:
        text = {"-1": "all"}.get(text, text) if name == "acks" else text
        text = text.upper() if name in _UPPER_CASE else text.lower()
        if name == "ssl_endpoint_identification_algorithm":
            # Java writes "no check" as an empty value.
            text = text or "none"
        if text not in CHOICES[name]:
            allowed = ", ".join(CHOICES[name])
            raise ClientConfigError(f"{key}={value} is not one of: {allowed}")
    return text


def _names(key: str, value: object) -> tuple[str, ...]:
    """Return names given as a sequence, or in a string with commas or colons."""
    if isinstance(value, str):
        value = value.replace(":", ",").split(",")
    if not isinstance(value, Iterable):
        raise ClientConfigError(f"{key}={value} is not a list of names")
    return tuple(str(each).strip() for each in value if str(each).strip())


def _strategies(key: str, value: object) -> tuple[object, ...]:
    """Return assignors given as names, classes or objects; a string is a comma-separated list."""
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
    """Parse HOST:PORT pairs from a comma-separated string or a sequence; IPv6 is [::1]:9092.

    Raises:
        ClientConfigError: There is no address, or an address is not HOST:PORT.
    """
    if isinstance(value, Mapping):
        raise ClientConfigError(f"bootstrap.servers is a dictionary. {_DICTIONARY}")
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise ClientConfigError(f"{value} is not a list of HOST:PORT")
    addresses = []
    for part in parts:
        text = str(part).strip()
        if not text:
            continue
        scheme, separator, address = text.partition("://")
        if separator and scheme.upper() in CHOICES["security_protocol"]:
            text = address
        host, separator, port = text.rpartition(":")
        if not separator or not port.isdigit() or not 0 < int(port) < 65536:
            raise ClientConfigError(f"bootstrap.servers: {text} is not HOST:PORT")
        addresses.append((host.strip("[]"), int(port)))
    if not addresses:
        raise ClientConfigError("bootstrap.servers is empty: give HOST:PORT[,HOST:PORT...]")
    return tuple(addresses)
