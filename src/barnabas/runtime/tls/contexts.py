"""SSL contexts from options."""

from __future__ import annotations

import ssl

import msgspec

from barnabas.runtime.tls.cipher_suites import CipherSuites, choose_suites
from barnabas.runtime.tls.key_stores import load_own_key, load_trusted
from barnabas.runtime.tls.tls_options import ClientAuth, TlsOptions, TlsOptionsError

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Versions that Java knows but does not open, either.
_TOO_OLD = ("SSLv3", "TLSv1", "TLSv1.1")
_VERIFY_MODES = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}


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
