"""Values of the broker keys of tiered storage, and the URL of the store (KIP-405)."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from barnabas.settings.definition import ConfigError
from barnabas.storage.remote_keys import (
    METADATA_LISTENER,
    METADATA_PREFIX,
    METADATA_TOPIC_KEYS,
    STORAGE,
    SYSTEM_ENABLE,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas.settings.definition import ParsedConfig

_MIB = 1 << 20
_LONG_MAX = 0x7FFF_FFFF_FFFF_FFFF
_ALLOWED = "file:///DIRECTORY, or python:MODULE:FACTORY"
_OBJECT_STORES = ("s3", "gs", "az", "abfs", "abfss", "s3a")


class StorageUrl(msgspec.Struct, frozen=True):
    """The store that `barnabas.remote.storage` names."""

    # "file" or "python".
    scheme: str
    # An absolute path, or MODULE:FACTORY.
    location: str


class MetadataTopicConfig(msgspec.Struct, frozen=True):
    """Configuration of `__remote_log_metadata`, and of the broker's use of it. Times in ms."""

    remote_log_metadata_topic_replication_factor: int = 3
    remote_log_metadata_topic_num_partitions: int = 50
    # -1: no limit.
    remote_log_metadata_topic_retention_ms: int = -1
    remote_log_metadata_topic_min_isr: int = 2
    remote_log_metadata_consume_wait_ms: int = 120_000


class RemoteLogConfig(msgspec.Struct, frozen=True):
    """Values of the broker keys of tiered storage; times in ms, sizes in bytes."""

    # The URL of the store, which `parse_storage_url` has accepted.
    barnabas_remote_storage: str = ""
    metadata_topic: MetadataTopicConfig = MetadataTopicConfig()
    remote_log_metadata_custom_metadata_max_bytes: int = 128
    barnabas_remote_segments_max: int = 2_000_000

    remote_log_manager_copier_thread_pool_size: int = 10
    remote_log_manager_expiration_thread_pool_size: int = 10
    barnabas_remote_copy_buffer_max_bytes: int = 128 * _MIB
    remote_log_manager_task_interval_ms: int = 30_000
    remote_log_manager_task_retry_backoff_ms: int = 500
    remote_log_manager_task_retry_backoff_max_ms: int = 30_000
    # Largest deviation from the delay, as a fraction of it.
    remote_log_manager_task_retry_jitter: float = 0.2
    remote_log_manager_copy_max_bytes_per_second: int = _LONG_MAX
    remote_log_manager_copy_quota_window_num: int = 11
    remote_log_manager_copy_quota_window_size_seconds: int = 1
    barnabas_remote_orphan_age_ms: int = 900_000
    barnabas_remote_verify_before_delete: bool = True

    remote_log_reader_threads: int = 10
    remote_log_reader_max_pending_tasks: int = 100
    remote_fetch_max_wait_ms: int = 500
    remote_list_offsets_request_timeout_ms: int = 30_000
    remote_log_manager_fetch_max_bytes_per_second: int = _LONG_MAX
    remote_log_manager_fetch_quota_window_num: int = 11
    remote_log_manager_fetch_quota_window_size_seconds: int = 1
    remote_log_index_file_cache_total_size_bytes: int = 1 << 30
    # -1: no limit.
    remote_log_index_file_cache_ttl_ms: int = 900_000
    barnabas_remote_index_memory_max_bytes: int = 32 * _MIB
    barnabas_remote_read_cache_max_bytes: int = 128 * _MIB
    barnabas_remote_read_range_max_bytes: int = 4 * _MIB
    # Number of ranges.
    barnabas_remote_read_ahead: int = 1


def remote_log_config(broker: ParsedConfig, given: Mapping[str, str]) -> RemoteLogConfig:
    """Return the configuration of the remote tier of a broker that enables it.

    Args:
        broker: the broker's configuration. A dynamic change gives a new one.
        given: all properties as text, for the keys of the metadata topic.

    Raises:
        ConfigError: the store is not given, or is not one of those that exist; or a value of the
            metadata topic is not allowed.
    """
    assert broker.boolean(SYSTEM_ENABLE)
    parse_storage_url(broker.string(STORAGE))
    return replace(
        broker.build(RemoteLogConfig), metadata_topic=metadata_topic_config(broker, given)
    )


def check_remote_log_config(
    broker: ParsedConfig, given: Mapping[str, str], listeners: Iterable[str], log_dirs: list[str]
) -> RemoteLogConfig:
    """Return the configuration of the remote tier, checked against the rest of the broker's.

    Args:
        broker: the broker's configuration.
        given: all properties as text.
        listeners: names of the broker's listeners.
        log_dirs: paths of the data directories.

    Raises:
        ConfigError: as `remote_log_config`; or the listener of the metadata does not exist, or the
            store is in a data directory.
    """
    listener = broker.optional_string(METADATA_LISTENER)
    names = list(listeners)
    if listener is not None and listener.upper() not in names:
        raise ConfigError(METADATA_LISTENER, listener, f"one of {', '.join(names)}")
    config = remote_log_config(broker, given)
    store = parse_storage_url(config.barnabas_remote_storage)
    if store.scheme == "file":
        _check_directory(store.location, log_dirs)
    return config


def metadata_topic_config(broker: ParsedConfig, given: Mapping[str, str]) -> MetadataTopicConfig:
    """Return the values of the keys behind the prefix of the metadata manager.

    Raises:
        ConfigError: a value is not allowed; the error names the key with its prefix.
    """
    prefix = broker.string(METADATA_PREFIX)
    own: dict[str, str | None] = {
        name.removeprefix(prefix): text for name, text in given.items() if name.startswith(prefix)
    }
    try:
        return METADATA_TOPIC_KEYS.parse(own).build(MetadataTopicConfig)
    except ConfigError as error:
        raise ConfigError(prefix + error.key, error.value, error.allowed) from error


def parse_storage_url(text: str) -> StorageUrl:
    """Return the store that a value of `barnabas.remote.storage` names.

    Raises:
        ConfigError: it names none, or a kind of store that does not exist.
    """
    if not text:
        words = f"{_ALLOWED}; {SYSTEM_ENABLE}=true needs a store"
        raise ConfigError(STORAGE, text, words)
    scheme, _, rest = text.partition(":")
    if scheme == "python":
        module, colon, factory = rest.partition(":")
        if not (colon and all(part.isidentifier() for part in (*module.split("."), factory))):
            raise ConfigError(STORAGE, text, _ALLOWED)
        return StorageUrl(scheme, rest)
    if scheme in _OBJECT_STORES:
        words = f"{_ALLOWED}; this version has no store for {scheme}:// yet"
        raise ConfigError(STORAGE, text, words)
    if scheme != "file":
        raise ConfigError(STORAGE, text, _ALLOWED)
    # No urlsplit: it raises errors of its own for brackets.
    path = unquote(rest.removeprefix("//"))
    if not (rest.startswith("///") and path.isprintable()) or "?" in rest or "#" in rest:
        words = "file:/// and an absolute path, without a host and parameters"
        raise ConfigError(STORAGE, text, words)
    normal = posixpath.normpath("/" + path.strip("/"))
    if normal == "/":
        raise ConfigError(STORAGE, text, "file:/// and a directory that is not the root")
    return StorageUrl(scheme, normal)


def _check_directory(directory: str, log_dirs: list[str]) -> None:
    """Refuse a store that is one of the data directories, or lies inside of one."""
    for each in log_dirs:
        data = posixpath.normpath(posixpath.abspath(each))
        if posixpath.commonpath([data, directory]) == data:
            words = f"a directory outside of the data directory {data}"
            raise ConfigError(STORAGE, f"file://{directory}", words)
