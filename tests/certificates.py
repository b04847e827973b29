"""Certificates for tests: an authority, and certificates that it issues."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Certificate:
    """A certificate with its private key and the certificate of its issuer."""

    certificate: x509.Certificate
    key: Key
    issuer: x509.Certificate

    @property
    def pem(self) -> str:
        return _pem(self.certificate)

    @property
    def der(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.DER)

    @property
    def chain_pem(self) -> str:
        return self.pem + _pem(self.issuer)

    def key_pem(self, password: str | None = None) -> str:
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, _encryption(password)
        ).decode()

    def pkcs12(self, password: str | None, alias: str = "own") -> bytes:
        """A PKCS12 key store with the key, the certificate and its issuer."""
        return pkcs12.serialize_key_and_certificates(
            alias.encode(), self.key, self.certificate, [self.issuer], _encryption(password)
        )

    def write_pem(self, path: Path, password: str | None = None) -> Path:
        """Write key and chain into one file, as Kafka's `ssl.keystore.location` wants it."""
        path.write_text(self.key_pem(password) + self.chain_pem)
        return path


class Authority:
    """A certificate authority; an intermediate one if it has an issuer."""

    def __init__(self, name: str = "Barnabas test CA", issuer: Authority | None = None) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer_name = subject if issuer is None else issuer.certificate.subject
        self.certificate = (
            _builder(subject, issuer_name, self._key, days=3650)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .sign((issuer or self)._key, hashes.SHA256())
        )

    @property
    def pem(self) -> str:
        return _pem(self.certificate)

    def pkcs12(self, password: str | None) -> bytes:
        """A PKCS12 trust store, with the attribute by which Java trusts the certificate."""
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.certificate, b"ca")], _encryption(password)
        )

    def issue(
        self,
        subject: str = "CN=localhost",
        names: tuple[str, ...] = _LOCAL_NAMES,
        key: str = "ec",
        days: float = 30,
    ) -> Certificate:
        """Issue a certificate.

        Args:
            subject: the distinguished name, as in RFC 4514.
            names: host names and addresses of the subject.
            key: "ec", "rsa" or "ed25519".
            days: until it expires; negative for an expired certificate.
        """
        private = _new_key(key)
        builder = _builder(
            x509.Name.from_rfc4514_string(subject), self.certificate.subject, private, days
        )
        builder = builder.add_extension(
            x509.ExtendedKeyUsage(
                [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
            ),
            critical=False,
        ).add_extension(_key_usage(signs_certificates=False), critical=True)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False
            )
        return Certificate(builder.sign(self._key, hashes.SHA256()), private, self.certificate)

    def revoke(self, *revoked: Certificate) -> str:
        """Return the list of revoked certificates (PEM)."""
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - dt.timedelta(days=1))
            .next_update(now + dt.timedelta(days=1))
        )
        for each in revoked:
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder()
                .serial_number(each.certificate.serial_number)
                .revocation_date(now)
                .build()
            )
        made = builder.sign(self._key, hashes.SHA256())
        return made.public_bytes(serialization.Encoding.PEM).decode()


@cache
def shared_authority() -> Authority:
    """The authority that tests share, where they need no other one."""
    return Authority()


def _builder(
    subject: x509.Name, issuer: x509.Name, key: Key, days: float
) -> x509.CertificateBuilder:
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - dt.timedelta(days=abs(days) + 1))
        .not_valid_after(end)
    )


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _new_key(kind: str) -> Key:
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(ec.SECP256R1())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _encryption(password: str | None) -> serialization.KeySerializationEncryption:
    if password is None:
        return serialization.NoEncryption()
    return serialization.BestAvailableEncryption(password.encode())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
