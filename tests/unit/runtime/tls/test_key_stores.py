"""Key stores and trust stores in all their forms, and what errors say about unusable ones."""

from __future__ import annotations

import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.runtime.tls.key_stores import load_own_key, load_trusted, normal_pem
from barnabas.runtime.tls.tls_options import KeySource, TlsOptionsError, TrustSource
from certificates import Authority, Certificate, shared_authority

OWN = shared_authority().issue()


def server() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)


def client() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def in_one_line(pem: str) -> str:
    """As it stands in many properties files."""
    return pem.replace("\n", " ")


def pem_file(folder: Path) -> KeySource:
    return KeySource(location=str(OWN.write_pem(folder / "own.pem")), type="PEM")


def encrypted_pem_file(folder: Path) -> KeySource:
    path = OWN.write_pem(folder / "own.pem", "secret")
    return KeySource(location=str(path), key_password="secret")


def pkcs12_file(folder: Path) -> KeySource:
    path = folder / "own.p12"
    path.write_bytes(OWN.pkcs12("secret"))
    return KeySource(location=str(path), type="PKCS12", password="secret")


def pkcs12_file_named_jks(folder: Path) -> KeySource:
    """What `keytool` writes today when it is not told a type."""
    path = folder / "own.jks"
    path.write_bytes(OWN.pkcs12("secret"))
    return KeySource(location=str(path), type="JKS", password="secret", key_password="secret")


def text(_: Path) -> KeySource:
    return KeySource(key=OWN.key_pem(), certificate_chain=OWN.chain_pem)


def text_in_one_line(_: Path) -> KeySource:
    return KeySource(
        key=in_one_line(OWN.key_pem("secret")),
        certificate_chain=in_one_line(OWN.chain_pem),
        key_password="secret",
    )


def two_files(folder: Path) -> KeySource:
    (folder / "own.key").write_text(OWN.key_pem())
    (folder / "own.crt").write_text(OWN.chain_pem)
    return KeySource(
        certificate_location=str(folder / "own.crt"), key_location=str(folder / "own.key")
    )


@pytest.mark.parametrize(
    "make",
    [
        pem_file,
        encrypted_pem_file,
        pkcs12_file,
        pkcs12_file_named_jks,
        text,
        text_in_one_line,
        two_files,
    ],
)
def test_a_key_is_loaded_from_each_form(tmp_path: Path, make: Callable[[Path], KeySource]) -> None:
    assert load_own_key(server(), make(tmp_path)) == OWN.der


def test_no_source_is_no_key() -> None:
    assert load_own_key(client(), KeySource()) is None


def own_pem(own: Certificate, folder: Path, password: str | None = None) -> str:
    return str(own.write_pem(folder / "own.pem", password))


def test_an_encrypted_key_needs_its_password(tmp_path: Path) -> None:
    path = own_pem(OWN, tmp_path, "secret")
    with pytest.raises(TlsOptionsError, match=r"ssl\.key\.password: missing"):
        load_own_key(server(), KeySource(location=path))
    with pytest.raises(TlsOptionsError, match=r"check ssl\.key\.password"):
        load_own_key(server(), KeySource(location=path, key_password="wrong"))


def test_a_wrong_password_of_a_store_is_named(tmp_path: Path) -> None:
    path = tmp_path / "own.p12"
    path.write_bytes(OWN.pkcs12("secret"))
    with pytest.raises(TlsOptionsError, match=r"check ssl\.keystore\.password"):
        load_own_key(server(), KeySource(location=str(path), password="wrong"))
    trust = tmp_path / "trust.p12"
    trust.write_bytes(shared_authority().pkcs12("secret"))
    with pytest.raises(TlsOptionsError, match=r"check ssl\.truststore\.password"):
        load_trusted(client(), TrustSource(location=str(trust)))


def test_a_key_of_another_certificate_is_refused() -> None:
    other = shared_authority().issue()
    source = KeySource(key=other.key_pem(), certificate_chain=OWN.chain_pem)
    with pytest.raises(TlsOptionsError, match="does not belong to the first certificate"):
        load_own_key(server(), source)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (KeySource(location="/nowhere/own.pem"), "No such file"),
        (KeySource(key="x"), "keystore.certificate.chain: missing"),
        (KeySource(certificate_chain="x"), "keystore.key: missing"),
        (KeySource(key="x", certificate_chain=OWN.chain_pem), "no private key"),
        (KeySource(key=OWN.key_pem(), certificate_chain="x"), "no certificate"),
    ],
)
def test_the_error_names_a_missing_file_or_key(source: KeySource, reason: str) -> None:
    with pytest.raises(TlsOptionsError, match=reason):
        load_own_key(server(), source)


def test_a_type_that_contradicts_the_content_is_refused(tmp_path: Path) -> None:
    path = own_pem(OWN, tmp_path)
    with pytest.raises(TlsOptionsError, match=r"set ssl\.keystore\.type=PEM"):
        load_own_key(server(), KeySource(location=path, type="PKCS12"))
    binary = tmp_path / "own.p12"
    binary.write_bytes(OWN.pkcs12("secret"))
    with pytest.raises(TlsOptionsError, match="no PEM text"):
        load_own_key(server(), KeySource(location=str(binary), type="PEM"))
    with pytest.raises(TlsOptionsError, match="BKS is not one of"):
        load_own_key(server(), KeySource(location=str(binary), type="BKS"))


def trusted(source: TrustSource) -> list[bytes]:
    context = client()
    load_trusted(context, source)
    return context.get_ca_certs(binary_form=True)


def test_trusted_certificates_are_loaded_from_each_form(tmp_path: Path) -> None:
    authorities = [shared_authority(), Authority("Another")]
    pem = "".join(each.pem for each in authorities)
    expected = [ssl.PEM_cert_to_DER_cert(each.pem) for each in authorities]
    (tmp_path / "ca.pem").write_text("A comment\n" + pem)
    (tmp_path / "ca.p12").write_bytes(authorities[0].pkcs12("secret"))
    assert trusted(TrustSource(location=str(tmp_path / "ca.pem"))) == expected
    assert trusted(TrustSource(certificates=in_one_line(pem))) == expected
    store = TrustSource(location=str(tmp_path / "ca.p12"), type="PKCS12", password="secret")
    assert trusted(store) == expected[:1]


def test_a_trust_store_without_certificates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    path.write_text(OWN.key_pem())
    with pytest.raises(TlsOptionsError, match="no certificate in it"):
        load_trusted(client(), TrustSource(location=str(path)))


def test_the_certificates_of_the_system_are_trusted_without_a_trust_store() -> None:
    context = client()
    load_trusted(context, TrustSource())
    assert context.cert_store_stats() == ssl.create_default_context().cert_store_stats()


def test_private_keys_are_never_written_to_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    load_own_key(server(), text(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_a_text_with_many_beginnings_and_no_end_is_read_in_linear_time() -> None:
    assert normal_pem("-----BEGIN CERTIFICATE-----" * 200_000) == ""


def test_stores_that_keytool_writes_are_read(tmp_path: Path) -> None:
    if subprocess.run(["which", "keytool"], capture_output=True, check=False).returncode:
        pytest.skip("no Java here")
    path = tmp_path / "java.jks"
    words = (
        "keytool -genkeypair -alias own -keyalg EC -dname CN=java -validity 10 "
        f"-keystore {path} -storepass secret"
    )
    subprocess.run(words.split(), check=True, capture_output=True)
    source = KeySource(location=str(path), type="JKS", password="secret", key_password="secret")
    assert load_own_key(server(), source) is not None
    trust = tmp_path / "trust.jks"
    (tmp_path / "ca.pem").write_text(shared_authority().pem)
    words = (
        f"keytool -importcert -noprompt -alias ca -file {tmp_path}/ca.pem "
        f"-keystore {trust} -storepass secret"
    )
    subprocess.run(words.split(), check=True, capture_output=True)
    found = trusted(TrustSource(location=str(trust), password="secret"))
    assert found == [ssl.PEM_cert_to_DER_cert(shared_authority().pem)]
