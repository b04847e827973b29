"""SSL contexts from options: certificates, TLS versions and cipher suites.

Python's `ssl` selects the suites of TLS 1.2 only. A restriction of the suites of TLS 1.3 is
therefore checked after the handshake.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import msgspec

from barnabas.runtime.packages import needed_for
from barnabas.runtime.tls.key_stores import load_own_key, load_trusted
from barnabas.runtime.tls.tls_error import describe_failure
from barnabas.runtime.tls.tls_options import ClientAuth, TlsOptions, TlsOptionsError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Versions that Java knows but does not open, either.
_TOO_OLD = ("SSLv3", "TLSv1", "TLSv1.1")
_VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


class CipherSuites(msgspec.Struct, frozen=True):
    """The allowed suites by protocol version."""

    # OpenSSL's names, joined by colons; None: OpenSSL's default, "": none.
    tls_1_2: str | None = None
    # None: all. Empty: none.
    tls_1_3: frozenset[str] | None = None

    def allows(self, cipher: tuple[str, str]) -> bool:
        """Return whether a negotiated suite (name, protocol version) is allowed."""
        name, version = cipher
        return self.tls_1_3 is None or version != "TLSv1.3" or name in self.tls_1_3


class TlsContext(msgspec.Struct, frozen=True):
    """Certificates and options for new connections."""

    ssl_context: ssl.SSLContext
    suites: CipherSuites = CipherSuites()
    # The own certificate in DER; None for a client without one.
    own_certificate: bytes | None = None


def server_context(options: TlsOptions) -> TlsContext:
    """Return the context of accepted connections.

    Raises:
        TlsOptionsError: an option cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    suites = _set_versions_and_suites(context, options)
    own = load_own_key(context, options.keys)
    if own is None:
        raise TlsOptionsError(
            "keystore.location", "missing: a TLS listener needs a private key and a certificate"
        )
    context.verify_mode = _VERIFY_MODES[options.client_auth]
    if options.client_auth is not ClientAuth.NONE:
        load_trusted(context, options.trust)
    # A ticket of TLS 1.3 is sent after the handshake. It would arrive at clients that write and
    # close at once, and unread bytes make their kernel drop the data that is still to be sent.
    context.num_tickets = 0
    return TlsContext(context, suites, own)


def client_context(options: TlsOptions) -> TlsContext:
    """Return the context of outgoing connections.

    Raises:
        TlsOptionsError: an option cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    suites = _set_versions_and_suites(context, options)
    own = load_own_key(context, options.keys)
    context.check_hostname = options.check_host_name and options.verify_peer
    if options.verify_peer:
        load_trusted(context, options.trust)
    else:
        context.verify_mode = ssl.CERT_NONE
    return TlsContext(context, suites, own)


def _set_versions_and_suites(context: ssl.SSLContext, options: TlsOptions) -> CipherSuites:
    versions = _versions(options.enabled_protocols)
    suites = choose_suites(options.cipher_suites)
    if suites.tls_1_2 == "":
        versions.discard(ssl.TLSVersion.TLSv1_2)
    elif suites.tls_1_2 is not None:
        context.set_ciphers(suites.tls_1_2)
    if suites.tls_1_3 is not None and not suites.tls_1_3:
        versions.discard(ssl.TLSVersion.TLSv1_3)
    if not versions:
        raise TlsOptionsError("cipher.suites", "no suite for any version in enabled.protocols")
    context.minimum_version = min(versions)
    context.maximum_version = max(versions)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # As in Java, a trusted certificate need not be a root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return suites


def _versions(names: tuple[str, ...]) -> set[ssl.TLSVersion]:
    for name in names:
        if name not in _VERSIONS and name not in _TOO_OLD:
            raise TlsOptionsError("enabled.protocols", f"{name} is not one of: TLSv1.2, TLSv1.3")
    versions = {_VERSIONS[name] for name in names if name in _VERSIONS}
    if not versions:
        raise TlsOptionsError("enabled.protocols", "neither TLSv1.2 nor TLSv1.3 is in it")
    return versions


# The suites of TLS 1.3 have the same names everywhere.
_TLS_1_3 = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
    "TLS_AES_128_CCM_SHA256",
    "TLS_AES_128_CCM_8_SHA256",
)
# The suites of TLS 1.3 that OpenSSL enables by default.
_TLS_1_3_DEFAULT = frozenset(_TLS_1_3[:3])


def choose_suites(names: tuple[str, ...]) -> CipherSuites:
    """Return the suites of a configuration; no names: all defaults.

    Raises:
        TlsOptionsError: OpenSSL does not know a name.
    """
    if not names:
        return CipherSuites()
    newer = frozenset(name for name in names if name in _TLS_1_3)
    older = [openssl_name(name) for name in names if name not in newer]
    for name, found in zip((name for name in names if name not in newer), older, strict=True):
        _check_known(name, found)
    return CipherSuites(":".join(older), None if newer >= _TLS_1_3_DEFAULT else newer)


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a suite of TLS 1.2, for example ECDHE-RSA-AES128-GCM-SHA256."""
    exchange, separator, cipher = name.partition("_WITH_")
    if not separator:
        return name
    exchange = exchange.removeprefix("TLS_").removeprefix("SSL_").replace("_", "-")
    cipher = cipher.replace("CHACHA20_POLY1305_SHA256", "CHACHA20_POLY1305")
    cipher = cipher.replace("AES_128_", "AES128_").replace("AES_256_", "AES256_")
    cipher = cipher.replace("_CBC_", "_").replace("_", "-")
    return cipher if exchange == "RSA" else f"{exchange}-{cipher}"


def _check_known(name: str, openssl: str) -> None:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)
    except ssl.SSLError:
        raise TlsOptionsError("cipher.suites", f"{name} is not a cipher suite of OpenSSL") from None


_OPTION = "keystore.location"
# Messages of a handshake: each side sends at most three times.
_ROUNDS = 4


def check_compatible(
    old: bytes | None, new: bytes | None, *, may_change_subject: bool, may_lose_names: bool
) -> None:
    """Check that a new certificate has the subject of the old one, and all its names (SslFactory).

    Args:
        old: the current certificate in DER.
        new: the certificate that replaces it, in DER.
        may_change_subject: whether the subject may differ (`ssl.allow.dn.changes`).
        may_lose_names: whether names may be missing (`ssl.allow.san.changes`).

    Raises:
        TlsOptionsError: the new certificate differs.
    """
    if old is None or new is None or (may_change_subject and may_lose_names):
        return
    # Imported here because it takes 30 ms.
    with needed_for("the change of a certificate"):
        from cryptography.x509 import load_der_x509_certificate

    before, after = load_der_x509_certificate(old), load_der_x509_certificate(new)
    if not may_change_subject and before.subject != after.subject:
        raise TlsOptionsError(
            _OPTION,
            f"the subject of the new certificate is {after.subject.rfc4514_string()}, that of the "
            f"current certificate is {before.subject.rfc4514_string()}; set "
            f"ssl.allow.dn.changes=true to allow this",
        )
    lost = [] if may_lose_names else sorted(_names(before) - _names(after))
    if lost:
        raise TlsOptionsError(
            _OPTION,
            f"the new certificate lacks names of the current certificate: {', '.join(lost)}; set "
            f"ssl.allow.san.changes=true to allow this",
        )


def check_mutual_trust(server: TlsContext, client: TlsContext) -> None:
    """Check with a handshake in memory that nodes with these contexts can connect to each other.

    The contexts must not be used after that, because host names are not checked.

    Raises:
        TlsOptionsError: one side does not trust the certificate of the other.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    # The certificate is for a host name that is not known here.
    client.ssl_context.check_hostname = False
    ends = [
        client.ssl_context.wrap_bio(to_client, to_server),
        server.ssl_context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(_ROUNDS):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError as error:
                reason = describe_failure(error)
                raise TlsOptionsError(
                    _OPTION, f"nodes with these stores cannot connect to each other: {reason}"
                ) from None


def _names(certificate: Certificate) -> set[str]:
    from cryptography.x509 import ExtensionNotFound, SubjectAlternativeName

    try:
        found = certificate.extensions.get_extension_for_class(SubjectAlternativeName)
    except ExtensionNotFound:
        return set()
    return {str(name.value) for name in found.value}
