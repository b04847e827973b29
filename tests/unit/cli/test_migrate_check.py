"""`barnabas migrate check` of a node's files: what moves, what differs, and what stops the move."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from barnabas.cli.migrate.commands import migrate
from barnabas.protocol.records.topics import ConfigRecord
from barnabas.raft.log.metadata_log import FirstContent, format_metadata_directory
from barnabas.record.builder import BatchBuilder
from barnabas.runtime.disk import RealDisk
from barnabas.server.startup.features import BOOTSTRAP_FEATURES
from barnabas.storage.files.metadata_files import MetaProperties

NODE = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
"""


def check(*targets: Path) -> tuple[int, dict[str, list[str]]]:
    """Return the exit status, and the texts by verdict."""
    done = CliRunner().invoke(migrate, ["check", *map(str, targets), "--json"])
    found = json.loads(done.output)
    assert found["can_move"] == (done.exit_code != 1), done.output
    texts: dict[str, list[str]] = {"moves": [], "but": [], "stops": []}
    for each in found["findings"]:
        texts[each["verdict"]].append(f"{each['what']} → {each['remedy']}")
    return done.exit_code, texts


def node(
    directory: Path,
    lines: str = "",
    node_id: int = 1,
    records: tuple[ConfigRecord, ...] = (),
    **features: int,
) -> Path:
    """Write a file of a node, and its formatted data directory."""
    data = directory / "data"
    data.mkdir()
    levels = {name.replace("_", "."): level for name, level in features.items()}
    metadata = str(data / "__cluster_metadata-0")
    first = FirstContent(records=records)
    format_metadata_directory(RealDisk(), metadata, {**BOOTSTRAP_FEATURES, **levels}, 0, first)
    MetaProperties("6uL9MVpbTXm8dAYfX7v2Ag", node_id, bytes(range(16))).write(RealDisk(), str(data))
    file = directory / "server.properties"
    file.write_text(f"{NODE}log.dirs={data}\n{lines}")
    return file


def test_a_plain_node_moves(tmp_path: Path) -> None:
    status, found = check(node(tmp_path, "num.partitions=3\n"))
    assert status == 0
    assert found["stops"] == found["but"] == []
    assert any("7 keys with the same meaning" in text for text in found["moves"])
    assert any("node 1 of cluster 6uL9MVpbTXm8dAYfX7v2Ag" in text for text in found["moves"])


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("num.io.threads=8", "num.io.threads: no effect: the broker has one event loop"),
        ("metric.reporters=com.example.Reporter", "com.example.Reporter: no effect"),
        ("listener.name.plaintext.ssl.protocol=TLS", "TLS comes from OpenSSL"),
        ("remote.log.storage.manager.class.name=com.example.Store", "not a Java class"),
        ("remote.log.manager.thread.pool.size=4", "no threads of their own"),
        ("plug.in.key=1", "plug.in.key: no effect"),
        ("zookeeper.connect=127.0.0.1:2181", "zookeeper.connect: no effect"),
        ("confluent.license.topic=_license", "1 key of Confluent Server"),
    ],
)
def test_a_key_without_effect_is_told(line: str, says: str, tmp_path: Path) -> None:
    status, found = check(node(tmp_path, f"{line}\n"))
    assert status == 0
    (only,) = found["but"]
    assert says in only


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("authorizer.class.name=com.example.Authorizer", "access control entries"),
        ("principal.builder.class=com.example.Builder", "ssl.principal.mapping.rules"),
        ("create.topic.policy.class.name=com.example.Policy", "write the policy in Python"),
        ("client.quota.callback.class=com.example.Quotas", "set quotas by"),
        ("group.consumer.assignors=com.example.Assignor", "remove other assignors"),
        ("remote.log.storage.system.enable=true", "does not read the segments"),
        ("confluent.tier.feature=true", "copy the cluster"),
        (
            "config.providers=vault\nconfig.providers.vault.class=com.example.Vault",
            "are not loaded",
        ),
        (
            "listener.name.plaintext.plain.sasl.server.callback.handler.class=com.example.Ldap",
            "log in by SCRAM-SHA-512",
        ),
        ("zookeeper.metadata.migration.enable=true", "is not finished"),
        ("log.retention.hours=long", "correct log.retention.hours"),
        (
            "listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
            "Kerberos",
        ),
    ],
)
def test_what_barnabas_cannot_do_stops_the_move_with_advice(
    line: str, says: str, tmp_path: Path
) -> None:
    status, found = check(node(tmp_path, f"{line}\n"))
    assert status == 1
    assert any(says in text for text in found["stops"]), found


SASL = """\
process.roles=broker
node.id=1
controller.quorum.voters=2@127.0.0.1:9093
controller.listener.names=CONTROLLER
listeners=SASL://127.0.0.1:9092
inter.broker.listener.name=SASL
listener.security.protocol.map=SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
"""
KAFKA_SECURITY = "org.apache.kafka.common.security"
PLAIN = f'{KAFKA_SECURITY}.plain.PlainLoginModule required user_a="b";'

TOKEN_CLIENT = 'clientId="a" clientSecret="b"'
TOKEN_KEYS = """\
sasl.oauthbearer.jwks.endpoint.url=https://127.0.0.1/keys
sasl.oauthbearer.token.endpoint.url=https://127.0.0.1/token
sasl.oauthbearer.expected.audience=kafka
sasl.oauthbearer.expected.issuer=https://127.0.0.1
"""


def secured(directory: Path, mechanism: str, jaas: str | None, lines: str = "") -> Path:
    """Write the file of a node whose clients log in, without a data directory."""
    text = f"{SASL}log.dirs={directory}/absent\nsasl.enabled.mechanisms={mechanism}\n"
    text += f"sasl.mechanism.inter.broker.protocol={mechanism}\n{lines}"
    if jaas is not None:
        text += f"listener.name.sasl.{mechanism.lower()}.sasl.jaas.config={jaas}\n"
    file = directory / "server.properties"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("mechanism", "jaas", "lines"),
    [
        ("PLAIN", PLAIN[:-1] + ' username="a" password="b";', ""),
        (
            "SCRAM-SHA-512",
            f'{KAFKA_SECURITY}.scram.ScramLoginModule required username="a" password="b";',
            "",
        ),
        (
            "OAUTHBEARER",
            f"{KAFKA_SECURITY}.oauthbearer.OAuthBearerLoginModule required {TOKEN_CLIENT};",
            TOKEN_KEYS,
        ),
    ],
)
def test_the_login_modules_of_kafka_move(
    mechanism: str, jaas: str, lines: str, tmp_path: Path
) -> None:
    status, found = check(secured(tmp_path, mechanism, jaas, lines))
    assert (status, found["stops"]) == (3, [])


@pytest.mark.parametrize(
    ("mechanism", "jaas", "says"),
    [
        ("PLAIN", None, "in a JAAS file (java.security.auth.login.config)"),
        ("PLAIN", PLAIN[:-3], "quote the value"),
        ("PLAIN", f"KafkaServer {{ {PLAIN} }};", "in a JAAS file"),
        ("PLAIN", f"{PLAIN} {PLAIN}", "with one login module"),
        ("PLAIN", "com.sun.security.auth.module.LdapLoginModule required;", "another mechanism"),
        ("GSSAPI", "com.sun.security.auth.module.Krb5LoginModule required;", "while Apache Kafka"),
        ("AWS_MSK_IAM", "software.amazon.msk.auth.iam.IAMLoginModule required;", "while Apache"),
    ],
)
def test_a_login_that_cannot_move_is_one_finding_with_its_remedy(
    mechanism: str, jaas: str | None, says: str, tmp_path: Path
) -> None:
    status, found = check(secured(tmp_path, mechanism, jaas))
    assert status == 1
    (only,) = found["stops"]
    assert says in only


def test_an_empty_list_of_listeners_is_a_finding(tmp_path: Path) -> None:
    status, found = check(node(tmp_path, "listeners=\n"))
    assert status == 1
    assert any("listeners: '' is not allowed" in text for text in found["stops"])


@pytest.mark.parametrize("text", ["", "# comments only\n" * 1000, "bootstrap.servers=a:9092\n"])
def test_a_file_of_another_kind_is_not_taken_for_a_node_with_zookeeper(
    text: str, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    status, found = check(file)
    assert status == 1
    (only,) = found["stops"]
    assert "process.roles is not given" in only
    assert "ZooKeeper" not in only


def test_a_line_names_only_some_of_many_unknown_keys(tmp_path: Path) -> None:
    lines = "".join(f"plug.in.key.{number}=1\n" for number in range(100))
    _, found = check(node(tmp_path, lines))
    (only,) = found["but"]
    assert "and 80 more" in only


def test_all_values_that_stop_the_move_are_told_at_once(tmp_path: Path) -> None:
    lines = "authorizer.class.name=com.example.A\nprincipal.builder.class=com.example.B\n"
    _, found = check(node(tmp_path, lines))
    assert len(found["stops"]) == 2


def test_a_node_of_a_cluster_with_zookeeper_must_move_to_kraft_first(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("broker.id=1\nzookeeper.connect=127.0.0.1:2181\n")
    status, found = check(file)
    assert status == 1
    assert ["Apache Kafka 3.9" in text for text in found["stops"]] == [True]


def test_a_level_of_a_later_kafka_stops_the_move(tmp_path: Path) -> None:
    status, found = check(node(tmp_path, share_version=9))
    assert status == 1
    assert any("share.version 9" in text for text in found["stops"])


def test_the_directory_of_another_node_stops_the_move(tmp_path: Path) -> None:
    status, found = check(node(tmp_path, node_id=2))
    assert status == 1
    assert any("belongs to node 2" in text for text in found["stops"])


def test_damaged_metadata_stops_the_move_and_is_not_changed(tmp_path: Path) -> None:
    file = node(tmp_path)
    (snapshot,) = (tmp_path / "data" / "__cluster_metadata-0").glob("*.checkpoint")
    snapshot.chmod(0o600)
    snapshot.write_bytes(b"damaged")
    status, found = check(file)
    assert status == 1
    assert any("Committed metadata is damaged" in text for text in found["stops"])
    assert snapshot.read_bytes() == b"damaged"


@pytest.mark.parametrize(
    ("content", "says"),
    [("garbage", "lacks version"), ("version=0\nbroker.id=1\n", "Apache Kafka 3.9")],
)
def test_the_identity_of_another_kind_of_directory_stops_the_move(
    content: str, says: str, tmp_path: Path
) -> None:
    file = node(tmp_path)
    (tmp_path / "data" / "meta.properties").write_text(content)
    status, found = check(file)
    assert status == 1
    (only,) = found["stops"]
    assert says in only


def test_a_new_remote_tier_is_possible_after_the_move(tmp_path: Path) -> None:
    lines = "remote.log.storage.system.enable=true\nbarnabas.remote.storage=file:///tier\n"
    status, found = check(node(tmp_path, lines))
    assert status == 0
    assert found["stops"] == found["but"] == []


LOCAL_TIER = (
    "remote.log.storage.system.enable=true\n"
    "remote.log.storage.manager.class.name="
    "org.apache.kafka.server.log.remote.storage.LocalTieredStorage\n"
)
TIERED = ConfigRecord(
    resource_type=2, resource_name="old-orders", name="remote.storage.enable", value="true"
)


def test_a_local_tiered_storage_carries_over(tmp_path: Path) -> None:
    lines = "rsm.config.dir=/tier/\nbarnabas.remote.storage=file:///tier?layout=kafka-local\n"
    status, found = check(node(tmp_path, LOCAL_TIER + lines, records=(TIERED,)))
    assert status == 0
    assert found["stops"] == []
    assert sum("remote segments carry over" in text for text in found["moves"]) == 2
    (only,) = found["but"]
    assert "rsm.config.dir" in only
    assert "not a Java class" in only


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("rsm.config.dir=/tier\n", "add barnabas.remote.storage=file:///tier?layout=kafka-local"),
        (
            "rsm.config.dir=/tier\nbarnabas.remote.storage=file:///tier\n",
            "add barnabas.remote.storage=file:///tier?layout=kafka-local",
        ),
        ("", "uses a temporary directory"),
    ],
)
def test_a_local_tiered_storage_needs_the_same_store(lines: str, says: str, tmp_path: Path) -> None:
    status, found = check(node(tmp_path, LOCAL_TIER + lines, records=(TIERED,)))
    assert status == 1
    assert any(says in text for text in found["stops"])
    assert any("old-orders" in text for text in found["stops"])


def test_a_tier_that_kafka_deletes_at_its_stop_stops_the_move(tmp_path: Path) -> None:
    lines = (
        "rsm.config.dir=/tier\nrsm.config.delete.on.close=true\n"
        "barnabas.remote.storage=file:///tier?layout=kafka-local\n"
    )
    status, found = check(node(tmp_path, LOCAL_TIER + lines))
    assert status == 1
    (only,) = found["stops"]
    assert "rsm.config.delete.on.close=true" in only


def test_the_class_of_an_unreadable_tier_is_named(tmp_path: Path) -> None:
    lines = LOCAL_TIER.replace("org.apache.kafka.server", "io.aiven")
    status, found = check(node(tmp_path, lines))
    assert status == 1
    (only,) = found["stops"]
    assert "io.aiven.log.remote.storage.LocalTieredStorage has stored" in only
    assert "remote.log.copy.disable=true" in only


def test_a_tiered_topic_stops_the_move(tmp_path: Path) -> None:
    node(tmp_path, records=(TIERED,))
    status, found = check(tmp_path / "data")
    assert status == 1
    assert any("old-orders" in text for text in found["stops"])


def test_records_of_a_newer_metadata_log_stop_the_move(tmp_path: Path) -> None:
    file = node(tmp_path)
    batch = BatchBuilder(leader_epoch=1)
    # Frame version 1, type 120, version 0.
    batch.append(0, None, b"\x01\x78\x00")
    log = tmp_path / "data" / "__cluster_metadata-0" / "00000000000000000000.log"
    log.write_bytes(batch.build())
    status, found = check(file)
    assert status == 1
    (only,) = found["stops"]
    assert "no metadata record has the type 120" in only
    assert "newer Barnabas" in only


def test_a_directory_of_another_machine_is_named_as_not_examined(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"{NODE}log.dirs={tmp_path}/absent\n")
    status, found = check(file)
    assert status == 3
    assert any("not examined" in text for text in found["but"])


def test_a_file_without_directories_is_told_the_default_of_kafka(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(NODE)
    status, found = check(file)
    assert status == 1
    assert any("add log.dirs=/tmp/kafka-logs" in text for text in found["stops"])


PROVIDERS = """\
config.providers=env,vault
config.providers.env.class=org.apache.kafka.common.config.provider.EnvVarConfigProvider
config.providers.vault.class=com.example.Vault
"""


def test_variables_of_another_machine_do_not_hide_other_findings(tmp_path: Path) -> None:
    lines = "broker.rack=${env:RACK_OF_NO_MACHINE}\nssl.key.password=${vault:key}\n"
    classes = "authorizer.class.name=com.example.A\n"
    status, found = check(node(tmp_path, PROVIDERS + lines + classes))
    assert status == 1
    provider, authorizer = sorted(found["stops"], key=lambda text: "authorizer" in text)
    assert "com.example.Vault" in provider
    assert "access control entries" in authorizer
    unknown = " ".join(found["but"])
    assert "RACK_OF_NO_MACHINE is not set" in unknown
    assert "ssl.key.password: not known without their provider" in unknown
    assert any("node 1 of cluster" in text for text in found["moves"])


def test_a_missing_variable_leaves_the_check_incomplete(tmp_path: Path) -> None:
    lines = "broker.rack=${env:RACK_OF_NO_MACHINE}\n"
    given = PROVIDERS.replace("env,vault", "env") + lines
    status, found = check(node(tmp_path, given))
    assert (status, found["stops"]) == (3, [])
