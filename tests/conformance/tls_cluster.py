"""Clusters with TLS on every listener, of Barnabas or of Apache Kafka with the same settings."""

from __future__ import annotations

from pathlib import Path

from barnabas.testing.cluster_process import ClusterProcess, NodeProcess
from certificates import Authority, Certificate
from jvm.kafka_node import KafkaNode

PASSWORD = "a store's password"
NODE_TYPES: dict[str, type[NodeProcess]] = {"barnabas": NodeProcess, "kafka": KafkaNode}


class TlsFiles:
    """The certificates of a cluster and of a client, in the formats of all clients."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = Authority()
        self.server = self.authority.issue("CN=broker,OU=brokers")
        self.client = self.authority.issue("CN=alice,OU=ops", names=())
        self.ca = self._write("ca.pem", self.authority.pem)
        self.trust_store = folder / "trust.p12"
        self.trust_store.write_bytes(self.authority.pkcs12(PASSWORD))
        self.key_store = self.write_store("server.p12", self.server)
        self.client_store = self.write_store("client.p12", self.client)
        self.client_certificate = self._write("client.crt", self.client.chain_pem)
        self.client_key = self._write("client.key", self.client.key_pem())

    def write_store(self, name: str, own: Certificate) -> Path:
        """Write a PKCS12 key store."""
        path = self.folder / name
        path.write_bytes(own.pkcs12(PASSWORD))
        return path

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def settings(self, **more: str) -> dict[str, str]:
        """Return server.properties with TLS on all listeners, and `more`, with `_` for `.`."""
        return {
            "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
            "ssl.keystore.location": str(self.key_store),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.location": str(self.trust_store),
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.password": PASSWORD,
            "group.initial.rebalance.delay.ms": "0",
            "offsets.topic.num.partitions": "3",
            **{key.replace("_", "."): value for key, value in more.items()},
        }

    def librdkafka(self, *, with_key: bool = True) -> dict[str, str]:
        """Return properties for librdkafka and for our client."""
        keys = {"security.protocol": "SSL", "ssl.ca.location": str(self.ca)}
        if with_key:
            keys["ssl.certificate.location"] = str(self.client_certificate)
            keys["ssl.key.location"] = str(self.client_key)
        return keys

    def java(self) -> dict[str, str]:
        """Return properties for the Java client and for our client."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.location": str(self.trust_store),
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.password": PASSWORD,
            "ssl.keystore.location": str(self.client_store),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
        }

    def java_file(self) -> Path:
        """Write a properties file for Kafka's shell tools and for `barnabas`; return its path."""
        lines = [f"{key}={value}" for key, value in self.java().items()]
        return self._write("client.properties", "\n".join(lines) + "\n")


def tls_cluster(
    folder: Path, kind: str = "barnabas", brokers: int = 1, controllers: int = 0, **settings: str
) -> tuple[ClusterProcess, TlsFiles]:
    """Return a cluster that is not started, and its certificates."""
    files = TlsFiles(folder / "certificates")
    cluster = ClusterProcess(
        brokers,
        controllers,
        folder / "nodes",
        files.settings(**settings),
        node_type=NODE_TYPES[kind],
    )
    return cluster, files
