"""TLS listeners of a broker, and key stores that change while it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.metadata.configs_image import BROKER
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.alter_configs import (
    AlterableConfig as LegacyConfig,
    AlterConfigsRequest,
    AlterConfigsResource as LegacyResource,
)
from barnabas.protocol.messages.configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.protocol.messages.connection import ApiVersionsRequest
from barnabas.runtime.loop import Runtime
from barnabas.runtime.sockets import Sockets
from barnabas.runtime.tls.contexts import client_context
from barnabas.runtime.tls.handshakes import Handshakes
from barnabas.runtime.tls.tls_options import TlsOptions, TrustSource
from barnabas.runtime.tls.tls_sockets import TlsSockets
from barnabas.runtime.tls.tls_stream import TlsDependencies
from barnabas.server.listeners.listener_tls import end_of_certificate
from barnabas.server.metrics.node_metrics import certificate_families
from barnabas.settings.definition import ConfigError
from certificates import Authority, Certificate, shared_authority
from unit.runtime.tls.handshaking import keys_of
from unit.server.dispatch.sent_requests import describe
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

NAME = "broker"
LOCATION = "listener.name.secure.ssl.keystore.location"


def issue(authority: Authority | None = None, **options: object) -> Certificate:
    given = {"subject": "CN=broker", "names": (NAME,), **options}
    return (authority or shared_authority()).issue(**given)  # type: ignore[arg-type]


class SecureBroker:
    """A broker with a plain and a TLS listener, whose key store is a file."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.own = issue()
        self.path = self.own.write_pem(folder / "own.pem")
        self.broker = SimulatedBroker(
            **{
                "listeners": "PLAINTEXT://broker:9092,SECURE://broker:9093",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL",
                LOCATION: str(self.path),
                "listener.name.secure.ssl.keystore.type": "PEM",
                "listener.name.secure.ssl.truststore.certificates": shared_authority().pem,
                **settings,
            }
        )
        self.clients = 0

    def connect(self, own: Certificate | None = None) -> SimulatedClient:
        """A client with TLS that trusts all certificates of the tests."""
        self.clients += 1
        options = TlsOptions(
            **({} if own is None else {"keys": keys_of(own)}),
            trust=TrustSource(certificates=shared_authority().pem + FOREIGN.pem),
        )
        context = client_context(options)

        def wrap(runtime: Runtime) -> Sockets:
            handshakes = Handshakes(runtime.clock, runtime.timer, runtime.executor)
            dependencies = TlsDependencies(runtime.timer, handshakes)
            return TlsSockets(runtime.sockets, dependencies, lambda: context, lambda: context)

        return SimulatedClient(self.broker.world, f"client{self.clients}", 9093, wrap)

    def certificate(self) -> bytes | None:
        """The certificate that a new client gets."""
        return certificate_of(self.connect())

    def set(self, values: dict[str, str | None], name: str = "1") -> tuple[int, str | None]:
        """Change keys of a broker resource; error code and message."""
        configs = [
            AlterableConfig(name=key, config_operation=0 if value is not None else 1, value=value)
            for key, value in values.items()
        ]
        resource = AlterConfigsResource(resource_type=BROKER, resource_name=name, configs=configs)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        [response] = self.broker.ask(request, 1).responses
        return response.error_code, response.error_message

    def principal(self) -> str | None:
        """Name of the client of the newest connection."""
        assert self.broker.node.broker is not None
        listener = self.broker.node.broker.listeners[1]
        principal = listener.connections[-1].principal
        return None if principal is None else principal.name


FOREIGN = Authority("Foreign")


def certificate_of(client: SimulatedClient) -> bytes | None:
    stream = client.channel._stream
    assert stream is not None
    return stream.peer_certificate


def is_served(client: SimulatedClient) -> bool:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    return client.ask(request, 3).error_code == ErrorCode.NONE


def test_a_listener_with_tls_serves_beside_a_plain_one(tmp_path: Path) -> None:
    secure = SecureBroker(tmp_path)
    assert is_served(secure.broker.client)
    assert is_served(secure.connect())
    assert secure.certificate() == secure.own.der


def test_a_key_store_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"listener\.name\.secure\.ssl\.keystore\.location: /no"):
        SecureBroker(tmp_path, **{LOCATION: "/nowhere"})


def test_a_changed_file_at_the_same_path_is_loaded_without_closing_connections(
    tmp_path: Path,
) -> None:
    secure = SecureBroker(tmp_path)
    before = secure.connect()
    assert is_served(before)
    new = issue()
    new.write_pem(secure.path)
    assert secure.set({LOCATION: str(secure.path)}) == (ErrorCode.NONE, None)
    assert secure.certificate() == new.der
    # Once more, where the value is already the dynamic one.
    newer = issue()
    newer.write_pem(secure.path)
    assert secure.certificate() == new.der
    assert secure.set({LOCATION: str(secure.path)}) == (ErrorCode.NONE, None)
    assert secure.certificate() == newer.der
    assert is_served(before)
    assert certificate_of(before) == secure.own.der


def test_another_path_and_its_removal_take_effect(tmp_path: Path) -> None:
    secure = SecureBroker(tmp_path)
    new = issue()
    path = new.write_pem(tmp_path / "new.pem")
    assert secure.set({LOCATION: str(path)}) == (ErrorCode.NONE, None)
    assert secure.certificate() == new.der
    assert secure.set({LOCATION: None}) == (ErrorCode.NONE, None)
    assert secure.certificate() == secure.own.der


def test_a_change_survives_a_restart(tmp_path: Path) -> None:
    secure = SecureBroker(tmp_path)
    new = issue()
    path = new.write_pem(tmp_path / "new.pem")
    assert secure.set({LOCATION: str(path)}) == (ErrorCode.NONE, None)
    secure.broker.stop()
    secure.broker.restart()
    assert secure.certificate() == new.der


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda folder: folder / "nowhere.pem", "No such file"),
        (lambda folder: _written(folder, "rubbish"), "no PEM text in it"),
        (
            lambda folder: issue(subject="CN=other").write_pem(folder / "x.pem"),
            "the subject of the new certificate is CN=other",
        ),
        (
            lambda folder: issue(names=("elsewhere",)).write_pem(folder / "x.pem"),
            "lacks names of the current certificate: broker",
        ),
    ],
)
def test_a_key_store_that_does_not_fit_is_refused_and_the_old_one_stays(
    tmp_path: Path, make: Callable[[Path], Path], reason: str
) -> None:
    secure = SecureBroker(tmp_path)
    code, message = secure.set({LOCATION: str(make(tmp_path))})
    assert code == ErrorCode.INVALID_REQUEST
    assert reason in (message or "")
    assert secure.certificate() == secure.own.der


def _written(folder: Path, text: str) -> Path:
    path = folder / "x.p12"
    path.write_text(text)
    return path


def test_a_new_subject_can_be_allowed(tmp_path: Path) -> None:
    allowed = {"ssl.allow.dn.changes": "true", "ssl.allow.san.changes": "true"}
    secure = SecureBroker(tmp_path, **allowed)
    new = issue(subject="CN=other", names=(NAME, "more"))
    path = new.write_pem(tmp_path / "new.pem")
    assert secure.set({LOCATION: str(path)}) == (ErrorCode.NONE, None)
    assert secure.certificate() == new.der


def test_brokers_must_trust_each_other_after_a_change(tmp_path: Path) -> None:
    secure = SecureBroker(tmp_path, **{"inter.broker.listener.name": "SECURE"})
    path = issue(FOREIGN).write_pem(tmp_path / "foreign.pem")
    code, message = secure.set({LOCATION: str(path)})
    assert code == ErrorCode.INVALID_REQUEST
    assert "nodes with these stores cannot connect to each other" in (message or "")
    # Together with the trust store that fits, it is accepted.
    both = {
        LOCATION: str(path),
        "listener.name.secure.ssl.truststore.certificates": FOREIGN.pem,
    }
    assert secure.set(both) == (ErrorCode.NONE, None)


def test_a_legacy_request_that_removes_the_keys_is_checked_too(tmp_path: Path) -> None:
    secure = SecureBroker(tmp_path)
    new = issue()
    path = new.write_pem(tmp_path / "new.pem")
    assert secure.set({LOCATION: str(path)}) == (ErrorCode.NONE, None)
    secure.path.write_text("rubbish")
    resource = LegacyResource(
        resource_type=BROKER,
        resource_name="1",
        configs=[LegacyConfig(name="max.connections", value="100")],
    )
    request = AlterConfigsRequest(resources=[resource], validate_only=False)
    [response] = secure.broker.ask(request, 1).responses
    assert response.error_code == ErrorCode.INVALID_REQUEST
    assert secure.certificate() == new.der


def test_key_stores_cannot_be_set_for_all_brokers(tmp_path: Path) -> None:
    secure = SecureBroker(tmp_path)
    code, message = secure.set({LOCATION: "/x"}, "")
    assert code == ErrorCode.INVALID_REQUEST
    assert "can only be set on one broker" in (message or "")


def test_passwords_are_not_described(tmp_path: Path) -> None:
    secure = SecureBroker(tmp_path)
    name = "listener.name.secure.ssl.keystore.password"
    assert secure.set({name: "hush"}) == (ErrorCode.NONE, None)
    assert describe(secure.broker, BROKER, "1", name)[0] is None


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", "CN=alice,OU=ops"),
        ("RULE:^CN=(.*?),.*$/$1/U", "ALICE"),
    ],
)
def test_the_certificate_of_a_client_names_its_principal(
    tmp_path: Path, rules: str, name: str
) -> None:
    secure = SecureBroker(
        tmp_path,
        **{
            "listener.name.secure.ssl.client.auth": "requested",
            "ssl.principal.mapping.rules": rules,
        },
    )
    client = secure.connect(shared_authority().issue("CN=alice,OU=ops", names=()))
    assert is_served(client)
    assert secure.principal() == name
    assert is_served(secure.connect())
    assert secure.principal() == "ANONYMOUS"


def test_a_certificate_without_a_matching_rule_is_not_served(tmp_path: Path) -> None:
    secure = SecureBroker(
        tmp_path,
        **{
            "ssl.client.auth": "required",
            "listener.name.secure.ssl.principal.mapping.rules": "RULE:^OU=(.*)$/$1/",
        },
    )
    client = secure.connect(shared_authority().issue("CN=alice", names=()))
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    client.send(request, 3)
    assert secure.broker.world.run_until(lambda: bool(client.closed))


def test_the_end_of_a_certificate_is_a_metric_that_follows_a_new_certificate(
    tmp_path: Path,
) -> None:
    secure = SecureBroker(tmp_path)

    def ends() -> list[tuple[object, object]]:
        (family,) = certificate_families(secure.broker.node.shared.sockets.tls)
        return list(family.samples)

    before = ends()
    assert before == [((("listener", "SECURE"),), end_of_certificate(secure.own.der))]
    fresh = issue(days=400)
    fresh.write_pem(secure.path)
    assert secure.set({LOCATION: str(secure.path)}) == (ErrorCode.NONE, None)
    assert ends() == [((("listener", "SECURE"),), end_of_certificate(fresh.der))]
    assert ends() != before
