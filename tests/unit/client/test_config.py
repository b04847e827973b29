"""Client configuration: Kafka's keys in both spellings, and errors that name the key."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

import barnabas
from barnabas.client.accepted_keys import IGNORED, ONLY_VALUES, UNSUPPORTED
from barnabas.client.config import ALIASES, ClientConfig, is_known
from barnabas.client.errors import ClientConfigError
from barnabas.client.facade import Client
from barnabas.client.share.share_consumer import ShareConsumer

# The keys `ssl.*`, `sasl.*` and `https.*` in CONFIGURATION.md of librdkafka 2.12 and in the
# documentation of Kafka 4.4's clients. Callbacks and pointers of C programs are left out.
SECURITY_KEYS = """
ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.key.location ssl.key.password ssl.key.pem
ssl.certificate.location ssl.certificate.pem ssl.ca.location ssl.ca.pem https.ca.location
https.ca.pem ssl.ca.certificate.stores ssl.crl.location ssl.keystore.location
ssl.keystore.password ssl.providers ssl.engine.location ssl.engine.id
enable.ssl.certificate.verification ssl.endpoint.identification.algorithm sasl.mechanisms
sasl.mechanism sasl.kerberos.service.name sasl.kerberos.principal sasl.kerberos.kinit.cmd
sasl.kerberos.keytab sasl.kerberos.min.time.before.relogin sasl.username sasl.password
sasl.oauthbearer.config enable.sasl.oauthbearer.unsecure.jwt sasl.oauthbearer.method
sasl.oauthbearer.client.id sasl.oauthbearer.client.credentials.client.id
sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.client.secret
sasl.oauthbearer.scope sasl.oauthbearer.extensions sasl.oauthbearer.token.endpoint.url
sasl.oauthbearer.grant.type sasl.oauthbearer.assertion.algorithm
sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
sasl.oauthbearer.assertion.private.key.pem sasl.oauthbearer.assertion.file
sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include
sasl.oauthbearer.assertion.claim.nbf.seconds sasl.oauthbearer.assertion.claim.sub
sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.metadata.authentication.type
ssl.keystore.type ssl.keystore.key ssl.keystore.certificate.chain ssl.truststore.location
ssl.truststore.password ssl.truststore.type ssl.truststore.certificates ssl.enabled.protocols
ssl.protocol ssl.provider ssl.keymanager.algorithm ssl.trustmanager.algorithm
ssl.secure.random.implementation ssl.engine.factory.class sasl.jaas.config
sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
sasl.login.refresh.min.period.seconds sasl.login.refresh.buffer.seconds
sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.retry.backoff.ms
sasl.login.retry.backoff.max.ms sasl.oauthbearer.scope.claim.name
sasl.oauthbearer.sub.claim.name sasl.oauthbearer.jwks.endpoint.url
sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.ms
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms sasl.oauthbearer.expected.audience
sasl.oauthbearer.expected.issuer sasl.oauthbearer.clock.skew.seconds
sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwt.retriever.class
sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.assertion.claim.nbf.include
sasl.oauthbearer.assertion.template.file
"""


def parse(**keys: object) -> ClientConfig:
    return ClientConfig.parse({"bootstrap.servers": "a:1", **keys})


def test_keys_are_accepted_with_dots_and_with_underscores() -> None:
    config = ClientConfig.parse({"bootstrap_servers": "a:1", "fetch.min.bytes": "7"})
    assert config.fetch_min_bytes == 7


def test_addresses_are_a_string_or_a_list() -> None:
    expected = (("a", 1), ("::1", 2))
    assert ClientConfig.parse({"bootstrap.servers": "a:1, [::1]:2"}).bootstrap_servers == expected
    given = ["a:1", "[::1]:2"]
    assert ClientConfig.parse({"bootstrap.servers": given}).bootstrap_servers == expected


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("linger.ms", "soon", "linger.ms=soon is not a whole number"),
        ("linger.ms", -1, "linger.ms=-1 is out of range: 0 to"),
        ("acks", "2", "acks=2 is not one of: all, 0, 1"),
        ("check.crcs", "perhaps", "check.crcs=perhaps is neither true nor false"),
        ("batch.sise", 1, "did you mean batch.size?"),
        ("batch_sise", 1, "unknown configuration key batch_sise; did you mean batch_size?"),
        ("linger_ms", -1, "linger_ms=-1 is out of range: 0 to"),
        ("bootstrap.servers", "nowhere", "nowhere is not HOST:PORT"),
        ("ssl.curves.list", "P-256", "ssl.curves.list is not supported: OpenSSL's configuration"),
        ("ssl_engine_id", "x", "ssl_engine_id is not supported: private keys are read from files"),
        ("sasl.login.class", "x", "sasl.login.class is not supported: a Java class cannot be used"),
        ("sasl.oauthbearer.grant.type", "jwt", "=jwt is not supported: only client_credentials is"),
    ],
)
def test_a_wrong_key_or_value_is_named(key: str, value: object, words: str) -> None:
    with pytest.raises(ClientConfigError) as raised:
        parse(**{key: value})
    assert words in str(raised.value)


def test_javas_level_of_gzip_that_means_the_default_is_accepted() -> None:
    plain = parse(compression_type="gzip")
    assert parse(**{"compression.type": "gzip", "compression.gzip.level": "-1"}) == plain
    assert parse(compression_type="zstd", compression_zstd_level=-1).compression_level == -1
    for level in (0, 10):
        with pytest.raises(ClientConfigError, match="out of range for gzip: 1 to 9"):
            parse(compression_type="gzip", compression_gzip_level=level)


def test_unused_keys_of_java_clients_are_accepted() -> None:
    parse(**{"key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer"})


def test_every_security_key_of_java_and_librdkafka_has_an_effect_or_a_reason() -> None:
    known = {each.name for each in fields(ClientConfig)} | set(ALIASES)
    lists = [set(IGNORED), set(ONLY_VALUES), set(UNSUPPORTED), known]
    assert sum(map(len, lists)) == len(set().union(*lists)), "a key is in two lists"
    missing = {
        key for key in SECURITY_KEYS.split() if key.replace(".", "_") not in set().union(*lists)
    }
    assert not missing


@pytest.mark.parametrize("key", sorted(IGNORED))
def test_an_ignored_key_is_accepted(key: str) -> None:
    assert parse(**{key.replace("_", "."): "x"}) == parse()


def test_the_known_keys_are_those_that_are_accepted() -> None:
    accepted = [
        "group.id",
        "sasl_username",
        "compression.gzip.level",
        "config.providers",
        *IGNORED,
        *ONLY_VALUES,
    ]
    assert all(map(is_known, accepted))
    assert not any(map(is_known, ["group.idd", *UNSUPPORTED]))


def test_the_only_supported_value_of_a_key_is_accepted() -> None:
    assert parse(**{key: value.upper() for key, value in ONLY_VALUES.items()}) == parse()


def test_idempotence_is_disabled_by_default_without_acks_all() -> None:
    assert parse().enable_idempotence
    assert not parse(acks=1).enable_idempotence


def test_explicit_idempotence_without_acks_all_is_an_error() -> None:
    with pytest.raises(ClientConfigError):
        parse(acks=1, enable_idempotence=True)


def test_some_keys_can_be_overridden_later() -> None:
    assert parse(linger_ms=3).override({"batch.size": 9}).batch_size == 9


def test_assignors_are_named_in_one_string_or_listed() -> None:
    assert parse().partition_assignment_strategy == ("range", "cooperative-sticky")
    given = parse(partition_assignment_strategy="sticky, range")
    assert given.partition_assignment_strategy == ("sticky", "range")
    assert parse(partition_assignment_strategy=[dict]).partition_assignment_strategy == (dict,)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"session_timeout_ms": 3000}, "must be less than session_timeout_ms=3000"),
        ({"partition_assignment_strategy": ""}, "name an assignor"),
        ({"group_instance_id": ""}, "group_instance_id is empty"),
        ({"group_remote_assignor": "range"}, "needs group_protocol=consumer"),
        ({"group_protocol": "consumer", "session_timeout_ms": 9000}, "session_timeout_ms has no"),
        ({"group_protocol": "consumer", "heartbeat_interval_ms": 9}, "heartbeat_interval_ms has"),
        ({"group.remote.assignor": "range"}, "needs group.protocol=consumer"),
    ],
)
def test_contradictory_group_keys_are_refused(keys: dict[str, object], words: str) -> None:
    with pytest.raises(ClientConfigError) as raised:
        parse(**keys)
    assert words in str(raised.value)


def test_members_prefer_range_and_can_change_to_cooperative_sticky() -> None:
    assert parse().partition_assignment_strategy == ("range", "cooperative-sticky")


@pytest.mark.parametrize(
    ("given", "spelled"),
    [
        ({}, "max.request.size"),
        ({"linger.ms": 1}, "max.request.size"),
        ({"linger_ms": 1}, "max_request_size"),
        ({"linger_ms": 1, "max.request.size": 9}, "max.request.size"),
    ],
)
def test_errors_name_a_key_as_the_user_writes_keys(given: dict[str, Any], spelled: str) -> None:
    config = parse(**given)
    assert config.spell("max_request_size") == spelled
    assert config.override({"acks": "1"}).spell("max_request_size") == spelled


CLIENTS: list[Any] = [barnabas.Producer, barnabas.Consumer, barnabas.Admin, Client, ShareConsumer]


@pytest.mark.parametrize("make", CLIENTS, ids=lambda each: each.__name__)
def test_the_servers_may_be_given_under_the_key_of_kafka(make: Any) -> None:
    keys = {"bootstrap.servers": "127.0.0.1:1,127.0.0.1:2", "client.id": "c"}
    if make is ShareConsumer:
        keys["group.id"] = "g"
    with make(**keys) as client:
        assert client._session.config.bootstrap_servers == (("127.0.0.1", 1), ("127.0.0.1", 2))
    with pytest.raises(ClientConfigError, match=r"bootstrap\.servers is missing"):
        make()


@pytest.mark.parametrize("make", [*CLIENTS, barnabas.aio.Producer], ids=lambda each: each.__name__)
def test_a_dictionary_of_settings_in_place_of_keywords_is_refused_with_the_remedy(
    make: Any,
) -> None:
    with pytest.raises(ClientConfigError, match=r"with two stars: .*\*\*settings"):
        make({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})


def test_the_servers_are_given_once() -> None:
    with pytest.raises(ClientConfigError, match="both given"):
        barnabas.Producer("127.0.0.1:1", **{"bootstrap.servers": "127.0.0.1:2"})
