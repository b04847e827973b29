"""The files that `barnabas security init` writes: certificates and properties."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from barnabas.sasl.jaas import SCRAM_MODULE

# Clocks of clients may be behind.
_BACKDATED = dt.timedelta(hours=1)


class IssuedCertificate(NamedTuple):
    """A private key and its certificate, as PEM text."""

    key: str
    certificate: str


class DevelopmentAuthority:
    """A new certificate authority, with a key of its own on the curve P-256.

    Args:
        name: Common name of the authority.
        days: How long its certificate and those that it issues are valid.
    """

    def __init__(self, name: str, days: int) -> None:
        self._days = days
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._subject = _name(name)
        own_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        self._authority_id = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own_id)
        certificate = (
            self._builder(self._subject, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(is_authority=True), critical=True)
            .add_extension(own_id, critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.own = IssuedCertificate(_key_pem(self._key), _certificate_pem(certificate))

    def issue(self, name: str, hosts: tuple[str, ...] = ()) -> IssuedCertificate:
        """Issue a certificate for clients, and with `hosts` for servers too.

        Args:
            name: Common name of the subject.
            hosts: Host names and IP addresses at which clients reach the server.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if hosts:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            self._builder(_name(name), key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(is_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(self._authority_id, critical=False)
        )
        if hosts:
            names = [_general_name(host) for host in hosts]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        return IssuedCertificate(_key_pem(key), _certificate_pem(certificate))

    def _builder(
        self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey
    ) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _BACKDATED)
            .not_valid_after(now + dt.timedelta(days=self._days))
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


MECHANISM = "SCRAM-SHA-512"
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class SecurityLayout(NamedTuple):
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


def server_properties(layout: SecurityLayout, cluster_id: str) -> str:
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


def client_files(layout: SecurityLayout) -> dict[str, str]:
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
