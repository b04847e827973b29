"""Checks of a new key store that replaces another one (Kafka: SslFactory)."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

from barnabas.runtime.tls.tls_error import describe_failure
from barnabas.runtime.tls.tls_options import TlsOptionsError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

    from barnabas.runtime.tls.contexts import TlsContext

_OPTION = "keystore.location"
# Messages of a handshake: each side sends at most three times.
_ROUNDS = 4


def check_compatible(
    old: bytes | None, new: bytes | None, *, may_change_subject: bool, may_lose_names: bool
) -> None:
    """Check that a new certificate has the subject of the old one, and all its names.

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
