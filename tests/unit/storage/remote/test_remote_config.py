"""The keys of tiered storage, their values, and the URL of the store."""

from __future__ import annotations

import pytest

from barnabas.settings.definition import ConfigError
from barnabas.settings.key import ConfigType
from barnabas.storage.config import BROKER_CONFIGS
from barnabas.storage.remote.config import (
    MetadataTopicConfig,
    RemoteLogConfig,
    StorageUrl,
    StoreOptions,
    check_remote_log_config,
    parse_storage_url,
    remote_log_config,
    store_options,
)
from barnabas.storage.remote_keys import (
    CREDENTIALS_FILE,
    IGNORED_REMOTE_KEYS,
    METADATA_TOPIC_KEYS,
    REMOTE_DYNAMIC_KEYS,
    REMOTE_KEYS,
    STORAGE,
    STORAGE_OPTIONS,
    SYSTEM_ENABLE,
)

ENABLED = {SYSTEM_ENABLE: "true", STORAGE: "file:///tier"}


def config_of(given: dict[str, str]) -> RemoteLogConfig:
    properties = {**ENABLED, **given}
    return remote_log_config(BROKER_CONFIGS.parse(properties), properties)


def checked(given: dict[str, str], *log_dirs: str) -> RemoteLogConfig:
    properties = {**ENABLED, **given}
    parsed = BROKER_CONFIGS.parse(properties)
    return check_remote_log_config(parsed, properties, ["PLAINTEXT", "OTHER"], list(log_dirs))


def test_defaults_are_those_of_the_structs() -> None:
    assert config_of({}) == RemoteLogConfig(barnabas_remote_storage="file:///tier")


def test_every_value_is_the_value_of_a_key() -> None:
    fields = set(RemoteLogConfig.__struct_fields__) - {"metadata_topic"}
    # The other keys are read by name, before the struct is built.
    others = {SYSTEM_ENABLE, "remote.log.metadata.manager.impl.prefix"}
    others.add("remote.log.metadata.manager.listener.name")
    assert fields == {key.attribute for key in REMOTE_KEYS if key.name not in others}
    assert set(MetadataTopicConfig.__struct_fields__) == {
        key.attribute for key in METADATA_TOPIC_KEYS
    }


def test_a_key_is_either_used_or_ignored() -> None:
    assert {key.name for key in REMOTE_KEYS}.isdisjoint(IGNORED_REMOTE_KEYS)


def test_the_keys_that_kafka_changes_at_runtime_are_dynamic() -> None:
    assert set(REMOTE_DYNAMIC_KEYS) == {
        "barnabas.remote.read.cache.max.bytes",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.reader.threads",
    }


def test_the_metadata_topic_is_configured_behind_a_prefix() -> None:
    config = config_of({"rlmm.config.remote.log.metadata.topic.num.partitions": "3"})
    assert config.metadata_topic.remote_log_metadata_topic_num_partitions == 3
    config = config_of({
        "remote.log.metadata.manager.impl.prefix": "own.",
        "own.remote.log.metadata.topic.min.isr": "1",
        "rlmm.config.remote.log.metadata.topic.min.isr": "3",
    })  # fmt: skip
    assert config.metadata_topic.remote_log_metadata_topic_min_isr == 1


def test_an_error_of_the_metadata_topic_names_the_key_with_its_prefix() -> None:
    key = "rlmm.config.remote.log.metadata.topic.num.partitions"
    with pytest.raises(ConfigError) as raised:
        config_of({key: "0"})
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("file:///tier", StorageUrl("file", "/tier")),
        ("file:///tier/", StorageUrl("file", "/tier")),
        ("file:///mnt//a/../tier", StorageUrl("file", "/mnt/tier")),
        ("file:///mnt/a%20b%23", StorageUrl("file", "/mnt/a b#")),
        ("python:my.stores:make", StorageUrl("python", "my.stores:make")),
        ("s3://bucket", StorageUrl("s3", "bucket")),
        ("s3://my.bucket-1/", StorageUrl("s3", "my.bucket-1")),
        ("s3a://bucket/kafka/tier/", StorageUrl("s3a", "bucket", "kafka/tier")),
        ("gs://bucket/a.b_(c)", StorageUrl("gs", "bucket", "a.b_(c)")),
        ("az://container/a", StorageUrl("az", "container", "a")),
        ("abfs://container/a", StorageUrl("abfs", "container", "a")),
        (
            "abfss://container@account.dfs.core.windows.net/a",
            StorageUrl("abfss", "container@account.dfs.core.windows.net", "a"),
        ),
    ],
)
def test_a_url_names_a_store(text: str, expected: StorageUrl) -> None:
    assert parse_storage_url(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "/tier",
        "tier",
        "file:tier",
        "file:/tier",
        "file://host/tier",
        "file:///",
        "file:////",
        "file:///mnt/..",
        "file:///tier?layout=other",
        "file:///tier#a",
        "file:///tier%00",
        "file://[",
        "FILE:///tier",
        "python:module",
        "python:module:not a name",
        "python::make",
        "memory:",
        "http://host/",
    ],
)
def test_another_url_is_refused_with_the_possible_ones(text: str) -> None:
    with pytest.raises(ConfigError, match=r"file:///") as raised:
        parse_storage_url(text)
    assert (raised.value.key, raised.value.value) == (STORAGE, text)


@pytest.mark.parametrize(
    "text",
    [
        "s3:bucket",
        "s3:/bucket",
        "s3://",
        "s3:///bucket",
        "s3://bucket//a",
        "s3://bucket/a//b",
        "s3://bucket/a/../b",
        "s3://bucket/./b",
        "s3://bucket/a?region=x",
        "s3://bucket/a#b",
        "s3://bucket/a%20b",
        "s3://bucket/a b",
        "s3://user:password@bucket/a",
        "s3://bucket:9000/a",
        "s3://bucket@account.dfs.core.windows.net/a",
        "abfss://container@other.host/a",
        "gs://bucket/\n",
    ],
)
def test_a_bucket_is_a_name_and_a_prefix(text: str) -> None:
    with pytest.raises(ConfigError, match="://BUCKET/PREFIX") as raised:
        parse_storage_url(text)
    assert (raised.value.key, raised.value.value) == (STORAGE, text)


def test_options_of_a_bucket_are_names_and_values() -> None:
    config = checked({
        STORAGE: "s3://bucket/prefix",
        STORAGE_OPTIONS: "region=eu-west-1, endpoint = https://host:9000/a=b,",
        CREDENTIALS_FILE: "/etc/keys",
        "barnabas.remote.request.timeout.ms": "1000",
        "barnabas.remote.retry.timeout.ms": "0",
    })  # fmt: skip
    assert store_options(config) == StoreOptions(
        {"region": "eu-west-1", "endpoint": "https://host:9000/a=b"}, "/etc/keys", 1000, 0
    )
    assert store_options(checked({})) == StoreOptions()


@pytest.mark.parametrize(
    ("url", "options", "problem"),
    [
        ("s3://bucket", "s3cr3t", "NAME=VALUE"),
        ("s3://bucket", "=s3cr3t", "NAME=VALUE"),
        ("s3://bucket", "region=a,region=s3cr3t", "each once"),
        ("s3://bucket", "regoin=s3cr3t", "region.*regoin does not exist"),
        ("gs://bucket", "region=s3cr3t", "service_account.*region does not exist"),
        ("az://bucket", "region=s3cr3t", "account_key.*region does not exist"),
        ("file:///tier", "region=s3cr3t", "a store of file: has no options"),
        ("python:m:f", "region=s3cr3t", "has no options"),
    ],
)
def test_a_wrong_option_is_refused_without_its_value(url: str, options: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        checked({STORAGE: url, STORAGE_OPTIONS: options})
    assert raised.value.key == STORAGE_OPTIONS
    assert "s3cr3t" not in str(raised.value)


def test_options_are_never_shown() -> None:
    assert BROKER_CONFIGS.key(STORAGE_OPTIONS).type is ConfigType.PASSWORD
    assert "s3cr3t" not in repr(StoreOptions({"secret_access_key": "s3cr3t"}))


def test_the_missing_store_is_named_with_the_switch_that_needs_it() -> None:
    with pytest.raises(ConfigError, match=r"system\.enable=true needs a store"):
        config_of({STORAGE: ""})


def test_the_listener_of_the_metadata_must_exist() -> None:
    key = "remote.log.metadata.manager.listener.name"
    checked({key: "plaintext"})
    with pytest.raises(ConfigError, match="PLAINTEXT, OTHER") as raised:
        checked({key: "ABSENT"})
    assert raised.value.key == key


@pytest.mark.parametrize("url", ["file:///data", "file:///data/tier"])
def test_the_store_cannot_be_in_a_data_directory(url: str) -> None:
    checked({STORAGE: url}, "/other", "/dat")
    with pytest.raises(ConfigError, match="outside of the data directory /data"):
        checked({STORAGE: url}, "/other", "/data/")


def test_a_data_directory_may_be_beside_the_store() -> None:
    assert checked({STORAGE: "file:///mnt/tier"}, "/mnt/data").barnabas_remote_storage
