"""Connections that TLS refuses: errors of clients, and one line in the broker's log."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pytest

import barnabas
from barnabas.client.errors import ClientError
from barnabas.runtime.web import verifying_context
from barnabas.testing.free_ports import free_ports
from certificates import Authority, Certificate
from conformance.tls_cluster import tls_cluster
from waiting import PATIENCE_S, eventually

# A short timeout of our client; the default is a minute.
SHORT = {"default_api_timeout_ms": 3000}
# A client that gets a certificate error must not retry until this timeout.
LONG = {"default_api_timeout_ms": round(PATIENCE_S * 1000)}


class Listeners:
    """A broker with a listener of each kind."""

    NAMES = ("PLAIN", "NONE", "REQUESTED", "REQUIRED", "EXPIRED", "ELSEWHERE")

    def __init__(self, folder: Path) -> None:
        self.cluster, self.files = tls_cluster(folder)
        self.broker = self.cluster.node(1)
        ports = dict(zip(self.NAMES, free_ports(len(self.NAMES)), strict=True))
        self.address = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        protocols = [f"{name}:SSL" for name in self.NAMES if name != "PLAIN"]
        settings = self.broker.settings
        settings["listener.security.protocol.map"] += ",".join([",PLAIN:PLAINTEXT", *protocols])
        settings["listeners"] += "".join(f",{name}://{at}" for name, at in self.address.items())
        del settings["advertised.listeners"]
        settings["inter.broker.listener.name"] = "PLAIN"
        for name in ("requested", "required"):
            settings[f"listener.name.{name}.ssl.client.auth"] = name
        issue = self.files.authority.issue
        for name, own in (
            ("expired", issue("CN=broker", days=-1)),
            ("elsewhere", issue("CN=broker", names=("elsewhere.example",))),
        ):
            store = self.files.write_store(f"{name}.p12", own)
            settings[f"listener.name.{name}.ssl.keystore.location"] = str(store)

    def context(self, own: Certificate | None = None) -> ssl.SSLContext:
        context = verifying_context(str(self.files.ca))
        context.check_hostname = False
        if own is not None:
            path = own.write_pem(self.files.folder / "own.pem")
            context.load_cert_chain(path)
        return context

    def connection_error(self, name: str, context: ssl.SSLContext) -> str | None:
        """Connect with Python's ssl, and return the error; None if the broker responds."""
        host, _, port = self.address[name].partition(":")
        try:
            with (
                socket.create_connection((host, int(port)), PATIENCE_S) as plain,
                context.wrap_socket(plain, server_hostname=host) as wire,
            ):
                # ApiVersions 0. With TLS 1.3, a certificate is refused after the handshake.
                wire.sendall(b"\0\0\0\x0a\0\x12\0\0\0\0\0\1\xff\xff")
                return None if wire.recv(4) else "closed"
        except OSError as error:
            return str(error)


@pytest.fixture(scope="module")
def listeners(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listeners]:
    made = Listeners(tmp_path_factory.mktemp("listeners"))
    with made.cluster:
        yield made


def await_log_line(listeners: Listeners, listener: str, reason: str) -> None:
    """Wait until the broker logs the reason, and check that it logs no traceback."""

    def lines() -> list[str]:
        return [line for line in listeners.broker.log().splitlines() if reason in line]

    line = eventually(lines)[-1]
    assert f"listener={listener} " in line or listener == "PLAIN"
    assert "client=127.0.0.1:" in line
    assert "Traceback" not in listeners.broker.log()


def refusal(listeners: Listeners, name: str, **keys: object) -> str:
    """Return the error message of our client."""
    usual = {key.replace(".", "_"): value for key, value in listeners.files.librdkafka().items()}
    config: dict[str, object] = {**usual, **keys}
    # A certificate does not change, so the client does not retry.
    is_final = config["security_protocol"] == "SSL" and name != "PLAIN"
    config |= LONG if is_final else SHORT
    started = time.monotonic()
    with (
        pytest.raises(ClientError) as raised,
        barnabas.Admin(listeners.address[name], **config) as admin,
    ):
        admin.list_topics()
    if is_final:
        assert time.monotonic() - started < PATIENCE_S / 2, "the client has retried"
    return str(raised.value)


def foreign_ca(listeners: Listeners) -> str:
    path = listeners.files.folder / "foreign.pem"
    path.write_text(Authority("Foreign").pem)
    return str(path)


def test_a_client_that_does_not_trust_the_broker_is_refused(listeners: Listeners) -> None:
    assert "the certificate of the peer is not valid" in refusal(
        listeners, "NONE", ssl_ca_location=foreign_ca(listeners)
    )
    await_log_line(listeners, "NONE", "the peer does not trust the certificate of this side")


def test_an_expired_certificate_is_refused(listeners: Listeners) -> None:
    assert "certificate has expired" in refusal(listeners, "EXPIRED")
    await_log_line(listeners, "EXPIRED", "the certificate of this side has expired")


def test_a_certificate_for_another_host_is_refused(listeners: Listeners) -> None:
    assert "not valid for '127.0.0.1'" in refusal(listeners, "ELSEWHERE")
    await_log_line(listeners, "ELSEWHERE", "the peer refused the certificate of this side")
    keys = {key.replace(".", "_"): value for key, value in listeners.files.librdkafka().items()}
    with barnabas.Admin(
        listeners.address["ELSEWHERE"], ssl_endpoint_identification_algorithm="none", **keys
    ) as admin:
        admin.list_topics()


def test_a_revoked_certificate_is_refused_by_clients_that_know_the_list(
    listeners: Listeners, tmp_path: Path
) -> None:
    files, path = listeners.files, tmp_path / "revoked.pem"
    keys = {**files.librdkafka(), "ssl.crl.location": str(path)}
    for own, is_refused in ((files.client, False), (files.server, True)):
        path.write_text(files.authority.revoke(own))
        ours = {key.replace(".", "_"): value for key, value in keys.items()}
        with barnabas.Admin(listeners.address["NONE"], **ours, **SHORT) as admin:
            if is_refused:
                with pytest.raises(ClientError, match="certificate revoked"):
                    admin.list_topics()
            else:
                admin.list_topics()
        client = confluent_kafka.admin.AdminClient(
            {"bootstrap.servers": listeners.address["NONE"], **keys}
        )
        if is_refused:
            with pytest.raises(confluent_kafka.KafkaException):
                client.list_topics(timeout=3)
        else:
            assert client.list_topics(timeout=PATIENCE_S).brokers


def test_a_client_without_verification_connects(listeners: Listeners) -> None:
    with barnabas.Admin(
        listeners.address["EXPIRED"],
        security_protocol="SSL",
        enable_ssl_certificate_verification="false",
    ) as admin:
        admin.list_topics()


def test_a_plaintext_client_at_a_tls_listener_gets_an_error(listeners: Listeners) -> None:
    assert "the listener requires TLS, so set security.protocol=SSL" in refusal(
        listeners, "NONE", security_protocol="PLAINTEXT"
    )
    await_log_line(listeners, "NONE", "the client does not speak TLS")


def test_a_tls_client_at_a_plaintext_listener_gets_an_error(listeners: Listeners) -> None:
    assert "TLS handshake; its listener may be one without TLS" in refusal(listeners, "PLAIN")
    await_log_line(listeners, "PLAIN", "the client speaks TLS to a listener without it")


def test_a_missing_required_certificate_is_refused(listeners: Listeners) -> None:
    assert "requires a certificate" in refusal(
        listeners, "REQUIRED", ssl_certificate_location=None, ssl_key_location=None
    )
    await_log_line(listeners, "REQUIRED", "the client sent no certificate, but one is required")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("listener", "own", "is_served"),
    [
        ("NONE", None, True),
        ("NONE", "good", True),
        ("NONE", "foreign", True),
        ("REQUESTED", None, True),
        ("REQUESTED", "good", True),
        ("REQUESTED", "foreign", False),
        ("REQUESTED", "expired", False),
        ("REQUIRED", None, False),
        ("REQUIRED", "good", True),
        ("REQUIRED", "foreign", False),
        ("REQUIRED", "expired", False),
    ],
)
def test_certificates_of_clients_are_verified(
    listeners: Listeners,
    listener: str,
    own: str | None,
    is_served: bool,
    version: ssl.TLSVersion,
) -> None:
    issued = {
        "good": lambda: listeners.files.client,
        "foreign": lambda: Authority("Foreign").issue("CN=mallory", names=()),
        "expired": lambda: listeners.files.authority.issue("CN=late", names=(), days=-1),
    }
    context = listeners.context(None if own is None else issued[own]())
    context.minimum_version = context.maximum_version = version
    error = listeners.connection_error(listener, context)
    assert (error is None) == is_served, error


@pytest.mark.parametrize("name", ["NONE", "PLAIN"])
def test_librdkafka_reports_the_reason(listeners: Listeners, name: str) -> None:
    """With a CA that did not issue the certificate, and at a listener without TLS."""
    errors: list[str] = []
    admin = confluent_kafka.admin.AdminClient(
        {
            "bootstrap.servers": listeners.address[name],
            "security.protocol": "SSL",
            "ssl.ca.location": foreign_ca(listeners),
            "error_cb": lambda error: errors.append(str(error)),
            "log_level": 0,
        }
    )

    def has_error() -> bool:
        admin.poll(0.1)
        expected = "certificate verify failed" if name == "NONE" else "SSL"
        return any(expected in each for each in errors)

    eventually(has_error)


def test_the_broker_serves_clients_afterwards(listeners: Listeners) -> None:
    for name in ("NONE", "REQUESTED", "REQUIRED"):
        assert listeners.connection_error(name, listeners.context(listeners.files.client)) is None


def test_a_broker_with_unusable_key_stores_does_not_start(tmp_path: Path) -> None:
    cluster, files = tls_cluster(tmp_path, **{"ssl.keystore.password": "wrong"})
    node = cluster.node(1)
    node.launch()
    assert node.wait() != 0
    assert "ssl.keystore.location" in node.log()
    assert "check ssl.keystore.password" in node.log()
    assert "Traceback" not in node.log()
    assert files.key_store.exists()
    cluster.close()
