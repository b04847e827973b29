"""Subjects of certificates as Java writes them; `tests/jvm/test_principals.py` asks Java itself."""

from __future__ import annotations

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from barnabas.runtime.tls.distinguished_name import MalformedCertificateError, name_of, subject_of
from certificates import shared_authority


@pytest.mark.parametrize(
    ("rfc4514", "java"),
    [
        ("CN=alice,OU=ops,O=Acme", "CN=alice,OU=ops,O=Acme"),
        ("CN=a\\,b", "CN=a\\,b"),
        ("CN=kafka1.example.com,DC=example,DC=com", "CN=kafka1.example.com,DC=example,DC=com"),
        ("CN=x+OU=y,O=z", "CN=x+OU=y,O=z"),
        ("CN=ü", "CN=ü"),
    ],
)
def test_the_last_part_of_a_subject_comes_first(rfc4514: str, java: str) -> None:
    assert subject_of(shared_authority().issue(rfc4514).der) == java


def test_types_without_a_short_name_are_numbers_with_the_encoded_value() -> None:
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "x"),
            x509.NameAttribute(NameOID.EMAIL_ADDRESS, "a@b.c"),
        ]
    )
    encoded = name.public_bytes()
    assert name_of(encoded[2:]) == "1.2.840.113549.1.9.1=#16056140622e63,CN=x"


def test_special_characters_and_outer_spaces_are_escaped() -> None:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, ' a"b;c#d=e\0 ')])
    assert name_of(name.public_bytes()[2:]) == 'CN=\\ a\\"b\\;c\\#d\\=e\\00\\ '


@pytest.mark.parametrize("data", [b"", b"\x30", b"\x30\x82", b"\x30\x05\0", b"\x30\x03\x30\x01\0"])
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises((MalformedCertificateError, ValueError)):
        subject_of(data)


def test_every_truncated_certificate_is_refused() -> None:
    certificate = shared_authority().issue().der
    for size in range(len(certificate)):
        with pytest.raises(ValueError, match=r"element|subject|values"):
            subject_of(certificate[:size])
