"""OAUTHBEARER tokens on Barnabas and Apache Kafka, and clients that get tokens."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import subprocess
import time
import urllib.parse
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import jwt
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from kafka import KafkaAdminClient
from kafka.net.sasl.oauth import AbstractTokenProvider

import barnabas
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.sasl.jaas import OAUTHBEARER_MODULE
from barnabas.sasl.oauthbearer import ACKNOWLEDGMENT, bearer_message
from barnabas.sasl.token_claims import make_unsecured
from barnabas.server.configs.oauth_settings import VALIDATOR
from conformance.kafkajs import run_kafkajs
from conformance.raw_client import RawClient
from conformance.sasl_brokers import LISTENER, SHORT_LISTENER, SaslBarnabas, SaslKafka
from jvm.java import QUICK, TIMEOUT_S, java_command
from jvm.tool_host import TOOLS
from server_in_thread import ServerInThread
from waiting import eventually

Broker = SaslBarnabas | SaslKafka
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
UNKNOWN_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
# The issuer publishes this key later.
NEXT_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ISSUER, AUDIENCE = "https://issuer.example", "kafka"


def rsa_keys(**keys: rsa.RSAPrivateKey) -> list[dict[str, Any]]:
    return [
        {
            **json.loads(RSAAlgorithm.to_jwk(key.public_key())),
            "kid": name,
            "use": "sig",
            "alg": "RS256",
        }
        for name, key in keys.items()
    ]


def key_set() -> str:
    ec_key = json.loads(ECAlgorithm.to_jwk(EC_KEY.public_key()))
    ec_key |= {"kid": "ec", "use": "sig", "alg": "ES256"}
    return json.dumps({"keys": [*rsa_keys(rsa=KEY), ec_key]})


class Publishing(BaseHTTPRequestHandler):
    """The keys of the issuer over HTTP."""

    published: ClassVar[str] = ""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(self.published.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def token(key: Any = KEY, kid: str = "rsa", algorithm: str = "RS256", **claims: Any) -> str:
    now_s = int(time.time())
    made = {
        "sub": "alice",
        "iss": ISSUER,
        "aud": AUDIENCE,
        "iat": now_s,
        "exp": now_s + 300,
        **claims,
    }
    payload = {name: value for name, value in made.items() if value is not None}
    return jwt.encode(payload, key, algorithm, {"kid": kid})


@pytest.fixture(scope="module")
def keys_url() -> Iterator[str]:
    """URL of the keys of the issuer."""
    with ServerInThread(Publishing) as server:
        yield f"{server.url}/keys"


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, keys_url: str
) -> Iterator[Broker]:
    """A broker with two listeners, one with keys from a server and one with keys from a file."""
    Publishing.published = key_set()
    directory = tmp_path_factory.mktemp(request.param)
    file = directory / "keys.json"
    file.write_text(key_set())
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
    }
    for name, url in ((LISTENER, keys_url), (SHORT_LISTENER, file.as_uri())):
        prefix = f"listener.name.{name.lower()}.oauthbearer"
        settings[f"{prefix}.sasl.jaas.config"] = f"{OAUTHBEARER_MODULE} required;"
        settings[f"{prefix}.sasl.server.callback.handler.class"] = VALIDATOR
        settings[f"{prefix}.sasl.oauthbearer.jwks.endpoint.url"] = url
        settings[f"{prefix}.sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"] = "500"
    if request.param == "kafka":
        allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys_url},{file.as_uri()}"
        allowed_file = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={file}"
        made: Broker = SaslKafka(directory, settings, (*QUICK, allowed, allowed_file))
    else:
        made = SaslBarnabas(directory, settings)
    made.start()
    try:
        yield made
    finally:
        made.kill()


def authenticate(client: RawClient, message: bytes) -> Any:
    """Log in, and return the last response."""
    client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    done: Any = client.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
    if done.error_code == 0 and done.auth_bytes:
        assert json.loads(done.auth_bytes) == {"status": "invalid_token"}
        done = client.ask(SaslAuthenticateRequest(auth_bytes=ACKNOWLEDGMENT), 2)
        assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert json.loads(done.error_message) == {"status": "invalid_token"}
    return done


def accepts(broker: Broker, text: str, bootstrap: str = "") -> bool:
    client = RawClient(bootstrap or broker.sasl_bootstrap)
    done = authenticate(client, bearer_message(text, {}))
    client.close()
    return bool(done.error_code == 0)


def now_s() -> int:
    return int(time.time())


# Tokens are made when a test begins: the tests before it may take minutes.
@pytest.mark.parametrize(
    "make",
    [
        token,
        lambda: token(EC_KEY, "ec", "ES256"),
        lambda: token(aud=["x", AUDIENCE]),
        lambda: token(exp=now_s() + 3600, nbf=now_s() - 5),
        lambda: token(scope="a"),
        lambda: token(scope=["a", "b"]),
        lambda: token(scope=5),
    ],
)
def test_a_valid_token_is_accepted(broker: Broker, make: Callable[[], str]) -> None:
    assert accepts(broker, make())


def test_keys_may_be_in_a_file(broker: Broker) -> None:
    assert accepts(broker, token(), broker.short_bootstrap)
    assert not accepts(broker, token(UNKNOWN_KEY), broker.short_bootstrap)


def test_the_keys_of_the_issuer_may_change(broker: Broker) -> None:
    published = json.loads(key_set())["keys"] + rsa_keys(next=NEXT_KEY)
    Publishing.published = json.dumps({"keys": published})
    # A token with an unknown key makes the broker load the keys.
    eventually(lambda: accepts(broker, token(NEXT_KEY, "next")), pause_s=0.1)
    assert accepts(broker, token())


@pytest.mark.parametrize(
    "make",
    [
        lambda: token(UNKNOWN_KEY),
        lambda: token(UNKNOWN_KEY, "strange"),
        lambda: token(EC_KEY, "rsa", "ES256"),
        lambda: token(exp=now_s() - 60),
        lambda: token(exp=None),
        lambda: token(iat=None),
        lambda: token(nbf=now_s() + 3600),
        lambda: token(aud="x"),
        lambda: token(aud=None),
        lambda: token(iss="x"),
        lambda: token(iss=None),
        lambda: token(sub=None),
        lambda: token(sub=" "),
        lambda: make_unsecured(
            {"sub": "alice", "iss": ISSUER, "aud": AUDIENCE, "exp": now_s() + 300}
        ),
        lambda: "a.b.c",
        lambda: "opaque",
    ],
)
def test_an_invalid_token_is_rejected(broker: Broker, make: Callable[[], str]) -> None:
    assert not accepts(broker, make())


@pytest.mark.parametrize(
    "make",
    [
        lambda: b"",
        lambda: b"n,,",
        lambda: b"n,,\x01key=value\x01\x01",
        lambda: b"n,a=bob,\x01auth=Bearer " + token().encode() + b"\x01\x01",
    ],
)
def test_a_malformed_message_is_refused(broker: Broker, make: Callable[[], bytes]) -> None:
    client = RawClient(broker.sasl_bootstrap)
    done = authenticate(client, make())
    assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert client.is_closed_by_broker()
    client.close()


def test_another_scheme_than_bearer_is_refused(broker: Broker) -> None:
    client = RawClient(broker.sasl_bootstrap)
    client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    client.send(SaslAuthenticateRequest(auth_bytes=b"n,,\x01auth=Basic x\x01\x01"), 2)
    if isinstance(broker, SaslBarnabas):
        done: Any = client.receive(SaslAuthenticateRequest, 2)
        assert done.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    # Kafka closes the connection without a response.
    assert client.is_closed_by_broker()
    client.close()


def test_a_session_ends_with_the_token(broker: Broker) -> None:
    client = RawClient(broker.sasl_bootstrap)
    done = authenticate(client, bearer_message(token(exp=now_s() + 5), {"traceId": "x"}))
    assert 0 < done.session_lifetime_ms <= 5000
    time.sleep(done.session_lifetime_ms / 1000 + 0.3)
    client.send(MetadataRequest(topics=[]), 1)
    assert client.is_closed_by_broker()
    client.close()


# -- clients --------------------------------------------------------------------------------------

KEYS = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"}


class Issuing(BaseHTTPRequestHandler):
    """A server that issues tokens to one client."""

    requests: ClassVar[list[dict[str, str]]] = []
    lifetime_s = 300

    def do_POST(self) -> None:
        form = dict(
            urllib.parse.parse_qsl(self.rfile.read(int(self.headers["Content-Length"])).decode())
        )
        self.requests.append(form)
        expected = "Basic " + base64.b64encode(b"the-client:the-secret").decode()
        is_known = self.headers["Authorization"] == expected
        expiry_s = int(time.time()) + self.lifetime_s
        response = {
            "access_token": token(sub="service", exp=expiry_s),
            "expires_in": self.lifetime_s,
            "token_type": "Bearer",
        }
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(response).encode() if is_known else b"{}")

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def issuer() -> Iterator[str]:
    """URL of a server that issues tokens."""
    Issuing.requests, Issuing.lifetime_s = [], 300
    with ServerInThread(Issuing) as server:
        yield f"{server.url}/token"


class Provider:
    """A token provider with the interface of kafka-python and aiokafka."""

    def token(self) -> str:
        return token()


@pytest.mark.parametrize("provider", [token, Provider()])
def test_our_client_calls_the_token_provider_of_the_user(broker: Broker, provider: object) -> None:
    with barnabas.Admin(broker.sasl_bootstrap, sasl_oauth_token_provider=provider, **KEYS) as admin:
        assert admin.describe_cluster().brokers


def test_our_client_reports_a_rejected_token(broker: Broker) -> None:
    provider = lambda: token(aud="x")  # noqa: E731
    with (
        barnabas.Admin(broker.sasl_bootstrap, sasl_oauth_token_provider=provider, **KEYS) as admin,
        pytest.raises(barnabas.AuthenticationError, match="has refused the token"),
    ):
        admin.describe_cluster()


def test_our_client_gets_tokens_from_an_issuer(broker: Broker, issuer: str) -> None:
    Issuing.lifetime_s = 5
    keys = {
        "sasl_oauthbearer_token_endpoint_url": issuer,
        "sasl_oauthbearer_client_id": "the-client",
        "sasl_oauthbearer_client_secret": "the-secret",
        "sasl_oauthbearer_scope": "a b",
        "sasl_oauthbearer_extensions": "traceId=x",
        **KEYS,
    }
    with barnabas.Admin(broker.sasl_bootstrap, **keys) as admin:
        for _ in range(14):
            assert admin.describe_cluster().brokers
            time.sleep(0.5)
    assert Issuing.requests[0] == {"grant_type": "client_credentials", "scope": "a b"}
    assert 2 <= len(Issuing.requests) <= 7, "a token is used for most of its time"


def test_our_client_reads_a_token_from_a_file(broker: Broker, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(token(exp=now_s() + 5))
    keys = {"sasl_oauthbearer_token_endpoint_url": path.as_uri(), **KEYS}
    with barnabas.Admin(broker.sasl_bootstrap, **keys) as admin:
        assert admin.describe_cluster().brokers
        # The file is replaced before the first token has expired.
        path.write_text(token())
        for _ in range(11):
            assert admin.describe_cluster().brokers
            time.sleep(0.5)


def test_our_client_reports_the_response_of_the_issuer(broker: Broker, issuer: str) -> None:
    keys = {
        "sasl_oauthbearer_token_endpoint_url": issuer,
        "sasl_oauthbearer_client_id": "the-client",
        "sasl_oauthbearer_client_secret": "wrong",
        "default_api_timeout_ms": 5000,
        **KEYS,
    }
    with (
        barnabas.Admin(broker.sasl_bootstrap, **keys) as admin,
        pytest.raises(barnabas.ClientError, match="answered with status 401") as caught,
    ):
        admin.describe_cluster()
    assert "wrong" not in str(caught.value)


def test_librdkafka_logs_in(broker: Broker) -> None:
    client = AdminClient(
        {
            "bootstrap.servers": broker.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token(), time.time() + 300),
            "logger": logging.getLogger("librdkafka"),
        }
    )

    def is_logged_in() -> bool:
        client.poll(0.1)
        try:
            return bool(client.list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    eventually(is_logged_in)


def test_aiokafka_logs_in(broker: Broker) -> None:
    class Tokens(AioTokenProvider):
        async def token(self) -> str:
            return token()

    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.sasl_bootstrap,
            sasl_oauth_token_provider=Tokens(),
            **KEYS,
        )
        await producer.start()
        await producer.stop()

    asyncio.run(run())


def test_kafka_python_logs_in(broker: Broker) -> None:
    class Tokens(AbstractTokenProvider):
        def token(self) -> str:
            return token()

    client = KafkaAdminClient(
        bootstrap_servers=broker.sasl_bootstrap, sasl_oauth_token_provider=Tokens(), **KEYS
    )
    assert client.describe_cluster()
    client.close()


def test_kafkajs_logs_in(broker: Broker) -> None:
    with barnabas.Client(broker.bootstrap) as client:
        client.create_topic("kafkajs", 1, 1)
    done = run_kafkajs(
        bootstrap=broker.sasl_bootstrap, topic="kafkajs", mechanism="OAUTHBEARER", token=token()
    )
    assert done == {"value": "kafkajs"}


def test_java_gets_tokens_from_an_issuer(broker: Broker, issuer: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "security.protocol=SASL_PLAINTEXT\n"
        "sasl.mechanism=OAUTHBEARER\n"
        f"sasl.jaas.config={OAUTHBEARER_MODULE} required;\n"
        "sasl.login.callback.handler.class="
        "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url={issuer}\n"
        "sasl.oauthbearer.client.credentials.client.id=the-client\n"
        "sasl.oauthbearer.client.credentials.client.secret=the-secret\n"
    )
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer}"
    words = ("--bootstrap-server", broker.sasl_bootstrap, "--command-config", str(file), "--list")
    done = subprocess.run(
        [*java_command("kafka-tools", machine=(*QUICK, allowed)), f"{TOOLS}TopicCommand", *words],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert Issuing.requests[0]["grant_type"] == "client_credentials"


def test_tokens_without_a_signature_are_for_development(tmp_path: Path) -> None:
    """Our client makes the same unsecured tokens as Kafka's client."""
    jaas = f'{OAUTHBEARER_MODULE} required unsecuredLoginStringClaim_sub="alice";'
    prefix = f"listener.name.{LISTENER.lower()}.oauthbearer"
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{prefix}.sasl.jaas.config": jaas.replace(";", ' unsecuredValidatorScopeClaimName="s";'),
        f"listener.name.{SHORT_LISTENER.lower()}.oauthbearer.sasl.jaas.config": jaas.replace(
            ";", ' unsecuredValidatorScopeClaimName="s";'
        ),
    }
    for made in (SaslBarnabas(tmp_path / "b", settings), SaslKafka(tmp_path / "k", settings)):
        made.start()
        try:
            with barnabas.Admin(made.sasl_bootstrap, sasl_jaas_config=jaas, **KEYS) as admin:
                assert admin.describe_cluster().brokers
        finally:
            made.kill()
