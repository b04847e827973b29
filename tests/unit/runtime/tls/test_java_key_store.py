"""Java's own format of key stores, in files that `keytool -storetype JKS` of Java 17 wrote."""

from __future__ import annotations

import base64
import random
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from barnabas.runtime.tls.key_stores import (
    JavaKeyStoreError,
    WrongPasswordError,
    load_own_key,
    load_trusted,
    read_java_key_store,
    unprotect,
)
from barnabas.runtime.tls.tls_options import KeySource, TlsOptionsError, TrustSource

STORE_PASSWORD, KEY_PASSWORD, TRUST_PASSWORD = "störe-secret", "key-secret", "trust-secret"
# A private key (elliptic curve) and its certificate, CN=java.
OWN = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAQADb3duAAABohTQXOgAAAB/MH0wDgYKKwYBBAEqAhEBAQUABGtJycBAB8EZ8Em6M3nFQTGj"
    "JRdfy7n0WmEgB3YoWO9es0mP4S8fiNpVN5J64OQngn76lgwoA2y04mA1aGVwSTCepEADREbZ/Hg+bT4qUASciZhrlTtq"
    "vBzAwLhlHmj1xguAGNDKI+b1z3qcAgAAAAEABVguNTA5AAABOzCCATcwgd2gAwIBAgIIC/hwKXWjVcIwCgYIKoZIzj0E"
    "AwIwDzENMAsGA1UEAxMEamF2YTAgFw0yNjExMjUyMjI1MjlaGA8yMTI2MTEwMTIyMjUyOVowDzENMAsGA1UEAxMEamF2"
    "YTBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJ0A3N8BYN8++wNXES+SkXYe7Rbrsk1yZ3cxsDNvQvseGX56ws+cJAOL"
    "9fm/YK0yR1noa4S5I9iFSLG1jbkfoJujITAfMB0GA1UdDgQWBBTLUVGx4rSjeJbwNUQrPibDH3tTbDAKBggqhkjOPQQD"
    "AgNJADBGAiEA3tyQYP4vXN7s+A9DInctB24rtRbUyPoTUwdCy41bPXkCIQD1cwRvmBLRJ2FMAKSopfs9lB6+YccsXln1"
    "2nhHZF/1m4FPO1myO/BGUHhdmSQxMKx7nEuC"
)
# The certificate of an authority, CN=authority.
TRUSTED = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAgACY2EAAAGiFNBxAQAFWC41MDkAAAFWMIIBUjCB+aADAgECAgkAxhsezw7KjykwCgYIKoZI"
    "zj0EAwIwFDESMBAGA1UEAxMJYXV0aG9yaXR5MCAXDTI2MTEyNTIyMjUzMVoYDzIxMjYxMTAxMjIyNTMxWjAUMRIwEAYD"
    "VQQDEwlhdXRob3JpdHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASWZKQKWZbskl3pC+WYp5M1TMzcK989qZ0A03+C"
    "P1lNK3uAN5m9DeQNj8XAaTAix+OLBMHfdf8wlNPZ1DtZeTrYozIwMDAdBgNVHQ4EFgQUbOKnge7MVwcFNTyzZ6c/z6sS"
    "icEwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAxCPU81zOKVS48Az9LSMdTWucractYnfxCm1juNU7"
    "KEECIHih0vglLe5zBEJ93k9VPHqdRWcUVT2LW2y25e6MvnAQ3VwuvvOe61wKzHW9+ugUWikYFTY="
)
# The same authority, with its private key.
AUTHORITY = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAQACY2EAAAGiFNBoEQAAAH8wfTAOBgorBgEEASoCEQEBBQAEa4t4vtWb0QD+haxr9KAwJeWE"
    "AXgeYfGIiT/peiBNYtDK+e0zT6r2f6YtIWYZS9bF56ZUB3PwflL3isiWjDyXzHjGtfWYTHepUH/QRqpUaCZaxT8JOYYy"
    "/XW9hik7ibXQuS5AtLgfXzUf6YTZAAAAAQAFWC41MDkAAAFWMIIBUjCB+aADAgECAgkAxhsezw7KjykwCgYIKoZIzj0E"
    "AwIwFDESMBAGA1UEAxMJYXV0aG9yaXR5MCAXDTI2MTEyNTIyMjUzMVoYDzIxMjYxMTAxMjIyNTMxWjAUMRIwEAYDVQQD"
    "EwlhdXRob3JpdHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASWZKQKWZbskl3pC+WYp5M1TMzcK989qZ0A03+CP1lN"
    "K3uAN5m9DeQNj8XAaTAix+OLBMHfdf8wlNPZ1DtZeTrYozIwMDAdBgNVHQ4EFgQUbOKnge7MVwcFNTyzZ6c/z6sSicEw"
    "DwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNIADBFAiEAxCPU81zOKVS48Az9LSMdTWucractYnfxCm1juNU7KEEC"
    "IHih0vglLe5zBEJ93k9VPHqdRWcUVT2LW2y25e6MvnAQU93la9gdVCtQdQc1O4FkUQtrumA="
)


def subject(der: bytes) -> str:
    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


def own_file(folder: Path) -> str:
    path = folder / "own.jks"
    path.write_bytes(OWN)
    return str(path)


def trust_file(folder: Path, content: bytes = TRUSTED) -> str:
    path = folder / "trust.jks"
    path.write_bytes(content)
    return str(path)


def test_a_private_key_and_its_certificate_are_read() -> None:
    store = read_java_key_store(OWN, STORE_PASSWORD)
    assert store.trusted == []
    (entry,) = store.keys
    key = serialization.load_der_private_key(unprotect(entry.protected, KEY_PASSWORD), None)
    certificate = x509.load_der_x509_certificate(entry.chain[0])
    assert certificate.public_key() == key.public_key()


def test_a_trusted_certificate_is_read() -> None:
    store = read_java_key_store(TRUSTED, TRUST_PASSWORD)
    assert store.keys == []
    assert [subject(each) for each in store.trusted] == ["CN=authority"]


def test_a_store_without_a_given_password_is_not_checked() -> None:
    assert read_java_key_store(TRUSTED, None) == read_java_key_store(TRUSTED, TRUST_PASSWORD)


def test_a_wrong_password_is_an_error() -> None:
    with pytest.raises(WrongPasswordError):
        read_java_key_store(OWN, "wrong")
    (entry,) = read_java_key_store(OWN, STORE_PASSWORD).keys
    with pytest.raises(WrongPasswordError):
        unprotect(entry.protected, STORE_PASSWORD)


def test_a_damaged_byte_is_an_error() -> None:
    for position in range(len(OWN)):
        damaged = bytearray(OWN)
        damaged[position] ^= 0x10
        with pytest.raises(JavaKeyStoreError):
            read_java_key_store(bytes(damaged), STORE_PASSWORD)


def test_damage_without_a_password_causes_no_other_error() -> None:
    rng = random.Random(17)
    for _ in range(3_000):
        damaged = bytearray(OWN[: rng.randint(0, len(OWN))])
        for _ in range(rng.randint(0, 3) if damaged else 0):
            damaged[rng.randrange(len(damaged))] = rng.choice([0, 0x7F, 0x80, 0xFF])
        try:
            store = read_java_key_store(bytes(damaged), None)
            for entry in store.keys:
                unprotect(entry.protected, KEY_PASSWORD)
        except JavaKeyStoreError:
            continue


def test_a_server_loads_its_key(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    source = KeySource(
        location=own_file(tmp_path),
        type="JKS",
        password=STORE_PASSWORD,
        key_password=KEY_PASSWORD,
    )
    own = load_own_key(context, source)
    assert own is not None
    assert subject(own) == "CN=java"


@pytest.mark.parametrize(
    ("store_password", "key_password", "named"),
    [
        ("wrong", KEY_PASSWORD, "check ssl.keystore.password"),
        (STORE_PASSWORD, "wrong", "check ssl.key.password"),
        (STORE_PASSWORD, None, "check ssl.key.password"),
        (None, None, "ssl.keystore.password: missing"),
    ],
)
def test_the_error_names_the_key_of_a_wrong_password(
    tmp_path: Path, store_password: str | None, key_password: str | None, named: str
) -> None:
    source = KeySource(
        location=own_file(tmp_path), password=store_password, key_password=key_password
    )
    with pytest.raises(TlsOptionsError, match=named):
        load_own_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), source)


def test_a_store_without_a_private_key_is_no_key_store(tmp_path: Path) -> None:
    source = KeySource(location=trust_file(tmp_path), password=TRUST_PASSWORD)
    with pytest.raises(TlsOptionsError, match="has no private key"):
        load_own_key(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), source)


@pytest.mark.parametrize(
    ("content", "password"),
    [(TRUSTED, TRUST_PASSWORD), (TRUSTED, None), (AUTHORITY, "secret1")],
    ids=["certificate", "without a password", "private key of an authority"],
)
def test_certificates_of_a_store_are_trusted(
    tmp_path: Path, content: bytes, password: str | None
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    location = trust_file(tmp_path, content)
    load_trusted(context, TrustSource(location=location, type="PKCS12", password=password))
    assert [subject(each) for each in context.get_ca_certs(binary_form=True)] == ["CN=authority"]


def test_a_wrong_password_of_a_trust_store_is_named(tmp_path: Path) -> None:
    source = TrustSource(location=trust_file(tmp_path), password="wrong")
    with pytest.raises(TlsOptionsError, match=r"check ssl\.truststore\.password"):
        load_trusted(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), source)
