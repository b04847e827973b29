"""Failures of TLS, described in plain words for the operator and for users of clients."""

from __future__ import annotations

import errno
import ssl

# Content types of TLS records: alert, handshake.
_ALERT = 21
_HANDSHAKE = 22
_TLS_MAJOR_VERSION = 3
# Fatal alerts in a record of TLS 1.2: "protocol_version" for peers that do not speak TLS,
# "handshake_failure" for those that are refused before OpenSSL sees their message.
PROTOCOL_VERSION_ALERT = bytes([_ALERT, 3, 3, 0, 2, 2, 70])
HANDSHAKE_FAILURE_ALERT = bytes([_ALERT, 3, 3, 0, 2, 2, 40])

# OpenSSL's reason of a failure -> description.
_DESCRIPTIONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, but one is required",
    "NO_SHARED_CIPHER": "client and server have no cipher suite in common",
    "UNSUPPORTED_PROTOCOL": "client and server have no TLS version in common",
    "VERSION_TOO_LOW": "client and server have no TLS version in common",
    "NO_PROTOCOLS_AVAILABLE": "client and server have no TLS version in common",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer does not support the TLS versions of this side",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer does not trust the certificate of this side (unknown CA)",
    "TLSV1_ALERT_DECRYPT_ERROR": "the peer could not verify a signature of this side",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate of this side",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": (
        "the peer refused the handshake (no common cipher suite, or it requires a certificate)"
    ),
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer refused the certificate of this side",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer refused the certificate of this side",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the certificate of this side has expired",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the peer refused the type of this side's certificate",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS",
    "RECORD_LAYER_FAILURE": "the peer sent an invalid TLS record",
}
# Reasons for which the description also has the versions, or the key, of this side.
_VERSION_REASONS = frozenset({
    "NO_PROTOCOLS_AVAILABLE",
    "TLSV1_ALERT_PROTOCOL_VERSION",
    "UNSUPPORTED_PROTOCOL",
    "VERSION_TOO_LOW",
})  # fmt: skip
_SUITE_REASONS = frozenset({"NO_SHARED_CIPHER", "SSLV3_ALERT_HANDSHAKE_FAILURE"})


class TlsError(OSError):
    """A TLS failure, which ends its connection."""

    def __init__(
        self,
        description: str,
        *,
        alert: bytes = b"",
        is_permanent: bool = False,
        is_disconnect: bool = False,
    ) -> None:
        super().__init__(errno.EPROTO, description)
        self.description = description
        # Sent to the peer before the end, where OpenSSL has not done so.
        self.alert = alert
        # Whether another attempt would fail, too: certificates or options do not fit.
        self.is_permanent = is_permanent
        # Whether the connection ended during the handshake, without a TLS message that says why.
        self.is_disconnect = is_disconnect

    def __str__(self) -> str:
        return self.description


def describe_failure(error: BaseException, versions: str = "") -> TlsError:
    """Return the error with a description of OpenSSL's failure.

    Args:
        error: the failure.
        versions: the TLS versions of this side, for failures of a handshake.
    """
    if isinstance(error, TlsError):
        return error
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsError(
            f"the certificate of the peer is not valid: {error.verify_message}", is_permanent=True
        )
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "unknown error"
        words = reason.lower().replace("_", " ")
        description = _DESCRIPTIONS.get(reason, words)
        if versions and reason in _VERSION_REASONS:
            description += f"; this side has {versions}: check ssl.enabled.protocols on both sides"
        elif versions and reason in _SUITE_REASONS:
            description += f"; this side has {versions}: check ssl.cipher.suites on both sides"
        return TlsError(description, is_permanent=True)
    return TlsError(f"TLS failed: {error}")


def check_first_bytes(start: bytes) -> TlsError | None:
    """Return an error unless a client's first bytes can be the start of a TLS handshake."""
    if start[0] == _HANDSHAKE and start[1:2] in (b"", bytes([_TLS_MAJOR_VERSION])):
        return None
    if start[0] == 0:
        # The size of a Kafka request below 16 MiB starts with a zero byte.
        return TlsError(
            "the client does not speak TLS; it probably has security.protocol=PLAINTEXT",
            alert=PROTOCOL_VERSION_ALERT,
        )
    if start[:4] in (b"GET ", b"POST", b"HEAD", b"PUT "):
        return TlsError("the client speaks HTTP to a TLS listener", alert=PROTOCOL_VERSION_ALERT)
    return TlsError("the client does not speak TLS", alert=PROTOCOL_VERSION_ALERT)
