"""Brokers with TLS, users and rights, and the settings with which each client logs in.

Clients log in with SCRAM-SHA-512 over TLS. Brokers, and the fixtures themselves, use a second
listener, which requires a client certificate. `barnabas security init` makes the certificates.
"""

from __future__ import annotations

import dataclasses
import ssl
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .admin_requests import (
    CREATE,
    DESCRIBE,
    GROUP,
    READ,
    TOPIC,
    TRANSACTIONAL_ID,
    WRITE,
    AdminEndpoint,
    AdminRequests,
    Grant,
)
from .barnabas_command import barnabas_command
from .broker_process import BrokerProcess, BrokerStartError
from .cluster_process import CLIENT_LISTENER, CONTROLLER_LISTENER, REPLICATION_LISTENER
from .free_ports import HOST, free_ports
from .relayed_cluster import RelayedCluster

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path
    from typing import Self

__all__ = ["KafkaUser", "SecuredBroker", "SecuredCluster", "parse_user"]

ADMIN = "admin"
MECHANISM = "SCRAM-SHA-512"
# The directory of the certificates, in the directory of the broker or cluster.
_FILES = "security"
_LOGIN_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
# Name of the listener of a single broker that requires a client certificate.
_CERTIFICATE_LISTENER = "SSL"
_PRODUCER = {TOPIC: (WRITE, DESCRIBE, CREATE), TRANSACTIONAL_ID: (WRITE, DESCRIBE)}
_CONSUMER = {TOPIC: (READ, DESCRIBE), GROUP: (READ,)}
_INIT_TIMEOUT_S = 90.0


@dataclass(frozen=True)
class KafkaUser:
    """A user of a secured broker or cluster, and the settings of clients that log in as the user.

    Each property returns a new dictionary for the constructors of a client.
    """

    name: str
    password: str
    # HOST:PORT of the brokers, separated by commas.
    bootstrap: str
    # Path of the authority's certificate (PEM).
    ca_file: str

    def with_password(self, password: str) -> KafkaUser:
        """Return this user with another password, for tests of a failed login."""
        return dataclasses.replace(self, password=password)

    @property
    def confluent(self) -> dict[str, str]:
        """Settings for confluent-kafka and all other clients of librdkafka."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca_file,
            "sasl.mechanism": MECHANISM,
            "sasl.username": self.name,
            "sasl.password": self.password,
        }

    @property
    def barnabas(self) -> dict[str, str]:
        """Keyword arguments for `barnabas.Client`, `Producer`, `Consumer` and `Admin`."""
        return {key.replace(".", "_"): value for key, value in self.confluent.items()}

    @property
    def aiokafka(self) -> dict[str, Any]:
        """Keyword arguments for aiokafka's clients."""
        return {
            **self._python_login(),
            "ssl_context": ssl.create_default_context(cafile=self.ca_file),
        }

    @property
    def kafka_python(self) -> dict[str, Any]:
        """Keyword arguments for the clients of kafka-python."""
        return {**self._python_login(), "ssl_cafile": self.ca_file}

    @property
    def java(self) -> dict[str, str]:
        """Properties for Java's clients and tools; Spark takes them with the prefix `kafka.`."""
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca_file,
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f"{_LOGIN_MODULE} required username={_quoted(self.name)} "
            f"password={_quoted(self.password)};",
        }

    def _python_login(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": MECHANISM,
            "sasl_plain_username": self.name,
            "sasl_plain_password": self.password,
        }


class KafkaUsers(dict[str, KafkaUser]):
    """Users by name. The error of an unknown name says how to create the user."""

    def __missing__(self, name: str) -> KafkaUser:
        raise KeyError(
            f"there is no user {name}: add a line such as `{name}: produce orders` to kafka_users "
            "in pytest.ini, or call add_user"
        )


class _Secured:
    """Certificates, users and rights of a secured broker or cluster."""

    directory: Path
    # All users by name, with the super user.
    users: KafkaUsers

    @property
    def bootstrap(self) -> str:
        raise NotImplementedError

    @property
    def admin(self) -> KafkaUser:
        """The super user, to whom everything is permitted."""
        return self._user(ADMIN, self._admin_password())

    def add_user(
        self,
        name: str,
        password: str | None = None,
        *,
        produce: str | Iterable[str] = (),
        consume: str | Iterable[str] = (),
        groups: str | Iterable[str] = "*",
    ) -> KafkaUser:
        """Create a user with rights; all running brokers know both when this returns.

        A name of a topic or a group that ends with `*` means all names with this prefix.

        Args:
            name: the user's name; an existing user gets the password and the rights in addition.
            password: `NAME-secret` when None.
            produce: topics that the user may write, and create.
            consume: topics that the user may read.
            groups: groups in which the user may read them.

        Raises:
            AdminRequestError: the broker refused the user or a right.
        """
        user = self._user(name, f"{name}-secret" if password is None else password)
        grants = _grants(_PRODUCER, {TOPIC: _names(produce), TRANSACTIONAL_ID: ["*"]})
        grants += _grants(_CONSUMER, {TOPIC: _names(consume), GROUP: _names(groups)})
        self._create_user(user, grants)
        self.users[name] = user
        return user

    def admin_endpoints(self) -> list[AdminEndpoint]:
        """Return the listeners with a client certificate of all running brokers."""
        raise NotImplementedError

    def _create_user(self, user: KafkaUser, grants: list[Grant]) -> None:
        endpoints = self.admin_endpoints()
        with AdminRequests(endpoints[0]) as requests:
            if grants:
                requests.create_acls(user.name, grants)
            # The password comes last: a broker that knows it has applied the rights too.
            requests.set_password(user.name, user.password)
        for endpoint in endpoints:
            with AdminRequests(endpoint) as requests:
                requests.await_user(user.name)

    def _user(self, name: str, password: str) -> KafkaUser:
        return KafkaUser(name, password, self.bootstrap, str(self._file("ca.pem")))

    def _file(self, name: str) -> Path:
        return self.directory / _FILES / name

    def _admin_password(self) -> str:
        return self._file(f"{ADMIN}.password").read_text().strip()

    def _create_files(self) -> None:
        """Create the certificates and the admin's password, before the first start.

        Raises:
            BrokerStartError: the command failed; the message contains its output.
        """
        words = [*barnabas_command(), "security", "init", str(self.directory / _FILES)]
        words += ["--host", HOST, "--host", "localhost", "--user", ADMIN]
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=_INIT_TIMEOUT_S, check=False
        )
        if done.returncode != 0:
            raise BrokerStartError(f"barnabas security init failed\n{done.stderr}")

    def _create_admin(self) -> None:
        if ADMIN not in self.users:
            self._create_user(self.admin, [])
            self.users[ADMIN] = self.admin

    def _tls(self) -> ssl.SSLContext:
        """Return TLS with the client certificate of the super user."""
        context = ssl.create_default_context(cafile=str(self._file("ca.pem")))
        context.load_cert_chain(self._file("client.crt"), self._file("client.key"))
        return context

    def _security_settings(self, clients: str, *by_certificate: str) -> dict[str, str]:
        """Return broker keys.

        Args:
            clients: name of the listener whose clients log in with a password.
            by_certificate: names of the listeners that require a client certificate.
        """
        protocols = {clients: "SASL_SSL"} | dict.fromkeys(by_certificate, "SSL")
        prefix = f"listener.name.{clients.lower()}"
        keys = {
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._file("broker.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._file("ca.pem")),
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": MECHANISM,
            f"{prefix}.{MECHANISM.lower()}.sasl.jaas.config": f"{_LOGIN_MODULE} required;",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN};User:broker-1",
        }
        for name in by_certificate:
            keys[f"listener.name.{name.lower()}.ssl.client.auth"] = "required"
        return keys


class SecuredBroker(BrokerProcess, _Secured):
    """A broker process with TLS, users and rights.

    Args:
        directory: directory of the data and the certificates; a temporary directory when None.
        settings: broker keys.
    """

    def __init__(
        self, directory: str | Path | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory, settings)
        self.users = KafkaUsers()
        (self._certificate_port,) = free_ports(1)
        listeners = {"SASL_SSL": self.port, _CERTIFICATE_LISTENER: self._certificate_port}
        self.settings = {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
            "inter.broker.listener.name": _CERTIFICATE_LISTENER,
            **self._security_settings("SASL_SSL", _CERTIFICATE_LISTENER),
            **self.settings,
        }

    def prepare(self) -> None:
        """Create the certificates before the first start."""
        if not self._file("ca.pem").exists():
            self._create_files()

    def start(self, timeout_s: float | None = None) -> Self:
        """Start and wait, as in the base class; the first start creates the super user."""
        super().start(timeout_s)
        self._create_admin()
        return self

    def admin_endpoint(self) -> AdminEndpoint:
        """Return the listener that requires a client certificate."""
        return AdminEndpoint(HOST, self._certificate_port, self._tls())

    def admin_endpoints(self) -> list[AdminEndpoint]:
        """Return the listener that requires a client certificate, of the one broker."""
        return [self.admin_endpoint()]


class SecuredCluster(RelayedCluster, _Secured):
    """A cluster with TLS on all listeners, users and rights; its links can fail.

    Args: see `RelayedCluster`.
    """

    def __init__(
        self,
        brokers: int = 3,
        controllers: int = 0,
        directory: str | Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(brokers, controllers, directory, settings)
        self.users = KafkaUsers()
        by_certificate = (REPLICATION_LISTENER, CONTROLLER_LISTENER)
        keys = self._security_settings(CLIENT_LISTENER, *by_certificate)
        for node in self.nodes.values():
            node.settings |= keys | dict(settings or {})

    def launch(self) -> None:
        """Create the certificates before the first start, then start all nodes."""
        if not self._file("ca.pem").exists():
            self._create_files()
        super().launch()

    def start(self, timeout_s: float | None = None) -> Self:
        """Start and wait, as in the base class; the first start creates the super user."""
        super().start(timeout_s)
        self._create_admin()
        return self

    def admin_endpoints(self) -> list[AdminEndpoint]:
        """Return the listeners with a client certificate of all running brokers."""
        tls = self._tls()
        return [
            AdminEndpoint(*node.options.listeners[REPLICATION_LISTENER], tls)
            for node in self.running_brokers()
        ]


def parse_user(line: str) -> tuple[str, dict[str, Any]]:
    """Parse `NAME: produce TOPIC, consume TOPIC, group GROUP, password WORD`.

    Returns:
        The name, and the other arguments of `add_user`.

    Raises:
        ValueError: the line has another form.
    """
    name, colon, text = line.partition(":")
    rights: dict[str, list[str]] = {"produce": [], "consume": [], "group": [], "password": []}
    for part in filter(None, map(str.strip, text.split(","))):
        verb, *words = part.split()
        if verb not in rights or len(words) != 1:
            raise ValueError(f"{part!r} is not one of {', '.join(rights)}, and a name")
        rights[verb] += words
    if not name.strip() or not colon:
        raise ValueError("the name of the user and a colon are missing")
    options: dict[str, Any] = {"produce": rights["produce"], "consume": rights["consume"]}
    if rights["group"]:
        options["groups"] = rights["group"]
    if rights["password"]:
        options["password"] = rights["password"][-1]
    return name.strip(), options


def _quoted(text: str) -> str:
    """Return a value of a JAAS configuration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _names(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _grants(needed: Mapping[int, tuple[int, ...]], names: Mapping[int, list[str]]) -> list[Grant]:
    """Return the rights to all needed operations; none if there are no topics."""
    if not names[TOPIC]:
        return []
    return [
        Grant(resource_type, name, operation)
        for resource_type, operations in needed.items()
        for name in names[resource_type]
        for operation in operations
    ]
