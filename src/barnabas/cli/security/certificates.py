"""A certificate authority for development, and the certificates that it issues."""

from __future__ import annotations

import datetime as dt
import ipaddress
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["DevelopmentAuthority", "IssuedCertificate"]

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
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _certificate_pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
