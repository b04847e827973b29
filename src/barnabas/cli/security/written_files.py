"""The properties files that `barnabas security init` writes."""

from __future__ import annotations

from typing import NamedTuple

from barnabas.sasl.jaas import SCRAM_MODULE

__all__ = ["MECHANISM", "Layout", "client_files", "server_properties"]

MECHANISM = "SCRAM-SHA-512"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Layout(NamedTuple):
    """Subject of the files."""

    # Absolute path of the directory with all files.
    directory: str
    # Where clients reach the broker; the first one is advertised.
    hosts: tuple[str, ...]
    # Ports for users with a password and for clients with a certificate.
    port: int
    certificate_port: int
    user: str
    password: str
    # Common name of the broker's certificate.
    broker: str

    @property
    def with_password(self) -> str:
        """HOST:PORT of the listener with SASL_SSL."""
        return f"{_bracketed(self.hosts[0])}:{self.port}"

    @property
    def with_certificate(self) -> str:
        """HOST:PORT of the listener with SSL."""
        return f"{_bracketed(self.hosts[0])}:{self.certificate_port}"


def server_properties(layout: Layout, cluster_id: str) -> str:
    """Return a complete server.properties of a broker that is its own controller."""
    at = layout.directory
    # All addresses of the machine, unless clients are on this machine only.
    host = layout.hosts[0] if set(layout.hosts) <= set(_LOOPBACK) else ""
    bound = _bracketed("127.0.0.1" if host == "localhost" else host)
    return _plain({
        "node.id": "1",
        "cluster.id": cluster_id,
        "log.dirs": f"{at}/data",
        "listeners": f"SASL_SSL://{bound}:{layout.port},SSL://{bound}:{layout.certificate_port}",
        "advertised.listeners": f"SASL_SSL://{layout.with_password},"
        f"SSL://{layout.with_certificate}",
        "inter.broker.listener.name": "SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{at}/broker.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{at}/ca.pem",
        "listener.name.ssl.ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": MECHANISM,
        f"listener.name.sasl_ssl.{MECHANISM.lower()}.sasl.jaas.config": f"{SCRAM_MODULE} required;",
        "authorizer.class.name": _AUTHORIZER,
        "super.users": f"User:{layout.user};User:{layout.broker}",
    })  # fmt: skip


def client_files(layout: Layout) -> dict[str, str]:
    """Return the files for clients by name; each has the password of the user."""
    at = layout.directory
    jaas = f'{SCRAM_MODULE} required username="{layout.user}" password="{layout.password}";'
    servers = {"bootstrap.servers": layout.with_password, "security.protocol": "SASL_SSL"}
    java = {
        **servers,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{at}/ca.pem",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": jaas,
    }
    librdkafka = {
        **servers,
        "ssl.ca.location": f"{at}/ca.pem",
        "sasl.mechanism": MECHANISM,
        "sasl.username": layout.user,
        "sasl.password": layout.password,
    }
    certificate = {
        "bootstrap.servers": layout.with_certificate,
        "security.protocol": "SSL",
        "ssl.ca.location": f"{at}/ca.pem",
        "ssl.certificate.location": f"{at}/client.crt",
        "ssl.key.location": f"{at}/client.key",
    }
    return {
        "client-java.properties": _plain(java),
        "client-librdkafka.properties": _plain(librdkafka),
        "client-barnabas.properties": _plain(librdkafka),
        "client-spark.properties": _plain({f"kafka.{key}": value for key, value in java.items()}),
        "client-certificate.properties": _plain(certificate),
    }


def _plain(values: dict[str, str]) -> str:
    """Return lines that Java, kcat and librdkafka read alike; no value needs an escape."""
    assert not any("\\" in value or "\n" in value for value in values.values())
    return "".join(f"{key}={value}\n" for key, value in values.items())


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
