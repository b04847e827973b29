"""Names of cipher suites: Java's and the standard's on one side, OpenSSL's on the other.

Python's `ssl` selects the suites of TLS 1.2 only. A restriction of the suites of TLS 1.3 is
therefore checked after the handshake.
"""

from __future__ import annotations

import ssl

import msgspec

from barnabas.runtime.tls.tls_options import TlsOptionsError

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
