"""SCRAM credentials by our admin client, against each kind of broker."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient as ConfluentAdmin

import barnabas
from barnabas.client.admin.credentials import (
    ScramCredential,
    ScramDeletion,
    ScramMechanism,
    ScramUpsertion,
)
from barnabas.client.errors import BrokerError
from barnabas.protocol.errors import ErrorCode
from conformance.sasl_brokers import SaslBarnabas, SaslKafka
from waiting import eventually

Broker = SaslBarnabas | SaslKafka
SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


@pytest.fixture(scope="module", params=["barnabas", "kafka"])
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    directory = tmp_path_factory.mktemp(request.param)
    made = SaslKafka(directory) if request.param == "kafka" else SaslBarnabas(directory)
    made.start()
    try:
        yield made
    finally:
        made.kill()


@pytest.fixture
def admin(broker: Broker) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(broker.bootstrap) as made:
        yield made


def can_log_in(broker: Broker, user: str, password: str, mechanism: str) -> bool:
    client = ConfluentAdmin({
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        "log_level": 0,
    })  # fmt: skip
    try:
        client.list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def test_scram_users_can_log_in_until_their_password_is_deleted(
    broker: Broker, admin: barnabas.Admin
) -> None:
    user = uuid.uuid4().hex[:8]
    found = admin.alter_scram_credentials(
        [ScramUpsertion(user, SHA_256, "päss"), ScramUpsertion(f"{user}-2", SHA_512, "two", 4096)]
    )
    assert found == {user: None, f"{user}-2": None}
    eventually(lambda: can_log_in(broker, user, "päss", "SCRAM-SHA-256"))
    eventually(lambda: can_log_in(broker, f"{user}-2", "two", "SCRAM-SHA-512"))
    assert not can_log_in(broker, user, "wrong", "SCRAM-SHA-256")
    described = admin.describe_scram_credentials([user, f"{user}-2", "nobody"])
    assert described[user] == [ScramCredential(SHA_256, 8192)]
    assert described[f"{user}-2"] == [ScramCredential(SHA_512, 4096)]
    absent = described["nobody"]
    assert isinstance(absent, BrokerError)
    assert absent.error_code == ErrorCode.RESOURCE_NOT_FOUND
    assert admin.alter_scram_credentials(deletions=[ScramDeletion(user, SHA_256)]) == {user: None}
    eventually(lambda: user not in admin.describe_scram_credentials())


def test_each_user_has_an_error_or_none(admin: barnabas.Admin) -> None:
    good, few, many, twice, absent = (f"{name}-{uuid.uuid4().hex[:8]}" for name in "abcde")
    found = admin.alter_scram_credentials(
        [
            ScramUpsertion(good, SHA_256, "x"),
            ScramUpsertion(few, SHA_256, "x", iterations=4095),
            ScramUpsertion(many, SHA_256, "x", iterations=16385),
            ScramUpsertion(twice, SHA_256, "x"),
            ScramUpsertion(twice, SHA_512, "x"),
            ScramUpsertion("", SHA_512, "x"),
        ],
        [ScramDeletion(absent, SHA_512)],
        raise_errors=False,
    )
    codes = {name: error and error.error_code for name, error in found.items()}
    assert codes == {
        good: None,
        few: ErrorCode.UNACCEPTABLE_CREDENTIAL,
        many: ErrorCode.UNACCEPTABLE_CREDENTIAL,
        twice: ErrorCode.DUPLICATE_RESOURCE,
        "": ErrorCode.UNACCEPTABLE_CREDENTIAL,
        absent: ErrorCode.RESOURCE_NOT_FOUND,
    }
