"""Effects of the options of TLS on handshakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.runtime.tls.contexts import client_context, openssl_name, server_context
from barnabas.runtime.tls.tls_options import (
    ClientAuth,
    KeySource,
    TlsOptions,
    TlsOptionsError,
    TrustSource,
)
from certificates import Authority, shared_authority
from unit.runtime.tls.handshaking import (
    client_options,
    keys_of,
    refusal,
    server_options,
    shake_options,
)


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_both_versions_are_spoken(version: str) -> None:
    server, client = shake_options(
        server_options(), client_options(enabled_protocols=("TLSv1.1", version))
    )
    assert server.cipher == client.cipher
    assert client.cipher[1] == version


def test_versions_without_an_intersection_fail() -> None:
    old = client_options(enabled_protocols=("TLSv1.2",))
    assert "PROTOCOL" in refusal(server_options(enabled_protocols=("TLSv1.3",)), old).upper()


@pytest.mark.parametrize("versions", [(), ("TLSv1.1",), ("TLSv1.4",)])
def test_a_configuration_without_a_usable_version_is_refused(versions: tuple[str, ...]) -> None:
    with pytest.raises(TlsOptionsError, match=r"ssl\.enabled\.protocols"):
        server_context(server_options(enabled_protocols=versions))


@pytest.mark.parametrize(
    ("suites", "version", "chosen"),
    [
        (
            ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",),
            "TLSv1.2",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
        ),
        (("ECDHE-ECDSA-AES256-GCM-SHA384",), "TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384"),
        (("TLS_AES_256_GCM_SHA384",), "TLSv1.3", "TLS_AES_256_GCM_SHA384"),
    ],
)
def test_suites_are_chosen_by_the_names_of_java_or_openssl(
    suites: tuple[str, ...], version: str, chosen: str
) -> None:
    server, _ = shake_options(server_options(cipher_suites=suites), client_options())
    assert server.cipher == (chosen, version)


def test_a_suite_of_tls_1_3_that_is_not_listed_is_refused() -> None:
    server = server_options(cipher_suites=("TLS_AES_128_GCM_SHA256",))
    assert "ssl.cipher.suites does not allow" in refusal(server, client_options())


def test_suites_of_both_versions_may_be_listed() -> None:
    suites = ("TLS_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256")
    old = client_options(enabled_protocols=("TLSv1.2",))
    server, _ = shake_options(server_options(cipher_suites=suites), old)
    assert server.cipher[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"
    server, _ = shake_options(server_options(cipher_suites=suites), client_options())
    assert server.cipher[0] == "TLS_AES_256_GCM_SHA384"


def test_an_unknown_suite_is_refused() -> None:
    with pytest.raises(TlsOptionsError, match="TLS_NO_WITH_SUCH is not a cipher suite"):
        server_context(server_options(cipher_suites=("TLS_NO_WITH_SUCH",)))


def test_suites_of_no_enabled_version_are_refused() -> None:
    options = server_options(
        cipher_suites=("TLS_AES_128_GCM_SHA256",), enabled_protocols=("TLSv1.2",)
    )
    with pytest.raises(TlsOptionsError, match=r"enabled\.protocols"):
        server_context(options)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256", "ECDHE-RSA-AES128-SHA256"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_suites_are_translated(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl


def test_a_server_needs_a_key() -> None:
    with pytest.raises(TlsOptionsError, match="a TLS listener needs a private key"):
        server_context(TlsOptions())


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_required_certificate_must_be_there_and_valid(version: str) -> None:
    server = server_options(client_auth=ClientAuth.REQUIRED)
    assert "PEER_DID_NOT_RETURN" in refusal(server, client_options(enabled_protocols=(version,)))
    own = shared_authority().issue("CN=alice", names=())
    shaken, _ = shake_options(
        server, client_options(keys=keys_of(own), enabled_protocols=(version,))
    )
    assert shaken.peer_certificate == own.der
    foreign = Authority("Foreign").issue("CN=mallory", names=())
    assert "certificate verify failed" in refusal(server, client_options(keys=keys_of(foreign)))


def test_a_requested_certificate_may_be_missing_but_not_invalid() -> None:
    server = server_options(client_auth=ClientAuth.REQUESTED)
    shaken, _ = shake_options(server, client_options())
    assert shaken.peer_certificate is None
    own = shared_authority().issue("CN=alice", names=())
    shaken, _ = shake_options(server, client_options(keys=keys_of(own)))
    assert shaken.peer_certificate == own.der
    foreign = Authority("Foreign").issue("CN=mallory", names=())
    assert "certificate verify failed" in refusal(server, client_options(keys=keys_of(foreign)))


def test_a_certificate_is_not_asked_for_without_client_auth() -> None:
    own = shared_authority().issue("CN=alice", names=())
    shaken, _ = shake_options(server_options(), client_options(keys=keys_of(own)))
    assert shaken.peer_certificate is None


@pytest.mark.parametrize(
    ("names", "host", "fails"),
    [
        (("broker.example",), "broker.example", False),
        (("broker.example",), "other.example", True),
        (("*.cluster.example",), "a.cluster.example", False),
        (("127.0.0.1",), "127.0.0.1", False),
        (("localhost",), "127.0.0.1", True),
    ],
)
def test_a_client_checks_the_host_name(names: tuple[str, ...], host: str, fails: bool) -> None:
    server = server_options(keys=keys_of(shared_authority().issue("CN=x", names=names)))
    unchecked = client_options(check_host_name=False)
    shake_options(server, unchecked, host)
    if fails:
        assert "mismatch" in refusal(server, client_options(), host)
    else:
        shake_options(server, client_options(), host)


def test_an_expired_certificate_is_refused() -> None:
    server = server_options(keys=keys_of(shared_authority().issue(days=-1)))
    assert "certificate has expired" in refusal(server, client_options())
    shake_options(server, client_options(verify_peer=False))


def test_a_revoked_certificate_is_refused(tmp_path: Path) -> None:
    revoked, good = shared_authority().issue(), shared_authority().issue()
    path = tmp_path / "revoked.pem"
    path.write_text(shared_authority().revoke(revoked))
    client = client_options(
        trust=TrustSource(certificates=shared_authority().pem, revoked_location=str(path))
    )
    shake_options(server_options(keys=keys_of(good)), client)
    assert "certificate revoked" in refusal(server_options(keys=keys_of(revoked)), client)


def test_a_list_of_revoked_certificates_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "revoked.pem"
    client = client_options(trust=TrustSource(revoked_location=str(path)))
    with pytest.raises(TlsOptionsError, match=r"ssl\.crl\.location: .*No such file"):
        client_context(client)
    path.write_text("no list")
    with pytest.raises(TlsOptionsError, match=r"ssl\.crl\.location: .*cannot be read"):
        client_context(client)


def test_a_trusted_certificate_need_not_be_a_root() -> None:
    own = shared_authority().issue()
    client = client_options(trust=TrustSource(certificates=own.pem))
    shake_options(server_options(keys=keys_of(own)), client)


def test_a_client_needs_no_key() -> None:
    assert client_context(client_options()).own_certificate is None
    own = shared_authority().issue()
    source = KeySource(key=own.key_pem(), certificate_chain=own.chain_pem)
    assert client_context(client_options(keys=source)).own_certificate == own.der
