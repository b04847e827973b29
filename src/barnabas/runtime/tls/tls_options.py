"""Options of TLS, independent of the configuration that they come from."""

from __future__ import annotations

from enum import Enum

import msgspec


class ClientAuth(Enum):
    """Whether a server requests certificates from its clients (`ssl.client.auth`)."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


class KeySource(msgspec.Struct, frozen=True):
    """Source of the own private key and certificate: a key store, PEM text, or two PEM files."""

    # A key store: a PKCS12 or JKS file, or a PEM file with the key and its certificates.
    location: str | None = None
    # "PEM", "PKCS12" or "JKS"; None: recognized by its content.
    type: str | None = None
    password: str | None = None
    # Password of the key itself, in a key store or in PEM text.
    key_password: str | None = None
    # PEM text in the configuration.
    key: str | None = None
    certificate_chain: str | None = None
    # Two PEM files (librdkafka: ssl.certificate.location and ssl.key.location).
    certificate_location: str | None = None
    key_location: str | None = None


class TrustSource(msgspec.Struct, frozen=True):
    """Source of the trusted certificates; without a source, those of the system are trusted."""

    location: str | None = None
    # As in `KeySource`.
    type: str | None = None
    password: str | None = None
    # PEM text in the configuration.
    certificates: str | None = None
    # A PEM file with lists of revoked certificates. If given, the authority of each own certificate
    # of a peer must have a list in it.
    revoked_location: str | None = None


class TlsOptions(msgspec.Struct, frozen=True):
    """All options of an SSL context."""

    keys: KeySource = KeySource()
    trust: TrustSource = TrustSource()
    enabled_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    # Names of Java or of OpenSSL; empty: OpenSSL's default.
    cipher_suites: tuple[str, ...] = ()
    # Whether a client checks that the certificate is valid for the host name.
    check_host_name: bool = True
    # Whether a client checks the certificate at all.
    verify_peer: bool = True
    client_auth: ClientAuth = ClientAuth.NONE


class TlsOptionsError(ValueError):
    """An option that cannot be used."""

    def __init__(self, option: str, reason: str) -> None:
        """Create the error.

        Args:
            option: the configuration key without its prefix `ssl.`, for example
                "keystore.location".
            reason: the problem, and its remedy.
        """
        super().__init__(f"ssl.{option}: {reason}")
        self.option = option
        self.reason = reason
