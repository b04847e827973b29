"""Logins of the registry's clients, which the brokers accept or refuse."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from barnabas.registry.errors import RegistryError
from barnabas.registry.security.access import Caller
from barnabas.registry.security.login import BrokerLogin, LoginRules
from barnabas.runtime.rng import SeededRng
from barnabas.sasl.jaas import OAUTHBEARER_MODULE, PLAIN_MODULE
from barnabas.server.configs.oauth_settings import VALIDATOR
from barnabas.testing.broker_on_loop import BrokerOnLoop, running_broker

KEY, OTHER_KEY = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
PREFIX = "listener.name.plaintext"
HOST = "192.0.2.1"


def settings(directory: Path) -> dict[str, str]:
    """Return the settings of a broker whose only listener has passwords and tokens."""
    keys = directory / "keys.json"
    key = {**json.loads(RSAAlgorithm.to_jwk(KEY.public_key())), "kid": "k", "alg": "RS256"}
    keys.write_text(json.dumps({"keys": [key]}))
    oauth = f"{PREFIX}.oauthbearer"
    return {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "sasl.oauthbearer.expected.audience": "kafka",
        "sasl.oauthbearer.expected.issuer": "issuer",
        f"{PREFIX}.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_ana="secret";',
        f"{oauth}.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required;",
        f"{oauth}.sasl.server.callback.handler.class": VALIDATOR,
        f"{oauth}.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def bearer(key: Any = KEY, **claims: Any) -> str:
    now_s = int(time.time())
    payload = {
        "sub": "ana",
        "aud": "kafka",
        "iss": "issuer",
        "iat": now_s,
        "exp": now_s + 300,
        **claims,
    }
    return "Bearer " + jwt.encode(payload, key, "RS256", {"kid": "k"})


class ManualClock:
    """A clock that a test sets."""

    now_ms = 0.0

    def wall_ms(self) -> int:
        return int(self.now_ms)

    def monotonic_ms(self) -> float:
        return self.now_ms


Test = Callable[[BrokerLogin, BrokerOnLoop, ManualClock], Coroutine[Any, Any, None]]


def run(directory: Path, test: Test, rules: LoginRules | None = None) -> None:
    async def main() -> None:
        async with running_broker(settings=settings(directory)) as broker:
            client = {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "registry"}
            clock = ManualClock()
            login = BrokerLogin(
                broker.bootstrap, client, rules or LoginRules(), clock, SeededRng(1)
            )
            await test(login, broker, clock)

    asyncio.run(main())


async def is_refused(login: BrokerLogin, authorization: str | None) -> bool:
    with pytest.raises(RegistryError) as caught:
        await login.caller(authorization, HOST)
    return caught.value.code == 40101


def test_a_password_proves_its_user(tmp_path: Path) -> None:
    async def test(login: BrokerLogin, _broker: BrokerOnLoop, _clock: ManualClock) -> None:
        caller = Caller("User:ana", HOST)
        assert await login.caller(basic("ana", "secret"), HOST) == caller
        both = (login.caller(basic("ana", "secret"), HOST) for _ in range(20))
        assert await asyncio.gather(*both) == [caller] * 20

    run(tmp_path, test)


def test_other_logins_are_refused(tmp_path: Path) -> None:
    async def test(login: BrokerLogin, _broker: BrokerOnLoop, _clock: ManualClock) -> None:
        wrong = [
            *(None, "", "Basic", "Basic x", "Basic " + "A" * 20_000, "Negotiate x"),
            *(basic("ana", "wrong"), basic("bob", "secret"), basic("", ""), basic("ana\0", "x")),
            *(basic("ana", ""), basic("", "secret"), basic("ana", "x" * 9_000)),
            *("Bearer", "Bearer a.b", "Bearer a.!.c", "Bearer a.bnVsbA.c"),
            *(bearer(OTHER_KEY), bearer(aud="other"), bearer(exp=1), bearer(sub="")),
        ]
        assert all(await asyncio.gather(*(is_refused(login, each) for each in wrong)))

    run(tmp_path, test)


def test_a_token_proves_the_user_in_the_claim_of_the_brokers(tmp_path: Path) -> None:
    async def test(login: BrokerLogin, _broker: BrokerOnLoop, _clock: ManualClock) -> None:
        assert await login.caller(bearer(), HOST) == Caller("User:ana", HOST)

    run(tmp_path, test)


def test_another_claim_can_name_the_user(tmp_path: Path) -> None:
    async def test(login: BrokerLogin, _broker: BrokerOnLoop, _clock: ManualClock) -> None:
        assert (await login.caller(bearer(azp="orders"), HOST)).principal == "User:orders"
        assert await is_refused(login, bearer())

    run(tmp_path, test, LoginRules(sub_claim="azp"))


def test_a_login_is_remembered_for_a_minute(tmp_path: Path) -> None:
    async def test(login: BrokerLogin, broker: BrokerOnLoop, clock: ManualClock) -> None:
        await login.caller(basic("ana", "secret"), HOST)
        await broker.stop()
        clock.now_ms = 59_000.0
        assert (await login.caller(basic("ana", "secret"), HOST)).principal == "User:ana"
        clock.now_ms = 61_000.0
        with pytest.raises(RegistryError) as caught:
            await login.caller(basic("ana", "secret"), HOST)
        assert caught.value.code == 50001
        await broker.start()
        assert (await login.caller(basic("ana", "secret"), HOST)).principal == "User:ana"

    run(tmp_path, test, LoginRules(timeout_ms=500))
