"""Signed tokens on a simulated broker: keys of the issuer, and the clients that may log in."""

from __future__ import annotations

import json
import logging
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.connection import SaslAuthenticateRequest, SaslHandshakeRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.sasl.jaas import OAUTHBEARER_MODULE
from barnabas.sasl.oauthbearer import ACKNOWLEDGMENT, INVALID_TOKEN, bearer_message
from barnabas.sasl.token_claims import make_unsecured
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.configs.oauth_settings import UNSECURED, VALIDATOR
from barnabas.server.process.node import Node
from barnabas.server.security.sasl.signed_tokens import parse_keys
from barnabas.settings.key import ConfigError
from unit.server.security_settings import PREFIX, sasl_settings
from unit.server.simulated_broker import SimulatedBroker, SimulatedClient

RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
ED_KEY = ed25519.Ed25519PrivateKey.generate()
KEYS = {
    "rsa": ("RS256", RSA_KEY, RSAAlgorithm.to_jwk(RSA_KEY.public_key())),
    "other": ("RS256", OTHER_RSA_KEY, RSAAlgorithm.to_jwk(OTHER_RSA_KEY.public_key())),
    "ec": ("ES256", EC_KEY, ECAlgorithm.to_jwk(EC_KEY.public_key())),
    "ed": ("EdDSA", ED_KEY, OKPAlgorithm.to_jwk(ED_KEY.public_key())),
}
PATH = "/keys.json"
OAUTH = f"{PREFIX}.oauthbearer"


def key_set(*names: str) -> bytes:
    """The public keys of these names, as an issuer publishes them."""
    return json.dumps(
        {"keys": [{**json.loads(KEYS[name][2]), "kid": name, "use": "sig"} for name in names]}
    ).encode()


def settings(**more: str) -> dict[str, str]:
    return {
        **sasl_settings("OAUTHBEARER"),
        f"{OAUTH}.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
        f"{OAUTH}.sasl.server.callback.handler.class": VALIDATOR,
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{PATH}",
        "sasl.oauthbearer.expected.audience": "kafka,other",
        "sasl.oauthbearer.expected.issuer": "https://issuer",
        **more,
    }


class TrustingBroker(SimulatedBroker):
    """A broker with keys in a file, which is there before its start."""

    def __init__(self, keys: bytes, **given: str) -> None:
        self._keys = keys
        super().__init__(**given)

    def start(self) -> Node:
        """Write the keys, and start."""
        self.host.disk.write_atomically(PATH, self._keys)
        return super().start()


class Issuer:
    """The keys that a broker trusts, and tokens of its time."""

    def __init__(self, *names: str, **more: str) -> None:
        self.broker = TrustingBroker(key_set(*names), **settings(**more))
        self.broker.world.run_for(100)
        self._number = 0

    @staticmethod
    def write(broker: SimulatedBroker, content: bytes) -> None:
        broker.host.disk.write_atomically(PATH, content)

    def token(self, name: str = "rsa", kid: str | None = "", **claims: Any) -> str:
        now_s = self.broker.host.clock.wall_ms() // 1000
        made = {
            "sub": "alice",
            "iss": "https://issuer",
            "aud": "kafka",
            "iat": now_s,
            "exp": now_s + 60,
            **claims,
        }
        algorithm, key, _ = KEYS[name]
        headers = {} if kid is None else {"kid": kid or name}
        return jwt.encode(made, key, algorithm, headers)

    def client(self) -> SimulatedClient:
        self._number += 1
        return SimulatedClient(self.broker.world, f"client-{self._number}")

    def log_in(self, token: str, client: SimulatedClient | None = None) -> Any:
        client = client or self.client()
        assert client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1).error_code == 0
        message = SaslAuthenticateRequest(auth_bytes=bearer_message(token, {}))
        done = client.ask(message, 2)
        if done.auth_bytes:
            assert bytes(done.auth_bytes) == INVALID_TOKEN.encode()
            done = client.ask(SaslAuthenticateRequest(auth_bytes=ACKNOWLEDGMENT), 2)
        return done

    def accepts(self, token: str) -> bool:
        code = self.log_in(token).error_code
        assert code in (ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED)
        return bool(code == ErrorCode.NONE)


@pytest.mark.parametrize("name", ["rsa", "ec", "ed"])
def test_a_token_of_the_issuer_is_accepted_for_its_time(name: str) -> None:
    issuer = Issuer("rsa", "ec", "ed")
    client = issuer.client()
    done = issuer.log_in(issuer.token(name), client)
    assert done.error_code == 0
    assert 59_000 <= done.session_lifetime_ms <= 60_000
    assert client.ask(MetadataRequest(topics=[]), 1).brokers
    issuer.broker.world.run_for(61_000)
    client.send(MetadataRequest(topics=[]), 1)
    assert issuer.broker.world.run_until(lambda: bool(client.closed))


def test_a_token_without_a_key_id_is_tried_with_all_keys() -> None:
    issuer = Issuer("ec", "rsa")
    assert issuer.accepts(issuer.token(kid=None))
    assert not issuer.accepts(issuer.token("other", kid=None))


def test_a_token_without_a_valid_signature_is_rejected(caplog: pytest.LogCaptureFixture) -> None:
    issuer = Issuer("rsa", "ec")
    good = issuer.token()
    header, payload, signature = good.split(".")
    secret = jwt.encode(
        {"sub": "alice"}, "a shared secret of the public key", "HS256", {"kid": "rsa"}
    )
    for token in (
        issuer.token("other", kid="rsa"),
        issuer.token("other"),
        issuer.token("ec", kid="rsa"),
        make_unsecured({"sub": "alice", "exp": 1 << 39}),
        f"{header}.{payload}.",
        f"{header}.{payload[:-2]}.{signature}",
        secret,
        "no-token",
        "a.b.c",
    ):
        assert not issuer.accepts(token), token
    assert "Authentication failed" in caplog.text
    assert good.split(".")[2] not in caplog.text


@pytest.mark.parametrize(
    "claims", [{"aud": "x"}, {"iss": "x"}, {"exp": 1}, {"sub": ""}, {"nbf": 1 << 39}]
)
def test_claims_that_do_not_fit_are_rejected(claims: dict[str, Any]) -> None:
    issuer = Issuer("rsa")
    assert not issuer.accepts(issuer.token(**claims))


def test_a_new_key_is_loaded_at_its_first_token() -> None:
    issuer = Issuer("rsa")
    issuer.write(issuer.broker, key_set("other"))
    issuer.broker.world.run_for(10_001)
    assert not issuer.accepts(issuer.token("other"))
    issuer.broker.world.run_for(1000)
    assert issuer.accepts(issuer.token("other"))
    assert not issuer.accepts(issuer.token("rsa"))


def test_keys_are_loaded_again_after_their_time() -> None:
    issuer = Issuer("rsa", **{"sasl.oauthbearer.jwks.endpoint.refresh.ms": "5000"})
    issuer.write(issuer.broker, key_set("other"))
    issuer.broker.world.run_for(6000)
    assert issuer.accepts(issuer.token("other"))


def test_keys_that_cannot_be_loaded_are_logged_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    issuer = Issuer()
    assert not issuer.accepts(issuer.token())
    assert "Keys of the issuer of tokens cannot be loaded" in caplog.text
    issuer.write(issuer.broker, key_set("rsa"))
    issuer.broker.world.run_for(30_000)
    assert issuer.accepts(issuer.token())
    issuer.write(issuer.broker, b"nonsense")
    issuer.broker.world.run_for(3_700_000)
    assert issuer.accepts(issuer.token()), "the last keys stay"


def test_another_user_cannot_take_over_a_connection() -> None:
    issuer = Issuer("rsa")
    client = issuer.client()
    assert issuer.log_in(issuer.token(), client).error_code == 0
    issuer.broker.world.run_for(2000)
    assert issuer.log_in(issuer.token(), client).error_code == 0
    issuer.broker.world.run_for(2000)
    refused = issuer.log_in(issuer.token(sub="bob"), client)
    assert "Cannot change principals" in refused.error_message


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b'{"keys": 5}',
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}',
        b'{"keys": [{"kty": "RSA"}]}',
        b'{"keys": [5, null, {"kty": "EC", "crv": "none"}]}',
        b"[" * 100_000,
    ],
)
def test_a_set_without_a_usable_key_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|JSON|Expecting"):
        parse_keys(text)


def test_keys_for_encryption_are_left_out() -> None:
    entry = {**json.loads(KEYS["rsa"][2]), "kid": "a", "use": "enc"}
    other = {**json.loads(KEYS["ec"][2]), "kid": "b"}
    assert list(parse_keys(json.dumps({"keys": [entry, other]}).encode())) == ["b"]


# -- without a signature --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {f"{OAUTH}.sasl.server.callback.handler.class": UNSECURED},
        {
            f"{OAUTH}.sasl.server.callback.handler.class": "",
            f"{OAUTH}.sasl.jaas.config": (
                f'{OAUTHBEARER_MODULE} required unsecuredValidatorRequiredScope="a";'
            ),
        },
    ],
)
def test_tokens_without_a_signature_are_accepted_if_they_are_asked_for(
    keys: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    given = {**settings(), "sasl.oauthbearer.jwks.endpoint.url": "", **keys}
    with caplog.at_level(logging.WARNING):
        broker = SimulatedBroker(**{key: value for key, value in given.items() if value})
    assert "accepts tokens without a signature" in caplog.text
    expiry_s = broker.host.clock.wall_ms() // 1000 + 60
    token = make_unsecured({"sub": "alice", "scope": "a b", "exp": expiry_s})
    client = broker.client
    client.ask(SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
    done = client.ask(SaslAuthenticateRequest(auth_bytes=bearer_message(token, {})), 2)
    assert (done.error_code, bytes(done.auth_bytes)) == (0, b"")


@pytest.mark.parametrize(
    ("keys", "key"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": ""},
         f"{OAUTH}.sasl.oauthbearer.jwks.endpoint.url"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://h/keys"},
         "sasl.oauthbearer.jwks.endpoint.url"),
        ({"sasl.oauthbearer.expected.audience": ""},
         f"{OAUTH}.sasl.oauthbearer.expected.audience"),
        ({"sasl.oauthbearer.expected.issuer": ""},
         f"{OAUTH}.sasl.oauthbearer.expected.issuer"),
        ({f"{OAUTH}.sasl.server.callback.handler.class": "org.example.Handler"},
         f"{OAUTH}.sasl.server.callback.handler.class"),
        ({f"{OAUTH}.sasl.server.callback.handler.class": "",
          "sasl.oauthbearer.jwks.endpoint.url": ""},
         f"{OAUTH}.sasl.oauthbearer.jwks.endpoint.url"),
    ],
)  # fmt: skip
def test_a_configuration_without_what_tokens_need_is_refused(
    keys: dict[str, str], key: str
) -> None:
    given = {name: value for name, value in {**settings(), **keys}.items() if value}
    with pytest.raises(ConfigError) as caught:
        read_configuration(given)
    assert caught.value.key == key


def test_audience_and_issuer_may_be_unverified() -> None:
    keys = {
        "sasl.oauthbearer.expected.audience": "",
        "sasl.oauthbearer.expected.issuer": "",
        f"{OAUTH}.sasl.oauthbearer.allow.unverified.audience": "true",
        "sasl.oauthbearer.allow.unverified.issuer": "true",
    }
    given = {name: value for name, value in {**settings(), **keys}.items() if value}
    found = read_configuration(given).sasl["SECURE"].mechanisms["OAUTHBEARER"].oauth
    assert found is not None
    assert (found.rules.audiences, found.rules.issuer) == ((), None)
