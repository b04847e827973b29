"""Rows of the table of troubles about certificates and logins: cause, finding, recovery."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from certificates import Authority, Certificate, shared_authority
from conformance.secured_broker import SecuredBroker
from scenario.doctor import await_finding, await_recovery, run_doctor


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    secured = SecuredBroker(tmp_path_factory.mktemp("secured"))
    assert secured.init_result.returncode == 0, secured.init_result.stderr
    with secured:
        yield secured


class Client:
    """The properties file that doctor reads."""

    def __init__(self, path: Path, keys: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self._keys = keys
        monkeypatch.setenv("BARNABAS_CONFIG", str(path))
        self.use()

    def use(self, *without: str, **changed: str) -> None:
        """Write the file with changed keys, in which `_` stands for `.`."""
        keys = {**self._keys, **{key.replace("_", "."): text for key, text in changed.items()}}
        lines = [f"{key}={text}\n" for key, text in keys.items() if key not in without]
        self._path.write_text("".join(lines))


@pytest.fixture
def client(broker: SecuredBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    return Client(tmp_path / "client.properties", broker.keys("barnabas"), monkeypatch)


def present(broker: SecuredBroker, own: Certificate) -> None:
    """Restart the broker with another certificate."""
    broker.stop()
    own.write_pem(broker.files / "broker.pem")
    broker.start()


def test_wrong_password(broker: SecuredBroker, client: Client) -> None:
    client.use(sasl_password="not it")
    await_finding("wrong password", broker.with_password)
    client.use()
    await_recovery("wrong password", broker.with_password)


@pytest.mark.nightly
def test_mechanism_that_is_not_enabled(broker: SecuredBroker, client: Client) -> None:
    client.use(sasl_mechanism="PLAIN")
    await_finding("mechanism that is not enabled", broker.with_password)
    client.use()
    await_recovery("mechanism that is not enabled", broker.with_password)


def test_client_without_tls(broker: SecuredBroker, client: Client) -> None:
    client.use(security_protocol="SASL_PLAINTEXT")
    await_finding("client without TLS", broker.with_password)
    first, *_ = [f for f in run_doctor(broker.with_certificate) if f.verdict == "wrong"]
    assert "give the client security.protocol=SSL" in first.remedy
    client.use()
    await_recovery("client without TLS", broker.with_password)


@pytest.mark.nightly
def test_client_without_sasl(broker: SecuredBroker, client: Client) -> None:
    client.use("sasl.mechanism", "sasl.username", "sasl.password", security_protocol="SSL")
    await_finding("client without SASL", broker.with_password)
    client.use()
    await_recovery("client without SASL", broker.with_password)


def test_authority_that_the_client_does_not_trust(
    broker: SecuredBroker, client: Client, tmp_path: Path
) -> None:
    other = tmp_path / "other.pem"
    other.write_text(Authority("Another CA").pem)
    client.use(ssl_ca_location=str(other))
    first, *_ = await_finding("authority that the client does not trust", broker.with_password)
    assert "issued by CN=Barnabas development CA" in first.what
    client.use()
    await_recovery("authority that the client does not trust", broker.with_password)


def test_expired_certificate_and_certificate_for_another_host(
    broker: SecuredBroker, client: Client, tmp_path: Path
) -> None:
    before = (broker.files / "broker.pem").read_text()
    authority = shared_authority()
    trusted = tmp_path / "shared.pem"
    trusted.write_text(authority.pem)
    client.use(ssl_ca_location=str(trusted))
    properties = broker.files / "server.properties"
    present(broker, authority.issue("CN=broker-1", days=-2))
    await_finding("expired certificate", broker.with_password)
    assert any("listener SASL_SSL expired on" in f.what for f in run_doctor(properties))
    present(broker, authority.issue("CN=broker-1", ("kafka.example", "*.kafka.example")))
    await_finding("certificate for another host", broker.with_password)
    assert any("is not for localhost" in f.what for f in run_doctor(properties))
    present(broker, authority.issue("CN=broker-1", days=5))
    found = run_doctor(broker.with_password)
    assert [f.verdict for f in found if "expires in 4 days" in f.what] == ["note"]
    client.use()
    broker.stop()
    (broker.files / "broker.pem").write_text(before)
    broker.start()
    await_recovery("expired certificate", broker.with_password)
    await_recovery("certificate for another host", broker.with_password)


@pytest.mark.nightly
def test_key_of_another_certificate(tmp_path: Path) -> None:
    authority = shared_authority()
    store, file = tmp_path / "broker.pem", tmp_path / "server.properties"
    own = authority.issue()
    store.write_text(authority.issue().key_pem() + own.pem)
    file.write_text(
        f"listeners=SSL://127.0.0.1:0\nlog.dirs={tmp_path}/data\nssl.keystore.type=PEM\n"
        f"ssl.keystore.location={store}\n"
    )
    await_finding("key of another certificate", file)
    own.write_pem(store)
    assert not any("private key" in f.what for f in run_doctor(file))
