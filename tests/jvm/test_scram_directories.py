"""SCRAM users in the metadata log: each broker serves directories of the other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import barnabas
from barnabas.client.admin.credentials import ScramDeletion, ScramMechanism, ScramUpsertion
from conformance.sasl_brokers import SaslBarnabas, SaslKafka
from jvm.scram_formatting import format_by_barnabas, format_by_kafka
from waiting import eventually

pytestmark = [pytest.mark.conformance, pytest.mark.nightly]

SHA_256, SHA_512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def logs_in(broker: SaslBarnabas | SaslKafka, user: str, mechanism: str, password: str) -> bool:
    try:
        with barnabas.Admin(
            broker.sasl_bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_username=user,
            sasl_password=password,
        ) as admin:
            admin.describe_cluster()
    except barnabas.AuthenticationError:
        return False
    return True


@pytest.mark.parametrize("format_", [format_by_kafka, format_by_barnabas])
@pytest.mark.parametrize("begins", ["kafka", "barnabas"])
def test_users_created_at_one_broker_log_in_at_the_other(
    kafka_jars: Callable[[str], str], tmp_path: Path, format_: Callable[[str], None], begins: str
) -> None:
    ours = SaslBarnabas(tmp_path)
    kafka = ours.kafka
    ours.prepare()
    format_(str(tmp_path / "server.properties"))
    order: list[SaslBarnabas | SaslKafka] = [ours, kafka]
    first, second = reversed(order) if begins == "kafka" else order
    try:
        first.start()
        assert logs_in(first, "first", "SCRAM-SHA-256", "one")
        assert logs_in(first, "second", "SCRAM-SHA-512", "two")
        assert not logs_in(first, "second", "SCRAM-SHA-512", "one")
        with barnabas.Admin(first.bootstrap) as admin:
            admin.alter_scram_credentials(
                [ScramUpsertion("third", SHA_512, "three"), ScramUpsertion("first", SHA_256, "new")]
            )
            admin.alter_scram_credentials(deletions=[ScramDeletion("second", SHA_512)])
            eventually(lambda: set(admin.describe_scram_credentials()) == {"first", "third"})
        first.stop()
        second.start()
        assert logs_in(second, "third", "SCRAM-SHA-512", "three")
        assert logs_in(second, "first", "SCRAM-SHA-256", "new")
        assert not logs_in(second, "first", "SCRAM-SHA-256", "one")
        assert not logs_in(second, "second", "SCRAM-SHA-512", "two")
        with barnabas.Admin(second.bootstrap) as admin:
            admin.alter_scram_credentials([ScramUpsertion("fourth", SHA_256, "four")])
            eventually(lambda: "fourth" in admin.describe_scram_credentials())
        second.stop()
        first.start()
        assert logs_in(first, "fourth", "SCRAM-SHA-256", "four")
        assert logs_in(first, "third", "SCRAM-SHA-512", "three")
    finally:
        first.kill()
        second.kill()
