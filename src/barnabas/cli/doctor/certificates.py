"""Checks of certificates: their dates, the host names in them, and the client's trust."""

from __future__ import annotations

import datetime as dt
import ipaddress
import socket
import ssl
from typing import TYPE_CHECKING

import msgspec
from cryptography import x509

from barnabas.runtime.tls.contexts import client_context
from barnabas.runtime.tls.tls_options import TlsOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.cli.doctor.diagnosis import Diagnosis
    from barnabas.cli.doctor.probe import Address

_TIMEOUT_S = 1.0
# A certificate that expires within this time is reported.
_SOON = dt.timedelta(days=14)
# OpenSSL's numbers of the failures that concern the issuer: X509_V_ERR_...
_UNTRUSTED = (2, 18, 19, 20, 21)
_NEW = "issue a new certificate, write it over the old one, and restart"


def examine_certificate(
    der: bytes,
    owner: str,
    hosts: Iterable[str],
    diagnosis: Diagnosis,
    now: dt.datetime | None = None,
) -> bool:
    """Report a certificate that is not valid now, or does not have the host names.

    Args:
        der: The certificate.
        owner: Its owner, for messages.
        hosts: Names and addresses that clients connect to; none for a client's certificate.
        now: The time at which the certificate has to be valid; None for the present.

    Returns:
        Whether nothing is wrong.
    """
    certificate = x509.load_der_x509_certificate(der)
    now = now or dt.datetime.now(dt.UTC)
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    is_good = True
    if now > end:
        diagnosis.wrong(f"the certificate of {owner} expired on {end:%Y-%m-%d}", f"{_NEW} {owner}")
        is_good = False
    elif now < begin:
        diagnosis.wrong(
            f"the certificate of {owner} is not valid before {begin:%Y-%m-%d %H:%M} UTC",
            "set the clock of this machine by NTP; if it is right, wait, or issue a certificate "
            "that is valid now",
        )
        is_good = False
    elif end - now < _SOON:
        days = (end - now).days
        diagnosis.note(
            f"the certificate of {owner} expires in {days} days, on {end:%Y-%m-%d}",
            "issue a new certificate now, and write it over the old one",
        )
    for host in hosts:
        if lacks_name(certificate, host):
            names = ", ".join(_names(certificate)) or "no name"
            diagnosis.wrong(
                f"the certificate of {owner} is not for {host}: its subjectAltName has {names}",
                f"issue a certificate whose subjectAltName has {host}, or connect to a name that "
                f"it has",
            )
            is_good = False
    return is_good


def examine_peer_certificate(
    address: Address, options: TlsOptions | None, diagnosis: Diagnosis
) -> bool:
    """Examine the certificate that a broker presents.

    Args:
        address: Host and port of the broker.
        options: TLS options of the client; None for a client without TLS, whose trust is unknown.

    Returns:
        Whether nothing is wrong, as far as it can be told.
    """
    host, port = address
    owner = f"{host}:{port}"
    lenient = msgspec.structs.replace(options or TlsOptions(), verify_peer=False)
    try:
        chain = _presented(address, client_context(lenient).ssl_context)
    except OSError:
        # The client's own error says why.
        return True
    verifies = options is None or options.verify_peer
    checks_host = options is None or options.check_host_name
    hosts = [host] if verifies and checks_host else []
    if not examine_certificate(chain[0], owner, hosts, diagnosis):
        return False
    if options is None or not options.verify_peer:
        return True
    try:
        _presented(address, client_context(options).ssl_context)
    except ssl.SSLCertVerificationError as error:
        _report_distrust(owner, chain, error, diagnosis)
        return False
    except OSError:
        return True
    return True


def lacks_name(certificate: x509.Certificate, host: str) -> bool:
    """Return whether clients refuse the certificate for a host name or IP address."""
    names = _names(certificate)
    try:
        wanted = ipaddress.ip_address(host)
    except ValueError:
        return not any(_matches(name.lower(), host.lower().rstrip(".")) for name in names)
    return str(wanted) not in names


def _matches(name: str, host: str) -> bool:
    if not name.startswith("*."):
        return name == host
    # A wildcard stands for one label.
    return name[1:] == host[host.find(".") :] if "." in host else False


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    addresses = found.get_values_for_type(x509.IPAddress)
    return [*found.get_values_for_type(x509.DNSName), *map(str, addresses)]


def _presented(address: Address, context: ssl.SSLContext) -> list[bytes]:
    """Connect, and return the certificates of the peer in DER, its own one first.

    Raises:
        OSError: There is no connection, or the handshake fails.
    """
    with (
        socket.create_connection(address, _TIMEOUT_S) as plain,
        context.wrap_socket(plain, server_hostname=address[0]) as stream,
    ):
        own = stream.getpeercert(binary_form=True)
        if own is None:
            raise ssl.SSLError("the peer presents no certificate")
        # Public since Python 3.13; without it, only the own certificate is known.
        ask = getattr(stream, "get_unverified_chain", None)
        return [own] if ask is None else [bytes(each) for each in ask()]


def _report_distrust(
    owner: str, chain: list[bytes], error: ssl.SSLCertVerificationError, diagnosis: Diagnosis
) -> None:
    if error.verify_code not in _UNTRUSTED:
        diagnosis.wrong(
            f"the client refuses the certificate of {owner}: {error.verify_message}", _NEW
        )
        return
    issuer = x509.load_der_x509_certificate(chain[-1]).issuer.rfc4514_string()
    diagnosis.wrong(
        f"the client does not trust the certificate of {owner}, issued by {issuer}",
        "trust the authority of that name: ssl.ca.location=FILE.pem; if it is an intermediate "
        "authority, append its certificate to the broker's key store",
    )
