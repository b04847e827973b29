"""A TLS handshake in memory, without streams."""

from __future__ import annotations

import ssl

from barnabas.runtime.tls.contexts import TlsContext, client_context, server_context
from barnabas.runtime.tls.tls_options import KeySource, TlsOptions, TrustSource
from barnabas.runtime.tls.tls_session import TlsSession
from certificates import Certificate, shared_authority

TRUST = TrustSource(certificates=shared_authority().pem)


def keys_of(own: Certificate) -> KeySource:
    return KeySource(key=own.key_pem(), certificate_chain=own.chain_pem)


def server_options(**options: object) -> TlsOptions:
    given = {"keys": keys_of(shared_authority().issue()), "trust": TRUST, **options}
    return TlsOptions(**given)  # type: ignore[arg-type]


def client_options(**options: object) -> TlsOptions:
    return TlsOptions(**{"trust": TRUST, **options})  # type: ignore[arg-type]


def shake(
    server: TlsContext, client: TlsContext, host: str = "localhost"
) -> tuple[TlsSession, TlsSession]:
    """Both sessions after the handshake.

    Raises:
        ssl.SSLError: one side refused.
    """
    ends = TlsSession(server, None), TlsSession(client, host)
    for _ in range(6):
        for end, other in (ends, reversed(ends)):
            end.step()
            sent = end.take_output()
            other.receive_for_handshake(memoryview(sent))
    return ends


def shake_options(
    server: TlsOptions, client: TlsOptions, host: str = "localhost"
) -> tuple[TlsSession, TlsSession]:
    return shake(server_context(server), client_context(client), host)


def refusal(server: TlsOptions, client: TlsOptions, host: str = "localhost") -> str:
    """Why the handshake fails."""
    try:
        shake_options(server, client, host)
    except (ssl.SSLError, OSError) as error:
        return str(error)
    raise AssertionError("the handshake succeeded")
