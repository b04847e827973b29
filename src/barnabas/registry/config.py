"""The configuration of a registry: keys, levels and modes with the names of Confluent's."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import one_of

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

# Keys of the clients of the registry have this prefix, as in kafkastore.security.protocol.
CLIENT_PREFIX = "kafkastore."
DEFAULT_TOPIC = "_schemas"
DEFAULT_GROUP = "schema-registry"
DEFAULT_LISTENER = "http://127.0.0.1:8081"
# Levels of compatibility, which say how schemas of a subject may change.
LEVELS = (
    *("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD"),
    *("FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"),
)
DEFAULT_LEVEL = "BACKWARD"
# Modes, which say what may be changed.
READWRITE, READONLY, IMPORT = "READWRITE", "READONLY", "IMPORT"
READONLY_OVERRIDE = "READONLY_OVERRIDE"
MODES = (READWRITE, READONLY, READONLY_OVERRIDE, IMPORT)
# What a client must prove.
NONE, BASIC, BEARER = "NONE", "BASIC", "BEARER"
SUB_CLAIM = "sasl.oauthbearer.sub.claim.name"
_STRING = ConfigType.STRING

REGISTRY_KEYS = ConfigDefinition(
    [
        ConfigKey(
            "listeners",
            _STRING,
            DEFAULT_LISTENER,
            "The address of the REST interface: http://HOST:PORT or https://HOST:PORT.",
        ),
        ConfigKey(
            "host.name",
            _STRING,
            None,
            "The HOST or HOST:PORT at which other processes of the registry reach this one.",
        ),
        ConfigKey("kafkastore.bootstrap.servers", _STRING, None, "The addresses of the brokers."),
        ConfigKey("kafkastore.topic", _STRING, DEFAULT_TOPIC, "The topic of the schemas."),
        ConfigKey(
            "kafkastore.topic.replication.factor",
            ConfigType.INT,
            -1,
            "The replicas of a new topic; -1 for three, or for all brokers if there are fewer.",
        ),
        ConfigKey(
            "schema.registry.group.id",
            _STRING,
            DEFAULT_GROUP,
            "The group in which the processes of the registry elect their leader.",
        ),
        ConfigKey(
            "leader.eligibility",
            ConfigType.BOOLEAN,
            True,
            "Whether this process may lead; otherwise it forwards all changes.",
        ),
        ConfigKey(
            "schema.compatibility.level",
            _STRING,
            DEFAULT_LEVEL.lower(),
            "The compatibility level where none was set by a request.",
            one_of(*(each.lower() for each in LEVELS), *LEVELS),
        ),
        ConfigKey(
            "authentication.method",
            _STRING,
            None,
            "NONE: every client may do everything. BASIC: clients log in with a name and a"
            " password of the brokers, or with a bearer token that the brokers accept. By default"
            " BASIC if the registry itself logs in at the brokers, else NONE.",
            one_of(NONE, BASIC, BEARER),
        ),
        ConfigKey(
            SUB_CLAIM,
            _STRING,
            "sub",
            "The claim of bearer tokens that names the user, as in the configuration of the"
            " brokers.",
        ),
        ConfigKey(
            "super.users",
            _STRING,
            "",
            "Principals that may do everything: TYPE:NAME;...",
        ),
        ConfigKey(
            "allow.everyone.if.no.acl.found",
            ConfigType.BOOLEAN,
            False,
            "Whether a subject without access control entries is open to everyone, as in the"
            " configuration of the brokers.",
        ),
    ]
)


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """What the command line and the properties give to a registry."""

    bootstrap: str
    # Configuration of the clients, without the bootstrap servers.
    client: Mapping[str, Any] = field(default_factory=dict)
    host: str = "127.0.0.1"
    # 0: any free port.
    port: int = 0
    # HOST or HOST:PORT that other processes of the registry use; empty for the listener's.
    advertised: str = ""
    topic: str = DEFAULT_TOPIC
    # -1: three replicas, or all brokers if there are fewer.
    replication_factor: int = -1
    group_id: str = DEFAULT_GROUP
    # Whether the process may lead; otherwise it forwards all changes.
    leader_eligibility: bool = True
    # The compatibility level where none was set.
    level: str = DEFAULT_LEVEL
    # The certificate of the listener; None for HTTP.
    tls: ssl.SSLContext | None = None
    # Trusted certificates of other processes of the registry; None for those of the system.
    peer_tls: ssl.SSLContext | None = None
    # Whether clients must log in at the brokers, and have rights there.
    has_login: bool = False
    # The SASL mechanism of passwords.
    mechanism: str = "PLAIN"
    # The claim of bearer tokens that names the user.
    sub_claim: str = "sub"
    # Whether a subject without access control entries is open to everyone.
    allows_by_default: bool = False
    super_users: frozenset[str] = frozenset()
    # Id of a process with which this one ends; None without one.
    exit_with: int | None = None
