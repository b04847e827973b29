"""Delegation tokens in the metadata log, opened by Apache Kafka 4.4 and Barnabas in turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import barnabas
from barnabas.client.errors import BrokerError
from conformance.sasl_brokers import SaslBarnabas, SaslKafka
from conformance.token_logins import by_token, plain
from jvm.kafka_process import QUICK_FENCING
from jvm.scram_formatting import format_by_barnabas, format_by_kafka
from waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from barnabas.client.admin.credentials import DelegationToken

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

Broker = SaslKafka | SaslBarnabas
SETTINGS = {
    **QUICK_FENCING,
    "delegation.token.secret.key": "a secret of the brokers",
    # Both brokers write snapshots early, so that tokens are read from them too.
    "metadata.log.max.record.bytes.between.snapshots": "5000",
}


def admin_of(broker: Broker) -> barnabas.Admin:
    return barnabas.Admin(broker.sasl_bootstrap, **plain("admin"))


def tokens_of(broker: Broker) -> dict[str, DelegationToken]:
    with admin_of(broker) as admin:
        return {each.token_id: each for each in admin.describe_delegation_tokens()}


def change(broker: Broker, known: dict[str, DelegationToken]) -> dict[str, int]:
    """Create, renew and remove tokens; return the expiry of each token that remains."""
    expiries = {token_id: token.expiry_timestamp for token_id, token in known.items()}
    with admin_of(broker) as admin:
        for _ in range(40):
            made = admin.create_delegation_token(["User:bob"])
            expiries[made.token_id] = made.expiry_timestamp
        for token_id in sorted(known)[:10]:
            admin.expire_delegation_token(known[token_id].hmac)
            del expiries[token_id]
        for token_id in sorted(known)[10:20]:
            secret = known[token_id].hmac
            expiries[token_id] = admin.renew_delegation_token(secret, 3_600_000)
    return expiries


def expiries_of(broker: Broker) -> dict[str, int]:
    return {each.token_id: each.expiry_timestamp for each in tokens_of(broker).values()}


def logs_in(broker: Broker, token: DelegationToken) -> bool:
    login = by_token(token.token_id, token.hmac, "SCRAM-SHA-512")
    with barnabas.Admin(broker.sasl_bootstrap, **login) as own:
        try:
            own.describe_cluster()
        except (barnabas.AuthenticationError, BrokerError):
            return False
    return True


@pytest.mark.parametrize("first", ["kafka", "barnabas"])
def test_each_broker_finds_the_tokens_of_the_other(first: str, tmp_path: Path) -> None:
    ours = SaslBarnabas(tmp_path, SETTINGS)
    ours.prepare()
    format_ = format_by_kafka if first == "kafka" else format_by_barnabas
    format_(str(tmp_path / "server.properties"))
    # Both brokers have the same file and directory, and run in turn.
    turns: list[Broker] = [ours.kafka, ours, ours.kafka]
    if first == "barnabas":
        turns = [ours, ours.kafka, ours]
    known: dict[str, DelegationToken] = {}
    try:
        for number, broker in enumerate(turns):
            broker.start()
            at = broker
            eventually(lambda: tokens_of(at) == known, pause_s=0.2)  # noqa: B023
            for token_id in sorted(known)[::20]:
                assert logs_in(broker, known[token_id])
            expiries = change(broker, known)
            # A broker lists a change shortly after the controller has made it.
            eventually(lambda: expiries_of(at) == expiries, pause_s=0.2)  # noqa: B023
            known = tokens_of(broker)
            broker.kill() if number % 2 else broker.stop()
    finally:
        ours.kafka.close()
        ours.close()
