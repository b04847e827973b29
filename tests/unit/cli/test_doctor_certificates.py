"""Doctor's checks of a certificate: its dates and names."""

from __future__ import annotations

import datetime as dt

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from barnabas.cli.admin.security_files import DevelopmentAuthority
from barnabas.cli.doctor.certificates import examine_certificate, lacks_name
from barnabas.cli.doctor.diagnosis import Diagnosis
from certificates import shared_authority

NAMES = ("broker.example", "*.kafka.example", "10.0.0.7", "::1")


def findings(days_from_now: float = 0, hosts: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    """Return the verdicts and texts for a certificate of 30 days at another time."""
    diagnosis = Diagnosis()
    now = dt.datetime.now(dt.UTC) + dt.timedelta(days=days_from_now)
    der = shared_authority().issue(names=NAMES, days=30).der
    is_good = examine_certificate(der, "broker", hosts, diagnosis, now)
    assert is_good is diagnosis.is_healthy
    return [(each.verdict, each.what) for each in diagnosis.findings]


def test_a_valid_certificate_has_no_finding() -> None:
    assert findings(hosts=("broker.example", "10.0.0.7")) == []


@pytest.mark.parametrize(
    ("days", "verdict", "words"),
    [
        (31, "wrong", "expired on"),
        (-60, "wrong", "is not valid before"),
        (20, "note", "expires in 9 days"),
    ],
)
def test_dates_are_checked(days: int, verdict: str, words: str) -> None:
    [(found, what)] = findings(days)
    assert (found, words in what) == (verdict, True)


@pytest.mark.parametrize(
    ("host", "lacks"),
    [
        ("broker.example", False),
        ("BROKER.example.", False),
        ("a.kafka.example", False),
        ("a.b.kafka.example", True),
        ("kafka.example", True),
        ("other.example", True),
        ("10.0.0.7", False),
        ("10.0.0.8", True),
        ("::1", False),
        ("0:0:0:0:0:0:0:1", False),
        ("localhost", True),
    ],
)
def test_names_are_compared_as_clients_compare_them(host: str, lacks: bool) -> None:
    certificate = shared_authority().issue(names=NAMES).certificate
    assert lacks_name(certificate, host) is lacks
    assert bool(findings(hosts=(host,))) is lacks


def test_a_certificate_without_names_is_for_no_host() -> None:
    assert lacks_name(shared_authority().issue(names=()).certificate, "localhost")


def test_the_development_authority_issues_for_servers_and_for_clients() -> None:
    authority = DevelopmentAuthority("CA", 30)
    own = x509.load_pem_x509_certificate(authority.own.certificate.encode())
    for hosts in (("localhost", "127.0.0.1"), ()):
        issued = authority.issue("subject", hosts)
        certificate = x509.load_pem_x509_certificate(issued.certificate.encode())
        certificate.verify_directly_issued_by(own)
        assert all(not lacks_name(certificate, host) for host in hosts)
        usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == bool(hosts)
