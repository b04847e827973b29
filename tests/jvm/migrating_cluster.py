"""A secured cluster of Apache Kafka whose nodes become Barnabas one at a time, and Kafka again.

Kafka's own tool formats it. Its brokers and controllers talk to each other over TLS and SASL. The
clients of the load log in by SCRAM at the listener SECURE and have rights by ACLs. The listener
PLAINTEXT is for the checkers, whose principal is a superuser.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.acls import Acl
from barnabas.client.admin.configs import ConfigResource, ResourceType
from barnabas.client.admin.credentials import ScramUpsertion
from barnabas.client.facade import Client
from barnabas.protocol.resources import AclOperation, AclResourceType
from barnabas.sasl.jaas import PLAIN_MODULE, SCRAM_MODULE
from barnabas.sasl.scram_keys import ScramMechanism
from barnabas.testing.free_ports import HOST, free_ports
from conformance.tls_cluster import PASSWORD as STORE_PASSWORD, TlsFiles
from jvm.alternating_cluster import AlternatingCluster
from jvm.kafka_node import KafkaNode

if TYPE_CHECKING:
    from pathlib import Path

SECURE = "SECURE"
ADMIN, WRITER, STRANGER = "admin", "mary", "eve"
PASSWORDS = {ADMIN: "admin-secret", WRITER: "mary-secret", STRANGER: "eve-secret"}
MECHANISM = "SCRAM-SHA-512"
# A client of the writer with this id may produce a kilobyte a second.
SLOW_CLIENT = "slow"
# A limit for a node that never starts: three of them start at the same time.
START_S = 600.0
_CREDENTIALS = f'username="{ADMIN}" password="{PASSWORDS[ADMIN]}"'
_SECURITY = {
    "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL,{SECURE}:SASL_SSL",
    "inter.broker.listener.name": SECURE,
    "sasl.enabled.mechanisms": MECHANISM,
    "sasl.mechanism.inter.broker.protocol": MECHANISM,
    "sasl.mechanism.controller.protocol": "PLAIN",
    f"listener.name.{SECURE.lower()}.{MECHANISM.lower()}.sasl.jaas.config": (
        f"{SCRAM_MODULE} required {_CREDENTIALS};"
    ),
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": (
        f'{PLAIN_MODULE} required {_CREDENTIALS} user_{ADMIN}="{PASSWORDS[ADMIN]}";'
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{ADMIN};User:ANONYMOUS",
}
_BROKER_ONLY = ("inter.broker.listener.name",)


class Kafka39Node(KafkaNode):
    """A node of Apache Kafka 3.9.2."""

    jars = "kafka-3.9"


@dataclass(frozen=True)
class Shape:
    """Roles and version of the nodes of a cluster."""

    dynamic: bool = False
    # 0: the three brokers are the controllers.
    controllers: int = 0
    kafka: type[KafkaNode] = KafkaNode
    # Whether Kafka's format finalizes group.version, share.version and streams.version.
    has_groups: bool = True


class MigratingCluster(AlternatingCluster):
    """Three brokers, whose nodes are replaced one at a time.

    Args:
        shape: roles and version of the nodes.
        directory: contains the directories of the nodes, and the certificates.
        settings: further broker configs of all nodes.
    """

    FOLDERS = ("data",)

    def __init__(self, shape: Shape, directory: Path, settings: dict[str, str]) -> None:
        self.tls = TlsFiles(directory / "certificates")
        stores = {k: v for k, v in self.tls.settings().items() if k.startswith("ssl.")}
        super().__init__(
            3,
            directory,
            {**settings, **stores, **_SECURITY},
            dynamic=shape.dynamic,
            controllers=shape.controllers,
            kafka=shape.kafka,
        )
        ports = free_ports(3)
        self.secure_addresses: list[str] = []
        for node_id, kafka in self.kafkas.items():
            kafka.format_options += (
                "--add-scram",
                f"{MECHANISM}=[name={ADMIN},password={PASSWORDS[ADMIN]}]",
            )
            kafka.start_timeout_s = START_S
            kafka.may_copy = not shape.dynamic and not shape.controllers
            for node in (kafka, self.ours[node_id]):
                if not node.is_broker:
                    for key in _BROKER_ONLY:
                        del node.settings[key]
            if kafka.is_broker:
                self._add_listener(node_id, f"{HOST}:{ports.pop()}")

    def _add_listener(self, node_id: int, address: str) -> None:
        self.secure_addresses.append(address)
        for node in (self.kafkas[node_id], self.ours[node_id]):
            for key in ("listeners", "advertised.listeners"):
                node.settings[key] += f",{SECURE}://{address}"

    def _format(self) -> None:
        """Let Kafka's tool format each node with the voters of the dynamic quorum."""
        words = self._initial_controllers()
        for kafka in self.kafkas.values():
            if kafka.is_controller:
                kafka.format_options = words

    @property
    def secure_bootstrap(self) -> str:
        """The addresses of the listener for the clients of the load."""
        return ",".join(self.secure_addresses)

    def keys(self, user: str = WRITER) -> dict[str, str]:
        """Return properties of librdkafka and of our client for a user."""
        return {
            **self.tls.librdkafka(with_key=False),
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    def java_file(self, user: str = WRITER) -> Path:
        """Write a properties file of the Java client for a user, and return its path."""
        path = self.tls.folder / f"{user}.properties"
        path.write_text(
            f"security.protocol=SASL_SSL\nsasl.mechanism={MECHANISM}\n"
            f"ssl.truststore.location={self.tls.trust_store}\nssl.truststore.type=PKCS12\n"
            f"ssl.truststore.password={STORE_PASSWORD}\n"
            f'sasl.jaas.config={SCRAM_MODULE} required username="{user}" '
            f'password="{PASSWORDS[user]}";\n'
            # Else VerifiableProducer reports the first error instead of sending again.
            "retries=2147483647\nenable.idempotence=true\n"
        )
        return path

    def replace(self, node_id: int) -> None:
        """Stop a node, and start the other program on its directory."""
        is_kafka = isinstance(self.running[node_id], KafkaNode)
        self.stop(node_id)
        self.start({node_id: (self.ours if is_kafka else self.kafkas)[node_id]})

    def make_rules(self) -> None:
        """Create users, ACLs, quotas and a dynamic broker config."""
        every = [
            Acl(kind, "*", f"User:{WRITER}", AclOperation.ALL)
            for kind in (
                AclResourceType.TOPIC,
                AclResourceType.GROUP,
                AclResourceType.TRANSACTIONAL_ID,
            )
        ]
        cluster = Acl(
            AclResourceType.CLUSTER, "kafka-cluster", f"User:{WRITER}", AclOperation.DESCRIBE
        )
        with Client(self.bootstrap) as client:
            client.admin.alter_scram_credentials(
                [
                    ScramUpsertion(user, ScramMechanism.SCRAM_SHA_512, PASSWORDS[user])
                    for user in (WRITER, STRANGER)
                ]
            )
            client.admin.create_acls([*every, cluster])
            client.admin.alter_quotas((("user", WRITER),), {"producer_byte_rate": 50e6})
            client.admin.alter_quotas(
                (("client-id", SLOW_CLIENT), ("user", WRITER)), {"producer_byte_rate": 1e3}
            )
            client.admin.alter_configs(
                ConfigResource(ResourceType.BROKER, ""), {"log.cleaner.threads": "2"}
            )
